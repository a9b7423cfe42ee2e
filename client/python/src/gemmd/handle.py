"""What a buffer's handle knows without asking the server; the sync and the asyncio Buffer build on
it.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmd import dtypes
from gemmd.device_array import DeviceArray, Mapping
from gemmd.errors import FailedPrecondition
from gemmd.report import NO_TRANSFER, Transfer
from gemmd.tensor import HasTensor, Index, Tensor
from gemmd.v1 import buffer_service_pb2 as pb

MEMORY_KINDS = {
    "device": pb.MEMORY_KIND_DEVICE,
    "host_shared": pb.MEMORY_KIND_HOST_SHARED,
    "device_shared": pb.MEMORY_KIND_DEVICE_SHARED,
    "device_imported": pb.MEMORY_KIND_DEVICE_IMPORTED,
}
_KIND_NAMES = {kind: name for name, kind in MEMORY_KINDS.items()}


class Handle(HasTensor):
    """A buffer of the server, as the server described it when it was made or found.

    Attributes
    ----------
    buffer_id : bytes
        16 bytes; a secret of the tenant.
    size_bytes : int
    device : str
    memory_kind : str
        "device"; "host_shared" and "device_shared": memory of the host's or of a GPU that same-host
        clients map; "device_imported": a client's own GPU memory.
    dtype : numpy.dtype or None
        None for a plain run of bytes.
    shape : tuple of int
        Empty for a plain run of bytes.
    read_only : bool
    transfer : Transfer
        How the latest upload travelled; false before one.
    """

    def __init__(self, message: pb.Buffer) -> None:
        self.transfer: Transfer = NO_TRANSFER
        self.mapped: npt.NDArray[np.uint8] | None = None  # all of it, once shared
        self.mapping: Mapping | None = None  # the same of a "device_shared" one
        self._describe(message)

    def _describe(self, message: pb.Buffer) -> None:
        self.buffer_id = message.buffer_id
        self.size_bytes = message.size_bytes
        self.device = message.device
        self.memory_kind = _KIND_NAMES.get(message.memory_kind, "device")
        self.dtype = dtypes.from_wire(message.dtype)
        self.shape = tuple(message.shape)
        self.label = message.label
        self.published_name = message.published_name
        self.content_hash = message.content_hash
        self.read_only = message.read_only
        self.committed_bytes = message.committed_bytes
        self.create_time: datetime = message.create_time.ToDatetime(UTC)

    def tensor(
        self,
        shape: Any = None,
        dtype: dtypes.DTypeLike | None = None,
        *,
        offset_bytes: int = 0,
        strides: Any = None,
    ) -> Tensor:
        """A view. Without arguments: all of it, as it was created.

        Parameters
        ----------
        shape : int or sequence of int, optional
        dtype : DTypeLike, optional
        offset_bytes : int
        strides : sequence of int, optional
            In elements; row-major by default.
        """
        found = self.dtype if dtype is None else dtypes.as_dtype(dtype)
        given = self.shape if shape is None else shape
        extents = tuple(given) if isinstance(given, Iterable) else (given,)
        if found is None or not extents:
            raise ValueError("the buffer was created untyped; give dtype and shape")
        return Tensor(self.buffer_id, found, extents, strides, offset_bytes, owner=self)

    @property
    def T(self) -> Tensor:
        """`tensor().T`."""
        return self.tensor().T

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """`tensor()[index]`."""
        return self.tensor()[index]

    def _span(self, nbytes: int, offset_bytes: int) -> None:
        """Raises unless [offset, offset + nbytes) lies inside the buffer."""
        if offset_bytes < 0 or offset_bytes + nbytes > self.size_bytes:
            raise ValueError(
                f"offset_bytes={offset_bytes} and {nbytes} bytes of data go past the buffer's"
                f" {self.size_bytes}"
            )

    def _room(
        self, offset_bytes: int, nbytes: int | None, out: npt.NDArray[Any] | None
    ) -> npt.NDArray[np.uint8]:
        """Memory for a download: `out`'s own, or new one for `nbytes` or all that follows the
        offset.
        """
        if out is None:
            length = self.size_bytes - offset_bytes if nbytes is None else nbytes
            if length < 0 and nbytes is not None:
                raise ValueError(f"nbytes={nbytes}; give 0 or more, or leave it out for the rest")
            return np.empty(max(length, 0), dtype=np.uint8)
        if not isinstance(out, np.ndarray):
            raise TypeError(f"out is a {type(out).__name__}; give a numpy array, or leave it out")
        if nbytes is not None and nbytes != out.nbytes:
            raise ValueError(f"nbytes={nbytes}, but out has {out.nbytes}; leave nbytes out")
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError(
                f"out of shape {out.shape} and strides {out.strides} is not writable, dense and"
                " row-major; download without out and copy into it"
            )
        if self.dtype is not None and out.dtype not in (self.dtype, np.dtype(np.uint8)):
            raise ValueError(
                f"out is of {out.dtype}, the buffer of {self.dtype}; take an array of that, or of"
                " uint8 for the bytes"
            )
        return out.reshape(-1).view(np.uint8)

    def _typed(
        self, raw: npt.NDArray[np.uint8], offset_bytes: int, nbytes: int | None
    ) -> npt.NDArray[Any]:
        """The bytes in the buffer's dtype and shape; as they are if they are a part, or untyped."""
        if self.dtype is None or not self.shape or offset_bytes or nbytes is not None:
            return raw
        count = math.prod(self.shape)
        return raw[: count * self.dtype.itemsize].view(self.dtype).reshape(self.shape)

    def _needs_mapping(self) -> bool:
        """Whether `_array_over` needs the server's record first.

        Raises
        ------
        FailedPrecondition
            The buffer is of a kind that other processes do not map.
        """
        if self.memory_kind != "device_shared":
            raise FailedPrecondition(
                f'{self!r} is "{self.memory_kind}" memory; only a "device_shared" buffer is mapped'
                " by CUDA IPC",
                reason="NOT_SHARED",
            )
        return self.mapping is None

    def _array_over(self, mapping: Mapping) -> DeviceArray:
        """All of the buffer in its dtype and shape; bytes (uint8) if it is untyped."""
        self.mapping = mapping
        if self.dtype is None or not self.shape:
            return DeviceArray(mapping, np.dtype(np.uint8), (self.size_bytes,))
        return DeviceArray(mapping, self.dtype, self.shape)

    def _unmap(self) -> None:
        """Lets go of the GPU memory mapped here; before the server frees it. Tensors over it keep
        it mapped, with a warning: what they show is undefined once it is freed.
        """
        if self.mapping is None:
            return
        alive = weakref.ref(self.mapping)
        self.mapping = None
        if alive() is not None:
            warnings.warn(
                f"{self!r} is deleted while tensors over its memory are alive; drop those first",
                ResourceWarning,
                stacklevel=4,
            )

    def __repr__(self) -> str:
        kind = self.dtype.name + str(list(self.shape)) if self.dtype else f"{self.size_bytes} B"
        named = f' "{self.published_name}"' if self.published_name else ""
        return f"Buffer{named}({kind} on {self.device})"
