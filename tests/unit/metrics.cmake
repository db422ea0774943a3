parkade_test(metrics_test
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/metrics_test.cc
  DEPENDS parkade_metrics
  LABELS unit)
target_compile_definitions(metrics_test PRIVATE
  PARKADE_CATALOGUE="${CMAKE_SOURCE_DIR}/dashboards/README.md")
