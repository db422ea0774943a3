parkade_library(parkade_capi_engine
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/capi_engine.cc
  DEPENDS parkade_capi GTest::gtest)
parkade_test(capi_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/capi_arguments_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/capi_header_test.c
    ${CMAKE_CURRENT_LIST_DIR}/capi_sequence_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/capi_test.cc
  DEPENDS parkade_capi_engine
  LABELS unit)
target_compile_definitions(capi_test PRIVATE PARKADE_VERSION="${PROJECT_VERSION}")
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/capi_header_test.c PROPERTIES
  COMPILE_OPTIONS "-std=c11;-pedantic")

parkade_test(capi_remote_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/capi_remote_test.cc
  DEPENDS parkade_capi_engine parkade_test_remote
  LABELS unit)
