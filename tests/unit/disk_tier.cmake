foreach(subject damage faults limits open payload_file rows sealed space steps verify)
  parkade_test(disk_${subject}_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/disk_${subject}_test.cc
    DEPENDS parkade_test_support parkade_test_files parkade_tier_disk
    LABELS unit)
endforeach()

# Damage by name; not repeated under sanitizers, which fuzzing has.
parkade_test(disk_damage_classes_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/disk_byte_classes.cc
    ${CMAKE_CURRENT_LIST_DIR}/disk_damage_classes_test.cc
  DEPENDS parkade_test_support parkade_tier_disk
  LABELS damage)
