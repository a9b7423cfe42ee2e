#!/usr/bin/env bash
# What `cmake --install` leaves is enough for another project to find, compile and link the C++ client, away from the build
# and the sources.
#
#   consumer.sh BUILD-DIR ADDRESS    beside a daemon: tests/e2e/with_daemon.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1 address=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
for name in bin/gemmd bin/gemmctl bin/gemmd_bench share/man/man1/gemmctl.1 share/man/man1/gemmctl-matmul.1 \
  share/man/man8/gemmd.8 share/man/man5/gemmd.textproto.5 share/bash-completion/completions/gemmctl \
  share/zsh/vendor-completions/_gemmctl share/fish/vendor_completions.d/gemmctl.fish; do
  [ -s "$prefix/$name" ] || { echo "$name is not installed"; exit 1; }
done
# A program that has no page is one that nobody meant to install, and that `gemmd_installed` does not build.
for program in "$prefix"/bin/*; do
  name=$(basename "$program")
  compgen -G "$prefix/share/man/man*/$name.[18]" >/dev/null || { echo "bin/$name has no man page"; exit 1; }
done
if command -v groff >/dev/null; then
  warnings=$(groff -man -Tutf8 -ww -z "$prefix"/share/man/man*/* 2>&1)
  [ -z "$warnings" ] || { echo "groff: $warnings"; exit 1; }
fi
if grep -rIl --exclude-dir=python "$(cd "$here/../.." && pwd)" "$prefix/lib/cmake" "$prefix/include"; then
  echo "the files above name the source tree"
  exit 1
fi
# Installed elsewhere than it was configured for, and moved after that.
mv "$prefix" "$work/moved"
# Also by a caller who looks for leaks of his own.
for flags in "-Wall -Wextra -Wpedantic -Werror" "-fsanitize=address"; do
  cmake -S "$here/consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_CXX_FLAGS="$flags" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
  cmake --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  said=$("$work/build/consumer" "$address") || { echo "the consumer, built with $flags, failed"; exit 1; }
  [ "$said" = "1 6 on cpu:0" ] || { echo "the consumer said: $said"; exit 1; }
done
echo "$said"
