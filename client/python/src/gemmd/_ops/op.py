"""Op: one step of a program, and its encoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gemmd._wire import wire
from gemmd._wire.wire import BytesLike
from gemmd.tensor import Tensor, TensorLike, as_tensor
from gemmd.v1 import types_pb2 as pb

_OPS_FIELD = (
    2  # of ExecuteRequest, CreatePlanRequest and Batch alike: one encoding serves the three
)

_WRITE_FIELD, _TENSOR_FIELD, _WRITE_DATA_FIELD = 6, 1, 2  # of Op; of Write
_SHARED_FIELDS = {"write": (_WRITE_FIELD, 3), "read": (7, 2)}  # of Op; of Write, Read


class Op:
    """One step. Immutable, encoded once: keep it and run it again, alone or in other programs.

    Attributes
    ----------
    name : str
        "matmul", "quantize", ...
    message : gemmd.v1.types_pb2.Op
    wire : bytes
        As a field of the requests that carry ops.
    reads : Tensor or None
        For a read: what comes back.
    moved : Tensor or None
        For a write or read: what its data goes to or comes from.
    data : bytes or memoryview
        Of a write.
    inline_bytes : int
        Write data that this op carries.
    """

    __slots__ = ("_message", "_through", "_wire", "data", "moved", "name", "owners", "reads")

    def __init__(
        self,
        name: str,
        message: pb.Op | None,
        owners: Any,
        *,
        moved: Tensor | None = None,
        data: bytes | memoryview = b"",
    ) -> None:
        self.name = name
        self.owners = owners  # the op names buffers by handle; this keeps what owns them alive
        self.moved = moved
        self.reads = moved if name == "read" else None
        self.data = data
        self._message = message  # of a write only when it is asked for: its data may go elsewhere
        self._wire = b"" if message is None else _field(message)
        self._through = (b"", 0, b"")

    @property
    def inline_bytes(self) -> int:
        """Write data that this op carries."""
        return len(self.data)

    @property
    def message(self) -> pb.Op:
        """As the wire has it, for a look at what is sent."""
        if self._message is None:
            dst = cast(Tensor, self.moved).message
            self._message = pb.Op(write=pb.Write(dst=dst, data=bytes(self.data)))
        return self._message

    @property
    def wire(self) -> bytes:
        """As a field of the requests that carry ops."""
        return self._wire or b"".join(self.pieces)

    @property
    def pieces(self) -> Sequence[BytesLike]:
        """`wire` in pieces, of which a write's data is one."""
        if self._wire:
            return (self._wire,)
        dst = wire.field(_TENSOR_FIELD, cast(Tensor, self.moved).message.SerializeToString())
        write = [dst, *wire.framed(_WRITE_DATA_FIELD, [self.data])]
        return wire.framed(_OPS_FIELD, wire.framed(_WRITE_FIELD, write))

    def through(self, buffer_id: bytes, offset_bytes: int) -> bytes:
        """Instead of `wire`: with the data in a shared buffer, from `offset_bytes` on."""
        through = self._through  # another thread may put another place's there meanwhile
        if through[:2] != (buffer_id, offset_bytes):
            tensor = wire.field(_TENSOR_FIELD, cast(Tensor, self.moved).message.SerializeToString())
            kind, at = _SHARED_FIELDS[self.name]
            op = wire.field(kind, tensor + wire.shared_bytes(at, buffer_id, offset_bytes))
            self._through = through = (buffer_id, offset_bytes, wire.field(_OPS_FIELD, op))
        return through[2]

    def __repr__(self) -> str:
        return f"Op({self.name})"


def op_of(kind: str, **tensors: TensorLike) -> Op:
    """An op that is these tensors and nothing else, under the names that the wire has for them."""
    given = {name: as_tensor(one) for name, one in tensors.items()}
    message = pb.Op()
    for name, tensor in given.items():
        getattr(getattr(message, kind), name).CopyFrom(tensor.message)
    return Op(kind, message, tuple(given.values()))


def _field(message: pb.Op) -> bytes:
    return wire.field(_OPS_FIELD, message.SerializeToString())
