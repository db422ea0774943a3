#!/usr/bin/env bash
# Installs, builds and serves Parkade. A second run starts in seconds.
set -euo pipefail
# shellcheck source=config/steps.sh
. "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: config/run.sh [--build-only | --demo] [--cuda] [llama-server arguments]
  --build-only  set up and build; start no server
  --demo        read a long document, kill the server, start it again, go on with the conversation
  --cuda        with llama.cpp and the copiers for NVIDIA cards
Without -m (or another argument that names a model) it serves Gemma 3 270M. All other arguments go
to the server: build/bin/parkade-server --help lists them.
END
}

mode=serve cuda=OFF arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --build-only) mode=build ;;
    --demo) mode=demo ;;
    --cuda) cuda=ON ;;
    --help | -h) usage; exit 0 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

# given FLAG...: whether the user gave one of these flags.
given() {
  local flag argument
  for argument in "${arguments[@]}"; do
    for flag in "$@"; do [ "$argument" != "$flag" ] || return 0; done
  done
  return 1
}

# value DEFAULT FLAG...: what the user gave for one of these flags.
value() {
  local result=$1 i flag
  shift
  for ((i = 0; i + 1 < ${#arguments[@]}; i++)); do
    for flag in "$@"; do [ "${arguments[i]}" != "$flag" ] || result=${arguments[i + 1]}; done
  done
  printf '%s' "$result"
}

names_a_model() {
  given -m --model -mu --model-url -hf -hfr --hf-repo -dr --docker-repo --models-dir \
    --models-preset || [ -n "${LLAMA_ARG_MODEL:-}${LLAMA_ARG_MODEL_URL:-}${LLAMA_ARG_HF_REPO:-}" ]
}

check_port() {
  local port
  port=$(value "${LLAMA_ARG_PORT:-8080}" --port)
  [[ $port =~ ^[0-9]+$ ]] || fail "--port takes a number, not '$port'"
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is in use; give another one with --port N"
  fi
}

find_cuda() {
  command -v nvcc >/dev/null || export PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin"
  command -v nvcc >/dev/null || fail "--cuda needs NVIDIA's compiler, and there is no nvcc"
}

build_programs() {
  local folder=$root/build configured
  configured=$(grep -s -c -x -e "PARKADE_LLAMA_CUDA:BOOL=$cuda" -e 'PARKADE_SERVER:BOOL=ON' \
    "$folder/CMakeCache.txt" || true)
  # A folder that test.sh has configured keeps its tests.
  if [ "$configured" != 2 ] || [ ! -e "$folder/build.ninja" ]; then
    need_space "$cache" 2000
    need_space "$folder" 2000
    local copiers=AUTO
    [ "$cuda" = OFF ] || copiers=ON
    configure "$folder" -DPARKADE_SERVER=ON -DPARKADE_TESTS=OFF -DPARKADE_LLAMA_CUDA=$cuda \
      -DPARKADE_CUDA=$copiers
  fi
  build "$folder"
}

serve() {
  local defaults=()
  if ! names_a_model; then
    defaults+=(--model "$model")
    given -c --ctx-size || [ -n "${LLAMA_ARG_CTX_SIZE:-}" ] || defaults+=(--ctx-size 32768)
  fi
  # A router's servers have folders of their own in it, so it is another one.
  local tiers=$cache/tiers
  given --models-dir --models-preset && tiers=$cache/router-tiers
  given --conversation-cache-disk --conversation-cache-config \
    || defaults+=(--conversation-cache-disk "$tiers")
  say "starting on http://$(value 127.0.0.1 --host):$(value "${LLAMA_ARG_PORT:-8080}" --port)"
  # The user's arguments come last: they win.
  exec "$root/build/bin/parkade-server" "${defaults[@]}" "${arguments[@]}"
}

demo() {
  names_a_model || arguments=(--model "$model" "${arguments[@]}")
  exec python3 "$root/config/demo.py" --server "$root/build/bin/parkade-server" \
    --folder "$cache/demo" -- "${arguments[@]}"
}

[ "$mode" != serve ] || check_port
[ "$cuda" = OFF ] || find_cuda
"$root/config/setup.sh"
[ "$mode" = build ] || names_a_model || get_model
build_programs
case $mode in
  serve) serve ;;
  demo) demo ;;
  build) say "programs are in $root/build/bin" ;;
esac
