#!/usr/bin/env bash
# Everything that counts about the FP8 kernels, on a machine with a Hopper GPU and no compiler: tunes,
# measures with the table it wrote, then checks. Builds nothing; takes three to four minutes.
#
#   scripts/measure.sh DIST OUT COMMIT       DIST: the tree of scripts/dist.sh; OUT: a folder for results
#
# Leaves in OUT: table.json (the tuning table), dense.json, model.json, checks.log, memcheck.log, racecheck.log.
set -uo pipefail
bin=$1/bin
out=$2
commit=$3
mkdir -p "$out"
status=0

step() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }
keep() { "$@" || { echo "measure.sh: exit $? of: $*"; status=1; }; }

step "tune, in three processes: each has other memory, by which a kernel's time differs"
earlier=
for round in 1 2 3; do
  table=$out/table.json
  [ "$round" -lt 3 ] && table=$out/table-$round.json
  keep timeout 85 "$bin/gemm_bench" --tune --out "$table" ${earlier:+--tuning "$earlier"} --no-peers --repeats 12 \
    --rest-ms 250 --budget-s 70 >"$out/tune-$round.log" 2>&1
  earlier=${earlier:+$earlier,}$table
done
step "measure, chosen by the table"
keep timeout 95 "$bin/gemm_bench" --tuning "$out/table.json" --repeats 60 --bitwise 20 --budget-s 80 \
  --json "$out/dense.json" --commit "$commit" --date "$(date -u +%F)" 2>&1 | tee "$out/dense.log"
step "the cost model's choice on 100 random shapes"
keep timeout 60 "$bin/gemm_bench" --suite random --count 100 --sweep --no-table --no-peers --repeats 4 --budget-s 50 \
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
kinds=m16n64,m64n64k256s6g2,m128n64s8,m128n112,m128n128s6,m128n144,m128n176,m128n192s4d,m192n96,m192n128s4d,m256n112,m256n128s3d
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    keep timeout 45 compute-sanitizer --tool "$tool" "$bin/gemm_bench" --check-only --no-peers --sweep \
      --shapes 130x320x512 --only "$kinds" --timer events >"$out/$tool.log" 2>&1
    grep -E '=========|shapes:|hangs|error|measure.sh:' "$out/$tool.log" | sed -n '1,16p;$p' | cut -c1-200
  done
fi
exit $status
