#!/usr/bin/env bash
# Every test that wants a GPU, on a machine that has one (or two) and no compiler, from a tree of scripts/dist.sh. Builds
# nothing, and ends the daemon it started.
#
#   scripts/gpu_tests.sh DIST OUT [DEVICE]       DIST: the tree; OUT: a folder for results; DEVICE: cuda:0
#   FAULT=build/dist-fault scripts/gpu_tests.sh build/dist out
#                                                and e2e_fault_test, of a build with -DGEMMD_FAULT_KERNEL=ON
#   ONLY='share|memcheck' scripts/gpu_tests.sh build/dist out
#
# Leaves in OUT, for each suite, a log and GoogleTest's JSON; memcheck.log is compute-sanitizer's of a daemon that serves mixed
# ops. What is not in the tree is left out and said so. Exit status 1 when something fails.
set -uo pipefail
bin=$(cd "$1/bin" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
device=${3:-cuda:0}
dir=$(mktemp -d)
daemon=
status=0
table=

finish() {
  code=$?
  trap - EXIT
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then kill -KILL "$daemon"; fi
  rm -rf "$dir"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

wanted() { [[ $1 =~ ${ONLY:-.} ]]; }
say() {
  table+=$(printf '%-24s %4d s  %s' "$1" "$2" "$3")$'\n'
  echo "$1: $3"
}

# NAME SECONDS FILTER [FOLDER]: one suite, and its last words.
suite() {
  local name=$1 limit=$2 filter=$3 folder=${4:-$bin} began=$SECONDS code words
  wanted "$name" || return 0
  if [ ! -x "$folder/$name" ]; then
    say "$name" 0 "not in the tree"
    return
  fi
  # Line by line, so that the log of a suite that ran out of time names the test it was at.
  GEMMD_TEST_DEVICE=$device timeout "$limit" stdbuf -oL "$folder/$name" --gtest_filter="$filter" \
    --gtest_output="json:$out/$name.json" >"$out/$name.log" 2>&1
  code=$?
  words=$(grep -E '^\[  (PASSED|SKIPPED|FAILED) +\] [0-9]+ test' "$out/$name.log" | sed 's/, listed below://' | tr -s ' \n' ' ')
  [ "$code" -ne 124 ] || words="out of time in $(grep -F '[ RUN      ]' "$out/$name.log" | tail -n 1)"
  [ "$code" -eq 0 ] || { status=1; words="exit $code: $words"; grep -E 'Failure|does not serve' -A 6 "$out/$name.log" | tail -n 30; }
  say "$name" $((SECONDS - began)) "$words"
}

# A daemon under memcheck: its kernels' self-tests, a matmul that is verified, mixed ops, a drain.
memcheck() {
  local began=$SECONDS words
  wanted memcheck || return 0
  command -v compute-sanitizer >/dev/null || { say memcheck 0 "no compute-sanitizer here"; return; }
  cat >"$dir/gemmd.textproto" <<CONFIG
listeners { address: "unix:$dir/gemmd.sock" }
tenants { name: "default" }
devices { name: "$device" }
drain { notice_ms: 100 limit_ms: 20000 }
CONFIG
  compute-sanitizer --error-exitcode 9 --tool memcheck "$bin/gemmd" --config "$dir/gemmd.textproto" \
    --ready-file "$dir/ready" >"$out/memcheck.log" 2>&1 &
  daemon=$!
  for _ in $(seq 900); do
    [ -f "$dir/ready" ] || ! kill -0 "$daemon" 2>/dev/null && break
    sleep 0.1
  done
  # Under the tool the device's memory grows, which the soak finds: its status says nothing here.
  timeout 60 "$bin/gemmd_bench" soak --ops 300 --device "$device" --server "unix:$dir/gemmd.sock" \
    >"$out/memcheck.soak.txt" 2>&1
  timeout 30 "$bin/gemmd_bench" load --mode inline --m 64 --n 4096 --k 7168 --quantize fp8-block --out-dtype bf16 \
    --requests 5 --device "$device" --server "unix:$dir/gemmd.sock" >>"$out/memcheck.soak.txt" 2>&1 || status=1
  # The daemon, and not the tool around it, whose command line has the daemon's in it.
  for pid in $(pgrep -f "gemmd --config $dir/"); do
    [ "$(readlink "/proc/$pid/exe")" = "$bin/gemmd" ] && kill -TERM "$pid"
  done
  wait "$daemon" || status=1
  daemon=
  words=$(grep -E 'ERROR SUMMARY|does not serve|Error' "$out/memcheck.log" | tail -n 3 | tr '\n' ' ')
  [[ $words == *'ERROR SUMMARY: 0 errors'* ]] || status=1
  say memcheck $((SECONDS - began)) "${words:-no summary}"
}

suite cuda_gpu_test 150 '*'
suite cuda_backend_gpu_test 200 '*'
suite cuda_gate_gpu_test 100 '*'
suite e2e_execute_test 30 '*'
suite e2e_queue_test 30 '*'
suite e2e_share_test 60 '-*ACpuDevice*'
suite e2e_contract_test 300 '-*RandomShapes*'
suite e2e_armed_test 60 '*'
suite e2e_armed_gpu_test 60 '*'
suite e2e_two_devices_test 60 '*'
suite e2e_split_test 60 '*'
if [ -n "${FAULT:-}" ]; then suite e2e_fault_test 60 '*' "$(cd "$FAULT/bin" && pwd)"; fi
memcheck
printf '\n%s' "$table"
exit "$status"
