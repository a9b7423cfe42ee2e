"""What a step of four MLP layers takes a worker: torch by itself, and gemmd's Linear and MLP.

    python3 mlp.py --mode torch
    python3 mlp.py --mode MLP
    python3 mlp.py --mode MLP --workers 8     all together, on one copy of the weights

Prints a line for people, or with --json one object: p50_us and p99_us of a step, from its first
launch to its synchronised result, and with --workers the steps a second of all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import subprocess
import sys
import time
from typing import Any

import torch

import gemmd
import layers as example


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mlp.py", description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["torch", "Linear", "MLP"], required=True)
    parser.add_argument(
        "--server", help="of gemmd's modes; default: GEMMD_SERVER, or a gemmd of this machine"
    )
    parser.add_argument("--device", default="cuda", help='of the tensors: "cuda", "cpu"')
    parser.add_argument("--server-device", default="", help='of the weights: "cuda:0"')
    parser.add_argument("--steps", type=int, default=500, help="that are timed one by one")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of steps by all workers")
    parser.add_argument("--graph", action="store_true", help="steps are replays of a CUDA graph")
    parser.add_argument("--json", action="store_true")
    for name in ("hidden", "inner", "layers", "rows"):
        parser.add_argument(f"--{name}", type=int, default=getattr(example.Sizes, name))
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)  # be one worker
    return parser.parse_args(arguments)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Worker:
    """One process's layers, and what it times."""

    def __init__(self, options: argparse.Namespace, session: gemmd.Session | None) -> None:
        self.options = options
        sizes = example.Sizes(options.hidden, options.inner, options.layers, options.rows)
        self.layers = example.make(options.mode, session, sizes, options.device)
        self.x = example.sample(sizes, options.device)
        self.run: Any = self.eager
        for _ in range(3):
            self.result = self.eager()
        self.settle()
        if options.graph:
            self.capture()

    def eager(self) -> torch.Tensor:
        return example.step(self.layers, self.x)

    def capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = self.eager()

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        self.run = replay

    def settle(self) -> None:
        if self.options.device != "cpu":
            torch.cuda.synchronize()

    def times_us(self, count: int) -> list[float]:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self.result = self.run()
            self.settle()
            times.append((time.perf_counter() - began) * 1e6)
        return times

    def rate(self, begin: float, seconds: float) -> float:
        """Steps a second, each waited for, in a span that all workers share."""
        while time.monotonic() < begin:
            self.run()
            self.settle()
        count = 0
        while time.monotonic() < begin + seconds:
            self.run()
            self.settle()
            count += 1
        return count / seconds

    def digest(self) -> str:
        """Of the result's bits."""
        raw = self.run().contiguous().view(torch.uint8).cpu().numpy()
        return hashlib.sha256(raw.tobytes()).hexdigest()[:16]


@contextlib.contextmanager
def worker(options: argparse.Namespace) -> Any:
    """Whoever is torch's needs no server."""
    if options.mode == "torch":
        yield Worker(options, None)
        return
    with (
        gemmd.Client(options.server) as client,
        client.session(label=f"mlp {options.mode}", device=options.server_device) as session,
    ):
        yield Worker(options, session)


def work(options: argparse.Namespace) -> None:
    """A child: says its result's digest; told when to begin, its rate."""
    with worker(options) as one:
        print(one.digest(), flush=True)
        print(one.rate(float(sys.stdin.readline()), options.seconds), flush=True)
        sys.stdin.readline()  # stays until all are through


def together(options: argparse.Namespace, given: list[str]) -> dict[str, Any]:
    command = [sys.executable, __file__, *given, "--work"]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(options.workers)
    ]
    try:
        digests = [one.stdout.readline().strip() for one in running]
        if not all(digests):
            raise RuntimeError("a worker ended before it began; its error is above")
        begin = time.monotonic() + 0.5
        for one in running:
            print(begin, file=one.stdin, flush=True)
        rates = [float(one.stdout.readline() or "nan") for one in running]
        for one in running:
            one.communicate("\n")
    finally:
        for one in running:
            if one.poll() is None:
                one.kill()
            one.wait()
    return {
        "steps_per_second": sum(rates),
        "slowest_worker": min(rates),
        "fastest_worker": max(rates),
        "digests": sorted(set(digests)),
    }


def alone(options: argparse.Namespace) -> dict[str, Any]:
    with worker(options) as one:
        one.times_us(max(3, options.steps // 10))
        times = one.times_us(options.steps)
        return {
            "p50_us": percentile(times, 0.5),
            "p99_us": percentile(times, 0.99),
            "digests": [one.digest()],
            "layer": example.describe(one.layers),
        }


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = parse(given)
    if options.work:
        work(options)
        return 0
    figures = together(options, given) if options.workers > 1 else alone(options)
    figures = {"mode": options.mode, "workers": options.workers, "graph": options.graph, **figures}
    if options.json:
        print(json.dumps(figures))
    elif options.workers > 1:
        print(
            f"{options.workers} x {options.mode}: {figures['steps_per_second']:.0f} steps/s,"
            f" {len(figures['digests'])} different result(s)"
        )
    else:
        print(
            f"{options.mode}: p50 {figures['p50_us']:.0f} us, p99 {figures['p99_us']:.0f} us"
            f" a step; {figures['layer']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
