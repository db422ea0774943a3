foreach(subject breaker values)
  parkade_test(remote_${subject}_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/remote_${subject}_test.cc
    DEPENDS parkade_test_support parkade_tier_remote
    LABELS unit)
endforeach()
