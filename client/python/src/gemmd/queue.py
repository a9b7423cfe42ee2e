"""Queue: a command queue over one stream. Many batches in flight; they run and complete in the
order sent.
"""

from __future__ import annotations

import queue as std_queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import grpc

from gemmd import errors, words
from gemmd._connection.here_only import Unpickled
from gemmd._connection.security import LARGER
from gemmd._connection.unary import unlock
from gemmd._wire import methods, programs, wire
from gemmd._wire.programs import Priority, Rebind, ReportLevel
from gemmd.ops import Op
from gemmd.plan import Plan
from gemmd.plan_handle import PlanHandle
from gemmd.report import PRIORITIES, REPORT_LEVELS
from gemmd.result import Result
from gemmd.tensor import Tensor
from gemmd.transport import Transport
from gemmd.v1 import compute_service_pb2 as pb


def open_request(session_id: bytes, priority: Priority, report: ReportLevel) -> bytes:
    """The first message of the stream."""
    opening = pb.QueueOpen(
        session_id=session_id,
        priority=words.chosen("priority", priority, PRIORITIES),
        report=words.chosen("report", report, REPORT_LEVELS),
    )
    return pb.QueueRequest(open=opening).SerializeToString()


@dataclass(frozen=True)
class Batch:
    """One batch, encoded."""

    body: bytes  # of message Batch, without its sequence
    reads: Sequence[Tensor]
    inline_bytes: int  # what counts against window_bytes

    @classmethod
    def of(
        cls, ops: Iterable[Op] | PlanHandle, rebind: Rebind | None, inputs: Sequence[Any] | None,
        resume: bool,
    ) -> Batch:  # fmt: skip
        """Of ops or a run of a plan, as `Queue.submit` takes them."""
        last = wire.integer(4, resume)
        if isinstance(ops, PlanHandle):
            run = programs.plan_run(ops.plan_id, ops.writes, rebind, inputs)
            inline = 0 if inputs is None else sum(tensor.nbytes for tensor in ops.writes)
            return cls(b"".join([*wire.framed(3, run), last]), ops.reads, inline)
        if rebind is not None or inputs is not None:
            raise ValueError(
                "rebind and inputs are of a plan's run; ops have their buffers and data: submit a"
                " plan of them, session.plan(ops)"
            )
        program = programs.program_of(ops)
        inline = sum(op.inline_bytes for op in program)
        return cls(programs.encode_ops(program) + last, programs.reads_of(program), inline)

    def encoded(self, sequence: int) -> bytes:
        return wire.integer(1, sequence) + self.body


_AROUND_BYTES = 32  # what a message has around a batch, at most
_GATHERED_BYTES = 64 << 10  # in one message with others: beyond it a copy costs more than a message


def gather(waiting: deque[bytes], most: int) -> bytes:
    """Takes the oldest of `waiting`, encoded batches, and up to `most` in all if they are small;
    one message of them. A message costs several times what a small batch does.
    """
    taken = [waiting.popleft()]
    size = len(taken[0])
    while waiting and len(taken) < most and size + len(waiting[0]) <= _GATHERED_BYTES:
        taken.append(waiting.popleft())
        size += len(taken[-1])
    if len(taken) == 1:
        return wire.field(2, taken[0])
    return wire.field(3, b"".join([wire.field(1, batch) for batch in taken]))


class Window:
    """How much may be in flight. What is larger than the window goes alone: the server decides
    about it.
    """

    def __init__(self) -> None:
        self.batches, self.nbytes = 1, 1 << 62
        self._batches, self._bytes = 0, 0

    def has_room(self, inline_bytes: int) -> bool:
        if self._batches == 0:
            return True
        return self._batches < self.batches and self._bytes + inline_bytes <= self.nbytes

    def is_worth_waking_for(self) -> bool:
        """Whether to wake a thread that waits for room: not before a quarter of the window is free,
        since a wake costs more than a batch, and the device has the rest to do meanwhile.
        """
        return self._batches <= self.batches - self.batches // 4

    def take(self, inline_bytes: int) -> None:
        self._batches += 1
        self._bytes += inline_bytes

    def give(self, inline_bytes: int) -> None:
        self._batches -= 1
        self._bytes -= inline_bytes


@dataclass
class Pending:
    """A batch in flight."""

    sequence: int
    batch: Batch
    future: Any


def outcome(item: pb.Completion, batch: Batch) -> Result | errors.Error:
    """What a completion means to the one who waits for it."""
    if item.code:
        return errors.from_code(item.code, item.message, item.reason)
    return Result(item, batch.reads)


class QueueBase(Unpickled):
    """Of both faces."""

    window_batches: int
    device: str
    _closed: bool
    _most_bytes: int  # of a message, that the server takes; 0: not known

    _elsewhere = "open a queue in each process, session.queue()"

    def _batch(
        self, ops: Iterable[Op] | PlanHandle, rebind: Rebind | None, inputs: Sequence[Any] | None,
        resume: bool,
    ) -> Batch:  # fmt: skip
        """As `Batch.of`. One too large for a message is refused here: it would end the stream."""
        batch = Batch.of(ops, rebind, inputs, resume)
        size = len(batch.body) + _AROUND_BYTES
        if 0 < self._most_bytes < size:
            raise errors.ResourceExhausted(
                f"the batch has {size} bytes, a message holds {self._most_bytes}; {LARGER}"
            )
        return batch

    def __repr__(self) -> str:
        ended = ", closed" if self._closed else ""
        return f"Queue({self.window_batches} batches in flight at most, on {self.device}{ended})"


class Queue(QueueBase):
    """Made by `session.queue()`; a context manager. Leaving the block waits for everything
    submitted. Thread-safe.

    Attributes
    ----------
    window_batches : int
        What the server allows in flight; `submit` waits for room.
    """

    def __init__(
        self, transport: Transport, session_id: bytes, priority: Priority, report: ReportLevel,
        most_bytes: int = 0,
    ) -> None:  # fmt: skip
        self._most_bytes = most_bytes
        self._home = transport.home
        self._explained = transport.security.explained
        self._outgoing: std_queue.SimpleQueue[bytes | None] = std_queue.SimpleQueue()
        self._gathers = 1  # batches in a message at most
        self._stream: Any = None
        messages = self._messages(open_request(session_id, priority, report))
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)  # entered by its lock: an interrupt within
        # Condition.__enter__ or __exit__ would leave it locked
        self._window = Window()
        self._flying: deque[Pending] = deque()
        # What callbacks submitted, until there is room.
        self._held: deque[tuple[Batch, Future[Result]]] = deque()
        self._sequence = 0
        self._end: errors.Error | None = None
        self._closed = False
        try:
            self._stream = transport.streams.stream_stream(methods.QUEUE)(
                messages, metadata=transport.metadata()
            )
            opened = pb.QueueResponse.FromString(next(self._stream)).opened
        except grpc.RpcError as error:
            self._outgoing.put(None)
            raise self._explained(errors.from_rpc(error)) from None
        except BaseException as error:
            # grpcio's thread, which serves all streams of the connection, would wait for the lock.
            unlock(error)
            self._outgoing.put(None)
            if self._stream is not None:
                self._stream.cancel()
            raise
        self._window.batches = self.window_batches = opened.window_batches
        self._window.nbytes = opened.window_bytes
        self._gathers = opened.max_batches_per_message
        self.device = opened.device
        self._reader = threading.Thread(target=self._read, name="gemmd-queue", daemon=True)
        self._reader.start()

    def submit(
        self, ops: Iterable[Op] | Plan, *, rebind: Rebind | None = None,
        inputs: Sequence[Any] | None = None, resume: bool = False,
    ) -> Future[Result]:  # fmt: skip
        """Sends a batch, or a run of a plan, and returns at once unless the window is full. Called
        by a future's callback it never waits: the batch then goes when there is room.

        Parameters
        ----------
        ops : iterable of Op, or Plan
        rebind, inputs
            For a plan: as `plan.run`.
        resume : bool
            Clears an earlier failure: after a batch fails, those behind it are answered `Aborted`
            without running.

        Returns
        -------
        concurrent.futures.Future
            Of a Result; raises what the batch failed with. A batch runs even if its future is
            cancelled.
        """
        self._home.check()
        batch = self._batch(ops, rebind, inputs, resume)
        future: Future[Result] = Future()
        # The reader makes the room, so it must not wait for it.
        waits = threading.current_thread() is not self._reader
        with self._lock:
            while waits and not (self._closed or self._end or self._has_room(batch)):
                self._room.wait()
            if self._closed:
                raise errors.Cancelled("the queue is closed")
            if self._end is not None:
                raise self._end
            if self._has_room(batch):
                self._send(batch, future)
            else:
                self._held.append((batch, future))
        return future

    def _has_room(self, batch: Batch) -> bool:
        return not self._held and self._window.has_room(batch.inline_bytes)

    def _send(self, batch: Batch, future: Future[Result]) -> None:
        self._sequence += 1
        self._flying.append(Pending(self._sequence, batch, future))
        self._window.take(batch.inline_bytes)
        self._outgoing.put(batch.encoded(self._sequence))

    def _send_held(self) -> None:
        while self._held and self._window.has_room(self._held[0][0].inline_bytes):
            self._send(*self._held.popleft())
        if self._closed and not self._held:
            self._outgoing.put(None)

    def close(self) -> None:
        """Sends no more, and waits until all that was submitted has completed."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._send_held()
                self._room.notify_all()
        self._reader.join()

    def _messages(self, opening: bytes) -> Iterator[bytes]:
        """What gRPC sends: it asks for the next message when the last one is on its way."""
        yield opening
        waiting: deque[bytes] = deque()
        ended = False
        while waiting or not ended:
            while not ended and not (waiting and self._outgoing.empty()):
                batch = self._outgoing.get()
                if batch is None:
                    ended = True
                else:
                    waiting.append(batch)
            if waiting:
                yield gather(waiting, self._gathers)

    def _read(self) -> None:
        end: errors.Error = errors.Unavailable("the server ended the queue's stream")
        try:
            for message in self._stream:
                self._complete(pb.QueueResponse.FromString(message).completions.items)
        except grpc.RpcError as error:
            end = self._explained(errors.from_rpc(error))
        with self._lock:
            self._end = end
            left = [pending.future for pending in self._flying]
            left += [future for _, future in self._held]
            self._flying.clear()
            self._held.clear()
            self._room.notify_all()
        self._outgoing.put(None)  # lets gRPC's sending thread go
        for future in left:
            _settle(future, end)

    def _complete(self, items: Iterable[pb.Completion]) -> None:
        done: list[tuple[Pending, pb.Completion]] = []
        with self._lock:
            for item in items:
                pending = self._landed()
                while pending.sequence != item.sequence:  # an interrupt kept it from being sent
                    pending = self._landed()
                done.append((pending, item))
            self._send_held()
            if self._window.is_worth_waking_for():
                self._room.notify_all()
        # Outside the lock: a future's callback may submit again.
        for pending, item in done:
            _settle(pending.future, outcome(item, pending.batch))

    def _landed(self) -> Pending:
        pending = self._flying.popleft()
        self._window.give(pending.batch.inline_bytes)
        return pending

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, errors.Error):
            # The block failed for reasons of its own: do not wait for its work.
            self._stream.cancel()
        self.close()


def _settle(future: Future[Result], result: Result | errors.Error) -> None:
    """Nothing for a future that its waiter has cancelled, as `asyncio.wait_for` does."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(result, Result):
        future.set_result(result)
    else:
        future.set_exception(result)
