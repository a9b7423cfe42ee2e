"""Row counts that plans are made for: where requests come and go, each step has another count, and a
plan takes some milliseconds to make.
"""

from __future__ import annotations

_LEAST_STEP = 8  # kernels of few rows read weights, whatever the rows
_MOST_STEP = 256  # rows of the largest tile
_PARTS = 8  # of each doubling: at most an eighth of the rows is nobody's


def planned(rows: int) -> int:
    """How many rows the plan has that a call with so many runs: as many or some more, of which the
    results are nobody's. By the count alone, so that a call's bits are the same each time.
    """
    if rows <= _LEAST_STEP:
        return 1 << (rows - 1).bit_length()
    step = (1 << (rows - 1).bit_length()) // (2 * _PARTS)
    step = min(max(step, _LEAST_STEP), _MOST_STEP)
    return -(-rows // step) * step
