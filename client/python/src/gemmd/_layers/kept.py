"""What is kept between calls by gRPC: a layer's plans, and memory for as many calls as run side by
side on a session, whichever layer's.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from gemmd._layers.forward import Forward
from gemmd._wire.programs import Rebind
from gemmd.buffer import Buffer
from gemmd.plan import Plan

# Reasons for which the server makes or arms no plan until another one goes.
OF_PLANS = ("PLAN_LIMIT", "ARMED_LIMIT", "HOST_BYTES_LIMIT")

MAX_PLANS = 64  # of one layer; the batch sizes of a serving loop are fewer

P = TypeVar("P")


@dataclass(frozen=True)
class KeptPlan:
    """A plan and the buffers it was made on."""

    plan: Plan
    io: Buffer
    scratch: Buffer
    uses_scratch: bool

    def rebound_to(self, io: Buffer, scratch: Buffer) -> Rebind | None:
        if io is self.io:
            return None
        # The server refuses a buffer that the plan does not name.
        return {self.io: io, self.scratch: scratch} if self.uses_scratch else {self.io: io}


class Kept(Generic[P]):
    """Plans by step, the latest used last; those beyond MAX_PLANS are given up, but none in use.

    Not thread-safe: its layer holds a lock.
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
        return self.take_idle() if len(self._plans) > MAX_PLANS else None

    def take_idle(self) -> P | None:
        """One to delete, long unused; None if all are in use."""
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


@dataclass(frozen=True)
class Place:
    """Where one forward pass at a time happens, kept for later ones.

    Attributes
    ----------
    io, scratch : Buffer
        [x | result], and the device's own memory.
    """

    io: Buffer
    scratch: Buffer

    def fits(self, step: Forward) -> bool:
        io, scratch = self.io.size_bytes, self.scratch.size_bytes
        return io >= step.io_bytes and scratch >= step.scratch_bytes

    @property
    def size_bytes(self) -> int:
        return self.io.size_bytes + self.scratch.size_bytes


class IdlePlaces:
    """Those of a device that no call is in now.

    Not thread-safe: `memory.Neighbours` holds a lock.
    """

    def __init__(self) -> None:
        self._idle: list[Place] = []

    def take(self, step: Forward) -> Place | None:
        """The smallest that the step fits into."""
        fitting = [one for one in self._idle if one.fits(step)]
        found = min(fitting, key=lambda one: one.size_bytes, default=None)
        if found is not None:
            self._idle.remove(found)
        return found

    def take_smallest(self) -> Place | None:
        """To make room for a larger one."""
        found = min(self._idle, key=lambda one: one.size_bytes, default=None)
        if found is not None:
            self._idle.remove(found)
        return found

    def give(self, place: Place) -> None:
        self._idle.append(place)
