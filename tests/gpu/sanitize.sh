#!/usr/bin/env bash
# sanitize.sh COMPUTE_SANITIZER TOOL PROGRAM: the program's shorter tests under one tool.
set -euo pipefail
readonly sanitizer=$1 tool=$2 program=$3

if ! nvidia-smi -L >/dev/null 2>&1; then
  # As GoogleTest says it, so that one search finds all reasons.
  printf '%s: Skipped\nno CUDA device: nvidia-smi finds none\n' "$0"
  exit 77
fi
exec "$sanitizer" --tool "$tool" --error-exitcode 1 \
  "$program" --gtest_filter='*WhatDoesNotFit*:*WhatTheEngine*:*SideBySide*'
