parkade_test(fake_engine_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fake_engine_test.cc
  DEPENDS parkade_engine_fake LABELS unit)
