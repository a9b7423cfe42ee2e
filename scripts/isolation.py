#!/usr/bin/env python3
"""Measures what one tenant notices while another meets its limits: the p99 of its Executes, as a ratio
to its own alone, in turns in the same run. Wants Python with the package gemmd (build/venv has it).

    build/venv/bin/python scripts/isolation.py --gemmd build/cpu/server/gemmd \\
        --gemmd-bench build/cpu/bench/gemmd_bench [--json FILE]

Exit status 1 when a ratio is above 1.3."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

WANTED = 1.3
RATE = 400  # requests a second of the one who is watched
HITS = 50  # a second, of the one who meets its limit

CONFIG = """
listeners {{ address: "unix:{dir}/calm.sock" tenant: "calm" }}
listeners {{ address: "unix:{dir}/hog.sock" tenant: "hog" }}
tenants {{ name: "calm" }}
tenants {{ name: "hog" limits {{
  max_sessions: 8 max_buffers: 8 max_buffer_bytes: 67108864 max_plans: 4 max_streams: 6 max_queued_programs: 1
  max_ops: 16 max_inline_bytes: 65536 max_program_ms: 5 max_queued_device_ms: 1
  window_batches: 16 max_upload_bytes_per_second: 8388608 }} }}
devices {{ name: "cpu:0" threads: 1 memory_bytes: 1073741824 }}
metrics {{ address: "127.0.0.1:0" }}
scheduler {{ lookahead_us: 100 }}
log {{ level: LEVEL_ERROR }}
"""


class Hog:
    """Each method meets one limit once, and goes on as before."""

    def __init__(self, target: str) -> None:
        import gemmd

        self.gemmd = gemmd
        self.client = gemmd.Client(target)
        self.session = self.client.session()
        self.session.__enter__()
        self.small = self.session.create_buffer(shape=(64,), dtype="f32")
        self.fill = gemmd.fill(self.small, 1)
        self.kept: list = []

    def refused(self, reason: str, what, *args, **kwargs) -> None:
        try:
            self.kept.append(what(*args, **kwargs))
        except self.gemmd.ResourceExhausted as error:
            assert error.reason == reason, error
            return
        if len(self.kept) > 64:
            raise RuntimeError(f"64 times without a {reason}")

    def sessions(self) -> None:
        self.refused("SESSION_LIMIT", lambda: self.client.session(hold=False).__enter__())

    def buffers(self) -> None:
        self.refused("BUFFER_LIMIT", self.session.create_buffer, 4096)

    def buffer_bytes(self) -> None:
        self.refused("BUFFER_BYTES_LIMIT", self.session.create_buffer, 1 << 28)

    def plans(self) -> None:
        self.refused("PLAN_LIMIT", lambda: self.session.plan([self.fill]).__enter__())

    def streams(self) -> None:
        self.refused("STREAM_LIMIT", self.session.queue)

    def ops(self) -> None:
        self.refused("OPS_LIMIT", self.session.execute, [self.fill] * 17)

    def inline_bytes(self) -> None:
        import numpy as np

        if not self.kept:
            self.kept.append(self.session.create_buffer(shape=(1 << 15,), dtype="f32"))
        big = self.gemmd.write(self.kept[0], np.zeros(1 << 15, np.float32))
        self.refused("INLINE_LIMIT", self.session.execute, [big])

    def program_time(self) -> None:
        """A product that the cost model puts far above 5 ms."""
        if not self.kept:
            self.kept.append(self.session.create_buffer(shape=(2048, 2048), dtype="f32"))
            self.kept.append(self.session.create_buffer(shape=(2048, 2048), dtype="f32"))
        product = self.gemmd.matmul(self.kept[0], self.kept[0], self.kept[1])
        self.refused("PROGRAM_LIMIT", self.session.execute, [product])

    def queued(self) -> None:
        """Programs and device time, whichever is met first: two at once through a queue, each of some 100 us."""
        if not self.kept:
            self.kept.append(self.session.queue())
            self.a = self.session.create_buffer(shape=(160, 160), dtype="f32")
            self.d = self.session.create_buffer(shape=(160, 160), dtype="f32")
        product = self.gemmd.matmul(self.a, self.a, self.d)
        futures = [self.kept[0].submit([product]) for _ in range(2)]
        for future in futures:
            with contextlib.suppress(self.gemmd.Error):
                future.result()

    def upload_rate(self) -> None:
        import numpy as np

        if not self.kept:
            self.kept.append(self.session.create_buffer(1 << 20))
            self.off = self.client.session(shared_memory="off").__enter__()
            self.kept[0] = self.off.create_buffer(1 << 20)
        self.kept[0].upload(np.zeros(1 << 18, np.int8))


LIMITS = [name for name in vars(Hog) if not name.startswith("_") and name != "refused"]


def hog(target: str, limit: str) -> None:
    """Until killed. SIGUSR1 and SIGUSR2: go on, pause."""
    state = {"on": False}
    signal.signal(signal.SIGUSR1, lambda *_: state.update(on=True))
    signal.signal(signal.SIGUSR2, lambda *_: state.update(on=False))
    one = Hog(target)
    getattr(one, limit)()
    print("ready", flush=True)
    while True:
        begin = time.monotonic()
        if state["on"]:
            getattr(one, limit)()
        time.sleep(max(0.0, 1 / HITS - (time.monotonic() - begin)))


def p99_us(bench: str, target: str, turn_s: float) -> float:
    command = [bench, "load", "--server", target, "--rate", str(RATE), "--duration", f"{turn_s:g}s", "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return float(answer["latency_us"]["p99"])


def refusals(folder: pathlib.Path) -> float:
    """What the hog was refused so far, by the daemon's account."""
    address = (folder / "ready").read_text(encoding="ascii").split("metrics ")[1].strip()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    mine = (line for line in lines if line.startswith("gemmd_tenant_rejected_total{") and 'tenant="hog"' in line)
    return sum(float(line.rsplit(" ", 1)[1]) for line in mine)


def measure(bench: str, folder: pathlib.Path, limit: str, turn_count: int, turn_s: float) -> dict:
    # At the lowest priority: the daemon serves it as before, and its own work, on the cores that everybody here shares, does
    # not count as the daemon's. That it still meets its limit as often is told by the refusals.
    command = ["nice", "-n", "19", sys.executable, __file__, "--hog", f"unix:{folder}/hog.sock", "--limit", limit]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n", limit
        turns: dict[str, list[float]] = {"alone": [], "beside": []}
        refused, beside_s = refusals(folder), 0.0
        for _ in range(turn_count):
            for name, number in (("alone", signal.SIGUSR2), ("beside", signal.SIGUSR1)):
                begin = time.monotonic()
                process.send_signal(number)
                time.sleep(0.2)
                turns[name].append(p99_us(bench, f"unix:{folder}/calm.sock", turn_s))
                beside_s += time.monotonic() - begin if name == "beside" else 0
        assert process.poll() is None, f"{limit}: the hog has ended"
    finally:
        process.kill()
        process.wait()
    alone, beside = (statistics.median(turns[name]) for name in ("alone", "beside"))
    rate = (refusals(folder) - refused) / beside_s
    return {"limit": limit, "alone_p99_us": alone, "beside_p99_us": beside, "ratio": beside / alone,
            "refusals_a_second": rate, "turns": turns}


@contextlib.contextmanager
def serving(gemmd: str):
    """A daemon of its own for each limit: what one hog leaves must not stand in the next one's way."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config").write_text(CONFIG.format(dir=folder), encoding="ascii")
        ready = folder / "ready"
        daemon = subprocess.Popen([gemmd, "--config", str(folder / "config"), "--ready-file", str(ready)])
        try:
            while not ready.exists():
                assert daemon.poll() is None, "gemmd does not start"
                time.sleep(0.05)
            yield folder
        finally:
            daemon.terminate()
            daemon.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gemmd")
    parser.add_argument("--gemmd-bench")
    parser.add_argument("--json")
    parser.add_argument("--only", choices=LIMITS, action="append")
    parser.add_argument("--turns", type=int, default=9, help="alone and beside, of each limit")
    parser.add_argument("--turn-s", type=float, default=3)
    parser.add_argument("--hog", help=argparse.SUPPRESS)
    parser.add_argument("--limit", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hog:
        hog(options.hog, options.limit)
    rows = []
    print(f"{'limit':<14}{'p99 alone':>12}{'beside':>12}{'ratio':>8}{'refusals/s':>12}")
    for limit in options.only or LIMITS:
        with serving(options.gemmd) as folder:
            row = measure(options.gemmd_bench, folder, limit, options.turns, options.turn_s)
        rows.append(row)
        print(f"{limit:<14}{row['alone_p99_us']:>9.0f} us{row['beside_p99_us']:>9.0f} us{row['ratio']:>8.2f}"
              f"{row['refusals_a_second']:>12.1f}",
              flush=True)
    if options.json:
        facts = {"cores": len(os.sched_getaffinity(0)), "rate": RATE, "hits_a_second": HITS, "turn_s": options.turn_s,
                 "limits": rows}
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1) + "\n", encoding="ascii")
    return 0 if all(row["ratio"] <= WANTED for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
