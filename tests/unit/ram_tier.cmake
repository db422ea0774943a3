parkade_test(ram_tier_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/available_memory_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/ram_tier_test.cc
  DEPENDS parkade_tier_ram LABELS unit)
