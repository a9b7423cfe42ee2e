"""What a Linear keeps between calls: a plan a batch size, and memory for as many calls as run side
by side.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gemmd._layers.linear_step import Forward
from gemmd._wire.programs import Rebind
from gemmd.handle import Handle

MAX_PLANS = 64  # of one Linear; the batch sizes of a serving loop are fewer

P = TypeVar("P")


@dataclass(frozen=True)
class KeptPlan(Generic[P]):
    """A plan and the buffers it was made on."""

    plan: P
    io: Handle
    scratch: Handle

    def rebound_to(self, io: Handle, scratch: Handle) -> Rebind | None:
        return None if io is self.io else {self.io: io, self.scratch: scratch}


class Kept(Generic[P]):
    """Plans by step, the latest used last; those beyond MAX_PLANS are given up, but none in use.

    Not thread-safe: its Linear holds a lock, or runs on one event loop.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[Forward, P] = OrderedDict()
        self._users: dict[Forward, int] = {}

    def take(self, step: Forward) -> P | None:
        """The step's plan, in use until `give`."""
        plan = self._plans.get(step)
        if plan is not None:
            self._plans.move_to_end(step)
            self._users[step] += 1
        return plan

    def add(self, step: Forward, plan: P) -> P | None:
        """Keeps a new step's plan, in use until `give`. Returns one to delete, long unused."""
        self._plans[step] = plan
        self._users[step] = 1
        if len(self._plans) <= MAX_PLANS:
            return None
        idle = next((one for one in self._plans if self._users[one] == 0), None)
        if idle is None:
            return None
        del self._users[idle]
        return self._plans.pop(idle)

    def give(self, step: Forward) -> None:
        self._users[step] -= 1

    def clear(self) -> list[P]:
        plans = list(self._plans.values())
        self._plans.clear()
        self._users.clear()
        return plans


B = TypeVar("B", bound=Handle)


class Place(Generic[B]):
    """Where one forward pass at a time happens, kept for later ones.

    Attributes
    ----------
    io, scratch : Buffer
        [x | result], and the device's own memory.
    bytes : array or tensor
        All of `io` in this process, once mapped.
    taken : torch.cuda.Event or None
        The copy of the result before, out of `io`.
    """

    def __init__(self, io: B, scratch: B) -> None:
        self.io = io
        self.scratch = scratch
        self.kind = io.memory_kind
        self.bytes: Any = None
        self.taken: Any = None

    def fits(self, step: Forward) -> bool:
        io, scratch = self.io.size_bytes, self.scratch.size_bytes
        return io >= step.io_bytes and scratch >= step.scratch_bytes
