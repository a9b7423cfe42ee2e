"""Queue, for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import grpc.aio

from gemmd import errors
from gemmd._connection.here_only import Awaited
from gemmd._wire import methods
from gemmd._wire.programs import Priority, Rebind, ReportLevel
from gemmd.aio.transport import Transport
from gemmd.ops import Op
from gemmd.plan_handle import PlanHandle
from gemmd.queue import Pending, QueueBase, Window, gather, open_request, outcome
from gemmd.result import Result
from gemmd.v1 import compute_service_pb2 as pb

_OPENINGS = 4  # tries at most


class Queue(QueueBase, Awaited):
    """As `gemmd.Queue`: `async with session.queue() as queue: future = await queue.submit(ops)`."""

    def __init__(
        self,
        stream: Any,
        opened: pb.QueueOpened,
        explained: Callable[[errors.Error], errors.Error],
        most_bytes: int,
    ) -> None:
        self._most_bytes = most_bytes
        self._stream = stream
        self._explained = explained
        self._window = Window()
        self._window.batches = self.window_batches = opened.window_batches
        self._window.nbytes = opened.window_bytes
        self.device = opened.device
        self._flying: deque[Pending] = deque()
        self._submitting = asyncio.Lock()  # those who wait for room go in the order they came
        self._gathers = opened.max_batches_per_message  # in a message at most
        self._unsent: deque[bytes] = deque()
        self._more = asyncio.Event()  # to send, or the end
        self._room = asyncio.Event()
        self._sequence = 0
        self._end: errors.Error | None = None
        self._closed = False
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())

    @classmethod
    async def open(
        cls, transport: Transport, session_id: bytes, priority: Priority, report: ReportLevel,
        most_bytes: int = 0,
    ) -> Queue:  # fmt: skip
        """What `session.queue()` calls."""
        for attempt in range(_OPENINGS):
            stream = transport.streams.stream_stream(methods.QUEUE)(metadata=transport.metadata())
            try:
                await stream.write(open_request(session_id, priority, report))
                first = await stream.read()
            except grpc.aio.AioRpcError as rpc_error:
                error = errors.from_rpc(rpc_error)
                # grpc.aio's words for a stream that ended while it was written to: what the server
                # said of it is lost, and a stream that was not opened may be opened again.
                if error.message != "Internal error from Core" or attempt + 1 == _OPENINGS:
                    raise transport.security.explained(error) from None
                continue
            break
        if first is grpc.aio.EOF:
            raise await _why_ended(stream)
        opened = pb.QueueResponse.FromString(first).opened
        return cls(stream, opened, transport.security.explained, most_bytes)

    async def submit(
        self, ops: Iterable[Op] | PlanHandle, *, rebind: Rebind | None = None,
        inputs: Sequence[Any] | None = None, resume: bool = False,
    ) -> asyncio.Future[Result]:  # fmt: skip
        """Sends a batch, or a run of a plan, as soon as the window has room. Await the future for
        its Result.
        """
        batch = self._batch(ops, rebind, inputs, resume)
        async with self._submitting:
            while not (self._closed or self._end or self._window.has_room(batch.inline_bytes)):
                self._room.clear()
                await self._room.wait()
            if self._closed:
                raise errors.Cancelled("the queue is closed")
            if self._end is not None:
                raise self._end
            self._window.take(batch.inline_bytes)
            self._sequence += 1
            future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
            self._flying.append(Pending(self._sequence, batch, future))
            self._unsent.append(batch.encoded(self._sequence))
            self._more.set()
        return future

    async def close(self) -> None:
        """Sends no more, and waits until all that was submitted has completed."""
        self._closed = True
        self._room.set()
        async with self._submitting:  # whoever was before has sent, or was told
            self._more.set()
        await self._writer
        await self._reader

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, errors.Error):
            with suppress(errors.beside(kind)):
                await self.close()
            return
        # The block failed for reasons of its own: do not wait for its work.
        self._closed = True
        self._stream.cancel()
        await asyncio.gather(self._writer, self._reader, return_exceptions=True)

    async def _write(self) -> None:
        """Batches that are submitted during a write go into the next message together."""
        try:
            while self._end is None:
                if self._unsent:
                    await self._stream.write(gather(self._unsent, self._gathers))
                elif self._closed:
                    await self._stream.done_writing()
                    return
                else:
                    self._more.clear()
                    await self._more.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader sets the futures to what ended the stream

    async def _read(self) -> None:
        end: errors.Error | None = None
        try:
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                self._complete(pb.QueueResponse.FromString(message).completions.items)
            end = await _why_ended(self._stream)
        except grpc.aio.AioRpcError as error:
            end = errors.from_rpc(error)
        finally:
            end = end or errors.Cancelled("the queue's stream was cancelled")
            self._finish(self._explained(end))

    def _complete(self, items: Iterable[pb.Completion]) -> None:
        for item in items:
            pending = self._flying.popleft()
            self._window.give(pending.batch.inline_bytes)
            result = outcome(item, pending.batch)
            if pending.future.cancelled():
                continue  # its waiter gave up; the batch ran all the same
            if isinstance(result, Result):
                pending.future.set_result(result)
            else:
                pending.future.set_exception(result)
        self._room.set()

    def _finish(self, end: errors.Error) -> None:
        self._end = end
        self._room.set()
        self._more.set()
        while self._flying:
            future = self._flying.popleft().future
            if not future.done():
                future.set_exception(end)
                future.exception()  # or asyncio would report those that nobody waits for


async def _why_ended(stream: Any) -> errors.Error:
    code = await stream.code()
    if code.value[0] == 0:
        return errors.Unavailable("the server ended the queue's stream")
    return errors.from_status(
        code.value[0], await stream.details(), await stream.trailing_metadata()
    )
