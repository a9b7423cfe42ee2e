#!/usr/bin/env bash
# Everything that counts about the FP8 kernels, on a machine with a Hopper GPU and no compiler: tunes,
# measures with the table it wrote, then checks. Builds nothing; takes five minutes.
#
#   scripts/measure.sh DIST OUT COMMIT [BENCH]     DIST: the tree of scripts/dist.sh; OUT: a folder for results;
#                                                  BENCH: a gemm_bench built with -DGEMMD_RACECHECK=ON, without
#                                                  which racecheck is left out
#
# Leaves in OUT: table.json (the tuning table), dense.json, model.json, choice.json, checks.log, and a log of each run
# of compute-sanitizer.
set -uo pipefail
bin=$1/bin
out=$2
commit=$3
racecheck_bench=${4:-}
mkdir -p "$out"
status=0

step() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }
keep() { "$@" || { echo "measure.sh: exit $? of: $*"; status=1; }; }

step "tune, in three processes"
earlier=
for round in 1 2 3; do
  table=$out/table.json
  [ "$round" -lt 3 ] && table=$out/table-$round.json
  keep timeout 85 "$bin/gemm_bench" --tune --out "$table" ${earlier:+--tuning "$earlier"} --no-peers \
    --rest-ms 250 --budget-s 70 >"$out/tune-$round.log" 2>&1
  earlier=${earlier:+$earlier,}$table
done
step "measure, chosen by the table"
keep timeout 95 "$bin/gemm_bench" --tuning "$out/table.json" --repeats 64 --bitwise 20 --budget-s 80 \
  --json "$out/dense.json" --commit "$commit" --date "$(date -u +%F)" 2>&1 | tee "$out/dense.log"
step "the table's choice, among all kernels, in a process of its own"
keep timeout 95 "$bin/gemm_bench" --sweep --tuning "$out/table.json" --no-peers --rest-ms 250 --budget-s 80 \
  --json "$out/choice.json" >"$out/choice.log" 2>&1
tail -n 7 "$out/choice.log"
step "the cost model's choice on 100 random shapes"
keep timeout 60 "$bin/gemm_bench" --suite random --count 100 --sweep --no-table --no-peers --repeats 4 --places 4 --budget-s 50 \
  --json "$out/model.json" >"$out/model.log" 2>&1
tail -n 7 "$out/model.log"
step "quantize"
keep timeout 20 "$bin/gemm_bench" --quantize
step "300 random shapes; 60 and the odd ones on every kernel; checked"
{
  keep timeout 45 "$bin/gemm_bench" --suite random --count 300 --check-only
  keep timeout 45 "$bin/gemm_bench" --suite random --count 60 --seed 2 --check-only --sweep
  keep timeout 45 "$bin/gemm_bench" --suite odd --check-only --sweep
} >"$out/checks.log" 2>&1
tail -n 3 "$out/checks.log"
grep -E "shapes: .* ok" "$out/checks.log"
step "compute-sanitizer"
# One config for each tile of D in each family, with and without the copy engine's stores; with it, all of its splits.
kinds=$("$bin/gemm_bench" --list | sed -nE 's/^(sm90_fp8_[a-z]+_(m[0-9]+n[0-9]+)[^_]*).*/\1/p' |
  awk '{ kind = $0; sub(/(k[0-9]+)?s[0-9]+/, "", kind); sub(/[gx].*/, "", kind); if (!seen[kind]++) print }' | paste -sd,)
if command -v compute-sanitizer >/dev/null; then
  sanitize() {
    keep timeout 60 compute-sanitizer --error-exitcode 9 --tool "$1" "$2" --check-only --no-peers --sweep --shapes "$3" --only "$kinds" \
      --timer events >"$out/$1.$3.log" 2>&1
    grep -E '=========|shapes:|hangs|error|measure.sh:' "$out/$1.$3.log" | sed -n '1,16p;$p' | cut -c1-200
  }
  sanitize memcheck "$bin/gemm_bench" 130x320x512
  sanitize memcheck "$bin/gemm_bench" 130x328x2048
  if [ -n "$racecheck_bench" ]; then
    export LD_LIBRARY_PATH=$1/lib  # it was not built for a place beside them
    sanitize racecheck "$racecheck_bench" 130x320x512
    sanitize racecheck "$racecheck_bench" 130x320x2048
  fi
fi
exit $status
