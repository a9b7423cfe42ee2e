"""This process's own arrays as the server finds them: what `session.from_dlpack` hands over.

Pure but for the driver's calls: the sessions, sync and asyncio, send it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmd._memory import cuda
from gemmd._memory.dlpack import Memory
from gemmd.share import SharedArray
from gemmd.tensor import Tensor
from gemmd.v1 import buffer_service_pb2 as pb

_ALIGNMENT_BYTES = 256  # of what is imported; a tensor's own offset goes on top
_PROCESS = os.urandom(16).hex()  # no process can map its own memory: the record says whose it is


@dataclass(frozen=True)
class Import:
    """GPU memory on its way to the server.

    Attributes
    ----------
    record : CudaIpcMemory
    memory : Memory
    skipped_bytes : int
        From where the import begins to the array's first element.
    """

    record: pb.CudaIpcMemory
    memory: Memory
    skipped_bytes: int

    def offer(self, share_socket: str) -> bytes:
        """Sends the record to the server; the token is for ImportBuffer."""
        data = self.record.SerializeToString()
        carrier = SharedArray(len(data), "i8")
        carrier.array[...] = np.frombuffer(data, np.int8)
        return carrier.offer(share_socket)

    def tensor(self, buffer_id: bytes, owner: Any) -> Tensor:
        """The array, over the buffer that the server made of the import."""
        memory = self.memory
        return Tensor(
            buffer_id, memory.dtype, memory.shape, memory.strides, self.skipped_bytes, owner=owner
        )


def of_gpu(memory: Memory) -> Import:
    """What the server needs to map the array's part of its allocation.

    Raises
    ------
    ValueError
        A shape or strides that gemmd has no tensor for.
    FailedPrecondition
        The memory has no CUDA IPC handle.
    """
    check_view(memory)
    driver = cuda.driver()
    base, size = driver.allocation(memory.pointer, memory.device)
    at = memory.pointer - base
    begin = at // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
    extents = zip(memory.shape, memory.strides, strict=True)
    last = sum((extent - 1) * stride for extent, stride in extents)
    end = at + (last + 1) * memory.dtype.itemsize
    # First: memory of a virtual-memory allocator has no handle and is many allocations.
    handle = driver.export(base, memory.device)
    if end > size:
        raise ValueError(
            f"the array reaches {end} bytes into an allocation of {size}; its producer described"
            " it wrongly"
        )
    record = pb.CudaIpcMemory(
        handle=handle,
        offset_bytes=begin,
        size_bytes=end - begin,
        gpu_uuid=driver.uuid(memory.device),
        process=_PROCESS,
    )
    return Import(record, memory, at - begin)


def check_view(memory: Memory) -> None:
    """Raises ValueError unless a gemmd tensor can have the array's shape and strides."""
    if not 1 <= len(memory.shape) <= 3 or 0 in memory.shape:
        raise ValueError(
            f"shape={memory.shape}: 1 to 3 extents of at least 1 are needed; reshape it"
        )
    if any(stride < 0 for stride in memory.strides):
        raise ValueError(f"strides={memory.strides} are negative; make it contiguous")
