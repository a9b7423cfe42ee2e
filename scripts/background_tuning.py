#!/usr/bin/env python3
"""Measures on a GPU what `tuning { background: true }` does: for a model that is served, and to its neighbour. Wants Python
with the package gemmd and numpy; starts daemons of its own on Unix sockets.

    scripts/background_tuning.py --bin build/dist/bin [--device cuda:0] [--seconds 60] [--json FILE]

A model of 64 weights, each of another shape, multiplies 16 rows by each of them, then rests as long as that took. Another
tenant asks for a product at a fixed rate. First without background tuning, then with it, then after a restart.
Exit status 1 when a figure is not as wanted."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROWS = 16
SHAPES = [(1024 + 64 * i, 2048 if i % 2 else 3072) for i in range(64)]  # n, k
RATE = 400  # the neighbour's requests a second
TURN_S = 5.0
AFTER_RESTART_S = 3.0

CONFIG = """
listeners {{ address: "unix:{dir}/model.sock" tenant: "model" }}
listeners {{ address: "unix:{dir}/neighbour.sock" tenant: "neighbour" }}
tenants {{ name: "model" }}
tenants {{ name: "neighbour" }}
devices {{ name: "{device}" tuning_file: "{dir}/tuned.json" }}
tuning {{ background: {background} }}
metrics {{ address: "127.0.0.1:0" }}
log {{ level: LEVEL_WARNING }}
"""


class Model:
    """Weights that lie on the device, and two ways to multiply by all of them."""

    def __init__(self, session, rng) -> None:
        import gemmd
        import numpy as np

        by_row, by_tile = gemmd.Granularity.BLOCK_1X128, gemmd.Granularity.BLOCK_128X128
        self.session = session
        self.read = gemmd.read
        most = max(n * k for n, k in SHAPES)
        numbers = session.create_buffer(shape=(most,), dtype="f32")
        numbers.upload(rng.standard_normal(most, dtype=np.float32))
        rows = {}
        for k in sorted({k for _, k in SHAPES}):
            rows[k] = session.operand((ROWS, k), by_row)
            session.execute([gemmd.quantize(numbers[: ROWS * k].reshape(ROWS, k), rows[k])])
        self.results, self.products = [], []
        for n, k in SHAPES:
            weight = session.operand((n, k), by_tile)
            session.execute([gemmd.quantize(numbers[: n * k].reshape(n, k), weight)])
            self.results.append(session.create_buffer(shape=(ROWS, n), dtype="bf16"))
            self.products.append(gemmd.matmul(rows[k], weight, self.results[-1]))
        self.plan = session.plan(self.products, label="model")

    def digest(self) -> str:
        """Of the bits of all results that do not depend on what was measured."""
        bits = hashlib.sha256()
        for product, result in zip(self.products, self.results):
            bits.update(self.session.execute([product, self.read(result)], deterministic=True)[0].tobytes())
        return bits.hexdigest()

    @contextlib.contextmanager
    def served(self):
        stop = threading.Event()
        failure: list[BaseException] = []

        def loop() -> None:
            try:
                while not stop.is_set():
                    began = time.monotonic()
                    self.plan.run()
                    time.sleep(time.monotonic() - began)
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failure:
            raise failure[0]


@contextlib.contextmanager
def daemon(gemmd: pathlib.Path, folder: pathlib.Path, device: str, background: bool):
    text = CONFIG.format(dir=folder, device=device, background="true" if background else "false")
    (folder / "config").write_text(text, encoding="ascii")
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    process = subprocess.Popen([str(gemmd), "--config", str(folder / "config"), "--ready-file", str(ready)])
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise SystemExit(f"background_tuning.py: gemmd ended with {process.returncode} before it served")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(60)


def calls(folder: pathlib.Path) -> dict[str, float]:
    """Matmuls so far, by what chose their kernel."""
    address = (folder / "ready").read_text(encoding="ascii").split("metrics ")[1].split()[0]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    mine = [line for line in lines if line.startswith("gemmd_tuning_calls_total{")]
    if not mine:
        raise SystemExit("background_tuning.py: the device cannot be tuned; name a GPU with --device")
    return {line.split('choice="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in mine}


def measured_share(before: dict[str, float], after: dict[str, float]) -> float:
    grown = {choice: after[choice] - before.get(choice, 0) for choice in after}
    return (grown["tuned"] + grown["table"]) / max(1.0, sum(grown.values()))


def p99_us(bench: pathlib.Path, folder: pathlib.Path, device: str) -> float:
    command = [str(bench), "load", "--server", f"unix:{folder}/neighbour.sock", "--device", device, "--dtype", "bf16",
               "--m", "16", "--n", "512", "--k", "512", "--rate", str(RATE), "--duration", f"{TURN_S:g}s", "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return float(answer["latency_us"]["p99"])


def run(options: argparse.Namespace, folder: pathlib.Path) -> tuple[list[dict], dict]:
    import gemmd
    import numpy as np

    gemmd_program, bench = options.bin / "gemmd", options.bin / "gemmd_bench"

    @contextlib.contextmanager
    def model(background: bool):
        with daemon(gemmd_program, folder, options.device, background):
            with gemmd.Client(f"unix:{folder}/model.sock") as client, client.session(device=options.device) as session:
                yield Model(session, np.random.default_rng(7))

    with model(background=False) as one, one.served():
        without = [p99_us(bench, folder, options.device) for _ in range(3)]
    turns, shares = [], []
    with model(background=True) as one:
        before_bits, last = one.digest(), calls(folder)
        began = time.monotonic()
        with one.served():
            while time.monotonic() - began < options.seconds:
                turns.append(p99_us(bench, folder, options.device))
                now = calls(folder)
                shares.append(round(measured_share(last, now), 4))
                last = now
        after_bits = one.digest()
    with model(background=True) as one:
        last = calls(folder)
        with one.served():
            time.sleep(AFTER_RESTART_S)
        kept = measured_share(last, calls(folder))
        restart_bits = one.digest()
    ratio = statistics.median(turns) / statistics.median(without)
    figures = [
        figure(f"calls on measured kernels after {options.seconds:g} s", shares[-1], "1", ">= 0.9", shares[-1] >= 0.9),
        figure("the same after a restart", kept, "1", ">= 0.9", kept >= 0.9),
        figure("neighbour's p99 over that without background tuning", ratio, "x", "<= 1.1", ratio <= 1.1),
        figure("other bits of deterministic results after tuning", float(before_bits != after_bits), "1", "<= 0",
               before_bits == after_bits),
        figure("other bits of them after a restart", float(before_bits != restart_bits), "1", "<= 0", before_bits == restart_bits),
    ]
    return figures, {"without_p99_us": without, "with_p99_us": turns, "measured_share_by_turn": shares}


def figure(name: str, value: float, unit: str, wanted: str, ok: bool) -> dict:
    return {"name": name, "value": round(value, 4), "unit": unit, "wanted": wanted, "ok": ok}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of gemmd and gemmd_bench")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=60, help="of serving with background tuning")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures, details = run(options, pathlib.Path(name))
    for one in figures:
        print(f"{one['name']}: {one['value']:g} ({one['wanted']}) {'ok' if one['ok'] else 'NO'}")
    print(json.dumps(details))
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, **details}, indent=1) + "\n", encoding="ascii")
    return 0 if all(one["ok"] for one in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
