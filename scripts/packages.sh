#!/usr/bin/env bash
# Installs what is missing of the named groups of packages.txt; without arguments, of all groups.
# Silent and offline when nothing is missing.
#
#   scripts/packages.sh build python
set -euo pipefail
list="$(dirname "$0")/packages.txt"

groups=" ${*:-$(sed -n 's/^\[\(.*\)\]$/\1/p' "$list" | tr '\n' ' ')} "
mapfile -t wanted < <(awk -v groups="$groups" '
  /^#/ || /^$/ { next }
  /^\[/ { taken = index(groups, " " substr($0, 2, length($0) - 2) " "); next }
  taken { print }' "$list")

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "packages: not a Debian or Ubuntu system; gemmd needs the likes of: ${wanted[*]}" >&2
  exit 0
fi

installed="$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/^installed //p' || true)"
mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(sort -u <<<"$installed"))
[ ${#missing[@]} -eq 0 ] && exit 0

echo "packages: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "packages: neither root nor sudo; install these first: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
# Another apt may hold the lock on a fresh machine (unattended upgrades): wait for it.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
"${apt[@]}" update

# Some come as services, wanted here as programs that a test starts: none of them starts now, nor at
# the next boot. One that was installed before is left as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
if [[ " ${missing[*]} " == *" prometheus "* ]] && command -v systemctl >/dev/null; then
  "${as_root[@]}" systemctl disable --quiet prometheus.service >/dev/null 2>&1 || {
    echo "packages: the service prometheus may start at the next boot; disable it if that is not wanted" >&2
  }
fi
