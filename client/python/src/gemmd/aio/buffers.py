"""Buffers: a session's memory on devices, made, listed, published and deleted."""

from __future__ import annotations

import asyncio  # aio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, errors, words
from gemmd._memory import imports, interop
from gemmd._ops import narrowing
from gemmd._ops.multiply import scratch_size
from gemmd._wire import requests
from gemmd.aio.buffer import Buffer
from gemmd.aio.work import Work
from gemmd.ops import Granularity, Operand
from gemmd.share import SharedArray
from gemmd.tensor import Tensor
from gemmd.v1 import buffer_service_pb2 as buffer_pb

if TYPE_CHECKING:
    from gemmd.aio.client import Client

MemoryKind = Literal["device", "host_shared", "device_shared"]


class Buffers(Work):
    """What a session does with buffers. Session adds checkpoints, inline data and the lifetime."""

    client: Client
    _lent: dict[bytes, Any]  # by buffer_id: what keeps imported GPU memory alive

    def _buffer(self, message: buffer_pb.Buffer) -> Buffer:
        raise NotImplementedError  # Session's: a buffer knows its session

    async def create_buffer(
        self,
        size_bytes: int = 0,
        *,
        shape: int | Sequence[int] = (),
        dtype: dtypes.DTypeLike | None = None,
        memory_kind: MemoryKind = "device",
        device: str = "",
        label: str = "",
    ) -> Buffer:
        """Device memory, zeroed. Give `size_bytes`, or `shape` and `dtype`, or both.

        Raises
        ------
        ResourceExhausted
            The tenant's limit of buffers or bytes is reached, or the device is full.
        """
        message = requests.create_buffer(
            self.session_id, size_bytes, shape, dtype, memory_kind, device, label
        )
        try:
            answer = await self.transport.ask(message, buffer_pb.Buffer)
        except errors.ResourceExhausted:
            # What the session keeps for its own ends may be what is in the way.
            idle = self._scratch.take_all()
            if self.sharing.arena is None and not idle:
                raise
            if self.sharing.arena is not None:
                self.sharing.give_up(self.sharing.arena)
            for one in idle:
                self._lose(one)
            await self._delete_lost()
            answer = await self.transport.ask(message, buffer_pb.Buffer)
        return self._buffer(answer)

    async def _created(self, **about: Any) -> Buffer:
        """`create_buffer`; what the server makes for a call that is cancelled is deleted later."""
        await self._delete_lost()
        # sync: return self.create_buffer(**about)
        # aio {
        made = asyncio.ensure_future(self.create_buffer(**about))
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            made.add_done_callback(self._lose_made)
            raise

    def _lose_made(self, made: asyncio.Future[Buffer]) -> None:
        if not made.cancelled() and made.exception() is None:
            self._lose(made.result())

    # }
    @contextlib.asynccontextmanager
    async def _or_nothing(self, buffer: Buffer) -> AsyncIterator[None]:
        """Deletes the buffer if the block fails, for its caller does not get it; one that was
        interrupted some time later.
        """
        try:
            yield
        except BaseException as error:
            self._lose(buffer)
            if isinstance(error, errors.Error):
                await self._delete_lost()
            raise

    async def _create_scratch(
        self, nbytes: int, *, memory_kind: MemoryKind = "device", device: str = "", label: str
    ) -> Buffer:
        """Room for `nbytes`; for more, to serve later calls too, where that much is free."""
        for size_bytes in (scratch_size(nbytes), max(nbytes, 1)):
            try:
                return await self.create_buffer(
                    size_bytes, memory_kind=memory_kind, device=device, label=label
                )
            except errors.ResourceExhausted as error:
                refused = error
        raise refused

    async def upload(
        self,
        data: npt.ArrayLike,
        *,
        dtype: dtypes.DTypeLike | None = None,
        memory_kind: MemoryKind = "device",
        label: str = "",
    ) -> Buffer:
        """A new buffer with the elements, dtype and shape of an array or a torch tensor. Its
        `.transfer` says how they travelled.

        Parameters
        ----------
        dtype : DTypeLike, optional
            Convert to this first. Needed for what gemmd has no dtype for, such as int64; float64
            becomes float32 without it, with a `PrecisionWarning`.

        Raises
        ------
        TypeError
            The array is of a dtype that gemmd has none for, and no `dtype` is given.
        ValueError
            It is a scalar, or empty.
        """
        array = interop.as_numpy(data)
        if dtype is None:
            dtype = narrowing.sent_as("data", array)
            narrowing.warn_of(data=array)
        if array.ndim == 0 or array.size == 0:
            raise ValueError(f"data has shape {array.shape}; a buffer has extents of at least 1")
        array = np.asarray(array, dtype=dtypes.as_dtype(dtype))
        buffer = await self._created(
            shape=array.shape, dtype=array.dtype, memory_kind=memory_kind, label=label
        )
        async with self._or_nothing(buffer):
            await buffer.upload(array)
        return buffer

    async def import_array(self, data: SharedArray | npt.ArrayLike, *, label: str = "") -> Buffer:
        """A buffer over memory of this process, which the server then uses in place.

        A `SharedArray` is shared as it is; any other array is copied into one first.
        `buffer.array()` is the memory.

        Raises
        ------
        FailedPrecondition
            The server is on another host or offers no shared memory.
        """
        if not isinstance(data, SharedArray):
            array = interop.as_numpy(data)
            data = SharedArray(array.shape, array.dtype)
            data.array[...] = array
        token = await asyncio.to_thread(data.offer, await self.client.share_socket())
        message = requests.import_buffer(self.session_id, token, data, label)
        buffer = self._buffer(await self.transport.ask(message, buffer_pb.Buffer))
        buffer.mapped = data.array.reshape(-1).view(np.uint8)
        return buffer

    async def from_dlpack(self, array: Any, *, ready: Any = None, label: str = "") -> Tensor:
        """An array of another package as a tensor: GPU memory where it lies, by CUDA IPC and
        without a copy; host memory is uploaded.

        The memory is kept until `tensor.owner.delete()` or the session's end: it must not be freed
        while the server has it. Programs read it as it is when they run, and write it in place.

        Parameters
        ----------
        array : torch.Tensor or any object with `__dlpack__`
        ready : optional
            What to wait for before the server may look. None: all work that the current torch
            stream has been given, or the default stream for other packages' arrays. A
            torch.cuda.Event or Stream: that. False: nothing, the caller has waited.

        Raises
        ------
        FailedPrecondition
            The memory has no CUDA IPC handle (expandable segments, stream-ordered allocators), is
            on a GPU that is none of the server's, or the server is on another host.
        TypeError, ValueError
            A dtype, shape or strides that gemmd has no tensor for.
        """
        memory = await asyncio.to_thread(interop.describe, array, interop.pin(array, ready))  # aio
        # sync: memory = interop.describe(array, ready)
        if not memory.on_gpu:
            return (await self.upload(array, label=label)).tensor()
        import_ = imports.of_gpu(memory)
        token = await asyncio.to_thread(import_.offer, await self.client.share_socket())
        message = requests.import_device(self.session_id, token, label)
        buffer = self._buffer(await self.transport.ask(message, buffer_pb.Buffer))
        self._lent[buffer.buffer_id] = memory.owner
        return import_.tensor(buffer.buffer_id, buffer)

    async def operand(
        self,
        shape: Sequence[int],
        granularity: Granularity,
        dtype: dtypes.DTypeLike = "e4m3",
        *,
        label: str = "",
    ) -> Operand:
        """Room for a quantised matrix [rows, k] (or a batch) and its scales: the destination of
        `ops.quantize`. Scales of BLOCK_1X128 are a strided view of their buffer, in the layout that
        `Granularity.scales_in` tells of.
        """
        if not isinstance(granularity, Granularity):
            raise TypeError(
                f"granularity is {granularity!r}; give a gemmd.Granularity: "
                + ", ".join(one.name for one in Granularity if one is not Granularity.NONE)
            )
        scales_room = granularity.scales_room(shape)
        values = await self._created(shape=shape, dtype=dtype, label=label)
        async with self._or_nothing(values):
            room = await self._created(shape=scales_room, dtype=dtypes.float32, label=label)
        return Operand(values.tensor(), granularity.scales_in(room.tensor(), shape), granularity)

    async def buffers(self) -> list[Buffer]:
        """The session's buffers, oldest first."""
        request = buffer_pb.ListBuffersRequest(session_id=self.session_id)
        pages = self.transport.pages(request, buffer_pb.ListBuffersResponse)
        return [self._buffer(one) async for page in pages for one in page.buffers]

    async def delete_buffers(self, buffers: Iterable[Buffer]) -> int:
        """Deletes all or, if one is unknown, none (NotFound). Returns freed bytes."""
        named = list(buffers)
        for buffer in named:
            buffer._unmap()
        ids = [buffer.buffer_id for buffer in named]
        request = buffer_pb.DeleteBuffersRequest(session_id=self.session_id, buffer_ids=ids)
        answer = await self.transport.ask(request, buffer_pb.DeleteBuffersResponse)
        for one in ids:
            self._lent.pop(one, None)
        return answer.freed_bytes

    async def publish(
        self, buffer: Buffer, name: str, *, content_hash: bytes = b"", ttl_s: float | None = None
    ) -> None:
        """See `buffer.publish`."""
        request = requests.publish(self.session_id, buffer.buffer_id, name, content_hash, ttl_s)
        await self.transport.ask(request, buffer_pb.PublishBufferResponse)
        buffer.published_name, buffer.read_only = name, True
        buffer.content_hash = content_hash

    async def find(self, name: str) -> Buffer:
        """A read-only handle on a published buffer; delete it to let go. NotFound if the name is
        unknown.

        A name without version means the current one. While the session holds a buffer that it
        found so, all names of it mean that version, whatever `client.switch_version` does.
        """
        request = buffer_pb.FindBufferRequest(
            session_id=self.session_id, name=words.text("name", name)
        )
        return self._buffer(await self.transport.ask(request, buffer_pb.Buffer))

    async def unpublish(self, name: str, *, unless_held: bool = False) -> None:
        """Takes the name, with its version, away; who has found the buffer keeps it.

        Raises
        ------
        FailedPrecondition
            With `unless_held`: a session holds the buffer, or another of its version.
        """
        request = buffer_pb.UnpublishBufferRequest(
            session_id=self.session_id, name=words.text("name", name), unless_held=unless_held
        )
        await self.transport.ask(request, buffer_pb.UnpublishBufferResponse)

    async def _get_buffer_message(self, buffer_id: bytes) -> buffer_pb.Buffer:
        """How the server describes a buffer now."""
        request = buffer_pb.GetBufferRequest(session_id=self.session_id, buffer_id=buffer_id)
        return await self.transport.ask(request, buffer_pb.Buffer)

    def _lose(self, buffer: Buffer) -> None:
        """To be deleted some time: programs that nobody waits for may still use it."""
        self.sharing.lost.append(buffer.buffer_id)

    async def _delete_lost(self) -> None:
        lost = self.sharing.take_lost()
        try:
            while lost:
                request = buffer_pb.DeleteBuffersRequest(
                    session_id=self.session_id, buffer_ids=lost[-1:]
                )
                with contextlib.suppress(errors.Error):
                    await self.transport.ask(request, buffer_pb.DeleteBuffersResponse)
                lost.pop()
        finally:
            self.sharing.lost.extend(lost)  # for another call, if this one is cancelled
