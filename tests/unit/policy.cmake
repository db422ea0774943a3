parkade_test(eviction_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/eviction_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/load_speed_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/prompt_speed_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/thinning_test.cc
  DEPENDS parkade_policy absl::span
  LABELS unit)
