"""Steps whose row count is another each time, as where requests come and go, by torch and by MLP; and what memory a
model's layers take on the server.

    python3 rows.py
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import figure

COUNTS = {"decode": (1, 256), "prefill": (256, 4096)}  # rows of a step, drawn evenly


def times_us(layers: list[Any], example: Any, xs: Any, counts: list[int], settle: Any) -> list[float]:
    times = []
    for rows in counts:
        x = xs[:rows]
        settle()
        began = time.perf_counter()
        example.step(layers, x)
        settle()
        times.append((time.perf_counter() - began) * 1e6)
    return times


def main() -> None:
    figure.mlp_folder()
    import gemmd
    import layers as example
    import torch

    on_gpu, small = figure.device().startswith("cuda"), figure.quick()
    device = "cuda" if on_gpu else "cpu"
    settle = torch.cuda.synchronize if on_gpu else (lambda: None)
    most = 64 if small else COUNTS["prefill"][1]
    sizes = example.Sizes(256, 512, 2, most) if small else example.Sizes(layers=16, rows=most)
    xs = example.sample(sizes, device)
    draw = random.Random(7)
    counts = {
        name: [draw.randint(min(low, most), min(high, most)) for _ in range(10 if small else 300 if name == "decode" else 60)]
        for name, (low, high) in COUNTS.items()
    }  # fmt: skip
    found: dict[str, dict[str, list[float]]] = {}
    with gemmd.Client(figure.server()) as client:
        for mode in ("torch", "MLP"):
            with client.session(label="rows", device=figure.device()) as session:
                made = example.make(mode, session, sizes, device)
                example.step(made, xs[:16])
                used = {one.name: one.used_bytes for one in client.devices()}[figure.device()]
                found[mode] = {name: times_us(made, example, xs, drawn, settle) for name, drawn in counts.items()}
                if mode == "MLP":
                    now = {one.name: one.used_bytes for one in client.devices()}[figure.device()]
                    figure.add("rows", f"memory of {sizes.layers} layers' activations, {most} rows",
                               (now - used) / 2**20, "MiB")  # fmt: skip
                del made
    for name in COUNTS:
        ours, torchs = found["MLP"][name], found["torch"][name]
        half = len(ours) // 2  # from here on a server has seen most of the counts
        figure.add("rows", f"steps of other rows each, {name}, mean over torch", sum(ours) / sum(torchs), "ratio",
                   p50_us=figure.percentile(ours, 0.5), torch_p50_us=figure.percentile(torchs, 0.5),
                   p99_us=figure.percentile(ours, 0.99), mean_us=sum(ours) / len(ours))  # fmt: skip
        figure.add("rows", f"the second half of them, {name}, mean over torch", sum(ours[half:]) / sum(torchs[half:]),
                   "ratio", mean_us=sum(ours[half:]) / (len(ours) - half))  # fmt: skip


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
