"""Tensor: a typed view of a buffer. Nothing here talks to a server."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gemmd import dtypes
from gemmd._memory.layout import row_major as row_major
from gemmd._ops.operators import Resident
from gemmd.v1 import types_pb2 as pb

Index = int | slice


class Tensor(Resident):
    """A typed view {buffer, offset, dtype, shape, strides}, as numpy has of memory. Immutable and
    cheap.

    Parameters
    ----------
    buffer_id : bytes
        The buffer's 16-byte handle.
    dtype : DTypeLike
    shape : sequence of int
        1 to 3 extents, outermost first.
    strides : sequence of int, optional
        Elements, not bytes, between neighbours along each dimension; row-major by default.
    offset_bytes : int
        From the buffer's start to element [0, ..., 0].
    owner : object, optional
        Kept alive with the view.
    """

    def __init__(
        self,
        buffer_id: bytes,
        dtype: dtypes.DTypeLike,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        offset_bytes: int = 0,
        owner: Any = None,
    ) -> None:
        self.buffer_id = buffer_id
        self.dtype = dtypes.as_dtype(dtype)
        self.shape = tuple(map(operator.index, shape))
        self.strides = (
            row_major(self.shape) if strides is None else tuple(map(operator.index, strides))
        )
        self.offset_bytes = offset_bytes
        self.owner = owner
        if not 1 <= len(self.shape) <= 3 or len(self.strides) != len(self.shape):
            raise ValueError(
                f"shape={self.shape}, strides={self.strides}: a tensor has 1 to 3 extents, and as"
                " many strides; reshape it"
            )

    @property
    def ndim(self) -> int:
        """Dimensions, 1 to 3."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, gaps between strided rows not counted."""
        return self.size * self.dtype.itemsize

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps."""
        pairs = zip(self.shape, self.strides, row_major(self.shape), strict=True)
        return all(extent == 1 or stride == dense for extent, stride, dense in pairs)

    @property
    def T(self) -> Tensor:
        """The last two dimensions swapped: a [k, n] matrix seen as [n, k]. No bytes move."""
        if self.ndim < 2:
            return self
        order = [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2]
        return self._view([self.shape[i] for i in order], [self.strides[i] for i in order], 0)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        """numpy's basic indexing: integers drop a dimension, slices (of positive step) narrow one.

        Raises
        ------
        IndexError
            Past the end, or when no dimension or no element would be left.
        TypeError
            Another kind of index: an ellipsis, None, a list, a mask.
        """
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > self.ndim:
            raise IndexError(f"{len(indices)} indices for shape {self.shape}")
        shape, strides, skipped = [], [], 0
        for axis in range(self.ndim):
            part: Index = indices[axis] if axis < len(indices) else slice(None)
            extent, stride = self.shape[axis], self.strides[axis]
            if isinstance(part, slice):
                span = range(*part.indices(extent))
                if span.step < 0 or not span:
                    raise IndexError(
                        f"{part} of {extent}: a positive step and one element at least"
                    )
                shape.append(len(span))
                strides.append(stride * span.step)
                skipped += span.start * stride
            else:
                at = _integer(part)
                if not -extent <= at < extent:
                    raise IndexError(f"index {at} of {extent}")
                skipped += (at % extent) * stride
        if not shape:
            raise IndexError("a tensor has one dimension at least; use a slice of length 1")
        return self._view(shape, strides, skipped)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements in another shape, as extents or one sequence of them; one extent may be
        -1. Only of a dense tensor.
        """
        if not self.is_dense:
            raise ValueError(f"strides {self.strides} of shape {self.shape} leave gaps; copy first")
        given = [
            operator.index(extent)
            for part in shape
            for extent in (part if isinstance(part, Sequence) else (part,))
        ]
        known = math.prod(extent for extent in given if extent != -1)
        rest = self.size // known if known else 0
        full = [rest if extent == -1 else extent for extent in given]
        if min(full, default=0) < 0 or math.prod(full) != self.size:
            raise ValueError(f"{self.size} elements do not make shape {tuple(given)}")
        return self._view(full, row_major(full), 0)

    def view(self, dtype: dtypes.DTypeLike) -> Tensor:
        """The same bytes as another dtype of the same size."""
        found = dtypes.as_dtype(dtype)
        if found.itemsize != self.dtype.itemsize:
            raise ValueError(
                f"{found} has {found.itemsize} bytes, {self.dtype} {self.dtype.itemsize}"
            )
        return Tensor(
            self.buffer_id, found, self.shape, self.strides, self.offset_bytes, self.owner
        )

    def _view(self, shape: Sequence[int], strides: Sequence[int], skipped: int) -> Tensor:
        offset = self.offset_bytes + skipped * self.dtype.itemsize
        return Tensor(self.buffer_id, self.dtype, shape, strides, offset, self.owner)

    @cached_property
    def message(self) -> pb.Tensor:
        """As it travels."""
        return pb.Tensor(
            buffer_id=self.buffer_id,
            offset_bytes=self.offset_bytes,
            dtype=dtypes.to_wire(self.dtype),  # type: ignore[arg-type]
            shape=self.shape,
            strides=() if self.is_dense else self.strides,
        )

    def __repr__(self) -> str:
        at = f", offset_bytes={self.offset_bytes}" if self.offset_bytes else ""
        gaps = "" if self.is_dense else f", strides={self.strides}"
        return f"Tensor({np.dtype(self.dtype).name}{list(self.shape)}{gaps}{at})"


def _integer(part: object) -> int:
    """An index that is no slice. True and False are masks to numpy."""
    try:
        if not isinstance(part, bool | np.bool_):
            return operator.index(part)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise TypeError(
        f"an index of type {type(part).__name__}: a tensor on the server takes integers and slices,"
        " as numpy's basic indexing does; to gather rows use gemmd.quantize(rows=..) or download"
    )


class HasTensor(Resident):
    """What can stand where a tensor is wanted: a buffer that was created with a dtype and a
    shape.
    """

    def tensor(self) -> Tensor:
        """All of it, in its own dtype and shape."""
        raise NotImplementedError


TensorLike = Tensor | HasTensor


def as_tensor(value: TensorLike) -> Tensor:
    """A tensor as it is, a typed buffer as the tensor over all of it."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, HasTensor):
        return value.tensor()
    name = type(value).__name__
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        raise TypeError(f"{name} is no tensor on the server; session.upload(array) makes one")
    raise TypeError(
        f"{name} is neither an array nor a tensor on the server; numpy.asarray makes an array of"
        " it, and session.upload(array) a tensor"
    )
