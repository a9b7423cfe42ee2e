"""The data, and a network of two layers fitted to it in numpy."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

PIXELS, HIDDEN, CLASSES = 64, 256, 10
HELD_OUT = 597


@dataclass(frozen=True)
class Digits:
    """Images [count, 64] with pixels 0 to 1, and the digit each shows [count]."""

    images: npt.NDArray[np.float32]
    digits: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Network:
    """logits = relu(x @ w1.T + b1) @ w2.T + b2"""

    w1: FloatArray  # [256, 64]
    b1: FloatArray  # [256]
    w2: FloatArray  # [10, 256]
    b2: FloatArray  # [10]

    def logits(self, images: npt.NDArray[np.floating]) -> FloatArray:
        """In float64: what the server's results are measured against. [count, 10]"""
        hidden = np.maximum(images.astype(np.float64) @ self.w1.T + self.b1, 0)
        return hidden @ self.w2.T + self.b2


def load() -> tuple[Digits, Digits]:
    """The images to learn from and the 597 held out, shuffled once and for all."""
    path = Path(__file__).parent / "digits.csv.gz"
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    images, digits = table[:, :PIXELS] / np.float32(16), table[:, PIXELS].astype(np.int64)
    return (
        Digits(images[HELD_OUT:], digits[HELD_OUT:]),
        Digits(images[:HELD_OUT], digits[:HELD_OUT]),
    )


def fit(data: Digits, steps: int = 150, rate: float = 0.01) -> Network:
    """Adam on the cross entropy of all images at once. Deterministic; a second or two."""
    random = np.random.default_rng(1)
    weights = [
        random.normal(0, np.sqrt(2 / PIXELS), (HIDDEN, PIXELS)),
        np.zeros(HIDDEN),
        random.normal(0, np.sqrt(2 / HIDDEN), (CLASSES, HIDDEN)),
        np.zeros(CLASSES),
    ]
    mean = [np.zeros_like(weight) for weight in weights]
    square = [np.zeros_like(weight) for weight in weights]
    images, wanted = data.images.astype(np.float64), np.eye(CLASSES)[data.digits]
    for step in range(1, steps + 1):
        for i, gradient in enumerate(_gradients(weights, images, wanted)):
            mean[i] += 0.1 * (gradient - mean[i])
            square[i] += 0.001 * (gradient**2 - square[i])
            size = np.sqrt(square[i] / (1 - 0.999**step)) + 1e-8
            weights[i] -= rate * mean[i] / (1 - 0.9**step) / size
    return Network(*weights)


def _gradients(weights: list[FloatArray], x: FloatArray, wanted: FloatArray) -> list[FloatArray]:
    w1, b1, w2, b2 = weights
    hidden = np.maximum(x @ w1.T + b1, 0)
    logits = hidden @ w2.T + b2
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    wrong = (likely - wanted) / len(x)
    back = (wrong @ w2) * (hidden > 0)
    return [back.T @ x, back.sum(axis=0), wrong.T @ hidden, wrong.sum(axis=0)]
