foreach(subject cluster faults moves parts protocol server tls url)
  parkade_test(remote_client_${subject}_test
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/remote_client_${subject}_test.cc
    DEPENDS parkade_test_remote parkade_remote_client
    LABELS unit)
endforeach()
