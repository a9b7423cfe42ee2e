#!/usr/bin/env bash
# What `make test` builds and runs: first all builds, then one ctest run over them, whose closing line counts all tests.
#
#   scripts/test.sh all           asan, tsan, a short fuzz, and cuda-tests, or cpu where there is no nvcc
#   scripts/test.sh cpu|cuda|asan|tsan|soak ...
#
# asan is address and undefined-behaviour sanitizers, built by clang with the fuzz targets in it. The tests that call a daemon
# are those of the last stage, with the sanitizer's daemon in the place of their own.
# Tests labelled `long` run in soak alone; those labelled `no_sanitizer` (whole-process figures such
# as memory flatness, or minutes of arithmetic) stay out of asan and tsan.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
joined=build/joined
listings=()

stage() { printf '\n== %s: %s (%d s so far)\n' "$1" "$2" "$SECONDS"; }

# With CUDA where nvcc is found; tests labelled gpu skip where there is none. The preset `cuda` has the same tests for a
# machine with a GPU.
whole=cpu
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then whole=cuda-tests; fi

# any NAME..: a regular expression for the tests of these binaries, found or not.
any() { echo "^($(IFS='|' && echo "$*"))(\\.|_NOT_BUILT)"; }

# listed NAME PRESET [CTEST FILTERS]: what the run at the end is made of (joined_tests.py).
listed() { listings+=("${*@Q}"); }

# The tests of these see nothing more in a build without sanitizers, so `all` builds and runs them here alone.
mapfile -t asan_only <tests/asan_only.txt
# These hold memory to its limits, or sweep through more cases, where no sanitizer is in their way: they run in both.
asan_too=(contract_cpu_test hostile_frames_test)

build_asan() {
  stage asan "build"
  scripts/build.sh asan gemmd fuzz_targets "${asan_only[@]}" "${asan_too[@]}"
  # The contract's random shapes are minutes of arithmetic under a sanitizer, on paths that its other tests take too; and
  # its two further ways to set the backend up change which kernels run, not what they do to memory.
  listed asan asan -R "^fuzz\.|$(any "${asan_only[@]}" "${asan_too[@]}")" -LE 'long|no_sanitizer' \
    -E 'RandomShapes|AreOfAnySize|AppliesEveryPair|contract_cpu_test.*/(panels|two_devices)'
  listed asan_daemon "asan-daemon-$whole" -L e2e -LE 'long|no_sanitizer'
}

# What has threads and no gRPC: the engine, the conversions, the CPU backend, the share socket. gRPC is not instrumented,
# so what goes through it cannot be judged.
tsan_tests=(cpu_test observe_test share_test engine_test service_test)

build_tsan() {
  stage tsan "build"
  scripts/build.sh tsan "${tsan_tests[@]}"
  listed tsan tsan -R "$(any "${tsan_tests[@]}")"
}

# build_whole PRESET [TARGET]
build_whole() {
  stage "$1" "build"
  scripts/venv.sh
  scripts/build.sh "$@"
}

build_cpu() {
  build_whole cpu
  listed - cpu -LE long
}

build_cuda() {
  if [ "$whole" = cpu ]; then
    stage cuda "left out: no nvcc found"
    return
  fi
  build_whole cuda
  listed - cuda -LE long
}

build_soak() {
  scripts/build.sh cpu
  scripts/build.sh cpu gemmd_installed
  listed - cpu -L long
}

# The label of checks of the sources that need neither a build nor a virtual environment.
static='^static,no_sanitizer$'

# All that CI runs: what asan runs of the preset is not run again, nor built. What needs no build comes first, since it ends
# in seconds what would fail at last.
build_all() {
  stage static "checks of the sources"
  scripts/build.sh --configure "$whole"
  ctest --preset "$whole" -j "$jobs" -L "$static"
  # Beside the first build: it is one process, and waits for the network.
  scripts/venv.sh &
  local venv=$!
  build_asan
  wait "$venv"
  stage fuzz "each target for 5 s from the committed corpus"
  scripts/fuzz.sh 5
  build_tsan
  build_whole "$whole" gemmd_ci
  listed - "$whole" -LE '^e2e$|long' -E "$(any "${asan_only[@]}")"
}

for name in "$@"; do
  case "$name" in
    all) build_all ;;
    cpu) build_cpu ;;
    cuda) build_cuda ;;
    asan)
      build_asan
      build_whole "$whole"
      ;;
    tsan) build_tsan ;;
    soak) build_soak ;;
    *)
      echo "test.sh: unknown stage '$name'; use all, cpu, cuda, asan, tsan or soak" >&2
      exit 2
      ;;
  esac
done

[ ${#listings[@]} -gt 0 ] || exit 0
stage "$*" "every test"
scripts/joined_tests.py "$joined" "${listings[@]}"
# OpenBLAS's threads yield in a loop for 2^26 clocks after each product, on processors that other tests want: 2^14 do.
export OPENBLAS_THREAD_TIMEOUT=14
# Twice as many as cores: most tests wait more than they work.
ctest --test-dir "$joined" -j $((2 * jobs)) --output-on-failure --no-tests=error
