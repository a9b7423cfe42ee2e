#!/usr/bin/env bash
# The suite of public models' layers, on a machine with a Hopper GPU and no compiler. Builds nothing; takes as long as it
# is told.
#
#   scripts/models.sh DIST OUT [SECONDS] [TABLE]   DIST: the tree of scripts/dist.sh; OUT: a folder for results; SECONDS:
#                                                  of all steps together, 480 if left out; TABLE: a tuning table
#
# Leaves in OUT: fit.json (every kernel's time on shapes of the half for fitting), judge.json (a sweep of the other half:
# what the choice and the model miss), peers.json (the chosen kernels of that half beside cuBLASLt), a log of each, and
# summary.txt. COMMIT in the environment is recorded.
set -uo pipefail
bin=$1/bin
out=$2
seconds=${3:-480}
table=${4:-}
mkdir -p "$out"
status=0

# A step gets a share of the time; what starts the process and ends the last shape is on top.
step() {
  local name=$1 percent=$2
  shift 2
  local budget=$((seconds * percent / 100))
  printf '\n== %s, %d s (%d s so far)\n' "$name" "$budget" "$SECONDS"
  timeout $((budget + 45)) "$bin/gemm_bench" "$@" --budget-s "$budget" --no-bf16 --json "$out/$name.json" \
    --commit "${COMMIT:-}" >"$out/$name.log" 2>&1 || { echo "models.sh: exit $? of $name; see $out/$name.log"; status=1; }
  grep -v skipped "$out/$name.log" | tail -n 20
}

step fit 45 --suite models-fit --count 1200 --sweep --pool-times --no-table --no-peers --repeats 8 --places 2
step judge 30 --suite models-judge --count 1200 --sweep ${table:+--tuning "$table"} --no-peers --repeats 12 --places 4
step peers 25 --suite models-judge --count 1200 ${table:+--tuning "$table"} --repeats 16 --places 4
for name in judge peers; do
  printf '\n%s' "$name"
  sed -n '/^By rows/,$p' "$out/$name.log"
done | tee "$out/summary.txt"
exit $status
