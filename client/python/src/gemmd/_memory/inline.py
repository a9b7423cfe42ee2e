"""Inline data of programs in memory that a server on this host shares, instead of in messages.

A message's bytes are copied half a dozen times on their way; here the writes' data is copied once,
and outputs are arrays over the memory itself. Each write and read names its place there.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gemmd import errors
from gemmd._memory.layout import padded
from gemmd._wire import wire
from gemmd._wire.wire import BytesLike
from gemmd.ops import Op
from gemmd.tensor import Tensor

# Writes and reads of a program together. Below, a message takes as long.
SHARED_FROM_BYTES = 64 << 10
# What a session shares: four times what its first program has, then twice as much each time that
# is too little.
LEAST_BYTES = 1 << 20
MOST_BYTES = 16 << 20
MEMORY_LABEL = "inline data"

_INLINE_AT = 4  # of PlanRun

# Nothing has run. With its data in the message the program may fare better, or the server may say
# better what is wrong with it: there it has the caller's ops.
_MAY_FARE_BETTER = (
    errors.InvalidArgument,
    errors.NotFound,
    errors.FailedPrecondition,
    errors.Unimplemented,
    errors.OutOfRange,
)


class Arena:
    """Memory that is mapped by both sides. Thread-safe."""

    def __init__(self, buffer_id: bytes, memory: npt.NDArray[np.uint8]) -> None:
        self.buffer_id = buffer_id
        self.memory = memory
        self._lock = Lock()
        self._taken: dict[int, int] = {}  # where a block begins, and ends
        # Not under the lock: a block may go while this thread holds it, when garbage is collected.
        self._given_back: deque[int] = deque()

    def take(self, nbytes: int) -> Block | None:
        """The lowest place with room: a program that comes again gets the same one, and is known
        by it.
        """
        with self._lock:
            self._sweep()
            at = 0
            for begin in sorted(self._taken):
                if nbytes <= begin - at:
                    break
                at = self._taken[begin]
            return self._take(at, nbytes)

    def _sweep(self) -> None:
        while self._given_back:
            del self._taken[self._given_back.popleft()]

    def _take(self, at: int, nbytes: int) -> Block | None:
        if nbytes > len(self.memory) - at:
            return None
        self._taken[at] = at + nbytes
        return Block(self, at, nbytes)

    def give_back(self, at: int) -> None:
        self._given_back.append(at)


class Block:
    """A program's part of the memory, until it and the arrays over it are gone."""

    __slots__ = ("_address", "arena", "at", "nbytes")

    def __init__(self, arena: Arena, at: int, nbytes: int) -> None:
        self.arena = arena
        self.at = at
        self.nbytes = nbytes
        self._address: int = arena.memory.ctypes.data + at

    def __del__(self) -> None:
        self.arena.give_back(self.at)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """An array over it keeps it, and so do that array's views."""
        return {
            "data": (self._address, False),
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


def through(program: Sequence[Op], block: Block) -> list[bytes]:
    """The program's ops, encoded, with places in the block for the data of writes and reads."""
    parts, at = [], block.at
    for op in program:
        moved = op.moved
        if moved is None:
            parts.append(op.wire)
        else:
            parts.append(op.through(block.arena.buffer_id, at))
            at += padded(moved.nbytes)
    return parts


def places(moves: Sequence[Op], block: Block) -> bytes:
    """PlanRun.inline_at: the same places for a plan's writes and reads."""
    at, fields = block.at, []
    for op in moves:
        fields.append(wire.shared_bytes(_INLINE_AT, block.arena.buffer_id, at))
        at += padded(cast(Tensor, op.moved).nbytes)
    return b"".join(fields)


class Run:
    """A run of a program whose inline data is in a block.

    Parameters
    ----------
    body : sequence of bytes
        The request that runs it, without session and op_id, in pieces.
    program : sequence of Op
        May leave out ops that are neither writes nor reads.
    data : iterable of bytes, optional
        For each write, in order. By default what the ops were made with.

    Attributes
    ----------
    outputs : list of numpy.ndarray
        Where its reads' bytes will be.
    """

    def __init__(
        self,
        sharing: Sharing,
        block: Block,
        body: Sequence[BytesLike],
        program: Sequence[Op],
        data: Iterable[BytesLike] | None = None,
    ) -> None:
        self.body = body
        self.outputs: list[npt.NDArray[Any]] = []
        self._sharing = sharing
        self._arena = block.arena
        self._block: Block | None = block  # there may be no outputs to keep it
        self._why_worse: str | None = None
        given = None if data is None else iter(data)
        memory = np.asarray(block)
        at = 0
        for op in program:
            moved = op.moved
            if moved is None:
                continue
            place = memory[at : at + moved.nbytes]
            if op.name == "write":
                source = op.data if given is None else next(given)
                place[:] = np.frombuffer(source, dtype=np.uint8)
            else:
                output = place.view(moved.dtype).reshape(moved.shape)
                output.flags.writeable = False
                self.outputs.append(output)
            at += padded(moved.nbytes)

    def failed(self, error: BaseException) -> bool:
        """After it was not answered well. True if the same program should go with its data."""
        # What was not found may be the memory itself.
        if errors.may_still_run(error) or isinstance(error, errors.NotFound):
            self._sharing.give_up(self._arena)
        elif isinstance(error, _MAY_FARE_BETTER):
            self._why_worse = str(error)
        # The error's frames may keep this run for long.
        self.outputs.clear()
        self._block = None
        return isinstance(error, _MAY_FARE_BETTER)

    def fared_worse(self) -> None:
        """The same program went well with its data: not again through the memory, unless that was
        what was not found.
        """
        if self._why_worse is not None:
            self._sharing.turn_off(self._why_worse)


class Sharing:
    """A session's memory for inline data: none before it is needed, and none once `why_not` says
    why.
    """

    def __init__(self, why_not: str = "") -> None:
        self.arena: Arena | None = None
        self.why_not = why_not
        self.most_bytes = MOST_BYTES  # less once the server has refused more
        self.lost: list[bytes] = []  # buffers that are to be deleted

    def wants(self, program: Sequence[Op]) -> bool:
        """Whether the program has enough to share, and may."""
        if self.why_not:
            return False
        total = 0
        for op in program:
            if op.moved is not None:
                total += op.moved.nbytes
        return SHARED_FROM_BYTES <= total <= MOST_BYTES

    @staticmethod
    def bytes_of(program: Sequence[Op]) -> int:
        """What a program takes of the memory."""
        return sum(padded(op.moved.nbytes) for op in program if op.moved is not None)

    def larger(self, nbytes: int) -> int:
        """The size of memory with room for `nbytes` more; 0 if it cannot be."""
        now = 0 if self.arena is None else len(self.arena.memory)
        if nbytes > self.most_bytes or now >= self.most_bytes:
            return 0
        wanted = max(1 << (4 * nbytes - 1).bit_length(), 2 * now, LEAST_BYTES)
        return min(wanted, self.most_bytes)

    def failed(self, error: Exception) -> None:
        """After the memory could not be made. A server that is busy or gone may have it later."""
        if isinstance(error, errors.DeadlineExceeded):
            try:
                raise error  # so has the caller's time
            finally:
                del error  # see Transport.again
        if isinstance(error, errors.Unavailable):
            return
        if self.arena is None:
            self.why_not = str(error)
        else:
            self.most_bytes = len(self.arena.memory)

    def give_up(self, arena: Arena) -> None:
        """The server may still read and write the memory, for a program that nobody waits for any
        more. Other programs get other memory.
        """
        if self.arena is arena:
            self.arena = None
            self.lost.append(arena.buffer_id)

    def turn_off(self, why_not: str) -> None:
        self.why_not = why_not
        if self.arena is not None:
            self.give_up(self.arena)

    def take_lost(self) -> list[bytes]:
        lost, self.lost = self.lost, []
        return lost

    def keep(self, arena: Arena) -> None:
        """Of a buffer that was lost so far, unless another thread has deleted it by now."""
        with contextlib.suppress(ValueError):
            self.lost.remove(arena.buffer_id)
            if self.arena is not None:
                self.lost.append(self.arena.buffer_id)
            self.arena = arena
