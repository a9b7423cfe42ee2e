"""How far a layer's results may be from those of the torch modules that it stands for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

# Of the norm.
_FP8 = 0.15  # FP8's two or three rounded factors differ from exact ones by 4 to 7 %
_EXACT = 0.005  # or two roundings of the weights' dtype, whichever is more


def exact(x: Any) -> float:
    """Of a layer that rounds no more than torch does."""
    return max(_EXACT, 2 * float(torch.finfo(x.dtype).eps))


def bound(x: Any, weights: Iterable[Any], products: int) -> float:
    """Of a layer of these weights, whose results went through so many products."""
    return bound_of_fp8(products) if any(one.quantized for one in weights) else exact(x)


def bound_of_fp8(products: int) -> float:
    """What FP8 rounds in several adds up as random numbers do."""
    return float(_FP8 * max(1, products / 2) ** 0.5)


def differs(own: Any, got: Any, most: float) -> float | None:
    """By how much of its norm, for rows of some scale; None if within the bound for all."""
    for one, other in zip(own.double(), got.double(), strict=True):
        norm, off = float(one.norm()), float((other - one).norm())
        if not off <= most * norm:
            return off / norm if norm else off
    return None
