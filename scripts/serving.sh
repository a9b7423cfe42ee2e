#!/usr/bin/env bash
# The daemon on a GPU machine without a compiler: starts it from a tree of scripts/dist.sh, checks what it answers, then
# measures what serving costs. Builds nothing; ends within five minutes, and ends the daemon it started.
#
#   scripts/serving.sh DIST OUT [DEVICE]     DIST: the tree; OUT: a folder for results; DEVICE: cuda:0
#   scripts/serving.sh DIST OUT cpu:0 quick  the same on any machine, smaller
#   GEMMD_OTHER_DEVICE=cuda:1 scripts/serving.sh DIST OUT      and what two devices do together
#
# Leaves in OUT: serving.json, soak.json, import.json, python.json, smoke.log, gemmd.log and a log of each end-to-end test. Exit status 1 when a check
# fails; a figure that falls short is only shown. GEMMD_E2E=0 leaves the end-to-end tests out.
# The daemon is configured as by default. With GEMMD_BUSY_POLL_US=200 it, the clients and the echo poll their connections for 200 us
# before they sleep (scheduler.busy_poll_us), and where it may the daemon keeps the processors awake (scheduler.processor_wake_us: 0).
# GEMMD_PYTHON is an interpreter with the package gemmd, for the workers in Python and what that client does (python.json); without
# it their figures are missing. If it has torch too, tensors are handed over by CUDA IPC (import.json).
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "$1/bin" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
device=${3:-cuda:0}
quick=${4:-}
dir=$(mktemp -d)
daemon=
status=0
# For the workers in Python; gemmctl and gemmd_bench have it linked in.
preload=$bin/../lib/libgemmd_grpc_threads.so

finish() {
  code=$?
  trap - EXIT
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then kill -KILL "$daemon"; fi
  rm -rf "$dir"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

step() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }
keep() { "$@" || { echo "serving.sh: exit $? of: $(basename "$1") ${*:2}" >&2; status=1; }; }
run_tool() {
  timeout "${limit:-30}" env ${GEMMD_BUSY_POLL_US:+LD_PRELOAD="$preload"} "$bin/$1" "${@:2}" --server "unix:$dir/gemmd.sock"
}
ctl() { run_tool gemmctl "$@"; }
bench() { run_tool gemmd_bench "$@"; }

# A float32 .npy of random finite values: bytes of 0x3c to 0x3f and 0xbc to 0xbf alone make magnitudes of 2^-7 to 2,
# wherever in a number they stand.
random_npy() {
  local header
  printf -v header "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" "$1" "$2"
  printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$header"
  LC_ALL=C tr -dc '\074-\077\274-\277' </dev/urandom | head -c $(($1 * $2 * 4))
}

config() {
  cat <<CONFIG
listeners { address: "unix:$dir/gemmd.sock" }
listeners { address: "127.0.0.1:0" }
listeners { address: "unix:$dir/small.sock" tenant: "small" }
listeners { address: "unix:$dir/large.sock" tenant: "large" }
tenants { name: "default" }
tenants { name: "small" }
tenants { name: "large" }
$(for name in "$device" ${GEMMD_OTHER_DEVICE:-}; do echo "devices { name: \"$name\" $1 }"; done)
metrics { address: "127.0.0.1:0" }
scheduler {
  busy_poll_us: ${GEMMD_BUSY_POLL_US:-0}
  $([ -w /dev/cpu_dma_latency ] && [ -n "${GEMMD_BUSY_POLL_US:-}" ] && echo "processor_wake_us: 0")
}
drain { notice_ms: 100 limit_ms: 20000 }
CONFIG
}

# Waits until it serves; false when it ends before, or is not there after a minute.
start_daemon() {
  rm -f "$dir/ready"
  config "$1" >"$dir/gemmd.textproto"
  "$bin/gemmd" --config "$dir/gemmd.textproto" --ready-file "$dir/ready" 2>"$out/gemmd.log" &
  daemon=$!
  for _ in $(seq 600); do
    [ -f "$dir/ready" ] && return 0
    kill -0 "$daemon" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

step "start on $device"
table=$root/deploy/tuning
if [[ $device == cuda:* ]] && start_daemon "tuning_table: \"$table\""; then
  echo "kernels chosen by the table of this model in deploy/tuning, if there is one"
else
  # A table of other kernels or of another GPU is refused: the cost model chooses then.
  [[ $device == cuda:* ]] && tail -n 2 "$out/gemmd.log"
  [ -n "$daemon" ] && { kill -KILL "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null; }
  start_daemon "" || { tail -n 20 "$out/gemmd.log"; echo "serving.sh: gemmd does not start"; exit 1; }
  echo "kernels chosen by the cost model"
fi

step "smoke"
random_npy 640 7168 >"$dir/a.npy"
random_npy 7168 1024 >"$dir/b.npy"
{
  keep ctl info
  keep ctl kernels
  keep ctl explain --m 64 --n 4096 --k 7168 --quantize fp8-block --out-dtype bf16
  for quantize in fp8-block none; do
    keep ctl matmul "$dir/a.npy" "$dir/b.npy" -o "$dir/d.npy" --quantize "$quantize" --verify
  done
} >"$out/smoke.log" 2>&1
head -n 12 "$out/smoke.log"
grep -iE 'verif|relative error|serving.sh:' "$out/smoke.log"

step "figures"
limit=150 keep bench serving ${quick:+--quick} --device "$device" --small "unix:$dir/small.sock" \
  --large "unix:$dir/large.sock" --python "${GEMMD_PYTHON:-python3}" --out "$out/serving.json" >"$out/serving.txt"
metrics=$(sed -n 's/^metrics //p' "$dir/ready")
python=${GEMMD_PYTHON:-python3}
if "$python" -c 'import gemmd, torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step "tensors handed over by CUDA IPC"
  keep "$python" "$root/bench/python/imports.py" --server "unix:$dir/gemmd.sock" --device "$device" \
    --metrics "http://$metrics/metrics" >"$out/import.json"
  cat "$out/import.json"
fi
if "$python" -c 'import gemmd' 2>/dev/null; then
  step "the client in Python"
  keep "$python" "$root/bench/python/calls.py" --server "unix:$dir/gemmd.sock" --count 2000 --mib 256 --json >"$out/python.json"
  cat "$out/python.json"
fi
step "mixed ops"
ops=200000
[ -n "$quick" ] && ops=2000
limit=90 bench soak --ops $ops --device "$device" --out "$out/soak.json" >"$out/soak.txt"
code=$?
# The processes of a quick run are too young to be flat.
[ "$code" -eq 0 ] || { [ "$code" -eq 1 ] && [ -n "$quick" ]; } || { echo "serving.sh: exit $code of: gemmd_bench soak"; status=1; }
cat "$out/soak.txt"
step "the daemon after that"
keep ctl info
keep ctl top --once --interval 500ms --metrics "$metrics"

step "end-to-end tests on $device"
run_e2e() {
  [ -x "$bin/$1" ] || return 0
  if GEMMD_TEST_DEVICE=$device timeout "$2" "$bin/$1" --gtest_brief=1 --gtest_filter="$3" >"$out/$1.log" 2>&1; then
    echo "$1: $(tail -n 1 "$out/$1.log")"
  else
    echo "$1: exit $?"
    grep -E 'FAILED|Failure|does not serve' -A 6 "$out/$1.log" | tail -n 30
    status=1
  fi
}
if [ "${GEMMD_E2E:-1}" != 0 ]; then
  run_e2e e2e_execute_test 30 '*'
  run_e2e e2e_queue_test 30 '*'
  run_e2e e2e_contract_test 60 '*execute*:-*RandomShapes*'
fi

step "drain"
kill -TERM "$daemon"
for _ in $(seq 300); do
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
wait "$daemon"
code=$?
daemon=
echo "gemmd exited with $code"
[ "$code" -eq 0 ] || status=1

step "figures of $device"
cut -c1-150 "$out/serving.txt"
exit "$status"
