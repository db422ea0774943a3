# Whether there is CUDA in this build, and for which cards.
#
# Offers:
#   PARKADE_WITH_CUDA          ON or OFF
#   parkade_cuda_headers       the runtime's headers
#   CUDA::cudart_static        the runtime, which looks for a driver only when it is called
set(PARKADE_CUDA AUTO CACHE STRING
  "Copiers for NVIDIA cards: AUTO (where there is nvcc), ON or OFF")
set_property(CACHE PARKADE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PARKADE_WITH_CUDA OFF)

# The sanitizers know nothing of what a driver does.
if(PARKADE_CUDA STREQUAL "OFF" OR PARKADE_SANITIZE)
  return()
endif()
find_program(PARKADE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin)
if(NOT PARKADE_NVCC)
  if(PARKADE_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA: none, there is no nvcc; -DPARKADE_CUDA=ON asks for it")
    return()
  endif()
  message(FATAL_ERROR "PARKADE_CUDA is ON, and there is no nvcc: install NVIDIA's CUDA Toolkit 13, "
    "or name its folder in CUDA_HOME")
endif()

# All that the toolkit knows: code for each card, and for later ones what the newest is made from.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${PARKADE_NVCC} --list-gpu-arch
    OUTPUT_VARIABLE parkade_architectures OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9]+" parkade_architectures "${parkade_architectures}")
  list(SORT parkade_architectures COMPARE NATURAL)
  list(GET parkade_architectures -1 parkade_newest)
  list(TRANSFORM parkade_architectures APPEND "-real")
  set(CMAKE_CUDA_ARCHITECTURES ${parkade_architectures} ${parkade_newest}-virtual CACHE STRING
    "Cards to build for")
endif()
set(CMAKE_CUDA_COMPILER ${PARKADE_NVCC})
if(PARKADE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PARKADE_CCACHE})
endif()
enable_language(CUDA)
# As far as Debian's CMake knows this compiler; the kernels need no more.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)
add_library(parkade_cuda_headers INTERFACE)
target_include_directories(parkade_cuda_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
set(PARKADE_WITH_CUDA ON)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
