"""Twins of plans: the same ops with copies from and to shared memory for writes and reads, so that
a run's data need not go in messages.

A twin is made for one place in the memory, and used again whenever that place is free. Runs at the
same time, and runs while outputs of earlier ones are kept, need twins for other places. No I/O: for
the sync and the asyncio plan alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

from gemmd.inline import Arena, Block, Run, Sharing
from gemmd.wire import BytesLike

if TYPE_CHECKING:
    from gemmd.plan import PlanHandle

MOST_OF_A_PLAN = 4  # each is a plan of the tenant's, and on CUDA a graph of its own

_Place = tuple[bytes, int]  # a buffer, and where in it


def _place_of(block: Block) -> _Place:
    return block.arena.buffer_id, block.at


class Twins:
    """Those of a session's plans: ids by the ids of their plans. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[bytes, dict[_Place, bytes]] = {}

    def take_block(
        self, plan_id: bytes, arena: Arena | None, nbytes: int
    ) -> tuple[Block, bytes] | None:
        """A free place that the plan has a twin for, and the twin."""
        with self._lock:
            made = list(self._made.get(plan_id, {}).items())
        for (buffer_id, at), twin_id in made:
            if arena is not None and arena.buffer_id == buffer_id:
                block = arena.take_at(at, nbytes)
                if block is not None:
                    return block, twin_id
        return None

    def find(self, plan_id: bytes, block: Block) -> bytes | None:
        with self._lock:
            return self._made.get(plan_id, {}).get(_place_of(block))

    def has_room(self, plan_id: bytes, arena: Arena | None) -> bool:
        """Whether the plan may have one more in this memory: to be asked before a place is taken
        for it, which may make the memory grow."""
        with self._lock:
            made = self._made.get(plan_id, {})
            there = sum(arena is not None and place[0] == arena.buffer_id for place in made)
            return there < MOST_OF_A_PLAN

    def add(self, plan_id: bytes, block: Block, twin_id: bytes) -> None:
        with self._lock:
            self._made.setdefault(plan_id, {})[_place_of(block)] = twin_id

    def take(self, plan_id: bytes) -> list[bytes]:
        """Forgets the plan's, and returns them to be deleted."""
        with self._lock:
            return list(self._made.pop(plan_id, {}).values())

    def take_stale(self, plan_id: bytes, arena: Arena | None) -> list[bytes]:
        """The same of those that are not for this memory."""
        with self._lock:
            made = self._made.get(plan_id, {})
            stale = [one for one in made if arena is None or one[0] != arena.buffer_id]
            return [made.pop(place) for place in stale]

    def take_all(self) -> list[bytes]:
        """The same of all plans'."""
        with self._lock:
            every, self._made = self._made, {}
        return [twin_id for made in every.values() for twin_id in made.values()]


class TwinRun(Run):
    """A run of a plan by its twin."""

    def __init__(
        self,
        plan: PlanHandle,
        sharing: Sharing,
        block: Block,
        body: Sequence[BytesLike],
        data: Sequence[BytesLike],
    ) -> None:
        super().__init__(sharing, block, body, plan.moves, data)
        self._plan = plan

    def turn_off(self, why_not: str) -> None:
        self._plan.why_no_twins = why_not
