#!/usr/bin/env bash
# Runs one fuzz program over its committed seeds.
#
#     run_fuzz.sh PROGRAM SEEDS [WHY_MISSING]
#
# PARKADE_FUZZ_SECONDS: how long, 30 when not set. PARKADE_FUZZ_CORPUS: a folder in which what was
# found new is kept, for longer runs by hand. An input that breaks something is kept beside the
# program and named in the output; run the program with it to see it again. Exit status 77: skipped.
set -euo pipefail

readonly program=$1 seeds=$2 missing=${3:-}

if [ -n "$missing" ]; then
  printf 'not fuzzed: %s; install the packages of config/packages_tests.txt\n' "$missing"
  [ "${CI:-}" != true ] || exit 1
  exit 77
fi

found=${PARKADE_FUZZ_CORPUS:-}
if [ -z "$found" ]; then
  found=$(mktemp -d)
  trap 'rm -rf "$found"' EXIT
else
  found=$found/$(basename "$seeds")
  mkdir -p "$found"
fi

export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
# 77 is libFuzzer's own status for a failure, too.
options=(-max_total_time="${PARKADE_FUZZ_SECONDS:-30}" -timeout=10 -rss_limit_mb=1024)
options+=(-max_len=16384 -error_exitcode=1 -print_final_stats=1 -artifact_prefix="$program-")
"$program" "${options[@]}" "$found" "$seeds"
