"""What transfers through shared memory have in common in both faces: sizes, the ops of a staged
copy, and the copies themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gemmd import dtypes
from gemmd._memory.lanes import MOST_LANES, PIECE_BYTES, Pieces, lanes_for, piece_bytes, run_lanes
from gemmd.ops import Op
from gemmd.ops import copy as copy_op
from gemmd.tensor import Tensor

# Below this the extra call of a staged copy costs more than sending the bytes: 64 KiB take about 60
# us by gRPC.
STAGED_FROM_BYTES = 64 << 10
STAGING_BYTES = MOST_LANES * PIECE_BYTES


def staged_copy(
    device_id: bytes, at: int, staging_id: bytes, room: int, nbytes: int, up: bool
) -> list[Op]:
    """Raw bytes between a buffer, from byte `at` on, and the staging buffer, from `room` on. A copy
    is of typed elements: of wide ones where it may be, which are fewer.
    """
    wide = at % 4 == 0 and nbytes % 4 == 0
    dtype = dtypes.float32 if wide else dtypes.int8
    shape = (nbytes // dtype.itemsize,)
    device = Tensor(device_id, dtype, shape, offset_bytes=at)
    host = Tensor(staging_id, dtype, shape, offset_bytes=room)
    return [copy_op(host, device) if up else copy_op(device, host)]


def staging_sizes(nbytes: int, refused: bool) -> list[int]:
    """How large the staging buffer of a transfer is to be, the best first: a piece for each lane.
    `refused`: the server has not given a larger one.
    """
    best = MOST_LANES * piece_bytes(nbytes)
    return [STAGING_BYTES] if refused or best == STAGING_BYTES else [best, STAGING_BYTES]


def move_wide(host: npt.NDArray[np.uint8], at: int, data: memoryview, up: bool) -> None:
    """`move`, by several threads if it is long."""
    pieces = Pieces(len(data))

    def work(_lane: int) -> None:
        for start, length in pieces:
            move(host, at + start, data[start : start + length], up)

    run_lanes(lanes_for(len(data)), pieces, work)


def move(host: npt.NDArray[np.uint8], at: int, data: memoryview, up: bool) -> None:
    """Copies between mapped memory and an array's bytes."""
    here: npt.NDArray[Any] = np.frombuffer(data, dtype=np.uint8)
    there = host[at : at + len(data)]
    if up:
        np.copyto(there, here)
    else:
        np.copyto(here, there)
