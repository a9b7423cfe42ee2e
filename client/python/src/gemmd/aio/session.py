"""Session: a client's claim on buffers and plans."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, errors, loads, narrowing, words
from gemmd._connection.here_only import Awaited  # aio
from gemmd._memory import imports, interop
from gemmd._memory.inline import MEMORY_LABEL, Arena, Block, Sharing
from gemmd._wire import methods, requests
from gemmd._wire.programs import Priority, Rebind
from gemmd.aio import loading
from gemmd.aio.armed import Armed
from gemmd.aio.arming import Arming
from gemmd.aio.buffer import Buffer
from gemmd.aio.hold import Hold
from gemmd.aio.plan import Plan
from gemmd.aio.transfer import AsyncMover
from gemmd.aio.work import Work
from gemmd.device_array import Mapping
from gemmd.loads import Loaded
from gemmd.multiply import SHARED_INLINE_BYTES
from gemmd.ops import Granularity, Operand
from gemmd.report import Transfer
from gemmd.share import SharedArray
from gemmd.tensor import Tensor
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import session_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.client import Client

MemoryKind = Literal["device", "host_shared", "device_shared"]
SharedMemory = Literal["auto", "off", "require"]


class Session(Work, Awaited):
    """Made by `client.session()`; best used as a context manager. Thread-safe.

    Attributes
    ----------
    session_id : bytes
        16 bytes; a secret: whoever has it and belongs to the tenant may use the session.
    name : str
        "s-17": what the server's log calls it.
    device : str
        "cpu:0": where its buffers go.
    ttl_s : float
        The session ends after this long without a call, unless it is held.
    """

    def __init__(
        self,
        client: Client,
        message: pb.OpenSessionResponse,
        shared_memory: SharedMemory,
        hold: Hold | None,  # aio
        # sync: hold: bool,
    ) -> None:
        words.check("shared_memory", shared_memory, ("auto", "off", "require"))
        sharing = Sharing("turned off by the client" if shared_memory == "off" else "")
        super().__init__(client.transport, message.session_id, sharing)
        self.client = client
        self.name = message.name
        self.device = message.device
        self.ttl_s = message.ttl.ToMilliseconds() / 1e3
        self._mover = AsyncMover(self, shared_memory)
        self.arming = Arming(self)
        self._making_arena = asyncio.Lock()
        self._hold = hold  # aio
        # sync: self._hold = Hold(self.transport, self.session_id) if hold else None
        self._closed = False
        self._lent: dict[bytes, Any] = {}  # by buffer_id: what keeps imported GPU memory alive

    _elsewhere = "open a session of its own, in the process that needs one"

    def __repr__(self) -> str:
        ended = ", closed" if self._closed else ""
        return f"Session({self.name} on {self.device} of {self.transport.target}{ended})"

    # Buffers.

    async def create_buffer(
        self,
        size_bytes: int = 0,
        *,
        shape: Sequence[int] = (),
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
            answer = await self.transport.call(methods.CREATE_BUFFER, message.SerializeToString())
        except errors.ResourceExhausted:
            # What the session shares for its own ends may be what is in the way.
            if self.sharing.arena is None:
                raise
            self.sharing.give_up(self.sharing.arena)
            await self._delete_lost()
            answer = await self.transport.call(methods.CREATE_BUFFER, message.SerializeToString())
        return Buffer(self, buffer_pb.Buffer.FromString(answer))

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
        """
        array = interop.as_numpy(data)
        if dtype is None:
            dtype = narrowing.sent_as("data", array)
            narrowing.warn_of(data=array)
        array = np.asarray(array, dtype=dtypes.as_dtype(dtype))
        buffer = await self.create_buffer(
            shape=array.shape, dtype=array.dtype, memory_kind=memory_kind, label=label
        )
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
            array = np.asarray(data)
            data = SharedArray(array.shape, array.dtype)
            data.array[...] = array
        token = await asyncio.to_thread(data.offer, await self.client.share_socket())
        message = requests.import_buffer(self.session_id, token, data, label)
        answer = await self.transport.call(methods.IMPORT, message.SerializeToString())
        buffer = Buffer(self, buffer_pb.Buffer.FromString(answer))
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
        answer = await self.transport.call(methods.IMPORT, message.SerializeToString())
        buffer = Buffer(self, buffer_pb.Buffer.FromString(answer))
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
        values = await self.create_buffer(shape=shape, dtype=dtype, label=label)
        room = await self.create_buffer(
            shape=granularity.scales_room(shape), dtype=dtypes.float32, label=label
        )
        return Operand(values.tensor(), granularity.scales_in(room.tensor(), shape), granularity)

    async def buffers(self) -> list[Buffer]:
        """The session's buffers, oldest first."""
        found: list[Buffer] = []
        request = buffer_pb.ListBuffersRequest(session_id=self.session_id)
        while True:
            answer = buffer_pb.ListBuffersResponse.FromString(
                await self.transport.call(methods.LIST_BUFFERS, request.SerializeToString())
            )
            found += [Buffer(self, one) for one in answer.buffers]
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    async def delete_buffers(self, buffers: Iterable[Buffer]) -> int:
        """Deletes all or, if one is unknown, none (NotFound). Returns freed bytes."""
        named = list(buffers)
        for buffer in named:
            buffer._unmap()
        ids = [buffer.buffer_id for buffer in named]
        request = buffer_pb.DeleteBuffersRequest(session_id=self.session_id, buffer_ids=ids)
        answer = await self.transport.call(methods.DELETE_BUFFERS, request.SerializeToString())
        for one in ids:
            self._lent.pop(one, None)
        return buffer_pb.DeleteBuffersResponse.FromString(answer).freed_bytes

    async def publish(
        self, buffer: Buffer, name: str, *, content_hash: bytes = b"", ttl_s: float | None = None
    ) -> None:
        """See `buffer.publish`."""
        request = requests.publish(self.session_id, buffer.buffer_id, name, content_hash, ttl_s)
        await self.transport.call(methods.PUBLISH, request.SerializeToString())
        buffer.published_name, buffer.read_only = name, True
        buffer.content_hash = content_hash

    async def find(self, name: str) -> Buffer:
        """A read-only handle on a published buffer; delete it to let go. NotFound if the name is
        unknown.

        A name without version means the current one. While the session holds a buffer that it
        found so, all names of it mean that version, whatever `client.switch_version` does.
        """
        request = buffer_pb.FindBufferRequest(session_id=self.session_id, name=name)
        answer = await self.transport.call(methods.FIND, request.SerializeToString())
        return Buffer(self, buffer_pb.Buffer.FromString(answer))

    async def unpublish(self, name: str, *, unless_held: bool = False) -> None:
        """Takes the name, with its version, away; who has found the buffer keeps it.

        Raises
        ------
        FailedPrecondition
            With `unless_held`: a session holds the buffer, or another of its version.
        """
        request = buffer_pb.UnpublishBufferRequest(
            session_id=self.session_id, name=name, unless_held=unless_held
        )
        await self.transport.call(methods.UNPUBLISH, request.SerializeToString())

    async def load(
        self,
        path: str | os.PathLike[str],
        *,
        prefix: str = "",
        quantize: loads.Quantize | None = None,
        only: str = "",
        skip: str = "",
        ttl_s: float | None = None,
        jobs: int = 4,
        progress: loads.Progress | None = None,
    ) -> Loaded[Buffer]:
        """Publishes a checkpoint's tensors, each as soon as it is whole, and holds them. What is
        published already with the same content is not moved: four workers that call this share one
        copy, and a call after an interruption goes on from there.

        Parameters
        ----------
        path : path
            FILE.safetensors, a folder with a checkpoint, or its index (.json).
        prefix : str
            A folder of names: "m" publishes "m/layer.0.w", "m@2" version 2 of "m".
        quantize : "fp8-block", optional
            Matrices of floats to E4M3 with scales of 128x128, on the device.
        only, skip : str
            Patterns of tensor names, as a shell's; * takes dots and slashes.
        ttl_s : float, optional
            Unpublish what no session has held for so long.
        jobs : int
            Tensors at a time: one is hashed while another is moved.
        progress : callable, optional
            Called with the bytes done and of all, after each tensor; one call at a time.

        Returns
        -------
        Loaded
            The buffers by the names that the tensors have in the checkpoint.

        Raises
        ------
        ValueError, OSError
            The checkpoint is damaged, or holds what cannot be published.
        AlreadyExists
            A name is published with other content.
        ResourceExhausted
            A limit is reached; what is whole by then stays.
        """
        wanted = loads.Wanted(prefix, quantize, only, skip)
        return await loading.load(self, path, wanted, loads.Options(ttl_s, jobs, progress))

    async def _get_buffer_message(self, buffer_id: bytes) -> buffer_pb.Buffer:
        """How the server describes a buffer now."""
        request = buffer_pb.GetBufferRequest(session_id=self.session_id, buffer_id=buffer_id)
        answer = await self.transport.call(methods.GET_BUFFER, request.SerializeToString())
        return buffer_pb.Buffer.FromString(answer)

    # What Buffer asks for. One transfer at a time: they share the staging memory, and two would not
    # be faster.

    async def _move_up(self, buffer: Buffer, data: memoryview, at: int) -> Transfer:
        return await self._mover.upload(buffer, data, at)

    async def _move_down(self, buffer: Buffer, out: memoryview, at: int) -> Transfer:
        return await self._mover.download(buffer, out, at)

    async def _map(self, buffer: Buffer) -> npt.NDArray[np.uint8]:
        return await self._mover.map(buffer, not buffer.read_only)

    async def why_not_shared(self) -> str:
        """Why this session shares no memory with the server; "" if it does."""
        return await self._mover.why_not_shared()

    async def _map_device(self, buffer: Buffer) -> Mapping:
        return await self._mover.map_device(buffer)

    async def _arm(
        self, plan: Plan, rebind: Rebind | None, priority: Priority, by_stream: bool
    ) -> Armed:
        """See `plan.arm`."""
        return await self.arming.arm(plan, rebind, priority, by_stream)

    # Inline data.

    async def _take_block(self, nbytes: int, timeout_s: float | None) -> Block | None:
        arena = self.sharing.arena
        block = None if arena is None else arena.take(nbytes)
        if block is None:
            grown = await self._grow_arena(arena, nbytes, timeout_s)
            block = None if grown is None else grown.take(nbytes)
        return block

    async def _shares_inline(self, nbytes: int) -> bool:
        if nbytes > SHARED_INLINE_BYTES or self.sharing.why_not:
            return False
        return (self.sharing.arena or await self._grow_arena(None, nbytes, None)) is not None

    async def _grow_arena(
        self, old: Arena | None, nbytes: int, timeout_s: float | None
    ) -> Arena | None:
        """Memory with room for `nbytes` in the place of `old`; None if that cannot be."""
        sharing = self.sharing
        async with self._making_arena:
            if sharing.arena is not old or sharing.why_not:
                return sharing.arena  # another call's
            size = sharing.larger(nbytes)
            if size == 0:
                return None
            try:
                sharing.why_not = await self.why_not_shared()
                if sharing.why_not:
                    return None
                await self._delete_lost()
                message = requests.create_buffer(
                    self.session_id, size, (), None, "host_shared", "", MEMORY_LABEL
                )
                answer = await self.transport.call(
                    methods.CREATE_BUFFER, message.SerializeToString(), timeout_s
                )
                buffer = Buffer(self, buffer_pb.Buffer.FromString(answer))
                self._lose(buffer)  # unless it can be mapped
                sharing.keep(Arena(buffer.buffer_id, await self._mover.map(buffer, True)))
                await self._delete_lost()
            except (errors.Error, OSError) as error:
                sharing.failed(error)
                return None
            return sharing.arena

    def _lose(self, buffer: Buffer) -> None:
        """To be deleted some time: programs that nobody waits for may still use it."""
        self.sharing.lost.append(buffer.buffer_id)

    async def _delete_lost(self) -> None:
        for buffer_id in self.sharing.take_lost():
            request = buffer_pb.DeleteBuffersRequest(
                session_id=self.session_id, buffer_ids=[buffer_id]
            )
            with contextlib.suppress(errors.Error):
                await self.transport.call(methods.DELETE_BUFFERS, request.SerializeToString())

    # Lifetime.

    @property
    def draining(self) -> bool:
        """True once the server has said that it stops soon. Known to held sessions only."""
        return self._hold is not None and self._hold.draining

    async def keep_alive(self) -> None:
        """Moves the expiry to now + ttl. NotFound once the session has ended. A held session needs
        none.
        """
        request = pb.KeepAliveRequest(session_id=self.session_id)
        await self.transport.call(methods.KEEP_ALIVE, request.SerializeToString())

    async def close(self) -> None:
        """Ends the session and waits until its work has finished and its memory is freed. Again:
        does nothing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            request = pb.CloseSessionRequest(session_id=self.session_id)
            await self.transport.call(methods.CLOSE_SESSION, request.SerializeToString())
        finally:
            self._lent.clear()
            if self._hold is not None:
                await self._hold.cancel()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
