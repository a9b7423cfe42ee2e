#!/usr/bin/env bash
# The stages of `make test`. The main ctest run comes last, so that its closing line closes the log.
#
#   scripts/test.sh all           asan, a short fuzz, tsan, then cuda, or cpu where there is no nvcc
#   scripts/test.sh cpu|cuda|asan|tsan|soak ...
#
# asan is address and undefined-behaviour sanitizers, built by clang with the fuzz targets in it. The tests that call a daemon
# are those of the last stage, with the sanitizer's daemon in the place of their own.
# Tests labelled `long` run in soak alone; those labelled `no_sanitizer` (whole-process figures such
# as memory flatness, or minutes of arithmetic) stay out of asan and tsan.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

stage() { printf '\n== %s: %s (%d s so far)\n' "$1" "$2" "$SECONDS"; }

# ctest over one preset: the preset holds the sanitizer's options and fails when no test is found.
tests() {
  local preset=$1
  shift
  ctest --preset "$preset" -j "$jobs" --no-tests=error "$@"
}

run_cpu() {
  stage cpu "build"
  scripts/venv.sh
  scripts/build.sh cpu
  stage cpu "every test"
  tests cpu -LE long
}

# With CUDA where nvcc is found, as users have it installed; tests labelled gpu skip where there is none.
whole=cpu
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then whole=cuda; fi

run_cuda() {
  if [ "$whole" = cpu ]; then
    stage cuda "left out: no nvcc found"
    return
  fi
  stage cuda "build"
  scripts/venv.sh
  scripts/build.sh cuda
  stage cuda "every test"
  tests cuda -LE long
}

# What handles memory by itself, and what a hostile peer reaches. The tests of gemmctl and of the measuring programs run in
# the preset cpu alone: compiling them with a sanitizer took half of this stage.
asan_tests=(kernels_test shape_trial_test cpu_test contract_cpu_test observe_test share_test engine_test armed_test guard_test
  service_test tune_test listening_test server_test processes_test grpc_threads_test config_test client_armed_test
  client_armed_stream_test client_pieces_test client_session_test client_transfer_test client_security_test
  client_execute_test cli_npy_test cli_safetensors_test hostile_http2_test hostile_descriptors_test hostile_frames_test
  hostile_program_test hostile_quota_test hostile_stalled_reader_test)

run_asan() {
  stage asan "build"
  scripts/build.sh asan gemmd fuzz_targets "${asan_tests[@]}"
  stage asan "tests"
  # The contract's random shapes are minutes of arithmetic under a sanitizer, on paths that its other tests take too; and
  # its two further ways to set the backend up change which kernels run, not what they do to memory.
  tests asan -R "^fuzz\.|^($(IFS='|' && echo "${asan_tests[*]}"))\." -LE 'long|no_sanitizer' \
    -E 'MultipliesRandomShapes|AppliesEveryPair|contract_cpu_test.*/(panels|two_devices)'
  stage asan "build of the tests that call the daemon"
  scripts/venv.sh
  scripts/build.sh "$whole"
  stage asan "tests that call the sanitizer's daemon"
  tests "asan-daemon-$whole" -L e2e -LE 'long|no_sanitizer' -E 'e2e_contract_test'
}

# What has threads and no gRPC: the engine, the conversions, the CPU backend, the share socket. gRPC is not instrumented,
# so what goes through it cannot be judged.
tsan_tests=(cpu_test observe_test share_test engine_test service_test)

run_tsan() {
  stage tsan "build"
  scripts/build.sh tsan "${tsan_tests[@]}"
  stage tsan "tests"
  tests tsan -R "^($(IFS='|' && echo "${tsan_tests[*]}"))\."
}

run_soak() {
  scripts/build.sh cpu
  scripts/build.sh cpu gemmd_installed
  stage soak "the long tests"
  tests cpu -L long
}

for name in "$@"; do
  case "$name" in
    all)
      run_asan
      stage fuzz "each target for 10 s from the committed corpus"
      scripts/fuzz.sh 10
      run_tsan
      "run_$whole"
      ;;
    cpu) run_cpu ;;
    cuda) run_cuda ;;
    asan) run_asan ;;
    tsan) run_tsan ;;
    soak) run_soak ;;
    *)
      echo "test.sh: unknown stage '$name'; use all, cpu, cuda, asan, tsan or soak" >&2
      exit 2
      ;;
  esac
done
