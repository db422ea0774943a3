parkade_test(cli_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/cli_arguments_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/cli_commands_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/cli_http_client_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/cli_lookup_why_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/cli_pages_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/cli_tables_test.cc
  DEPENDS parkade_cli
  LABELS unit)

parkade_test(cli_transfer_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/cli_disk_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/cli_export_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/cli_import_test.cc
  DEPENDS parkade_cli parkade_test_support
  LABELS unit)

parkade_test(cli_moved_chat_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/cli_moved_chat_test.cc
  DEPENDS parkade_cli parkade_manager_rig
  LABELS unit)

# Replaces operator new, so a program of its own.
parkade_test(cli_import_bounds_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/cli_import_bounds_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/format_largest_request.cc
    ${CMAKE_SOURCE_DIR}/tests/fuzz/right_checksums.cc
  DEPENDS parkade_cli
  LABELS unit)
