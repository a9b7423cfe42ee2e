"""Hold, for asyncio: the stream that keeps a session alive, read by a task."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc.aio

from gemmd import errors
from gemmd._wire import methods
from gemmd.aio.transport import Transport
from gemmd.retry import broken_connection
from gemmd.v1 import session_service_pb2 as pb

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0  # before a stream that broke is opened anew

_closing: set[asyncio.Task[None]] = set()  # a loop keeps no task alive


class Hold:
    """As `gemmd.hold.Hold`."""

    def __init__(self, transport: Transport, session_id: bytes) -> None:
        self._transport = transport
        self._session_id = session_id
        self._loop = asyncio.get_running_loop()
        self.draining = False
        self._stream: Any = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, transport: Transport, session_id: bytes) -> Hold:
        hold = cls(transport, session_id)
        hold._begin()
        try:
            await hold._stream.read()  # KIND_HELD, or the stream's failure
        except grpc.aio.AioRpcError:
            return hold  # the next call meets the same trouble and tells the caller
        hold._task = asyncio.create_task(hold._listen())
        return hold

    def _begin(self) -> None:
        request = pb.HoldRequest(session_id=self._session_id).SerializeToString()
        self._stream = self._transport.streams.unary_stream(methods.HOLD)(
            request, metadata=self._transport.metadata()
        )

    async def _listen(self) -> None:
        pause = _FIRST_PAUSE_S
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                try:
                    while (event := await self._stream.read()) is not grpc.aio.EOF:
                        pause = _FIRST_PAUSE_S
                        if pb.HoldEvent.FromString(event).kind == pb.HoldEvent.KIND_DRAINING:
                            self.draining = True
                    return  # the session has ended
                except grpc.aio.AioRpcError as error:
                    if not broken_connection(errors.from_rpc(error)):
                        return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                self._begin()

    async def cancel(self) -> None:
        """The session has been closed."""
        self._stream.cancel()
        if self._task is not None:
            self._task.cancel()  # it may be between two streams
            await self._task

    @property
    def ended(self) -> bool:
        """Whether there is nothing to close: the stream has ended for good."""
        return self._task is None or self._task.done() or self._loop.is_closed()

    def drop(self) -> None:
        """Closes a session that nobody has any more, on the loop: called by whichever thread
        collects garbage.
        """
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._begin_closing)

    def _begin_closing(self) -> None:
        task = self._loop.create_task(self._close_session())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def _close_session(self) -> None:
        request = pb.CloseSessionRequest(session_id=self._session_id)
        # What keeps it from that also cuts the stream.
        with contextlib.suppress(errors.Error, grpc.aio.UsageError, asyncio.CancelledError):
            await self._transport.ask(request, pb.CloseSessionResponse)
        await self.cancel()
