"""Hold, for asyncio: the stream that keeps a session alive, read by a task."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from gemmd._wire import methods
from gemmd.aio.transport import Transport
from gemmd.v1 import session_service_pb2 as pb


class Hold:
    """As `gemmd.hold.Hold`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.draining = False
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, transport: Transport, session_id: bytes) -> Hold:
        request = pb.HoldRequest(session_id=session_id).SerializeToString()
        stream = transport.streams.unary_stream(methods.HOLD)(
            request, metadata=transport.metadata()
        )
        hold = cls(stream)
        try:
            await hold._stream.read()  # KIND_HELD, or the stream's failure
        except grpc.aio.AioRpcError:
            return hold  # the next call meets the same trouble and tells the caller
        hold._task = asyncio.create_task(hold._listen())
        return hold

    async def _listen(self) -> None:
        try:
            while (event := await self._stream.read()) is not grpc.aio.EOF:
                if pb.HoldEvent.FromString(event).kind == pb.HoldEvent.KIND_DRAINING:
                    self.draining = True
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass

    async def cancel(self) -> None:
        self._stream.cancel()
        if self._task is not None:
            await self._task
