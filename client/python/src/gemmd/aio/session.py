"""Session: a client's claim on buffers and plans."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import gemmd.session  # aio
from gemmd import errors, loads, words
from gemmd._connection.here_only import Awaited  # aio
from gemmd._memory.inline import MEMORY_LABEL, Arena, Block, Sharing
from gemmd._ops.multiply import SHARED_INLINE_BYTES
from gemmd._wire import requests
from gemmd.aio import loading
from gemmd.aio.arming import Arming
from gemmd.aio.buffer import Buffer
from gemmd.aio.buffers import Buffers
from gemmd.aio.hold import Hold
from gemmd.aio.transfer import AsyncMover
from gemmd.loads import Loaded
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import session_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.client import Client

SharedMemory = Literal["auto", "off", "require"]


class Session(Buffers, Awaited):
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
        self._lent = {}
        self._about = message, shared_memory  # aio
        self._threads: gemmd.session.Session | None = None  # aio

    _elsewhere = "open a session of its own, in the process that needs one"

    # What __del__ finds of one whose making failed.
    _closed = True
    _hold: Hold | None = None

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        hold = self._hold
        if self._closed or hold is None or self.transport.home.left or hold.ended:
            return
        hold.drop()  # or it would live as long as this process
        _warn(
            f"unclosed {self!r} is closed now; close it yourself, or open it in a `with` statement",
            ResourceWarning,
            source=self,
        )

    def __repr__(self) -> str:
        ended = ", closed" if self._closed else ""
        return f"Session({self.name} on {self.device} of {self.transport.target}{ended})"

    # aio {
    def on_threads(self) -> gemmd.session.Session:
        """The same session for threads, over connections of its own; it ends with this one."""
        if self._threads is None:
            client = self.client.on_threads()
            self._threads = gemmd.session.Session(client, *self._about, hold=False)
        return self._threads

    # }
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
        quantize : {"fp8-block", "fp8-row"}, optional
            Matrices of floats to E4M3 with scales of 128x128, or with one a row, on the device.
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

    def _buffer(self, message: buffer_pb.Buffer) -> Buffer:
        return Buffer(self, message)

    async def why_not_shared(self) -> str:
        """Why this session shares no memory with the server; "" if it does."""
        return await self._mover.why_not_shared()

    # Inline data.

    async def _take_block(self, nbytes: int, timeout_s: float | None) -> Block | None:
        self.transport.home.check()
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
                answer = await self.transport.ask(message, buffer_pb.Buffer, timeout_s)
                buffer = Buffer(self, answer)
                self._lose(buffer)  # unless it can be mapped
                sharing.keep(Arena(buffer.buffer_id, await self._mover.map(buffer, True)))
                await self._delete_lost()
            except (errors.Error, OSError) as error:
                sharing.failed(error)
                return None
            return sharing.arena

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
        await self.transport.ask(request, pb.KeepAliveResponse)

    async def close(self) -> None:
        """Ends the session and waits until its work has finished and its memory is freed. Again, or
        of a session that has ended: does nothing.
        """
        if self._closed:
            return
        self._closed = True
        if self.transport.home.left:
            return  # it is the other process's
        try:
            request = pb.CloseSessionRequest(session_id=self.session_id)
            with suppress(errors.NotFound):
                await self.transport.ask(request, pb.CloseSessionResponse)
        finally:
            self._lent.clear()
            self._threads = None  # aio
            if self._hold is not None:
                await self._hold.cancel()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):
            await self.close()
