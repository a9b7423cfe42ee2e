#!/usr/bin/env bash
# The steps of the Dockerfile's build stages. They are here, and not in the Dockerfile, so that
# tests/deploy/test_image.py can run them where there is no container engine.
#
#   scripts/container-build.sh packages          what compiling needs, and nothing of apt left over
#   scripts/container-build.sh cpu /opt/gemmd    compiles the preset; leaves there what the image gets
#   scripts/container-build.sh cuda /opt/gemmd   the same with the CUDA backend and its tuning tables
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

compile() {
  local preset=$1 out=$2
  cmake --preset "$preset" -DGEMMD_TESTS=OFF
  cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" --target gemmd gemmctl
  install -D -s -m 755 -t "$out/bin" "build/$preset/server/gemmd" "build/$preset/client/cli/gemmctl"
  if [ "$preset" = cuda ]; then install -D -m 644 -t "$out/share/gemmd/tuning" deploy/tuning/*.json; fi
  # No file says when it was built: the same sources give the same layer.
  find "$out" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-0}" {} +
}

case "${1-}" in
  packages)
    scripts/packages.sh build
    rm -rf /var/lib/apt/lists/*
    ;;
  cpu | cuda) compile "$1" "$2" ;;
  *)
    echo "usage: container-build.sh packages | cpu DIR | cuda DIR" >&2
    exit 2
    ;;
esac
