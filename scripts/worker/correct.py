"""That an armed MLP and Linear on this server compute what torch does, before anything is timed: eager
and, on a GPU, in a graph and compiled.
"""

from __future__ import annotations

import sys

import figure
import torch

import gemmd

figure.mlp_folder()
import layers as example  # noqa: E402


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


def main() -> None:
    on_gpu = figure.device().startswith("cuda")
    device = "cuda" if on_gpu else "cpu"
    sizes = example.Sizes(512, 1024, 1, 16)
    given = example.weights(sizes, 0, device)
    with gemmd.Client(figure.server()) as client, client.session(label="correct", device=figure.device()) as session:
        reference = example.TorchMLP(example.Weights(given.gate_up.double(), given.down.double()))
        mlp = gemmd.MLP(session, given.gate_up, given.down)
        linear = gemmd.Linear(session, given.gate_up)
        exact = gemmd.Linear(session, given.gate_up, quantize=None)
        for rows in (1, 16, 33, 128, 16):
            x = example.sample(example.Sizes(512, 1024, 1, rows), device)
            wanted = reference(x.double())
            error = relative_error(mlp(x), wanted)
            of_linear = relative_error(linear(x), x.double() @ given.gate_up.double().T)
            of_exact = relative_error(exact(x), x.double() @ given.gate_up.double().T)
            print(f"   {rows} rows: MLP {error:.4f}, Linear {of_linear:.4f}, unquantised {of_exact:.4f}")
            assert error < 0.12 and of_linear < 0.06 and of_exact < 0.01, "the result is wrong"
        print("  ", mlp)
        print("  ", linear)
        assert "armed" in repr(mlp), repr(mlp)
        figure.add("0", "relative error of an FP8 MLP to float64", error, "ratio", 0.12)
        torch._dynamo.config.cache_size_limit = 64
        compiled = torch.compile(mlp, fullgraph=True, backend="inductor" if on_gpu else "aot_eager")
        same = all(
            torch.equal(compiled(x), mlp(x))
            for x in (example.sample(example.Sizes(512, 1024, 1, rows), device) for rows in (16, 33, 16))
        )
        figure.add("5", "torch.compile(fullgraph=True) gives eager's bits", float(same), "1 is yes", 1, at_most=False)


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
