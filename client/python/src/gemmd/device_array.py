"""A buffer's device memory in this process, by CUDA IPC."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmd._memory import cuda, dlpack, interop
from gemmd.errors import FailedPrecondition
from gemmd.v1 import buffer_service_pb2 as pb


class Mapping:
    """Another process's allocation, mapped here until the last reference to this goes."""

    def __init__(self, record: pb.CudaIpcMemory) -> None:
        driver = cuda.driver()
        self.device = driver.device_of(record.gpu_uuid)
        self._base: int | None = None
        self._base = driver.open(record.handle, self.device)
        self.pointer = self._base + record.offset_bytes

    def __del__(self) -> None:
        if self._base is not None:
            with contextlib.suppress(Exception):  # at the interpreter's end anything may be gone
                cuda.driver().close(self._base, self.device)


class DeviceArray:
    """GPU memory of the server's that this process reads and writes in place. Made by
    `buffer.device_array()`.

    It is handed to any framework by DLPack (`torch.from_dlpack(array)`), or as a torch tensor by
    `array.torch()`, which knows the 8-bit floats as well. The memory stays mapped while a tensor
    over it lives: let go of those before the buffer is deleted.

    What programs of the server wrote is there once their answer has come. What this process writes
    is there for programs that are sent after its stream is synchronised.

    Attributes
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    device : int
        The GPU's ordinal in this process.
    pointer : int
    """

    def __init__(self, mapping: Mapping, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        self.mapping = mapping
        self.dtype = dtype
        self.shape = tuple(shape)
        self.device = mapping.device
        self.pointer = mapping.pointer

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """For `from_dlpack` of the frameworks. No stream waits: the server's work is complete when
        its answer has come.
        """
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("shared device memory is handed over where it is, without a copy")
        return dlpack.capsule(
            self.pointer,
            self.__dlpack_device__(),
            self.dtype,
            self.shape,
            self.mapping,
            max_version=max_version,
        )

    def torch(self) -> Any:
        """A torch tensor over the memory."""
        module = interop.torch_module()
        raw = DeviceArray(self.mapping, np.dtype(np.uint8), (self.nbytes,))
        flat = module.from_dlpack(raw)
        if self.dtype == np.uint8:
            return flat.reshape(self.shape)
        return flat.view(interop.torch_dtype(self.dtype)).reshape(self.shape)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype.name}{list(self.shape)} on GPU {self.device})"


def parse(data: bytes) -> pb.CudaIpcMemory:
    """What the share socket's descriptor says of device memory."""
    record = pb.CudaIpcMemory.FromString(data)
    if len(record.handle) != 64 or record.size_bytes <= 0:
        raise FailedPrecondition("the server's descriptor holds no CudaIpcMemory message")
    return record
