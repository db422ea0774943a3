# shellcheck shell=bash
# Places and steps that the scripts of this folder share. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
cache=${PARKADE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/parkade}
deps=$cache/deps
venv=$deps/venv
# shellcheck disable=SC2034  # those who source this use venv
readonly root cache deps venv

# A compiler's result is taken from ccache in any clone of the tree.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# need_space DIR MIB: fails in one line when DIR's file system has less than MIB left.
need_space() {
  mkdir -p "$1" 2>/dev/null || fail "$1 cannot be created"
  local free_mib
  free_mib=$(df --output=avail --block-size=1M "$1" | tail -n 1 | tr -d ' ')
  [ "$free_mib" -ge "$2" ] || fail "$1 has $free_mib MiB left and this needs $2 MiB"
}

# Sets `model` to the demo model's path, downloading it the first time.
get_model() {
  model=$cache/models/gemma-3-270m-q4_k_m.gguf
  [ -f "$model" ] && return
  need_space "$cache/models" 800
  python3 "$root/config/model.py" "$cache/models" || exit 1
}

# configure FOLDER [cmake arguments]
configure() {
  local folder=$1
  shift
  cmake --no-warn-unused-cli -S "$root" -B "$folder" -G Ninja -DPARKADE_CACHE_DIR="$cache" "$@" \
    || fail "configuring $folder failed"
}

# build FOLDER: all of it, one compiler a core.
build() {
  cmake --build "$1" --parallel "$(nproc)" || fail "building $1 failed"
}
