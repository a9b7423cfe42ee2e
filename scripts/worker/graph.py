"""A captured graph of eight layers, replayed with changing inputs: right each time."""

from __future__ import annotations

import sys
import time

import figure
import torch

import gemmd

figure.mlp_folder()
import layers as example  # noqa: E402


def main() -> None:
    replays = 200 if figure.quick() else 10_000
    sizes = example.Sizes(1024, 2048, 8, 16)
    with gemmd.Client(figure.server()) as client, client.session(label="graph", device=figure.device()) as session:
        layers = example.make("MLP", session, sizes, "cuda")
        inputs = torch.stack([example.sample(sizes, "cuda", seed) for seed in range(16)])
        expected = torch.stack([example.step(layers, x) for x in inputs])
        assert torch.isfinite(expected).all(), "the layers' results are not finite"
        assert not torch.equal(expected[0], expected[1])
        x = inputs[0].clone()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = example.step(layers, x)
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        began = time.perf_counter()
        for index in range(replays):
            which = (index * 7) % 16
            x.copy_(inputs[which])
            graph.replay()
            wrong += (result != expected[which]).any()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        figure.add("5", f"wrong results of {replays} replays of a graph of 8 layers", float(wrong), "results", 0,
                   us_a_replay=seconds / replays * 1e6)  # fmt: skip
        for name in {one.name for one in layers}:
            print("  ", name)
            break
        for layer in layers:
            layer.unpublish()


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
