#!/usr/bin/env bash
# Gets hiredis' source, once: hiredis.sh FOLDER
#   FOLDER  becomes FOLDER/hiredis, complete when it is there
# CMake calls it (config/cmake/Hiredis.cmake). Debian 12 has only 0.14, without TLS; 1.3.0 is in the
# source package of Python's hiredis. Two calls at once are safe: the second one waits.
set -euo pipefail

readonly folder=$1
readonly version=3.3.0
readonly sdist=hiredis-$version.tar.gz
readonly sdist_sha256=105596aad9249634361815c574351f1bd50455dc23b537c2940066c4a9dea685

say() { printf 'hiredis: %s\n' "$*"; }
fail() { printf 'hiredis: %s\n' "$*" >&2; exit 1; }

has_sdist() {
  (cd "$1" && sha256sum --check --status <<<"$sdist_sha256  $sdist") 2>/dev/null
}

fetch() {
  local downloads=$1 python=python3
  [ -x "$(dirname "$folder")/venv/bin/python" ] && python=$(dirname "$folder")/venv/bin/python
  mkdir -p "$downloads"
  has_sdist "$downloads" && return
  say "downloading the source package of Python's hiredis $version (87 KiB)"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
    --no-binary hiredis --dest "$downloads" "hiredis==$version" \
    || fail "download failed; give a checkout of hiredis with -DPARKADE_HIREDIS_SOURCE=DIR instead"
  has_sdist "$downloads" || fail "$downloads/$sdist is not the expected file; remove it"
}

mkdir -p "$folder"
exec 9>"$folder.lock"
flock --nonblock 9 || { say "waiting for another download of it"; flock 9; }
[ -d "$folder/hiredis" ] && exit 0
downloads=$(dirname "$folder")/downloads
fetch "$downloads"
rm -rf "$folder/partial"
mkdir "$folder/partial"
tar -C "$folder/partial" --strip-components=3 -xzf "$downloads/$sdist" \
  "hiredis-$version/vendor/hiredis"
mv "$folder/partial" "$folder/hiredis"
