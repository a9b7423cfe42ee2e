"""What a layer has armed on this host, and how it makes room for more."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gemmd import errors
from gemmd._layers.kept import OF_PLANS
from gemmd._layers.memory import Memory, SharedPlan, neighbours
from gemmd._layers.places import Lent, Place, Seat
from gemmd._wire.programs import Rebind
from gemmd.buffer import Buffer
from gemmd.ops import Op
from gemmd.plan import Plan
from gemmd.tensor import Tensor

if TYPE_CHECKING:
    from gemmd._layers.forward import Forward
    from gemmd._layers.layer import Layer

Made = TypeVar("Made")

MAX_SEATS = 64  # armed at once on one place; row counts up to 4096 are planned as 59


class Seats:
    """Base of `local.LocalCalls`, which says where the places are. Who calls what begins with an
    underscore holds the lock, or a place's memory, as a call of the host does.
    """

    def __init__(self, layer: Layer) -> None:
        self._layer = weakref.ref(layer)  # whose these are
        self._session = layer.session
        self._neighbours = neighbours(self._session)
        self._lock = threading.Lock()
        self._gpu: dict[Memory, Place] = {}  # in the session's memory
        self.of_graphs = 0  # seats that a graph has for itself

    def _alive(self) -> Layer:
        layer = self._layer()
        assert layer is not None
        return layer

    def _places(self) -> list[Place]:
        raise NotImplementedError

    def _forget(self, place: Place) -> None:
        """Lets go of calls whose seats were given up, and of the memory of their results."""
        raise NotImplementedError

    def _make(self, kind: Any, io_bytes: int, scratch_bytes: int) -> Memory:
        io, scratch = self._alive().new_memory(io_bytes, scratch_bytes, kind)
        return Memory(io, scratch, io.array() if kind == "host_shared" else io.device_array().pointer)

    def _seat(
        self,
        place: Place,
        step: Forward,
        by_stream: bool,
        which: int = 0,
        result: Tensor | None = None,
        io: Buffer | tuple[Tensor, ...] | None = None,
        lent: tuple[Lent, ...] = (),
    ) -> Seat:
        """The step's armed plan; `which` of several, by where its result goes. One with a result of
        its own only saves a copy, and takes nobody's room. `io`: where its x is, if elsewhere than
        in the place's memory, or the tensors that it is; `lent`: what is deleted with the seat.
        """
        seat = place.seats.get((step, which))
        if seat is not None:
            place.calls = seat.used = place.calls + 1
            return seat
        giver = place if result is None else None
        if giver is not None and len(place.seats) >= MAX_SEATS:
            self._unseat(place)
        layer, memory = self._alive(), place.memory

        def made() -> Plan:
            program: list[Op] = layer.program(step, io or memory.io, memory.scratch, result)
            return self._in_room(giver, lambda: self._session.plan(program, "layer"))

        shared: SharedPlan | None = None
        if memory in self._gpu and result is None:
            shared = self._neighbours.take_plan(
                memory, step, lambda: SharedPlan(made(), layer.held)
            )
            if not shared.serves(layer.held):
                self._neighbours.give_plan(memory, step)
                shared = None
        rebind: Rebind = {}
        if shared is not None:
            plan, rebind = shared.plan, shared.rebound_to(layer.held)
            # Of nothing that has the seat: a cycle would keep a session that is dropped.
            drop: Callable[[], None] = partial(self._neighbours.give_plan, memory, step)
        else:
            plan = made()
            drop = plan.delete
        try:
            armed = self._in_room(giver, lambda: plan.arm(rebind, by_stream=by_stream))
        except BaseException:
            drop()
            raise
        seat = place.seats[step, which] = Seat(armed, drop, lent)
        place.calls = seat.used = place.calls + 1
        return seat

    def _in_room(self, giver: Place | None, make: Callable[[], Made]) -> Made:
        """What `make` makes, in the room of a seat that is given up if the server has no other: of
        the giver, or else of another layer of the session's.
        """
        while True:
            try:
                return make()
            except errors.ResourceExhausted as error:
                if giver is None or error.reason not in OF_PLANS:
                    raise
                if not self._unseat(giver) and not self._unseat_another():
                    raise

    def _unseat_another(self) -> bool:
        """Has a layer give up a seat that has most of them; False if none can at this moment."""
        others = self._neighbours.but(self)
        # By chance among equals: those used longest ago are the next ones of a model's layers.
        random.shuffle(others)
        others.sort(key=lambda one: one.most_seats(), reverse=True)
        return any(one.spare_a_seat() for one in others)

    def most_seats(self) -> int:
        """Of one place, roughly: calls may be under way."""
        return max((len(one.seats) for one in self._places()), default=0)

    def spare_a_seat(self) -> bool:
        """Gives one up to another layer. Waits for no call: those two might wait for each other."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            for place in sorted(self._places(), key=lambda one: len(one.seats), reverse=True):
                memory = place.memory
                if not memory.is_captured() and memory.busy.acquire(blocking=False):
                    try:
                        if self._unseat(place):
                            return True
                    finally:
                        memory.busy.release()
        finally:
            self._lock.release()
        return False

    def _unseat(self, place: Place) -> bool:
        """Gives up the seat that was used longest ago, first of those that only save a copy; False
        if graphs have them all.
        """
        free = {key: seat for key, seat in place.seats.items() if not seat.captured}
        if not free:
            return False
        self._give_up(place, min(free, key=lambda key: (not free[key].lent, free[key].used)))
        return True

    def _give_up(self, place: Place, key: tuple[Forward, int]) -> None:
        place.memory.settle()
        place.seats.pop(key).give_up()
        self._forget(place)

    def _drop(self, place: Place) -> None:
        memory = place.memory
        memory.settle()
        for seat in place.seats.values():
            seat.give_up()
        place.seats.clear()
        self._forget(place)
        if self._neighbours.leave(memory):
            memory.mapped = None
            self._session.delete_buffers([memory.io, memory.scratch])
