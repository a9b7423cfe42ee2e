"""Buffer: device memory behind a handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gemmd import chunks
from gemmd.handle import Handle
from gemmd.report import Transfer
from gemmd.result import Array
from gemmd.v1 import buffer_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.session import Session


class Buffer(Handle):
    """A buffer of a session. Made by `session.create_buffer`, `upload`, `find` and `import_array`.

    As a context manager it is deleted at the end of the block. Otherwise it lives as long as its
    session.
    """

    def __init__(self, session: Session, message: pb.Buffer) -> None:
        super().__init__(message)
        self.session = session

    def upload(self, data: npt.ArrayLike, offset_bytes: int = 0) -> Transfer:
        """Puts an array's elements at `offset_bytes`, dense and row-major, in the buffer's dtype if
        it has one.

        A stream that was cut goes on from what the server has made durable.

        Raises
        ------
        ValueError
            The data goes past the end.
        FailedPrecondition
            The buffer is read-only.
        DataLoss
            A chunk was damaged on the way, on every attempt.
        """
        raw = chunks.as_bytes(np.asarray(data, dtype=self.dtype))
        self.transfer = self.session.move_up(self, raw, offset_bytes)
        return self.transfer

    def download(self, offset_bytes: int = 0, nbytes: int | None = None) -> Array:
        """The buffer's elements as an array of its dtype and shape; bytes (uint8) of a part or of
        an untyped one.

        The array's `.transfer` says how it travelled.
        """
        raw = self.room(offset_bytes, nbytes)
        transfer = self.session.move_down(self, raw.data, offset_bytes)
        return Array.of(self.typed(raw, offset_bytes, nbytes), transfer=transfer)

    def array(self) -> npt.NDArray[Any]:
        """The buffer's own memory as an array, without a copy: writes are seen by the server.

        Read-only if the buffer is. The memory stays valid after the buffer is deleted, but means
        nothing to the server then.

        Raises
        ------
        FailedPrecondition
            The buffer is not "host_shared", or the server is on another host.
        """
        return self.typed(self.session.map(self), 0, None)

    def refresh(self) -> Buffer:
        """Asks the server again: read_only, published_name, committed_bytes."""
        self._describe(self.session.get_buffer_message(self.buffer_id))
        return self

    def publish(self, name: str) -> Buffer:
        """Gives the buffer a name for the tenant's other sessions; read-only to everyone from now
        on.

        Parameters
        ----------
        name : str
            1 to 128 of [A-Za-z0-9._/-].

        Raises
        ------
        AlreadyExists
            The name is taken.
        """
        self.session.publish(self, name)
        return self

    def delete(self) -> int:
        """Ends the handle; memory is freed when the last program that uses it is done. Returns
        freed bytes.
        """
        return self.session.delete_buffers([self])

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()
