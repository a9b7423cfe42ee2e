"""What a buffer's handle knows without asking the server; the sync and the asyncio Buffer build on
it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmd import dtypes
from gemmd.report import Transfer
from gemmd.tensor import HasTensor, Index, Tensor
from gemmd.v1 import buffer_service_pb2 as pb

MEMORY_KINDS = {
    "device": pb.MEMORY_KIND_DEVICE,
    "host_shared": pb.MEMORY_KIND_HOST_SHARED,
}


class Handle(HasTensor):
    """A buffer of the server, as the server described it when it was made or found.

    Attributes
    ----------
    buffer_id : bytes
        16 bytes; a secret of the tenant.
    size_bytes : int
    device : str
    memory_kind : str
        "device", or "host_shared": memory that same-host clients map.
    dtype : numpy.dtype or None
        None for a plain run of bytes.
    shape : tuple of int
        Empty for a plain run of bytes.
    read_only : bool
    transfer : Transfer or None
        How the latest upload travelled.
    """

    def __init__(self, message: pb.Buffer) -> None:
        self.transfer: Transfer | None = None
        self.mapped: npt.NDArray[np.uint8] | None = None  # all of it, once shared
        self._describe(message)

    def _describe(self, message: pb.Buffer) -> None:
        self.buffer_id = message.buffer_id
        self.size_bytes = message.size_bytes
        self.device = message.device
        self.memory_kind = (
            "host_shared" if message.memory_kind == pb.MEMORY_KIND_HOST_SHARED else "device"
        )
        self.dtype = dtypes.from_wire(message.dtype)
        self.shape = tuple(message.shape)
        self.label = message.label
        self.published_name = message.published_name
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
        shape : sequence of int, optional
        dtype : DTypeLike, optional
        offset_bytes : int
        strides : sequence of int, optional
            In elements; row-major by default.
        """
        found = self.dtype if dtype is None else dtypes.as_dtype(dtype)
        extents = self.shape if shape is None else shape
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

    def span(self, nbytes: int, offset_bytes: int) -> None:
        """Raises unless [offset, offset + nbytes) lies inside the buffer."""
        if offset_bytes < 0 or offset_bytes + nbytes > self.size_bytes:
            raise ValueError(
                f"offset_bytes={offset_bytes} and {nbytes} bytes of data go past the buffer's"
                f" {self.size_bytes}"
            )

    def room(self, offset_bytes: int, nbytes: int | None) -> npt.NDArray[np.uint8]:
        """Memory for a download of `nbytes`, or of all that follows the offset."""
        length = self.size_bytes - offset_bytes if nbytes is None else nbytes
        return np.empty(max(length, 0), dtype=np.uint8)

    def typed(
        self, raw: npt.NDArray[np.uint8], offset_bytes: int, nbytes: int | None
    ) -> npt.NDArray[Any]:
        """The bytes in the buffer's dtype and shape; as they are if they are a part, or untyped."""
        if self.dtype is None or not self.shape or offset_bytes or nbytes is not None:
            return raw
        count = math.prod(self.shape)
        return raw[: count * self.dtype.itemsize].view(self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        kind = self.dtype.name + str(list(self.shape)) if self.dtype else f"{self.size_bytes} B"
        return f"Buffer({kind} on {self.device})"
