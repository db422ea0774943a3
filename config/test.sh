#!/usr/bin/env bash
# Sets up, builds and runs all tests, then the library's again under sanitizers.
set -euo pipefail
# shellcheck source=config/steps.sh
. "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

fast=no
case "${1:-}" in
  '') ;;
  --fast) fast=yes ;;
  *) printf 'usage: config/test.sh [--fast]\n' >&2; exit 2 ;;
esac

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$root/config/tsan.supp

passed=0 failed=0 skipped=0 times=() failures=()

# part NAME COMMAND...: runs it and notes its time; a failure is noted and answered, not fatal.
part() {
  local name=$1 start=$SECONDS status=0
  shift
  say "--- $name"
  ("$@") || status=$?
  times+=("$(printf '%6.1f min  %s' "$(minutes $((SECONDS - start)))" "$name")")
  [ "$status" = 0 ] || failures+=("$name")
  return "$status"
}

minutes() { awk -v s="$1" 'BEGIN { printf "%.1f", s / 60 }'; }

# Failures in full, the passed ones one in fifty, without dots and the bytes of parameters.
shorten() {
  awk '/ Start +[0-9]+: / { next } / Passed / && n++ % 50 { next }
    {
      gsub(/ *# GetParam\(\) = [0-9]+-byte object <[^>]*>/, "")
      gsub(/ ?\.\.\.\.+/, " ")
      print
      fflush()
    }'
}

# run_tests FOLDER [ctest arguments]: no test at all is a failure.
run_tests() {
  local folder=$1
  shift
  ctest --test-dir "$folder" --output-on-failure --no-tests=error --parallel "$(nproc)" \
    --output-log "$folder/ctest.log" "$@" </dev/null | shorten
}

# count FOLDER: adds the last run's numbers to the sums.
count() {
  local line
  line=$(grep -s -E 'tests failed out of [0-9]+' "$1/ctest.log") || return 0
  [[ $line =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]] || return 0
  local without
  without=$(grep -c -E '^[[:space:]]*[0-9]+ - .* \(Skipped\)$' "$1/ctest.log" || true)
  failed=$((failed + BASH_REMATCH[1]))
  skipped=$((skipped + without))
  passed=$((passed + BASH_REMATCH[2] - BASH_REMATCH[1] - without))
}

# Why tests were skipped, each reason once.
reasons() {
  cat "$root"/build*/Testing/Temporary/LastTest.log 2>/dev/null |
    awk 'told { print; told = 0 } /: Skipped$/ { told = 1 }' | sort | uniq -c
}

# build_and_test NAME FOLDER CMAKE_ARGUMENTS... -- CTEST_ARGUMENTS...
build_and_test() {
  local name=$1 folder=$root/$2 options=()
  shift 2
  # The tests write models: their Python is the one that has the packages for it.
  options+=(-DPARKADE_TESTS=ON)
  options+=(-DPARKADE_PYTHON="$venv/bin/python" -DPython3_EXECUTABLE="$venv/bin/python")
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  rm -f "$folder/ctest.log"
  part "configure, $name" configure "$folder" "${options[@]}" || return 0
  part "build, $name" build "$folder" || return 0
  part "tests, $name" run_tests "$folder" "$@" || true
  count "$folder"
}

summary() {
  say "--- summary"
  printf '%s\n' "${times[@]}"
  printf '%6.1f min  in all\n' "$(minutes $SECONDS)"
  [ "${#failures[@]}" = 0 ] || printf 'FAILED: %s\n' "${failures[@]}"
  if [ "$skipped" -gt 0 ]; then
    printf '%d skipped:\n' "$skipped"
    reasons
  fi
  grep -s -q -x 'PARKADE_NVCC:FILEPATH=PARKADE_NVCC-NOTFOUND' "$root/build/CMakeCache.txt" &&
    printf 'not built: the copiers for NVIDIA cards, as there is no nvcc\n'
  printf '%d passed, %d failed\n' "$passed" "$failed"
}

set_up() {
  need_space "$cache" 2000
  need_space "$root" 6000
  "$root/config/setup.sh" --tests && get_model
}

# Some kernels place memory where ThreadSanitizer can't: unrandomised addresses work on all.
if [ "${PARKADE_SAME_ADDRESSES:-}" = '' ] && setarch -R true 2>/dev/null; then
  export PARKADE_SAME_ADDRESSES=1
  exec setarch -R "${BASH_SOURCE[0]}" "$@"
fi

if part "set-up" set_up; then
  get_model
  export PARKADE_MODEL=$model
  only=()
  [ "$fast" = no ] || only=(--label-regex '^(unit|lint|conformance)$' --label-exclude '^slow$')
  build_and_test server build -DPARKADE_SERVER=ON -DPARKADE_CUDA="${PARKADE_CUDA:-AUTO}" \
    -- "${only[@]}"
  if [ "$fast" = no ]; then
    library=(--label-regex '^(unit|conformance|model|crash)$' --label-exclude '^slow$')
    build_and_test "address and undefined" build-asan -DPARKADE_SERVER=OFF \
      -DPARKADE_SANITIZE=address,undefined -- "${library[@]}"
    build_and_test thread build-tsan -DPARKADE_SERVER=OFF \
      -DPARKADE_SANITIZE=thread -- "${library[@]}"
  fi
fi
summary
[ "${#failures[@]}" = 0 ] && [ "$passed" -gt 0 ]
