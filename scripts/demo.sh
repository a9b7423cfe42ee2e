#!/usr/bin/env bash
# What `make demo` shows: a daemon from start to drain, two matrices multiplied from file to file,
# and a small network recognising real handwritten digits through it. Exits non-zero when any step
# fails; ends what it started and leaves nothing behind.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
gemmd=$root/build/cpu/server/gemmd
gemmctl=$root/build/cpu/client/cli/gemmctl
python=$root/build/venv/bin/python
dir=$(mktemp -d)
cd "$dir"
server=unix:gemmd.sock
daemon=

finish() {
  status=$?
  trap - EXIT
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null || true
  fi
  [ "$status" -eq 0 ] || { [ -f log ] && sed 's/^/gemmd: /' log >&2; }
  rm -rf "$dir"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
  local command=("$@")
  command[0]=$(basename "$1")
  printf '$ %s\n' "${command[*]//$root\//}"
  "$@"
}

say "1. A daemon on a Unix socket"
cat >gemmd.textproto <<CONFIG
listeners { address: "unix:$dir/gemmd.sock" }
devices { name: "cpu:0" }
metrics { address: "127.0.0.1:0" }
drain { notice_ms: 200 limit_ms: 20000 }
CONFIG
"$gemmd" --config gemmd.textproto --ready-file ready 2>log &
daemon=$!
# Connects as soon as it listens, and gives up after 20 s.
show "$gemmctl" health --server $server --timeout 20s
show "$gemmctl" info --server $server

say "2. From file to file: A [640, 2048] times B [2048, 1024], in FP8 with block scales"
"$python" - <<'PYTHON'
import numpy as np
random = np.random.default_rng()
np.save("A.npy", random.standard_normal((640, 2048), dtype=np.float32))
np.save("B.npy", random.standard_normal((2048, 1024), dtype=np.float32))
PYTHON
show "$gemmctl" matmul A.npy B.npy -o D.npy --quantize fp8-block --verify \
  --server $server
say "   The same in float32"
show "$gemmctl" matmul A.npy B.npy -o D32.npy --verify --server $server

say "3. Handwritten digits: a two-layer network in FP8 and in float32"
show "$python" "$root/examples/digits/digits.py" --server $server

say "4. What the daemon counted, and what its clients left there: nothing"
"$python" - "$(sed -n 's/^metrics //p' ready)" <<'PYTHON'
import sys
import urllib.request
counters = ("gemmd_ops_total", "gemmd_flops_total", "gemmd_transfer_bytes_total", "gemmd_device_busy_seconds_total")
gauges = ("gemmd_sessions ", "gemmd_buffers{", "gemmd_buffer_bytes{", "gemmd_programs ")
with urllib.request.urlopen(f"http://{sys.argv[1]}/metrics", timeout=10) as reply:
    lines = reply.read().decode().splitlines()
counted = sorted(line for line in lines if line.startswith(counters) and not line.endswith(" 0"))
left = sorted(line for line in lines if line.startswith(gauges))
print("\n".join(counted + left))
sys.exit(0 if counted and all(line.endswith(" 0") for line in left) else 1)
PYTHON

say "5. SIGTERM: readiness off, accepted work answered, exit 0"
kill -TERM "$daemon"
status=0
wait "$daemon" || status=$?
daemon=
grep -E 'drain_begins|drained' log || true
echo "gemmd exited with $status"
exit "$status"
