# llama.cpp, fetched and built once under the cache directory, and the edits that our hooks need.
#
# Offers:
#   parkade_llama         all to include and link: edited files first, then llama.cpp's libraries
#   parkade_llama_edited  the edited files, compiled here; the libraries themselves are never
#                         changed, so build folders with different edits share them
#   PARKADE_LLAMA_FOLDER  src/ and build/ of llama.cpp
# Needs src/engine/llama/anchors.json and src/engine/llama/hooks/.

option(PARKADE_LLAMA_CUDA "Build llama.cpp for NVIDIA cards" OFF)
set(PARKADE_LLAMA_VERSION 0.3.36)

include(ParkadeCache)

# Whatever changes the libraries' bytes is in the folder's name: version or checkout, compiler,
# processor (llama.cpp is built for the one it finds), back ends.
function(parkade_llama_folder result)
  set(version ${PARKADE_LLAMA_VERSION})
  if(PARKADE_LLAMA_SOURCE)
    execute_process(COMMAND git -C ${PARKADE_LLAMA_SOURCE} describe --always --abbrev=40
      OUTPUT_VARIABLE head ERROR_QUIET)
    execute_process(COMMAND git -C ${PARKADE_LLAMA_SOURCE} diff HEAD
      OUTPUT_VARIABLE changes ERROR_QUIET)
    string(SHA256 checkout "${PARKADE_LLAMA_SOURCE}|${head}|${changes}")
    string(SUBSTRING ${checkout} 0 12 checkout)
    set(version "checkout-${checkout}")
  endif()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpfullversion
    OUTPUT_VARIABLE compiler OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(STRINGS /proc/cpuinfo processor REGEX "^(flags|Features)" LIMIT_COUNT 1)
  string(SHA256 processor "${processor}\n")
  set(back_ends cpu-rpc-noamx)
  if(PARKADE_LLAMA_CUDA)
    set(back_ends cuda-rpc-noamx)
  endif()
  string(SHA256 key "${version}|${compiler}|${processor}  -|${back_ends}")
  string(SUBSTRING ${key} 0 12 key)
  set(${result} "${PARKADE_CACHE_DIR}/deps/llama-${version}-${key}" PARENT_SCOPE)
endfunction()

parkade_llama_folder(PARKADE_LLAMA_FOLDER)
if(PARKADE_LLAMA_CUDA)
  set(parkade_llama_cuda ON)
else()
  set(parkade_llama_cuda OFF)
endif()
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} CXX=${CMAKE_CXX_COMPILER}
    ${CMAKE_SOURCE_DIR}/config/llama_cpp.sh
    ${PARKADE_LLAMA_FOLDER} "${PARKADE_LLAMA_SOURCE}" ${parkade_llama_cuda}
  RESULT_VARIABLE parkade_llama_failed)
if(parkade_llama_failed)
  message(FATAL_ERROR "llama.cpp could not be built; the reason stands above.")
endif()

# llama.cpp's own build knows what its server is compiled with and linked to, whatever the version
# and the back ends: its ninja file is asked, nothing is listed here.
find_program(PARKADE_NINJA ninja REQUIRED)
function(parkade_llama_command output result)
  execute_process(
    COMMAND ${PARKADE_NINJA} -C ${PARKADE_LLAMA_FOLDER}/build -t commands -s ${output}
    OUTPUT_VARIABLE command RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "${output} is not part of llama.cpp's build in ${PARKADE_LLAMA_FOLDER}")
  endif()
  separate_arguments(command UNIX_COMMAND "${command}")
  set(${result} "${command}" PARENT_SCOPE)
endfunction()

parkade_llama_command(
  tools/server/CMakeFiles/llama-server-impl.dir/server.cpp.o parkade_llama_compile)
set(parkade_llama_includes ${parkade_llama_compile})
list(FILTER parkade_llama_includes INCLUDE REGEX "^-I")
list(TRANSFORM parkade_llama_includes REPLACE "^-I" "")
set(parkade_llama_definitions ${parkade_llama_compile})
list(FILTER parkade_llama_definitions INCLUDE REGEX "^-D")
list(TRANSFORM parkade_llama_definitions REPLACE "^-D" "")
list(REMOVE_ITEM parkade_llama_definitions NDEBUG)

parkade_llama_command(bin/llama-server parkade_llama_link)
list(FILTER parkade_llama_link INCLUDE REGEX "\\.(a|so)$|^-l")
list(TRANSFORM parkade_llama_link PREPEND ${PARKADE_LLAMA_FOLDER}/build/ REGEX "^[^/-]")
list(REMOVE_DUPLICATES parkade_llama_link)
set(parkade_llama_archives ${parkade_llama_link})
list(FILTER parkade_llama_archives INCLUDE REGEX "^${PARKADE_LLAMA_FOLDER}/.*\\.a$")
list(REMOVE_ITEM parkade_llama_link ${parkade_llama_archives})
list(JOIN parkade_llama_archives "," parkade_llama_archives)

# The edited copies. A change of the anchors or of the script configures again.
set(PARKADE_LLAMA_ROOM ${CMAKE_SOURCE_DIR}/src/engine/llama)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${PARKADE_LLAMA_ROOM}/anchors.json ${PARKADE_LLAMA_ROOM}/apply_anchors.py)
find_program(PARKADE_PYTHON python3 REQUIRED)
execute_process(
  COMMAND ${PARKADE_PYTHON} ${PARKADE_LLAMA_ROOM}/apply_anchors.py
    --anchors ${PARKADE_LLAMA_ROOM}/anchors.json
    --source ${PARKADE_LLAMA_FOLDER}/src --output ${CMAKE_BINARY_DIR}/llama-edited
  OUTPUT_VARIABLE parkade_llama_edits OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE parkade_llama_failed)
if(parkade_llama_failed)
  message(FATAL_ERROR "llama.cpp could not be edited; the reason stands above.")
endif()
string(REPLACE "\n" ";" parkade_llama_edits "${parkade_llama_edits}")

# An archive that stands before llama.cpp's: its members define all that the unedited ones define,
# so those are never pulled in.
set(parkade_llama_edited_sources ${parkade_llama_edits})
list(TRANSFORM parkade_llama_edited_sources PREPEND ${CMAKE_BINARY_DIR}/llama-edited/)
add_library(parkade_llama_edited STATIC ${parkade_llama_edited_sources})
set_target_properties(parkade_llama_edited PROPERTIES
  CXX_STANDARD 17 CXX_EXTENSIONS ON)
target_compile_options(parkade_llama_edited PRIVATE -O3 -w)
target_compile_definitions(parkade_llama_edited PRIVATE ${parkade_llama_definitions} NDEBUG)
target_include_directories(parkade_llama_edited PRIVATE ${parkade_llama_includes})
foreach(edit ${parkade_llama_edits})
  get_filename_component(edit_folder ${edit} DIRECTORY)
  target_include_directories(parkade_llama_edited PRIVATE
    ${PARKADE_LLAMA_FOLDER}/src/${edit_folder})
endforeach()
target_include_directories(parkade_llama_edited PRIVATE ${PARKADE_LLAMA_ROOM}/hooks)

add_library(parkade_llama INTERFACE)
target_compile_definitions(parkade_llama INTERFACE ${parkade_llama_definitions})
target_include_directories(parkade_llama SYSTEM INTERFACE ${parkade_llama_includes}
  ${PARKADE_LLAMA_FOLDER}/src/src ${PARKADE_LLAMA_FOLDER}/src/ggml/src)
target_link_libraries(parkade_llama INTERFACE parkade_llama_edited
  "$<LINK_GROUP:RESCAN,${parkade_llama_archives}>" ${parkade_llama_link})

file(COPY ${PARKADE_LLAMA_FOLDER}/build/bin/ggml-rpc-server DESTINATION ${CMAKE_BINARY_DIR}/bin)
