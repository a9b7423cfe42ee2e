#!/usr/bin/env bash
# Configures a preset when that is needed and builds it, or only the targets named after it.
#
#   scripts/build.sh cpu
#   scripts/build.sh tsan kernels_test server_test
#   scripts/build.sh --configure cuda               builds nothing
set -euo pipefail
cd "$(dirname "$0")/.."
build=1
if [ "$1" = --configure ]; then
  build=
  shift
fi
preset=$1
shift
ninja_file="build/$preset/build.ninja"

if [ ! -f "$ninja_file" ] || [ CMakePresets.json -nt "$ninja_file" ]; then
  if [ "$preset" = cpu ]; then
    if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
      echo "gemmd: nvcc found, but the preset 'cpu' leaves it alone; 'cmake --preset cuda' uses it"
    else
      echo "gemmd: no nvcc found, building for the CPU only"
    fi
  fi
  # Several files at once: what most of them parse and instantiate is the same, and half of a cold build's time.
  # `cmake --preset NAME` compiles each by itself, which suits who changes one at a time.
  cmake --preset "$preset" -DCMAKE_UNITY_BUILD=ON >/dev/null
fi
[ -n "$build" ] || exit 0
cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" ${1:+--target "$@"}
