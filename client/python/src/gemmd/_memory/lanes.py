"""A large transfer in pieces, moved by several lanes at once: while one waits for the server,
others copy between the caller's array and memory that both sides have.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

PIECE_BYTES = 4 << 20
# What a piece costs beside its bytes is the lanes' turns at the interpreter's lock, each of which
# wakes a thread. Where a transfer has many, longer ones are quicker.
LONG_PIECE_BYTES = 8 << 20
_LONG_FROM_BYTES = 128 << 20


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


# As many as the C++ client has threads; two also where there is but one processor, since a lane
# waits for most of its time.
MOST_LANES = max(2, min(8, _processors() // 2))


def piece_bytes(nbytes: int) -> int:
    """How long the pieces of a transfer are."""
    return LONG_PIECE_BYTES if nbytes >= _LONG_FROM_BYTES else PIECE_BYTES


def lanes_for(nbytes: int, length: int = PIECE_BYTES) -> int:
    """How many lanes a transfer in pieces of `length` gets: none that would find no piece."""
    return max(1, min(MOST_LANES, -(-nbytes // length)))


class Pieces:
    """The pieces of a transfer as (start, length), each to one lane. Thread-safe."""

    def __init__(self, nbytes: int, length: int = PIECE_BYTES) -> None:
        self._nbytes = nbytes
        self._length = length
        self._next = 0
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        while True:
            with self._lock:
                start = self._next
                if start >= self._nbytes:
                    return
                self._next += self._length
            yield start, min(self._length, self._nbytes - start)

    def stop(self) -> None:
        """Nobody gets another one."""
        with self._lock:
            self._next = self._nbytes


def run_lanes(count: int, pieces: Pieces, work: Callable[[int], None]) -> None:
    """work(lane) for each lane on a thread of its own, the caller's among them; back when all have
    ended. The first error ends the others with the piece they are at, and is raised.
    """
    failures: list[BaseException] = []

    def run(lane: int) -> None:
        try:
            work(lane)
        except BaseException as error:
            pieces.stop()
            failures.append(error)

    helpers = [threading.Thread(target=run, args=(lane,)) for lane in range(1, count)]
    started: list[threading.Thread] = []
    try:
        with suppress(RuntimeError):  # no more threads to be had: those there are do the rest
            for helper in helpers:
                helper.start()
                started.append(helper)
        run(0)
        for helper in started:
            helper.join()
    except BaseException:  # an interrupt: the caller's array is still in use
        pieces.stop()
        for helper in started:
            helper.join()
        raise
    if failures:
        raise failures.pop(0)  # its traceback has this frame: see Transport.again
