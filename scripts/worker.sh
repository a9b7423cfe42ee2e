#!/usr/bin/env bash
# What a worker gains by calling the daemon on its own GPU: examples/mlp by torch, Linear and MLP, time-sliced and under
# MPS, whole blocks of transformers, the tax of a call, graphs, killed clients and a killed daemon. Builds nothing: it
# runs from a tree of scripts/dist.sh. Ends within LIMIT_S seconds (390), whatever hangs, and ends the processes it
# started: the phases stand in the order of what they are worth, and what no time is left for is said and left out.
#
#   scripts/worker.sh DIST OUT                 a GPU with nvidia-cuda-mps-control, and python3 with torch
#   scripts/worker.sh DIST OUT cpu:0 quick     the same on any machine, small
#   ONLY='tax|graph' scripts/worker.sh DIST OUT
#
# GEMMD_PYTHON: the interpreter (python3). GEMMD_PACKAGE: a folder with the package gemmd and its native module (DIST/python).
# Leaves in OUT: h200-worker.json, a log of each phase, gemmd.log. Exit status 1 when a phase fails; a figure that falls
# short is only shown.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "$1/bin" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
device=${3:-cuda:0}
quick=${4:-}
limit_s=${LIMIT_S:-390}
ending_s=10  # to stop the daemon and to write the report
dir=$(mktemp -d)
python=${GEMMD_PYTHON:-python3}
daemon=
mps=
status=0
export PYTHONPATH=${GEMMD_PACKAGE:-$(cd "$1" && pwd)/python}${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export FIGURES=$out/figures.jsonl SERVER=unix:$dir/gemmd.sock DEVICE=$device QUICK=$quick
export MLP=$root/examples/mlp
rm -f "$FIGURES"

stop_daemon() {
  [ -n "$daemon" ] || return 0
  kill -TERM "$daemon" 2>/dev/null
  for _ in $(seq 100); do
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$daemon" 2>/dev/null
  wait "$daemon" 2>/dev/null
  daemon=
}

stop_mps() {
  [ -n "$mps" ] || return 0
  echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1
  mps=
}

finish() {
  code=$?
  trap - EXIT
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then kill -KILL "$daemon"; fi
  stop_mps
  rm -rf "$dir"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

on_gpu() { [[ $device == cuda:* ]]; }
say() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }

# NAME SECONDS COMMAND..: one phase. Its errors are shown in full, and stop no other.
phase() {
  local name=$1 limit=$2 code
  shift 2
  [[ $name =~ ${ONLY:-.} ]] || return 0
  local left=$((limit_s - ending_s - SECONDS))
  if [ "$left" -lt 5 ]; then echo "worker.sh: no time left for $name"; status=1; return; fi
  [ "$limit" -le "$left" ] || limit=$left
  say "$name"
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  if [ "$code" -eq 0 ]; then
    grep -E '^ {2,}|Warning' "$out/$name.log" | cut -c1-220
  else
    status=1
    tail -c 6000 "$out/$name.log"
    echo "worker.sh: $name: exit $code$([ "$code" -eq 124 ] && echo ", out of time")"
    kill -0 "${daemon:-0}" 2>/dev/null || { echo "the daemon has ended:"; tail -n 20 "$out/gemmd.log"; }
  fi
}

config() {
  cat <<CONFIG
listeners { address: "unix:$dir/gemmd.sock" }
listeners { address: "unix:$dir/small.sock" tenant: "small" }
listeners { address: "unix:$dir/large.sock" tenant: "large" }
tenants { name: "default" }
tenants { name: "small" }
tenants { name: "large" }
devices { name: "$device" $1 }
share { socket_path: "$dir/share.sock" }
metrics { address: "127.0.0.1:0" }
session { default_grace_ms: 1000 }
drain { notice_ms: 100 limit_ms: 10000 }
CONFIG
}

start_with() {
  rm -f "$dir/ready"
  config "$1" >"$dir/gemmd.textproto"
  "$bin/gemmd" --config "$dir/gemmd.textproto" --ready-file "$dir/ready" 2>>"$out/gemmd.log" &
  daemon=$!
  for _ in $(seq 600); do
    if [ -f "$dir/ready" ]; then
      METRICS=http://$(sed -n 's/^metrics //p' "$dir/ready")/metrics
      export METRICS DAEMON=$daemon
      return 0
    fi
    kill -0 "$daemon" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

# A table of other kernels or of another GPU is refused: the cost model chooses then.
start_daemon() {
  stop_daemon
  if on_gpu && start_with "tuning_table: \"$root/deploy/tuning\""; then return 0; fi
  stop_daemon
  start_with "" && return 0
  tail -n 20 "$out/gemmd.log"
  echo "worker.sh: gemmd does not start"
  status=1
  return 1
}

: >"$out/gemmd.log"
cd "$root/scripts/worker" || exit 2
"$python" -c 'import gemmd, gemmd.native; print("gemmd", gemmd.__version__, gemmd.native.why_not() or "with its native module")' || exit 2
have_torch=1
"$python" -c 'import torch; print("torch", torch.__version__)' || { have_torch=; echo "no torch: the steps are left out"; }

if on_gpu; then
  export CUDA_MPS_PIPE_DIRECTORY=$dir/mps-pipe CUDA_MPS_LOG_DIRECTORY=$dir/mps-log
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  if timeout 20 nvidia-cuda-mps-control -d; then mps=1; else echo "worker.sh: MPS does not start"; status=1; fi
fi
say "daemon${mps:+, under MPS}"
start_daemon || exit 1
timeout 20 "$bin/gemmctl" info --server "$SERVER" 2>&1 | head -n 12
if [ -n "$have_torch" ]; then
  phase step 45 "$python" step.py figures mps
  LIMIT=35 phase eight 60 "$python" step.py eight
fi
[ -n "$have_torch" ] && phase rows 60 "$python" rows.py
if on_gpu; then
  [ -n "$have_torch" ] && phase blocks 90 "$python" blocks.py
  phase tax 20 "$python" tax.py mps stream
  phase graph 30 "$python" graph.py
  phase syncs 20 "$python" syncs.py
fi
phase host 15 "$python" tax.py mps host
[ -n "$have_torch" ] && phase correct 40 "$python" correct.py
phase deaths 90 "$python" deaths.py
# These start daemons of their own, on the CPU.
phase echo 30 "$python" host.py echo "$bin/armed_bench"
phase tenants 45 "$python" host.py tests "$bin/e2e_armed_test"
phase orphan 25 "$python" orphan.py
stop_daemon  # dead already, unless ONLY left the last phase out
if [ -n "$mps" ]; then tail -n 5 "$dir/mps-log/server.log" >"$out/mps.log" 2>/dev/null; fi
stop_mps

# Time-sliced: no MPS is reachable.
export CUDA_MPS_PIPE_DIRECTORY=$dir/no-mps
if on_gpu && [[ sliced =~ ${ONLY:-.} || ${ONLY:-} == *sliced* ]]; then
  say "daemon, time-sliced"
  if start_daemon; then
    phase sliced-step 40 "$python" step.py figures sliced
    phase sliced-tax 25 "$python" tax.py sliced stream
    phase sliced-host 15 "$python" tax.py sliced host
  fi
  stop_daemon
fi

say "figures"
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || cat "$root/COMMIT" 2>/dev/null || echo unknown)
"$python" report.py "$out/h200-worker.json" "$commit" | tee "$out/worker.txt"
exit "$status"
