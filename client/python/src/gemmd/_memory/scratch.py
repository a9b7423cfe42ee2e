"""Scratch memory between calls: kept for the next ones, given up once no call needs it."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """A buffer."""

    @property
    def size_bytes(self) -> int: ...


BufferT = TypeVar("BufferT", bound=Sized)

_LOOK_EVERY = 64  # calls: more than a burst's own, few enough that its memory is soon back


class Scratch(Generic[BufferT]):
    """Buffers that no call uses now. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[BufferT] = []
        self._takes = 0
        self._never_taken = 0  # the fewest that lay idle since the last look

    def take(self, nbytes: int) -> BufferT | None:
        """The smallest that holds so many bytes."""
        with self._lock:
            self._takes += 1
            fitting = [one for one in self._idle if one.size_bytes >= nbytes]
            found = min(fitting, key=lambda one: one.size_bytes, default=None)
            if found is not None:
                self._idle.remove(found)
            self._never_taken = min(self._never_taken, len(self._idle))
            return found

    def give(self, buffer: BufferT) -> None:
        """For later calls."""
        with self._lock:
            self._idle.append(buffer)

    def take_spare(self) -> list[BufferT]:
        """Those to delete: as many as lay idle through all of the last calls, the smallest first.
        Empty for most calls.
        """
        with self._lock:
            if self._takes < _LOOK_EVERY:
                return []
            self._takes = 0
            self._idle.sort(key=lambda one: one.size_bytes)
            spare, self._idle = self._idle[: self._never_taken], self._idle[self._never_taken :]
            self._never_taken = len(self._idle)
            return spare

    def take_all(self) -> list[BufferT]:
        """To delete, where memory is needed."""
        with self._lock:
            taken, self._idle, self._never_taken = self._idle, [], 0
            return taken
