#!/usr/bin/env bash
# Runs a command beside a daemon of its own: every @SERVER@ in it becomes the daemon's Unix socket, every @TCP@ its address on
# loopback. Fails when the command does, or when the daemon does not drain to exit 0 afterwards.
#
#   with_daemon.sh build/cpu/server/gemmd pytest --gemmd-server @SERVER@
set -euo pipefail
gemmd=$1
shift
dir=$(mktemp -d)
daemon=
finish() {
  status=$?
  trap - EXIT
  if [ -n "$daemon" ]; then
    kill -KILL "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  [ "$status" -eq 0 ] || sed 's/^/gemmd: /' "$dir/log" >&2
  rm -rf "$dir"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

cat >"$dir/config" <<CONFIG
listeners { address: "unix:$dir/gemmd.sock" }
$([[ $* == *@TCP@* ]] && echo 'listeners { address: "127.0.0.1:0" }')
devices { name: "cpu:0" threads: 2 memory_bytes: 1073741824 }
drain { notice_ms: 50 limit_ms: 20000 }
CONFIG
"$gemmd" --config "$dir/config" --ready-file "$dir/ready" 2>"$dir/log" &
daemon=$!
for _ in $(seq 2400); do
  [ -s "$dir/ready" ] && break
  kill -0 "$daemon" || exit 1
  sleep 0.05
done
tcp=$(grep '^127\.' "$dir/ready" || true)
set -- "${@//@SERVER@/unix:$dir/gemmd.sock}"
"${@//@TCP@/$tcp}"
kill -TERM "$daemon"
status=0
wait "$daemon" || status=$?
daemon=
exit "$status"
