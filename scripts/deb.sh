#!/usr/bin/env bash
# A Debian package of gemmd: daemon with unit, user, folder and config, gemmctl, gemmd_bench, man pages, completions. It
# depends on the libraries of the distribution that it is built on, which brings their security updates.
#
#   scripts/deb.sh [build-dir] [out-dir]    build/cuda where it is built, else build/cpu; build/packages
#   apt install ./build/packages/gemmd_*.deb
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
build=${1:-build/cuda}
if [ $# -eq 0 ] && [ ! -x "$build/server/gemmd" ]; then build=build/cpu; fi
out=${2:-build/packages}
from=packaging/deb

fail() {
  echo "deb.sh: $*" >&2
  exit 1
}

[ -e "$build/pages/written" ] || fail "$build has nothing to install; build it: scripts/build.sh ${build##*/} gemmd_installed"
command -v dpkg-shlibdeps >/dev/null || fail "dpkg-shlibdeps is missing; install dpkg-dev"
version=$(scripts/version.py)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

DESTDIR=$root cmake --install "$build" --prefix /usr --component runtime >/dev/null
strip --strip-all "$root"/usr/bin/*
strip --strip-unneeded "$root"/usr/lib/*.so
# Installed below /usr it finds its libraries where the system has them.
for program in "$root"/usr/bin/*; do
  cmake -DFILE="$program" -P packaging/deb/remove_rpath.cmake
done
install -D -m 644 $from/gemmd.textproto "$root/etc/gemmd/gemmd.textproto"
install -D -m 644 $from/gemmd.service "$root/lib/systemd/system/gemmd.service"
install -D -m 644 $from/gemmd.sysusers "$root/usr/lib/sysusers.d/gemmd.conf"
install -D -m 644 $from/gemmd.tmpfiles "$root/usr/lib/tmpfiles.d/gemmd.conf"
install -D -m 644 $from/copyright "$root/usr/share/doc/gemmd/copyright"
gzip -9n <CHANGELOG.md >"$root/usr/share/doc/gemmd/changelog.gz"
find "$root/usr/share/man" -type f -exec gzip -9n {} +

# What each program is linked with, as packages; it wants to see a source package.
mkdir -p "$work/source/debian"
printf 'Source: gemmd\n\nPackage: gemmd\nArchitecture: any\n' >"$work/source/debian/control"
depends=$(cd "$work/source" && dpkg-shlibdeps -O "$root"/usr/bin/* "$root"/usr/lib/*.so 2>"$work/warnings") || {
  cat "$work/warnings" >&2
  fail "dpkg-shlibdeps failed"
}
depends=${depends#shlibs:Depends=}

mkdir "$root/DEBIAN"
install -m 755 -t "$root/DEBIAN" $from/postinst $from/prerm $from/postrm
echo /etc/gemmd/gemmd.textproto >"$root/DEBIAN/conffiles"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@DEPENDS@/$depends/" \
  -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" $from/control.in >"$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f ! -path ./etc/gemmd/gemmd.textproto -printf '%P\0' | LC_ALL=C sort -z |
  xargs -0 md5sum >DEBIAN/md5sums)
# The same build gives the same package.
find "$root" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-0}" {} +
mkdir -p "$out"
deb=$out/gemmd_${version}_$architecture.deb
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0} dpkg-deb --root-owner-group -Zxz --build "$root" "$deb" >/dev/null
echo "$deb"
