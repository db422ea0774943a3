# parkade_library(name SOURCES ... DEPENDS ...): one room, one static library.
# parkade_test(name SOURCES ... DEPENDS ... LABELS ...): one test program, its cases found by CTest.

set(PARKADE_WARNINGS -Wall -Wextra -Werror -Wno-unused-parameter)

function(parkade_options target)
  target_compile_options(${target} PRIVATE ${PARKADE_WARNINGS})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  if(PARKADE_SANITIZE)
    # -O1 takes half the minutes to compile that -O2 takes, and its stacks are easier to read.
    target_compile_options(${target} PUBLIC -fsanitize=${PARKADE_SANITIZE} -fno-omit-frame-pointer
      -O1)
    target_link_options(${target} PUBLIC -fsanitize=${PARKADE_SANITIZE})
    if(PARKADE_SANITIZE STREQUAL "thread")
      target_compile_options(${target} PUBLIC
        -include ${CMAKE_SOURCE_DIR}/tests/support/tsan_mutex.h)
      target_link_options(${target} PUBLIC
        -Wl,--version-script=${CMAKE_SOURCE_DIR}/config/tsan.map)
    endif()
  endif()
endfunction()

function(parkade_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
  parkade_options(${name})
  if(NOT PARKADE_SANITIZE)
    # libparkade.so is made of the same objects; hidden, so that calls among them stay direct.
    set_target_properties(${name} PROPERTIES
      POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  endif()
endfunction()

function(parkade_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  parkade_options(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
