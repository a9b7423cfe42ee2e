"""Matmuls that no list of layers has, beside torch's of the same tensors, in BF16, FP16 or FP32:
`python3 bench/python/layouts.py --server TARGET --suite odd --json FILE`.

`odd`: extents that are no multiples of anything, so that rows begin anywhere. `batched`: many small
matrices, whose rows are whole units of 16 bytes. `plain`: one matrix of such rows. All in all
layouts, of operands along k (n, of A, and t, of B) and along their rows, drawn from a seed. Times
are the device's, of matmuls one behind the other that find their operands where the last one left
them: torch's of a CUDA graph, gemmd's of a plan. Each result is held against the same in more
digits: FP32, or FP64 of FP32, where torch's error stands beside it. Needs torch, a GPU, and a
daemon on this host that has it. With --pool every kernel is timed too, of shapes that none has to
copy for, for kernels/bench/fit_model.py: `gemm_bench --features FILE.csv --from FILE`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gemmd
from calls import add_security_flags, security_of

_AT_ONCE = 16  # matmuls of one measurement
_SMS = 132
# Relative to the result: of results rounded to 8 bits or 11, and of sums in FP32.
_MOST_ERROR = {"bfloat16": 0.01, "float16": 0.01, "float32": 2e-6}
_SHORT_NAMES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
_MOST_ELEMENTS, _MOST_FLOPS, _LEAST_FLOPS = 2e8, 4e11, 1e6


class Shape(NamedTuple):
    """d[batch, m, n] = a[batch, m, k] . b[batch, k, n]."""

    batch: int
    m: int
    n: int
    k: int
    layout: str  # "nt": a lies along k, b along k; "tn": neither does

    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    def elements(self) -> float:
        m, n, k = self.m, self.n, self.k
        return float(self.batch * max(m * n, m * k, n * k))


def drawn(suite: str, count: int, seed: int) -> list[Shape]:
    source = random.Random(seed)

    def extent(least: int, most: int) -> int:
        return round(math.exp(source.uniform(math.log(least), math.log(most))))

    shapes: list[Shape] = []
    while len(shapes) < count:
        layout = source.choice(["nt", "nt", "nn", "tn", "tt"])
        if suite == "odd":
            m, n, k = (extent(1, 12000) | 1 for _ in range(3))
            batch = source.choice([1, 1, 1, extent(2, 64)])
        elif suite == "plain":
            m, n, k, batch = extent(1, 8192), 8 * extent(8, 1024), 8 * extent(8, 1024), 1
        else:
            m, n, k = (8 * extent(2, 512) for _ in range(3))
            batch = extent(2, 1024)
        shape = Shape(batch, m, n, k, layout)
        if shape.elements() <= _MOST_ELEMENTS and _LEAST_FLOPS <= shape.flops() <= _MOST_FLOPS:
            shapes.append(shape)
    return shapes


def torch_us(torch: Any, call: Callable[[int], Any], repeats: int) -> float:
    call(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(_AT_ONCE):
            call(i % 2)
    times: list[float] = []
    for _ in range(repeats):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended) * 1e3 / _AT_ONCE)
    return statistics.median(times)


def kernels_for(client: gemmd.Client, shape: Shape, dtype: str) -> list[str]:
    """Those that take one of the matrices. k is divided where tiles are few alone."""
    candidates = client.explain(shape.m, shape.n, shape.k, dtype=dtype, out_dtype=dtype).candidates
    tiles = shape.batch * math.ceil(shape.m / 128) * math.ceil(shape.n / 128)
    names = [
        one.kernel
        for one in candidates
        if one.feasible and re.match("sm90_(b?f16|f32)_", one.kernel)
    ]
    return [name for name in names if tiles <= _SMS or not re.search(r"_k\d+$", name)]


def measure(
    torch: Any,
    session: gemmd.Session,
    shape: Shape,
    dtype: Any,
    repeats: int,
    pool: Sequence[str],
) -> Any:
    def made(rows: int, k: int, dense_k: bool) -> Any:
        tensor = torch.randn(
            (shape.batch, rows, k) if dense_k else (shape.batch, k, rows), device="cuda"
        )
        return tensor.to(dtype)[0] if shape.batch == 1 else tensor.to(dtype)

    a = made(shape.m, shape.k, shape.layout[0] == "n")
    b = made(shape.n, shape.k, shape.layout[1] == "t")
    size = (shape.m, shape.n) if shape.batch == 1 else (shape.batch, shape.m, shape.n)
    results = [torch.empty(size, device="cuda", dtype=dtype) for _ in range(2)]
    left = a if shape.layout[0] == "n" else a.mT
    right = b.mT if shape.layout[1] == "t" else b
    peer = torch_us(torch, lambda i: torch.matmul(left, right, out=results[i]), repeats)
    wide = torch.float64 if dtype == torch.float32 else torch.float32
    reference = torch.matmul(left.to(wide), right.to(wide))

    def error_of(result: Any) -> float:
        return float(((result.to(wide) - reference).norm() / reference.norm()).item())

    peer_error = error_of(results[0])
    for result in results:
        result.fill_(float("nan"))
    torch.cuda.synchronize()
    handed = [session.from_dlpack(tensor) for tensor in (a, b, *results)]
    try:
        mine_a = handed[0] if shape.layout[0] == "n" else handed[0].T
        mine_b = handed[1] if shape.layout[1] == "t" else handed[1].T

        def run(kernel: str, count: int) -> list[Any]:
            ops = [
                gemmd.matmul(mine_a, mine_b, handed[2 + i % 2], kernel=kernel)
                for i in range(_AT_ONCE)
            ]
            with session.plan(ops) as plan:
                return [plan.run().report for _ in range(count + 2)][2:]

        def us_of(reports: list[Any]) -> float:
            seconds = [float(one.device_seconds) for one in reports]
            return statistics.median(seconds) * 1e6 / _AT_ONCE

        reports = run("", repeats)
        us = us_of(reports)
        error = error_of(results[0])
        same = bool(torch.equal(results[0], results[1]))
        times = {}
        for kernel in pool:
            try:
                times[kernel] = round(us_of(run(kernel, 3)), 3)
            except gemmd.Error:  # one that does not read operands that lie so
                continue
    finally:
        for tensor in handed:
            tensor.owner.delete()
    return {
        **shape._asdict(),
        "torch_us": round(peer, 3),
        "us": round(us, 3),
        "kernel": reports[0].ops[0].kernel,
        "relative_error": error,
        "torch_relative_error": peer_error,
        "right": error < _MOST_ERROR[str(dtype).removeprefix("torch.")] and same,
        **({"pool": times} if times else {}),
    }


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="layouts.py", description=__doc__)
    parser.add_argument("--server", required=True, help='"unix:/path"')
    parser.add_argument("--device", default="", help="of the daemon; default: its choice")
    parser.add_argument("--suite", choices=["odd", "batched", "plain"], default="odd")
    parser.add_argument("--dtype", choices=list(_MOST_ERROR), default="bfloat16")
    parser.add_argument("--count", type=int, default=64, help="shapes (default 64)")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes (default 1)")
    parser.add_argument("--repeats", type=int, default=8, help="measurements (default 8)")
    parser.add_argument("--pool", action="store_true", help="times of every kernel, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all of it goes")
    add_security_flags(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.count < 1 or options.repeats < 1:
        parser().error("--count and --repeats are 1 at least")
    try:
        import torch
    except ImportError:
        print("layouts.py: torch is not installed: it is the peer", file=sys.stderr)
        return 1
    torch.manual_seed(options.seed)
    rows = []
    try:
        with (
            gemmd.Client(options.server, **security_of(options)) as client,
            client.session(label="bench layouts", device=options.device) as session,
        ):
            for shape in drawn(options.suite, options.count, options.seed):
                dtype = getattr(torch, options.dtype)
                pool: list[str] = []
                if options.pool and shape.layout != "tt":
                    pool = kernels_for(client, shape, options.dtype)
                row = measure(torch, session, shape, dtype, options.repeats, pool)
                rows.append(row)
                print(
                    f"{shape.batch:5}x{shape.m}x{shape.n}x{shape.k} {shape.layout} "
                    f"torch {row['torch_us']:9.1f} us, gemmd {row['us']:9.1f} "
                    f"({row['us'] / row['torch_us']:.2f}) {row['kernel']}"
                    f"{'' if row['right'] else ' WRONG'}",
                    flush=True,
                )
    except (gemmd.Error, OSError, ValueError, RuntimeError) as error:
        print(f"layouts.py: {error}", file=sys.stderr)
        return 1
    ratios = [row["us"] / row["torch_us"] for row in rows]
    figures = {
        "suite": options.suite,
        "dtype": _SHORT_NAMES[options.dtype],
        "seed": options.seed,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "right": all(row["right"] for row in rows),
        "time_over_torch": round(statistics.geometric_mean(ratios), 4),
        "longest_over_torch": round(max(ratios), 3),
        "shorter": sum(ratio < 1 for ratio in ratios),
        "error_over_torch": round(
            statistics.geometric_mean(
                max(row["relative_error"], 1e-12) / max(row["torch_relative_error"], 1e-12)
                for row in rows
            ),
            3,
        ),
        "shapes": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(
        f"{len(rows)} shapes of {options.suite}, {options.dtype}: gemmd's time over torch's "
        f"{figures['time_over_torch']}, at most {figures['longest_over_torch']}; "
        f"shorter on {figures['shorter']}; its error over torch's {figures['error_over_torch']}; "
        f"{'all right' if figures['right'] else 'SOME WRONG'}"
    )
    return 0 if figures["right"] else 1


if __name__ == "__main__":
    sys.exit(main())
