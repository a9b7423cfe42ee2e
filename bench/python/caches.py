"""What a decoding token's cache costs torch, by how it lies in memory: `python3 bench/python/caches.py`.

A row is a cache of keys and values in bfloat16, heads of 128 columns, and one query of each sequence. Times
are of CUDA graphs, in us: of joining the keys to one more (`cat`), of writing one behind them (`copy`), and
of attentions. "heads": as torch joins them, [batch, heads, keys, columns]; "keys": with the keys outermost,
as gemmd.compile grows them. With a mask heads that share keys are rows of one. Needs torch and a GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_COLUMNS = 128
_WARM, _TIMES = 5, 30


class Shape(NamedTuple):
    batch: int
    heads: int
    sharing: int  # heads of the query for each of those
    keys: int

    @classmethod
    def of(cls, text: str) -> Shape:
        return cls(*map(int, text.split("x")))


_SHAPES = "1x8x4x2048 1x8x4x32768 8x8x4x2048 32x8x4x2048 64x8x4x512 16x4x8x4096"


def graph_us(call: Callable[[], Any]) -> float:
    import torch

    for _ in range(_WARM):
        call()
    torch.cuda.synchronize()
    graph, begin, end = torch.cuda.CUDAGraph(), *_events()
    with torch.cuda.graph(graph):
        call()
    begin.record()
    for _ in range(_TIMES):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / _TIMES * 1e3


def _events() -> tuple[Any, Any]:
    import torch

    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def row(shape: Shape) -> dict[str, float]:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    options = {"device": "cuda", "dtype": torch.bfloat16}
    batch, heads, sharing, keys = shape
    k, v = (torch.randn(batch, heads, keys, _COLUMNS, **options) for _ in range(2))
    one = torch.randn(batch, 1, heads, _COLUMNS, **options).transpose(1, 2)
    grown = [x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3) for x in (k, v)]
    query = torch.randn(batch, heads * sharing, 1, _COLUMNS, **options)
    packed = query.reshape(batch, heads, sharing, _COLUMNS)
    mask = torch.zeros(batch, 1, 1, keys, **options)
    times = {
        "cat": graph_us(lambda: torch.cat((k, one), 2)),
        "copy": graph_us(lambda: grown[0][:, :, 5:6].copy_(one)),
    }
    attend = F.scaled_dot_product_attention
    for name, (first, second) in {"heads": (k, v), "keys": grown}.items():
        for backend in ("FLASH", "CUDNN"):
            with sdpa_kernel([SDPBackend[f"{backend}_ATTENTION"]]):
                times[f"{backend.lower()}, {name}"] = graph_us(
                    lambda: attend(query, first, second, enable_gqa=True)
                )
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
            times[f"mask, {name}"] = graph_us(
                lambda: attend(packed, first, second, attn_mask=mask)
            )
    return times


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    flags.add_argument(
        "--shapes", type=Shape.of, nargs="+", default=[*map(Shape.of, _SHAPES.split())],
        help="sequences x heads x queries a head x keys",
    )  # fmt: skip
    given = flags.parse_args(argv)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        print(f"caches.py: {error}; torch and a GPU are needed", file=sys.stderr)
        return 1
    for shape in given.shapes:
        times = row(shape)
        told = "; ".join(f"{name} {us:.1f}" for name, us in times.items())
        print(f"{'x'.join(map(str, shape))}: {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
