parkade_test(server_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/changed_stamp_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/key_file_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/password_file_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/router_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/server_api_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/server_flags_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/server_lookup_line_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/server_slots_api_test.cc
  DEPENDS parkade_server_api
  LABELS unit)
target_compile_definitions(server_test PRIVATE
  PARKADE_EXAMPLE_CONFIG="${CMAKE_SOURCE_DIR}/config/parkade.conf")
