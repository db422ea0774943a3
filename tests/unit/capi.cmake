parkade_library(parkade_capi_engine
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/capi_engine.cc
  DEPENDS parkade_capi GTest::gtest)

# A target of its own: what the others are compiled with is for C++.
add_library(parkade_capi_header OBJECT ${CMAKE_CURRENT_LIST_DIR}/capi_header_test.c)
target_include_directories(parkade_capi_header PRIVATE ${CMAKE_SOURCE_DIR}/include)
target_compile_options(parkade_capi_header PRIVATE -std=c11 -pedantic -Wall -Wextra -Werror)

parkade_test(capi_test
  SOURCES
    $<TARGET_OBJECTS:parkade_capi_header>
    ${CMAKE_CURRENT_LIST_DIR}/capi_arguments_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/capi_sequence_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/capi_test.cc
  DEPENDS parkade_capi_engine
  LABELS unit)
target_compile_definitions(capi_test PRIVATE
  PARKADE_VERSION="${PROJECT_VERSION}" PARKADE_WITH_CUDA=$<BOOL:${PARKADE_WITH_CUDA}>)

parkade_test(capi_remote_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/capi_remote_test.cc
  DEPENDS parkade_capi_engine parkade_test_remote
  LABELS unit)

# Cards' planes over a runtime without a card, which stands before the real one.
if(PARKADE_WITH_CUDA)
  parkade_test(capi_cuda_test
    SOURCES
      ${CMAKE_CURRENT_LIST_DIR}/capi_cuda_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/host_cuda_kinds.cc
      ${CMAKE_SOURCE_DIR}/tests/support/cuda_side.cc
      ${CMAKE_SOURCE_DIR}/tests/support/host_cuda.cc
    DEPENDS parkade_capi_engine
    LABELS unit)
endif()
