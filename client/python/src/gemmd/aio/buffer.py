"""Buffer: device memory behind a handle."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt

from gemmd import errors
from gemmd._connection.here_only import Awaited  # aio
from gemmd._memory import interop  # aio

# sync: from gemmd._memory import dlpack, interop
from gemmd._ops import narrowing
from gemmd._wire import chunks
from gemmd.device_array import DeviceArray, Mapping
from gemmd.handle import Handle
from gemmd.report import Transfer
from gemmd.result import Array
from gemmd.v1 import buffer_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.session import Session


class Buffer(Handle, Awaited):
    """A buffer of a session. Made by `session.create_buffer`, `upload`, `find` and `import_array`.

    As a context manager it is deleted at the end of the block. Otherwise it lives as long as its
    session.
    """

    def __init__(self, session: Session, message: pb.Buffer) -> None:
        super().__init__(message)
        self.session = session

    def _kept_by_session(self) -> Buffer:
        """The same, for what the session keeps of its own: in a cycle, a session that is dropped
        would live until the next collection.
        """
        self.session = weakref.proxy(self.session)
        return self

    async def upload(self, data: npt.ArrayLike, offset_bytes: int = 0) -> Transfer:
        """Puts the elements of an array or a torch tensor at `offset_bytes`, dense and row-major.
        Where the buffer has a dtype floats are rounded to it, float64 with a `PrecisionWarning`;
        what float8_e4m3fn has no number for becomes NaN, as in ml_dtypes.

        A stream that was cut goes on from what the server has made durable.

        Raises
        ------
        ValueError
            The data goes past the end.
        TypeError
            Floats for a buffer of integers, or whole numbers that its dtype lacks.
        FailedPrecondition
            The buffer is read-only.
        DataLoss
            A chunk was damaged on the way, on every attempt.
        """
        raw = chunks.as_bytes(narrowing.fitted("data", data, self.dtype))
        self.transfer = await self.session._mover.upload(self, raw, offset_bytes)
        return self.transfer

    async def download(
        self, offset_bytes: int = 0, nbytes: int | None = None, *,
        out: npt.NDArray[Any] | None = None,
    ) -> Array:  # fmt: skip
        """The buffer's elements as an array of its dtype and shape; bytes (uint8) of a part or of
        an untyped one.

        Parameters
        ----------
        offset_bytes : int
        nbytes : int, optional
            All that follows by default.
        out : array, optional
            Filled with as many bytes as it has, and returned: dense, writable, of the buffer's
            dtype or uint8. A large new array costs the transfer a third of its rate.

        Returns
        -------
        Array
            Its `.transfer` says how it travelled.

        Raises
        ------
        ValueError
            The range goes past the end, or `out` cannot take it.
        """
        raw = self._room(offset_bytes, nbytes, out)
        transfer = await self.session._mover.download(self, raw.data, offset_bytes)
        found = self._typed(raw, offset_bytes, nbytes) if out is None else out
        return Array.of(found, transfer=transfer)

    async def array(self) -> npt.NDArray[Any]:
        """The buffer's own memory as an array, without a copy: writes are seen by the server.

        Read-only if the buffer is. The memory stays valid after the buffer is deleted, but means
        nothing to the server then.

        Raises
        ------
        FailedPrecondition
            The buffer is not "host_shared", or the server is on another host.
        """
        return self._typed(await self.session._mover.map(self, not self.read_only), 0, None)

    async def device_array(self) -> DeviceArray:
        """The memory of a "device_shared" buffer in this process, by CUDA IPC, without a copy.

        Raises
        ------
        FailedPrecondition
            The buffer is of another kind or read-only, the server is on another host, or this
            process does not see the GPU.
        Unavailable
            This machine has no GPU.
        """
        return self._array_over(
            await self.session._mover.map_device(self)
            if self._needs_mapping()
            else cast(Mapping, self.mapping)
        )

    async def torch(self) -> Any:
        """A torch tensor over the buffer's own memory: on the GPU for a "device_shared" buffer, on
        the CPU for a "host_shared" one. Errors as `device_array`'s and `array`'s; ImportError
        without torch.
        """
        if self.memory_kind == "host_shared":
            return interop.as_torch(await self.array())
        return (await self.device_array()).torch()

    # sync: def __dlpack_device__(self) -> tuple[int, int]:
    # sync:     """For `from_dlpack` of numpy, torch and others: a "host_shared" or "device_shared"
    # sync:     buffer is handed over where it is.
    # sync:     """
    # sync:     if self.memory_kind == "host_shared":
    # sync:         return dlpack.CPU, 0
    # sync:     return self.device_array().__dlpack_device__()
    # sync:
    # sync: def __dlpack__(self, **options: Any) -> Any:
    # sync:     if self.memory_kind == "host_shared":
    # sync:         return dlpack.host_capsule(self.array(), **options)
    # sync:     return self.device_array().__dlpack__(**options)

    async def refresh(self) -> Buffer:
        """Asks the server again: read_only, published_name, committed_bytes."""
        self._describe(await self.session._get_buffer_message(self.buffer_id))
        return self

    async def publish(
        self, name: str, *, content_hash: bytes = b"", ttl_s: float | None = None
    ) -> Buffer:
        """Gives the buffer a name for the tenant's other sessions; read-only to everyone from now
        on.

        Parameters
        ----------
        name : str
            1 to 128 of [A-Za-z0-9._/-]; "m@2/w" is "m/w" of version 2 of "m".
        content_hash : bytes
            What it was made of, for `find` to give back; 32 bytes, or none.
        ttl_s : float, optional
            Unpublish it after this long without a session that holds it; 1 or more.

        Raises
        ------
        AlreadyExists
            The name is taken.
        """
        await self.session.publish(self, name, content_hash=content_hash, ttl_s=ttl_s)
        return self

    async def delete(self) -> int:
        """Ends the handle; memory is freed when the last program that uses it is done. Returns
        freed bytes. Of GPU memory that this process handed over the server has let go when this
        returns.
        """
        return await self.session.delete_buffers([self])

    async def __aenter__(self) -> Buffer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):  # NotFound: deleted in the block, or with its session
            await self.delete()
