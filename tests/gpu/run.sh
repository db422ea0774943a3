#!/usr/bin/env bash
# All that needs a card, on a machine with one: builds for that card alone, runs the tests with the
# label `gpu`, measures copies against one large copy, and restarts the real server with its model
# on the card. Under 10 minutes where llama.cpp is built on 16 cores.
#
#   tests/gpu/run.sh             builds first, into build-gpu
#   tests/gpu/run.sh --built     takes what stands in build-gpu, which may have been built elsewhere
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=config/steps.sh
. "$root/config/steps.sh"
readonly folder=$root/build-gpu
failures=()

usage() { fail 'usage: tests/gpu/run.sh [--built]'; }

# step NAME COMMAND...: what fails is told at the end.
step() {
  local name=$1 start=$SECONDS
  shift
  say "--- $name"
  "$@" || failures+=("$name")
  say "$name: $((SECONDS - start)) s"
}

build_all() {
  "$root/config/setup.sh" --tests && get_model || return 1
  command -v nvcc >/dev/null || export PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin"
  local card
  card=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '.')
  configure "$folder" -DPARKADE_SERVER=ON -DPARKADE_TESTS=ON -DPARKADE_CUDA=ON \
    -DPARKADE_LLAMA_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$card-real" \
    -DPARKADE_PYTHON="$venv/bin/python" -DPython3_EXECUTABLE="$venv/bin/python" || return 1
  cmake --build "$folder" --parallel "$(nproc)" --target gpu_test parkade-bench parkade-server \
    parkade_test_models
}

gpu_tests() {
  ctest --test-dir "$folder" --label-regex '^gpu$' --output-on-failure --no-tests=error
}

copies() {
  local directory status=0
  directory=$(mktemp -d) || return 1
  "$folder/bin/parkade-bench" run copy --dir "$directory" || status=$?
  rm -rf "$directory"
  return "$status"
}

# What a chat has is there again after a kill, on the card.
restart() {
  LLAMA_ARG_N_GPU_LAYERS=99 ctest --test-dir "$folder" --tests-regex '^e2e\.restart\.' \
    --output-on-failure --no-tests=error
}

built=no
case "${1:-}" in
  '') ;;
  --built) built=yes ;;
  *) usage ;;
esac
[ $# -le 1 ] || usage
nvidia-smi -L 2>/dev/null || fail "no CUDA device: nvidia-smi finds none"
if [ "$built" = no ]; then
  step build build_all
  [ "${#failures[@]}" = 0 ] || exit 1
fi
step "gpu tests" gpu_tests
step copies copies
step "restart with the model on the card" restart
[ "${#failures[@]}" = 0 ] || fail "failed: ${failures[*]}"
say "all passed in $SECONDS s"
