parkade_test(manager_sessions_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/manager_draft_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_sessions_test.cc
  DEPENDS parkade_manager_rig
  LABELS unit)
