find_program(PARKADE_PYTHON python3 REQUIRED)
add_test(NAME apply_anchors
  COMMAND ${PARKADE_PYTHON} ${CMAKE_SOURCE_DIR}/tests/lint/apply_anchors_test.py)
set_tests_properties(apply_anchors PROPERTIES LABELS unit TIMEOUT 60)
