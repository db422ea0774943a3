parkade_test(format_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/format_allocation_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_catalogue_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_codec_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_container_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_golden_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_identity_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_image_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_largest_request.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_sealing_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_segment_test.cc
  DEPENDS parkade_format
  LABELS unit)
target_compile_definitions(format_test PRIVATE
  PARKADE_GOLDEN_FOLDER="${CMAKE_SOURCE_DIR}/tests/golden")
