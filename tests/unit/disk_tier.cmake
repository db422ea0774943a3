foreach(subject damage faults limits open payload_file rows sealed space steps verify)
  parkade_test(disk_${subject}_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/disk_${subject}_test.cc
    DEPENDS parkade_test_support parkade_test_files parkade_tier_disk
    LABELS unit)
endforeach()
