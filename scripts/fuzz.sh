#!/usr/bin/env bash
# Runs every fuzz target for the given seconds, from its committed corpus: under the address sanitizer or, with --threads,
# under the thread sanitizer. New inputs go to build/PRESET/fuzz_found/<target>, findings to build/PRESET/fuzz_artifacts;
# the corpus in git stays as it is.
#
#   scripts/fuzz.sh 600                        every target, preset asan
#   scripts/fuzz.sh 60 fuzz_npy                one
#   scripts/fuzz.sh 600 --threads fuzz_armed   one, preset fuzz-tsan
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
preset=asan
if [ "${1:-}" = --threads ]; then
  preset=fuzz-tsan
  shift
fi
build=build/$preset
targets=("$@")
if [ ${#targets[@]} -gt 0 ]; then scripts/build.sh "$preset" "${targets[@]}"; else scripts/build.sh "$preset" fuzz_targets; fi
[ ${#targets[@]} -gt 0 ] || mapfile -t targets <"$build/tests/fuzz/targets.txt"
[ ${#targets[@]} -gt 0 ] || {
  echo "fuzz: no target" >&2
  exit 1
}
artifacts="$PWD/$build/fuzz_artifacts"
mkdir -p "$artifacts"

fuzz_one() {
  local target=$1 found="$build/fuzz_found/$1" log="$artifacts/$1.log" dict="tests/fuzz/$1.dict"
  mkdir -p "$found"
  local options=(-max_total_time="$seconds" -timeout=60 -rss_limit_mb=3000 -print_final_stats=1
    -artifact_prefix="$artifacts/$target-")
  [ -f "$dict" ] && options+=(-dict="$dict")
  # allocator_may_return_null: what asks for too much gets null and its own error path, as in
  # production under a memory limit.
  if ! ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1 second_deadlock_stack=1" \
    "$build/tests/fuzz/$target" "${options[@]}" "$found" "tests/fuzz/corpus/$target" \
    >"$log" 2>&1; then
    tail -40 "$log"
    echo "fuzz: $target FAILED; the input is in $artifacts"
    return 1
  fi
  # Edges of the code or, under the thread sanitizer, features of the inputs (tests/fuzz/input_features.cc).
  awk -v t="$target" '/number_of_executed_units/ { runs = $2 } { for (i = 1; i < NF; ++i) { if ($i == "cov:") cov = $(i + 1)
    if ($i == "ft:") features = $(i + 1) } } END { printf "%-22s %10d runs, %5d %s, clean\n", t, runs,
    cov ? cov : features, cov ? "edges" : "features" }' "$log"
}
export -f fuzz_one
export build seconds artifacts
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -euo pipefail -c 'fuzz_one {}'
