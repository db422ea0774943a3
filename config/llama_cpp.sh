#!/usr/bin/env bash
# Gets llama.cpp and builds its static libraries, once: llama_cpp.sh FOLDER SOURCE CUDA
#   FOLDER  becomes FOLDER/src and FOLDER/build; FOLDER/ready says that both are complete
#   SOURCE  a llama.cpp checkout; empty: the one in the source package of llama-cpp-python
#   CUDA    ON or OFF
# CMake calls it (config/cmake/LlamaCpp.cmake). Two calls at once are safe: the second one waits.
set -euo pipefail

readonly folder=$1 source=$2 cuda=$3
readonly version=0.3.36
readonly sdist=llama_cpp_python-$version.tar.gz
readonly sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
# llama-server, unedited, is what the benchmarks compare with.
readonly targets=(llama-server-impl llama-server ggml-rpc-server)

say() { printf 'llama.cpp: %s\n' "$*"; }
fail() { printf 'llama.cpp: %s\n' "$*" >&2; exit 1; }
fail_with() {
  grep -i -A 8 -m 3 -e 'error' -e '^FAILED' "$2" >&2 || true
  fail "$1 failed, see $2"
}

has_sdist() {
  (cd "$1" && sha256sum --check --status <<<"$sdist_sha256  $sdist") 2>/dev/null
}

fetch() {
  local downloads=$1 python=python3
  [ -x "$(dirname "$folder")/venv/bin/python" ] && python=$(dirname "$folder")/venv/bin/python
  mkdir -p "$downloads"
  has_sdist "$downloads" && return
  say "downloading the source package of llama-cpp-python $version (73 MiB)"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
    --no-binary llama-cpp-python --dest "$downloads" "llama-cpp-python==$version" \
    || fail "download failed; give a checkout with -DPARKADE_LLAMA_SOURCE=DIR instead"
  has_sdist "$downloads" || fail "$downloads/$sdist is not the expected file; remove it"
}

copy_source() {
  local partial=$folder/src.partial
  rm -rf "$partial"
  mkdir -p "$partial"
  if [ -n "$source" ]; then
    [ -f "$source/tools/server/server-context.cpp" ] || fail "no llama.cpp in $source"
    tar -C "$source" --exclude-vcs --exclude=./build -cf - . | tar -C "$partial" -xf -
  else
    fetch "$(dirname "$folder")/downloads"
    tar -C "$partial" --strip-components=3 -xzf "$(dirname "$folder")/downloads/$sdist" \
      "llama_cpp_python-$version/vendor/llama.cpp"
  fi
  mv "$partial" "$folder/src"
}

# Ninja's progress: one line that changes on a terminal, one line in twenty elsewhere.
progress() {
  local every=20 end='\n'
  [ -t 1 ] && every=1 end='\r'
  awk -v every="$every" -v end="$end" '
    match($0, /^\[[0-9]+\/[0-9]+\]/) && n++ % every == 0 {
      printf "llama.cpp: %s%s", substr($0, 1, RLENGTH), end; fflush() }'
}

# Its kernels for AMX write past their results and end the process (Gemma 3 270M, a plain
# llama-server): on x86 it is built without, other kernels serve.
without_amx() {
  "${CXX:-c++}" -mno-amx-int8 -fsyntax-only -x c++ - </dev/null 2>/dev/null || return 0
  printf '%s\n' -DCMAKE_C_FLAGS=-mno-amx-int8 -DCMAKE_CXX_FLAGS=-mno-amx-int8
}

build() {
  local start=$SECONDS kernels
  mapfile -t kernels < <(without_amx)
  cmake -S "$folder/src" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DGGML_RPC=ON -DGGML_CUDA="$cuda" -DGGML_CCACHE=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TOOLS=ON "${kernels[@]}" \
    >"$folder/configure.log" 2>&1 || fail_with "configuring" "$folder/configure.log"
  say "building in $folder/build (about 6 minutes on 2 cores, once)"
  cmake --build "$folder/build" --parallel "$(nproc)" --target "${targets[@]}" 2>&1 \
    | tee "$folder/build.log" | progress \
    || fail_with "building" "$folder/build.log"
  say "built in $((SECONDS - start)) s"
}

mkdir -p "$folder"
exec 9>"$folder.lock"
flock --nonblock 9 || { say "waiting for another build of it"; flock 9; }
[ -e "$folder/ready" ] && exit 0
[ -d "$folder/src" ] || copy_source
build
touch "$folder/ready"
