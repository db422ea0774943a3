foreach(subject breaker packing values)
  parkade_test(remote_${subject}_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/remote_${subject}_test.cc
    DEPENDS parkade_test_support parkade_tier_remote
    LABELS unit)
endforeach()
parkade_test(remote_tier_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/remote_tier_test.cc
  DEPENDS parkade_test_support parkade_test_remote parkade_tier_remote
  LABELS unit)
