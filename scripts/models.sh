#!/usr/bin/env bash
# The suite of public models' layers, on a machine with a Hopper GPU and no compiler, from a tree of scripts/dist.sh. Builds
# nothing; ends the daemon it started. From the environment: COMMIT is recorded; TABLE is the tuning table of the 44 shapes,
# OUT/tuned.json if left out; TOP, so many of the model's first kernels are swept, not the whole pool.
#
#   scripts/models.sh fit DIST OUT [SECONDS]     every kernel's time on shapes of the half for fitting, for
#                                                kernels/bench/fit_model.py; SECONDS of measuring, 150 if left out
#   scripts/models.sh judge DIST OUT [SECONDS]   the other half, 150 s: a daemon tunes COUNT (200) of its shapes and the 44;
#                                                then every kernel's time on these, beside cuBLASLt; the 44; equal bits. For
#                                                scripts/models_report.py
#
# Leaves in OUT: JSON and a log of each step; of judge also tuned.json, what the daemon measured.
set -uo pipefail
what=$1
bin=$(cd "$2/bin" && pwd)
mkdir -p "$3"
out=$(cd "$3" && pwd)
count=${COUNT:-200}
flush_mib=160  # three times the L2 of an H200
dir=$(mktemp -d)
daemon=
status=0

finish() {
  code=$?
  trap - EXIT
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then kill -KILL "$daemon"; fi
  rm -rf "$dir"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

# NAME SECONDS OPTIONS..: one run of the bench, with time on top for its start and its last shape.
bench() {
  local name=$1 budget=$2
  shift 2
  printf '\n== %s, %d s (%d s so far)\n' "$name" "$budget" "$SECONDS"
  timeout $((budget + 20)) "$bin/gemm_bench" "$@" --budget-s "$budget" --no-bf16 --json "$out/$name.json" \
    --commit "${COMMIT:-}" >"$out/$name.log" 2>&1 || { echo "models.sh: exit $? of $name; see $out/$name.log"; status=1; }
  grep -E 'shapes: .* ok' "$out/$name.log" | tail -n 1
  sed -n '/^By rows/,$p' "$out/$name.log"
}

# Kernels are measured in ranges of rows, which differ in how many of them are worth their time.
fit() {
  local seconds=${1:-150} name rows percent top flush
  while read -r name rows percent top flush; do
    bench "$name" $((seconds * percent / 100)) --suite models-fit --count 6000 --sweep --quick --pool-times --repeats 3 \
      --no-table --rows "$rows" --top "$top" --flush-mib "$flush"
  done <<RANGES
one 1-16 12 130 $flush_mib
few 17-64 20 170 $flush_mib
middle 65-512 43 250 $flush_mib
many 513-4096 25 110 512
RANGES
}

start_daemon() {
  cat >"$dir/gemmd.textproto" <<CONFIG
listeners { address: "unix:$dir/gemmd.sock" }
tenants { name: "default" }
devices { name: "cuda:0" tuning_file: "$out/tuned.json" }
drain { notice_ms: 100 limit_ms: 10000 }
CONFIG
  "$bin/gemmd" --config "$dir/gemmd.textproto" --ready-file "$dir/ready" 2>"$out/gemmd.log" &
  daemon=$!
  for _ in $(seq 300); do
    [ -f "$dir/ready" ] && return 0
    kill -0 "$daemon" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

# The shapes as the service tunes them; what is measured when the time is over counts.
tune() {
  printf '\n== tune, %d s (%d s so far)\n' "$1" "$SECONDS"
  start_daemon || { echo "models.sh: the daemon does not serve; see $out/gemmd.log"; status=1; return; }
  grep -c quarantine "$out/gemmd.log" | sed 's/^/lines of the log about quarantined kernels: /'
  timeout -s INT "$1" "$bin/gemmctl" tune --server "unix:$dir/gemmd.sock" --shapes "$shapes" >"$out/tune.txt" 2>&1 ||
    echo "exit $? of gemmctl tune"
  tail -n 3 "$out/tune.txt"
  kill -TERM "$daemon"
  wait "$daemon" || status=1
  daemon=
}

judge() {
  local seconds=${1:-150} shapes
  shapes=$({
    "$bin/gemm_bench" --list-shapes
    "$bin/gemm_bench" --suite models-judge --count "$count" --list-shapes
  } | paste -sd,)
  tune $((seconds * 22 / 100))
  bench judge $((seconds * 62 / 100)) --suite models-judge --count "$count" --sweep --tuning "$out/tuned.json" ${TOP:+--top "$TOP"} \
    --repeats 12 --places 4 --flush-mib "$flush_mib"
  bench dense $((seconds * 11 / 100)) --tuning "${TABLE:-$out/tuned.json}" --repeats 24
  bench bits $((seconds * 5 / 100)) --shapes 200x2048x1536,72x1152x1024,333x1408x2176 --sweep --check-only --bitwise 100 --no-peers
}

case $what in
  fit | judge) "$what" "${@:4}" ;;
  *) echo "models.sh: $what: use fit or judge" >&2; exit 2 ;;
esac
exit $status
