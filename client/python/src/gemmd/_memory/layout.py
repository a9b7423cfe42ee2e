"""How arrays lie in memory, and one behind the other in a block."""

from __future__ import annotations

from collections.abc import Sequence

ALIGNMENT_BYTES = 256  # of each piece: what the device kernels' bulk copies like best


def padded(nbytes: int) -> int:
    """Up to where the next piece may begin."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a row-major array without gaps, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
