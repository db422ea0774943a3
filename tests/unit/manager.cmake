parkade_library(parkade_manager_rig
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/manager_rig.cc
  DEPENDS parkade_manager parkade_engine_fake parkade_tier_disk parkade_tier_ram
          parkade_test_support GTest::gtest)
parkade_test(manager_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/host_arena_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_accounting_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_boundary_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_cache_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_catalogue_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_collapse_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_eviction_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_explain_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_host_memory_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_identity_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_index_limit_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_lost_park_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_listing_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_memory_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_promotion_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_shared_reads_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_sums_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_thinning_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_threads_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_tiers_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_worth_test.cc
  DEPENDS parkade_manager_rig
  LABELS unit)
# Over the disk tier itself.
parkade_test(manager_disk_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/manager_disk_test.cc
  DEPENDS parkade_manager_rig parkade_test_files
  LABELS unit)

parkade_test(manager_damage_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/disk_byte_classes.cc
    ${CMAKE_CURRENT_LIST_DIR}/manager_damage_test.cc
  DEPENDS parkade_manager_rig
  LABELS damage)
