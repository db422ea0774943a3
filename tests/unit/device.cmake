parkade_test(device_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/host_copy_test.cc
  DEPENDS parkade_device
  LABELS unit)
