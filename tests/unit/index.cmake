parkade_test(page_index_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/page_index_test.cc
  DEPENDS parkade_index absl::span LABELS unit)
