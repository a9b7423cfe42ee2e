#!/usr/bin/env bash
# What is built for two devices, on a machine with two GPUs and no compiler, from a tree of scripts/dist.sh: the suites first,
# in two groups, then the figures of two devices. Builds nothing; ends within 400 seconds, and ends the daemon it started.
#
#   scripts/two_gpus.sh DIST OUT [FAULT_DIST]    FAULT_DIST: of a build with -DGEMMD_FAULT_KERNEL=ON, for e2e_fault_test
#   GEMMD_DEVICES='cpu:0 cpu:1' scripts/two_gpus.sh DIST OUT    the same on any machine, smaller; its figures mean nothing
#
# Leaves in OUT h200x2.json, whose `figures` have line, name, value, unit, wanted and ok, and a log of each suite. Exit status
# 1 when a suite fails or a product is wrong; a figure that falls short is only shown.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "$1/bin" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
fault=${3:-}
read -r near far <<<"${GEMMD_DEVICES:-cuda:0 cuda:1}"
quick=
[[ $near == cuda:* ]] || quick=quick
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

say() {
  table+=$(printf '%-34s %s' "$1" "$2")$'\n'
  printf '%4d s  %s: %s\n' "$SECONDS" "$1" "$2"
}

# NAME DEVICE SECONDS SHARDS FILTER [FOLDER]: a suite in so many processes at once, in the background; its words to a file.
# Of several devices, with spaces between, the processes have one each by turns.
suite() {
  local name=$1 device=$2 limit=$3 shards=$4 filter=$5 folder=${6:-$bin} tag devices
  tag=$name@${device//[: ]/}
  read -ra devices <<<"$device"
  if [ ! -x "$folder/$name" ]; then
    echo "not in the tree" >"$dir/$tag.words"
    return
  fi
  (
    began=$SECONDS
    pids=()
    for ((shard = 0; shard < shards; ++shard)); do
      GEMMD_TEST_DEVICE=${devices[shard % ${#devices[@]}]} GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout "$limit" stdbuf -oL \
        "$folder/$name" --gtest_filter="$filter" --gtest_output="json:$out/$tag.$shard.json" >"$out/$tag.$shard.log" 2>&1 &
      pids+=($!)
    done
    words=
    for ((shard = 0; shard < shards; ++shard)); do
      wait "${pids[$shard]}"
      code=$?
      [ "$code" -ne 124 ] || words+="out of time in $(grep -F '[ RUN      ]' "$out/$tag.$shard.log" | tail -n 1) "
      [ "$code" -eq 0 ] || words+="exit $code "
    done
    count() { cat "$out/$tag".*.log | grep -E "^\[ +$1 +\] [A-Za-z]" | grep -cF '('; }
    echo "$(count OK) passed, $(cat "$out/$tag".*.log | grep -cE '^\[ +SKIPPED +\] .*\(') skipped, $(count FAILED) failed, $((SECONDS - began)) s ${words:+FAILED: $words}" >"$dir/$tag.words"
    [ -z "$words" ] || grep -hE 'Failure|does not serve' -A 6 "$out/$tag".*.log | tail -n 30 >"$dir/$tag.failed"
  ) &
}

# Waits for the suites under way.
gather() {
  wait
  local file
  for file in "$dir"/*.words; do
    [ -f "$file" ] || continue
    say "$(basename "$file" .words)" "$(cat "$file")"
    if [ -f "${file%.words}.failed" ]; then
      status=1
      cat "${file%.words}.failed"
    fi
    grep -q FAILED: "$file" && status=1
    rm -f "$file"
  done
}

echo "== suites"
gpu_only=
[ -z "$quick" ] || gpu_only=-
# A daemon measures its kernels when it starts, and processes take turns on a GPU: twenty at once had tests take 8 s each.
suite e2e_split_test "$near" 90 4 '*'
suite e2e_two_devices_test "$far" 90 4 '*'
suite e2e_execute_test "$far" 90 1 '*'
suite e2e_queue_test "$far" 90 1 '*'
suite e2e_share_test "$near" 90 2 '-*ACpuDevice*'
suite e2e_armed_test "$far" 90 1 '-ArmedDeathTest.*'
gather
suite e2e_contract_test "$far" 180 4 '*execute*:-*RandomShapes*'
if [ -z "$quick" ]; then
  suite cuda_gpu_test "$near" 90 2 '-*RandomShapes*'
  suite cuda_backend_gpu_test "$near $far" 200 24 "${gpu_only}-*RandomShapes*:*.IsTimedAs*"
  suite e2e_armed_gpu_test "$near" 90 1 '*'
fi
gather
# Holds one clock against another, to a few microseconds: with nobody beside it.
[ -n "$quick" ] || suite cuda_backend_gpu_test "$far" 30 1 '*.IsTimedAs*'
gather

echo "== figures"
cat >"$dir/gemmd.textproto" <<CONFIG
listeners { address: "unix:$dir/gemmd.sock" }
tenants { name: "default" }
devices { name: "$near" $([ -d "$root/deploy/tuning" ] && [ -z "$quick" ] && echo "tuning_table: \"$root/deploy/tuning\"") }
devices { name: "$far" $([ -d "$root/deploy/tuning" ] && [ -z "$quick" ] && echo "tuning_table: \"$root/deploy/tuning\"") }
scheduler { busy_poll_us: 200 }
drain { notice_ms: 100 limit_ms: 10000 }
CONFIG
# Clients that poll their connections, too: a sleeping thread's wake is no part of what two GPUs gain.
polled() { env GEMMD_BUSY_POLL_US=200 LD_PRELOAD="$bin/../lib/libgemmd_grpc_threads.so" timeout "$@"; }
[ -f "$bin/../lib/libgemmd_grpc_threads.so" ] || polled() { timeout "$@"; }
start_daemon() {
  rm -f "$dir/ready"
  "$bin/gemmd" --config "$dir/gemmd.textproto" --ready-file "$dir/ready" 2>"$out/gemmd.log" &
  daemon=$!
  for _ in $(seq 300); do
    [ -f "$dir/ready" ] && return 0
    kill -0 "$daemon" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}
if ! start_daemon; then
  # A table of other kernels or of another GPU is refused: the cost model chooses then.
  tail -n 2 "$out/gemmd.log"
  [ -n "$daemon" ] && kill -KILL "$daemon" 2>/dev/null
  sed -i 's/tuning_table: "[^"]*"//' "$dir/gemmd.textproto"
  start_daemon || { tail -n 20 "$out/gemmd.log"; echo "two_gpus.sh: gemmd does not start"; exit 1; }
fi
left() { echo $((SECONDS < ${1} ? ${1} - SECONDS : 1)); }
# Rates first, as a daemon has them that has just started.
for only in "two devices" "a copy between"; do
  name=devices
  [ "$only" = "two devices" ] || name=device_copy
  polled "$(left 330)" "$bin/gemmd_bench" serving --server "unix:$dir/gemmd.sock" --device "$near" --only "$only" ${quick:+--quick} \
    --out "$out/$name.json" >"$out/$name.log" 2>&1
  [ -s "$out/$name.json" ] || { status=1; say "gemmd_bench $only" "no figures: $(tail -n 1 "$out/$name.log")"; }
done
polled "$(left 365)" "$bin/split_bench" "unix:$dir/gemmd.sock" "$near" "$far" ${quick:+quick} >"$out/split.jsonl" 2>"$out/split.log" ||
  { status=1; say split_bench "exit $?: $(tail -n 1 "$out/split.log")"; }
cat "$out/split.log"
kill -TERM "$daemon"
wait "$daemon" || { status=1; say gemmd "exit $?"; }
daemon=

if [ -n "$fault" ]; then
  echo "== a fault on one"
  suite e2e_fault_test "$near" "$(left 395)" 1 '*' "$(cd "$fault/bin" && pwd)"
  gather
fi

"${GEMMD_PYTHON:-python3}" - "$out" "$near" "$far" <<'PYTHON'
import glob, json, os, subprocess, sys

out, near, far = sys.argv[1:]
figures = []
path = os.path.join(out, "split.jsonl")
if os.path.exists(path):
    figures += [json.loads(line) for line in open(path) if line.startswith("{")]
for name in ("devices", "device_copy"):
    try:
        measured = json.load(open(os.path.join(out, name + ".json")))["figures"]
    except (OSError, ValueError):
        continue
    for key, figure in measured.items():
        wanted = figure["wanted"]
        if key == "device_copy":
            wanted = max(wanted, 350.0)
        value = figure["seen"]
        figures.append({"line": name, "name": key, "value": value, "unit": figure["unit"] or "x", "wanted": wanted,
                        "ok": value is not None and value >= wanted, "detail": figure["detail"] or figure["missing"]})
tests = []
for path in sorted(glob.glob(os.path.join(out, "*@*.json"))):
    try:
        suite = json.load(open(path))
    except ValueError:
        continue
    for group in suite["testsuites"]:
        for test in group["testsuite"]:
            tests.append((os.path.basename(path).split("@")[0], group["name"] + "." + test["name"], test))
lost = [(suite, name) for suite, name, test in tests if test.get("failures")]
ran = [1 for _, _, test in tests if test.get("result") == "COMPLETED"]
figures.append({"line": "suites", "name": "failed", "value": len(lost), "unit": "tests", "wanted": 0, "ok": not lost,
                "detail": {"ran": len(ran), "failed": lost}})
kept = [test for suite, name, test in tests if "SupervisedTheOtherGpuServesThroughout" in name]
if kept:
    ok = kept[0].get("result") == "COMPLETED" and not kept[0].get("failures")
    figures.append({"line": "fault", "name": "supervised_other_gpu_serves_throughout", "value": float(ok), "unit": "passed", "wanted": 1,
                    "ok": ok})
def gpus():
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=10).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []
json.dump({"suite": "two_gpus", "devices": [near, far], "gpus": gpus(), "cores": os.cpu_count(), "figures": figures},
          open(os.path.join(out, "h200x2.json"), "w"), indent=1)
print()
for figure in figures:
    value = "none" if figure["value"] is None else f'{figure["value"]:.3f}'
    print(f'{"ok" if figure["ok"] else "SHORT":6}{figure["line"]:12}{figure["name"]:44}{value:>10} {figure["unit"]:7}'
          f'wanted {figure["wanted"]}')
PYTHON
printf '\n%s' "$table"
exit "$status"
