# Real servers for the remote tier, and a way to them that can fail: for tests, and for benchmarks
# where no tests are built.
parkade_library(parkade_test_remote
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/redis_server.cc ${CMAKE_CURRENT_LIST_DIR}/tcp_proxy.cc
  DEPENDS
    parkade_hiredis
    absl::strings
    absl::synchronization
    absl::time
    Threads::Threads)
