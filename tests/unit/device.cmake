parkade_test(device_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/host_copier_side.cc
    ${CMAKE_CURRENT_LIST_DIR}/host_copy_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/slab_pages_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/stage_copier_test.cc
  DEPENDS parkade_device absl::statusor
  LABELS unit)
if(PARKADE_WITH_CUDA)
  parkade_test(host_cuda_test
    SOURCES
      ${CMAKE_CURRENT_LIST_DIR}/host_cuda_copier_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/host_cuda_kinds.cc
      ${CMAKE_CURRENT_LIST_DIR}/host_cuda_memory_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/stage_copier_test.cc
      ${CMAKE_SOURCE_DIR}/tests/support/cuda_side.cc
      ${CMAKE_SOURCE_DIR}/tests/support/host_cuda.cc
    DEPENDS parkade_device_copier_cuda
    LABELS unit)
endif()
