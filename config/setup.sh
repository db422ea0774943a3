#!/usr/bin/env bash
# Installs what is missing of packages.txt; with --tests also packages_tests.txt and the tests'
# Python packages, in a virtual environment under the cache directory. Quiet and quick when all is
# there.
set -euo pipefail
# shellcheck source=config/steps.sh
. "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

readonly python_packages=(gguf==0.17.1 numpy==2.2.6 openai==3.57.0 anthropic==2.14.0 PyYAML==6.0.4
  "grafana-foundation-sdk==1769699379!11.6.0" matplotlib==3.10.8 selenium==4.51.0)

lists=("$root/config/packages.txt")
[ "${1:-}" != --tests ] || lists+=("$root/config/packages_tests.txt")

missing_packages() {
  local wanted
  mapfile -t wanted < <(grep -h -v -e '^#' -e '^$' "${lists[@]}")
  dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null \
    | awk '$1 == "installed" { print $2 }' | sort -u \
    | comm -13 - <(printf '%s\n' "${wanted[@]}" | sort -u)
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  elif [ -t 0 ]; then
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo --non-interactive env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

# Leaves out of `missing` the tests' packages that this distribution doesn't have: those tests are
# skipped.
leave_out_unknown() {
  local package known=()
  for package in "${missing[@]}"; do
    if grep -q -x "$package" "$root/config/packages.txt" \
        || apt-cache show --no-all-versions "$package" >/dev/null 2>&1; then
      known+=("$package")
    else
      say "there is no package $package here; tests that need it are skipped"
    fi
  done
  missing=("${known[@]}")
}

# install PACKAGE...: with the tests' packages no service is started. Debian asks the program
# policy-rc.d for that; one that is there already is left to say what it says.
install() (
  policy=/usr/sbin/policy-rc.d
  if [ "${#lists[@]}" -gt 1 ] && [ ! -e "$policy" ]; then
    trap 'as_root rm -f "$policy"' EXIT
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
  fi
  as_root apt-get install --yes --no-install-recommends "$@" </dev/null 2>&1
)

install_packages() {
  local missing log=$deps/packages.log
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    fail "packages are missing and there is no sudo; as root: apt-get install ${missing[*]}"
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  mkdir -p "$deps"
  as_root apt-get update >"$log" 2>&1 || say "the package lists could not be renewed, see $log"
  leave_out_unknown
  [ "${#missing[@]}" -gt 0 ] || return 0
  install "${missing[@]}" | tee -a "$log" | { grep --line-buffered '^Setting up' || true; } \
    || fail "the packages could not be installed: $(grep -m1 '^E:' "$log" || echo "see $log")"
  # Debian enables them at boot; who had one installed before is not asked here.
  local service
  for service in prometheus redis-server; do
    [[ " ${missing[*]} " != *" $service "* ]] || as_root update-rc.d "$service" disable || true
  done
}

install_venv() {
  local stamp=$venv/parkade-packages
  [ "$(cat "$stamp" 2>/dev/null)" != "${python_packages[*]}" ] || return 0
  say "installing ${python_packages[*]} in $venv"
  python3 -m venv "$venv" || fail "no virtual environment could be made in $venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${python_packages[@]}" \
    || fail "${python_packages[*]} could not be installed in $venv"
  printf '%s' "${python_packages[*]}" >"$stamp"
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  install_packages
else
  say "no Debian or Ubuntu: config/packages.txt says what has to be installed by hand"
fi
[ "${1:-}" != --tests ] || install_venv
