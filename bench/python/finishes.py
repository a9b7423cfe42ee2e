"""What a matmul does behind its products, beside the same matmul without it and beside torch:
`python3 bench/python/finishes.py --server TARGET --dtype bf16 --json FILE`.

Shapes are drawn from a seed: n and k of 256 to 8192 in eights, any number of rows to 8192. Each with
every finish: what the last layer's result is added to (C), a bias of 16 bits, an activation behind a
bias, and FP32 results. torch has BF16 operands in any case, and its fastest calls for the same:
`addmm`, `_addmm_activation` where it has the activation, or two calls. Operands of E4M3 have block
scales, and are quantised before. Times are the device's, of sixteen matmuls one behind the other:
torch's of a CUDA graph, gemmd's of a plan. Each result is held against FP32. Needs torch, a GPU, and
a daemon on this host that has it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gemmd
from calls import add_security_flags, security_of
from gemmd import Granularity
from layouts import torch_us

_AT_ONCE = 16  # matmuls of one measurement, as torch_us has it
_MOST_ERROR = {"bf16": 0.01, "f8": 0.08}  # relative, of operands rounded to 8 and to 4 bits


class Finish(NamedTuple):
    """D = activation(A . B^T + C + bias)."""

    name: str
    adds: bool = False
    bias: bool = False
    activation: str = "none"
    out: str = "bf16"


_FINISHES = [
    Finish("plain"),
    Finish("C", adds=True),
    Finish("bias", bias=True),
    Finish("bias, C", adds=True, bias=True),
    Finish("bias, GELU", bias=True, activation="gelu_erf"),
    Finish("bias, tanh GELU", bias=True, activation="gelu_tanh"),
    Finish("SiLU", activation="silu"),
    Finish("FP32", out="f32"),
]


class Shape(NamedTuple):
    m: int
    n: int
    k: int


def drawn(count: int, seed: int, rows: tuple[int, int]) -> list[Shape]:
    source = random.Random(seed)

    def extent(least: int, most: int) -> int:
        return round(math.exp(source.uniform(math.log(least), math.log(most))))

    return [
        Shape(extent(*rows), 8 * extent(32, 1024), 8 * extent(32, 1024)) for _ in range(count)
    ]


def named(text: str) -> list[Shape]:
    """ "64x4096x7168,1x256x256": m x n x k each."""
    return [Shape(*(int(extent) for extent in one.split("x"))) for one in text.split(",")]


class Tensors:
    """Of one shape, on the GPU, and what both sides make of them."""

    def __init__(self, torch: Any, shape: Shape) -> None:
        def made(*extents: int) -> Any:
            return torch.randn(extents, device="cuda").to(torch.bfloat16)

        self.torch = torch
        self.a, self.b = made(shape.m, shape.k), made(shape.n, shape.k)
        self.c, self.bias = made(shape.m, shape.n), made(shape.n)
        self.results = {
            "bf16": [torch.empty_like(self.c) for _ in range(2)],
            "f32": [torch.empty_like(self.c, dtype=torch.float32) for _ in range(2)],
        }

    def activated(self, x: Any, finish: Finish) -> Any:
        functional = self.torch.nn.functional
        if finish.activation == "none":
            return x
        if finish.activation == "silu":
            return functional.silu(x)
        shape_of_it = "tanh" if finish.activation == "gelu_tanh" else "none"
        return functional.gelu(x, approximate=shape_of_it)

    def reference(self, finish: Finish) -> Any:
        d = self.a.float() @ self.b.float().t()
        if finish.adds:
            d += self.c.float()
        if finish.bias:
            d += self.bias.float()
        return self.activated(d, finish)

    def by_torch(self, finish: Finish) -> Any:
        torch, right = self.torch, self.b.t()
        if finish.out == "f32":
            return torch.mm(self.a, right).float()
        if finish.activation == "gelu_tanh" and finish.bias:
            return torch._addmm_activation(self.bias, self.a, right, use_gelu=True)
        if finish.bias:
            d = torch.addmm(self.bias, self.a, right)
            return d.add_(self.c) if finish.adds else self.activated(d, finish)
        if finish.adds:
            return torch.addmm(self.c, self.a, right)
        return self.activated(torch.mm(self.a, right), finish)


class Handed:
    """The same tensors as the daemon has them; of E4M3 the operands are its own."""

    def __init__(self, session: gemmd.Session, tensors: Tensors, dtype: str) -> None:
        self.session, self.owned = session, []
        self.c, self.bias = self._given(tensors.c), self._given(tensors.bias)
        self.results = {
            out: [self._given(one) for one in both] for out, both in tensors.results.items()
        }
        self.a: Any = self._given(tensors.a)
        self.b: Any = self._given(tensors.b)
        if dtype == "f8":
            self.a = self._quantised(self.a, tensors.a.shape, Granularity.BLOCK_1X128)
            self.b = self._quantised(self.b, tensors.b.shape, Granularity.BLOCK_128X128)

    def _given(self, tensor: Any) -> Any:
        handed = self.session.from_dlpack(tensor)
        self.owned.append(handed.owner)
        return handed

    def _quantised(self, source: Any, shape: Any, granularity: Granularity) -> Any:
        made = self.session.operand(tuple(shape), granularity)
        self.owned += [made.values.owner, made.scales.owner]
        self.session.execute([gemmd.quantize(source, made)])
        return made

    def ops(self, finish: Finish, kernel: str = "") -> list[Any]:
        return [
            gemmd.matmul(
                self.a,
                self.b,
                self.results[finish.out][i % 2],
                c=self.c if finish.adds else None,
                beta=1.0 if finish.adds else 0.0,
                bias=self.bias if finish.bias else None,
                activation=finish.activation,  # type: ignore[arg-type]
                kernel=kernel,
            )
            for i in range(_AT_ONCE)
        ]

    def delete(self) -> None:
        for buffer in self.owned:
            buffer.delete()


def measure(torch: Any, session: gemmd.Session, shape: Shape, dtype: str, repeats: int) -> Any:
    tensors = Tensors(torch, shape)
    torch.cuda.synchronize()
    handed = Handed(session, tensors, dtype)
    rows: dict[str, Any] = {}
    try:
        for finish in _FINISHES:
            call: Callable[[int], Any] = lambda _, finish=finish: tensors.by_torch(finish)
            peer = torch_us(torch, call, repeats)
            with session.plan(handed.ops(finish)) as plan:
                reports = [plan.run().report for _ in range(repeats + 2)][2:]
            us = statistics.median(float(one.device_seconds) for one in reports) * 1e6 / _AT_ONCE
            reference = tensors.reference(finish)
            error = (tensors.results[finish.out][0].float() - reference).norm() / reference.norm()
            rows[finish.name] = {
                "torch_us": round(peer, 3),
                "us": round(us, 3),
                "kernel": reports[0].ops[0].kernel,
                "relative_error": float(error.item()),
                "right": float(error.item()) < _MOST_ERROR[dtype],
            }
    finally:
        handed.delete()
    return {**shape._asdict(), "finishes": rows}


def summary(rows: Sequence[Any]) -> dict[str, Any]:
    """Of each finish: its time over the plain matmul's, and over torch's."""

    def of(name: str) -> dict[str, float]:
        def mean(ratio: Callable[[Any], float]) -> float:
            return round(statistics.geometric_mean(ratio(row["finishes"]) for row in rows), 4)

        return {
            "time_over_plain": mean(lambda row: row[name]["us"] / row["plain"]["us"]),
            "torch_over_plain": mean(lambda row: row[name]["torch_us"] / row["plain"]["torch_us"]),
            "time_over_torch": mean(lambda row: row[name]["us"] / row[name]["torch_us"]),
            "longest_over_torch": round(
                max(row["finishes"][name]["us"] / row["finishes"][name]["torch_us"] for row in rows),
                3,
            ),
        }

    return {finish.name: of(finish.name) for finish in _FINISHES}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="finishes.py", description=__doc__)
    parser.add_argument("--server", required=True, help='"unix:/path"')
    parser.add_argument("--device", default="", help="of the daemon; default: its choice")
    parser.add_argument("--dtype", choices=list(_MOST_ERROR), default="bf16")
    parser.add_argument("--count", type=int, default=32, help="shapes (default 32)")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes (default 1)")
    parser.add_argument("--rows", default="1-8192", help="how many a drawn shape may have")
    parser.add_argument("--shapes", type=named, metavar="MxNxK,..", help="these, none drawn")
    parser.add_argument("--repeats", type=int, default=8, help="measurements (default 8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all of it goes")
    add_security_flags(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    least, _, most = options.rows.partition("-")
    if options.count < 1 or options.repeats < 1 or not (least.isdigit() and most.isdigit()):
        parser().error("--count and --repeats are 1 at least, --rows are two numbers, as 1-8192")
    try:
        import torch
    except ImportError:
        print("finishes.py: torch is not installed: it is the peer", file=sys.stderr)
        return 1
    torch.manual_seed(options.seed)
    rows = []
    try:
        with (
            gemmd.Client(options.server, **security_of(options)) as client,
            client.session(label="bench finishes", device=options.device) as session,
        ):
            shapes = drawn(options.count, options.seed, (int(least), int(most)))
            for shape in options.shapes or shapes:
                row = measure(torch, session, shape, options.dtype, options.repeats)
                rows.append(row)
                times = " ".join(
                    f"{one['us']:.1f}/{one['torch_us']:.1f}{'' if one['right'] else ' WRONG'}"
                    for one in row["finishes"].values()
                )
                print(f"{shape.m}x{shape.n}x{shape.k}: {times}", flush=True)
    except (gemmd.Error, OSError, ValueError, RuntimeError) as error:
        print(f"finishes.py: {error}", file=sys.stderr)
        return 1
    right = all(one["right"] for row in rows for one in row["finishes"].values())
    figures = {
        "dtype": options.dtype,
        "seed": options.seed,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "right": right,
        "finishes": summary(rows),
        "shapes": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    for name, one in figures["finishes"].items():
        print(
            f"{name:16} over plain {one['time_over_plain']:.3f} (torch "
            f"{one['torch_over_plain']:.3f}), over torch {one['time_over_torch']:.3f}, "
            f"at most {one['longest_over_torch']:.2f}"
        )
    print("all right" if right else "SOME WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
