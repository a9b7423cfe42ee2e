#!/usr/bin/env bash
# What sharing a GPU with gemmd costs in isolation, with MPS and without: another client's fault and death, user ids, memory,
# and CUDA IPC between separate PID and IPC namespaces. Builds nothing: it runs from a tree of scripts/dist.sh. Ends within
# two minutes, and ends the processes it started. Wants root, one GPU, nvidia-cuda-mps-control, and python3 with numpy, grpcio
# and protobuf.
#
#   scripts/sharing.sh DIST OUT
#   ONLY='mps|multiuser' scripts/sharing.sh DIST OUT    of sliced, mps, multiuser
#
# GEMMD_PYTHON: the interpreter (python3). Leaves in OUT: a log of each daemon and of MPS. It shows and judges nothing.
set -uo pipefail
here=$(cd "$(dirname "$0")/sharing" && pwd)
bin=$(cd "$1/bin" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
python=${GEMMD_PYTHON:-python3}
dir=$(mktemp -d)
chmod 755 "$dir"
package=$(cd "$1" && pwd)/python
export PYTHONPATH=$package:$here PYTHONUNBUFFERED=1
# Separate PID, IPC and mount namespaces with a /dev/shm of their own, as two containers have them.
apart=(unshare --pid --ipc --mount --fork --kill-child --mount-proc bash -c 'mount -t tmpfs none /dev/shm; exec "$@"' -)
# The same, and the command is not PID 1, which the other side's is.
apart_later=(unshare --pid --ipc --mount --fork --kill-child --mount-proc
  bash -c 'mount -t tmpfs none /dev/shm; for i in {1..40}; do /bin/true; done; "$@"; exit $?' -)

say() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }
wanted() { [[ $1 =~ ${ONLY:-.} ]]; }

# NAME COMMAND..: gemmd, by what stands in front of it. Serves at unix:$dir/NAME.sock.
serve() {
  local name=$1
  shift
  cat >"$dir/$name.textproto" <<CONFIG
listeners { address: "unix:$dir/$name.sock" unix_mode: 511 }
devices { name: "cuda:0" memory_bytes: 2147483648 skip_self_test: true }
share { socket_path: "$dir/$name.share" }
drain { notice_ms: 50 limit_ms: 2000 }
CONFIG
  "$@" "$bin/gemmd" --config "$dir/$name.textproto" --ready-file "$dir/$name.ready" $supervise 2>"$out/$name.log" &
  last=$!
  echo "$last" >>"$dir/pids"
  for _ in $(seq 200); do
    [ -f "$dir/$name.ready" ] && return 0
    kill -0 "$last" 2>/dev/null || break
    sleep 0.05
  done
  echo "  gemmd does not start:"
  tail -n 5 "$out/$name.log"
  return 1
}
supervise=

# PID: of a daemon or of what stands in front of it.
stop() {
  kill -TERM "$1" 2>/dev/null
  for _ in $(seq 60); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.05
  done
  kill -KILL "$1" 2>/dev/null
}

# NAME ARGUMENTS..: the control daemon, with a pipe directory of its own.
start_mps() {
  export CUDA_MPS_PIPE_DIRECTORY=$dir/$1 CUDA_MPS_LOG_DIRECTORY=$out/$1
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  chmod 777 "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  timeout 20 nvidia-cuda-mps-control -d "${@:2}" || echo "  MPS does not start"
}
stop_mps() {
  echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
  export CUDA_MPS_PIPE_DIRECTORY=$dir/none
}

finish() {
  while read -r pid; do kill -KILL "$pid" 2>/dev/null; done <"$dir/pids"
  for pipes in "$dir/mps" "$dir/multiuser"; do
    [ -e "$pipes/control" ] && export CUDA_MPS_PIPE_DIRECTORY=$pipes && stop_mps
  done
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

client() { timeout -k 1 "${limit:-12}" "$python" "$here/client.py" "$@" 2>&1 | tail -n 1 | sed 's/^/  /'; }
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

# NAME: a caller for 11 s, beside it a client that faults after 2 s and one that is killed in a kernel 5 s later.
watched() {
  supervise=--supervise
  serve "$1" env || return
  supervise=
  timeout 30 "$bin/gemmctl" info --server "unix:$dir/$1.sock" | grep "GPU sharing"
  timeout 30 "$python" "$here/watch.py" "unix:$dir/$1.sock" 11 >"$dir/$1.seen" 2>&1 &
  local caller=$!
  sleep 2
  client fault
  sleep 4
  timeout -s KILL 1.5 "$python" "$here/client.py" spin 20
  wait "$caller"
  cat "$dir/$1.seen"
  grep -E "child_|device_fenced|faulted" "$out/$1.log" | cut -c1-260 | head -n 12
  stop "$last"
}

# NAME: gemmd and a caller in namespaces of their own.
apart_ipc() {
  serve "$1" "${apart[@]}" || return
  timeout -k 1 20 "${apart_later[@]}" "$python" "$here/ipc.py" "unix:$dir/$1.sock" 2>&1 | tail -n 5
  echo "  and where both have the same pid:"
  timeout -k 1 20 "${apart[@]}" "$python" "$here/ipc.py" "unix:$dir/$1.sock" 2>&1 | tail -n 4
  stop "$last"
}

export CUDA_MPS_PIPE_DIRECTORY=$dir/none
nvidia-smi --query-gpu=name,driver_version,compute_mode --format=csv,noheader
echo "kernel $(uname -r), uid $(id -u)"
"${apart[@]}" true || echo "  no namespaces of one's own here"

if wanted sliced; then
  say "time slices: a client's fault and death beside gemmd"
  watched sliced >"$dir/sliced.out" 2>&1 &
  beside=$!
  sliced_ipc=$(apart_ipc sliced-ipc)  # meanwhile: nothing reaches another process there
  wait "$beside"
  cat "$dir/sliced.out"
  say "time slices: CUDA IPC between namespaces"
  echo "$sliced_ipc"
fi
if wanted mps; then
  start_mps mps
  say "MPS outside: CUDA IPC between namespaces"
  apart_ipc mps-ipc
  say "MPS: another user id, and memory"
  serve mps-users env && {
    limit=6 client look
    echo "  as uid 65534 while uid 0 is served:"
    as_nobody timeout -k 1 6 "$python" "$here/client.py" look 2>&1 | tail -n 1
    echo "  with CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G:"
    CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G client memory 2
    client memory 100
    stop "$last"
  }
  say "MPS: a client's fault and death beside gemmd"
  watched mps-gemmd
  stop_mps
fi
if wanted multiuser; then
  say "MPS with -multiuser-server: another user id"
  start_mps multiuser -multiuser-server
  serve multiuser env && {
    timeout 10 "$bin/gemmctl" info --server "unix:$dir/multiuser.sock" | grep "GPU sharing"
    as_nobody timeout -k 1 6 "$python" "$here/client.py" look 2>&1 | tail -n 1
    stop "$last"
  }
  stop_mps
fi
tail -n 12 "$out"/mps/server.log 2>/dev/null | cut -c1-200
say "done"
