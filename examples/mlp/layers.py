"""The same MLP three ways, called alike: torch in this process, gemmd's Linear, gemmd's MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

import gemmd

Layer = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    """Of one MLP of a Llama: gate_up is [2 * inner, hidden], down [hidden, inner]."""

    hidden: int = 4096
    inner: int = 14336
    layers: int = 4
    rows: int = 16


@dataclass(frozen=True)
class Weights:
    gate_up: torch.Tensor
    down: torch.Tensor


def weights(sizes: Sizes, index: int, device: str) -> Weights:
    """Of layer `index`: the same in every process."""
    random = torch.Generator(device).manual_seed(index)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        values = torch.randn(rows, columns, generator=random, device=device, dtype=torch.bfloat16)
        return values * columns**-0.5

    return Weights(matrix(2 * sizes.inner, sizes.hidden), matrix(sizes.hidden, sizes.inner))


def gated(product: torch.Tensor) -> torch.Tensor:
    gate, up = product.chunk(2, -1)
    return functional.silu(gate) * up


class TorchMLP:
    """In this process, in the weights' own type."""

    def __init__(self, given: Weights) -> None:
        self.weights = given

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return gated(x @ self.weights.gate_up.T) @ self.weights.down.T


class LinearMLP:
    """Two calls of gemmd, and torch between them."""

    def __init__(self, session: gemmd.Session, given: Callable[[], Weights], name: str) -> None:
        self.gate_up = gemmd.Linear(session, lambda: given().gate_up, name=f"{name}.gate_up")
        self.down = gemmd.Linear(session, lambda: given().down, name=f"{name}.down")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(gated(self.gate_up(x)))


def make(mode: str, session: gemmd.Session | None, sizes: Sizes, device: str) -> list[Layer]:
    """The layers of one mode: "torch", "Linear" or "MLP". A weight of gemmd's is made by the first
    process alone; all others find it by its name.
    """
    made: list[Layer] = []
    for index in range(sizes.layers):

        def given(index: int = index) -> Weights:
            return weights(sizes, index, device)

        name = f"examples/mlp/{sizes.hidden}x{sizes.inner}/{index}"
        if mode == "torch":
            made.append(TorchMLP(given()))
            continue
        assert session is not None
        if mode == "Linear":
            made.append(LinearMLP(session, given, name))
        else:
            made.append(
                gemmd.MLP(session, lambda g=given: g().gate_up, lambda g=given: g().down, name=name)
            )
    return made


def step(layers: list[Layer], x: torch.Tensor) -> torch.Tensor:
    """One pass through all layers, each with its residual."""
    for layer in layers:
        x = x + layer(x)
    return x


def sample(sizes: Sizes, device: str, seed: int = 0) -> torch.Tensor:
    random = torch.Generator(device).manual_seed(1000 + seed)
    shape = (sizes.rows, sizes.hidden)
    return torch.randn(*shape, generator=random, device=device, dtype=torch.bfloat16)


def describe(layers: list[Any]) -> str:
    first = layers[0]
    return repr(first.gate_up) if isinstance(first, LinearMLP) else repr(first)
