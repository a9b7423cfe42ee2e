"""Memory that calls on this host run in: [x | result], which this process and the server have both
mapped, and the device's scratch memory.

Calls by a stream take turns in the session's, whichever layer's they are: a model of a hundred
layers would otherwise hold a hundred times as much. What graphs have captured, and calls from the
host, have their layer's own.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gemmd import errors
from gemmd._layers.kept import IdlePlaces, Place
from gemmd._layers.results import SharedResults
from gemmd._memory import interop
from gemmd._wire.programs import Rebind
from gemmd.armed import Armed
from gemmd.buffer import Buffer
from gemmd.plan import Plan

if TYPE_CHECKING:
    from gemmd._layers.forward import Forward
    from gemmd._layers.seats import Seats
    from gemmd.session import Session

LEAST_BYTES = 8 << 20  # of the session's
MAX_LANES = 4  # of streams: more take turns in memory of others


class Memory:
    """`io` and `scratch` for one call at a time, and who uses them.

    Attributes
    ----------
    mapped : array or int
        `io` in this process: its bytes, or its address on the GPU.
    busy : Lock
        Held for a call from the host.
    order : Lock
        Held while a stream is put behind the one before and given its call.
    stream : int
        The CUDA stream that used it last, and `event_stream`, the same as torch's object.
    """

    def __init__(self, io: Buffer, scratch: Buffer, mapped: Any) -> None:
        self.io = io
        self.scratch = scratch
        self.mapped = mapped
        self.busy = threading.Lock()
        self.order = threading.Lock()
        self.rung: Armed | None = None  # by the host, until it has been waited for
        self.stream = -1
        self.event_stream: Any = None

    def fits(self, step: Forward) -> bool:
        io, scratch = self.io.size_bytes, self.scratch.size_bytes
        return bool(io >= step.io_bytes and scratch >= step.scratch_bytes)

    def is_captured(self) -> bool:
        """Whether the stream that used it last is being captured, just now."""
        if self.event_stream is None:
            return False
        torch = interop.torch_module()
        with torch.cuda.stream(self.event_stream):
            return bool(torch._C._cuda_isCurrentStreamCapturing())

    def follow(self, torch: Any, device: int, stream: int, capturing: bool) -> None:
        """Another stream than the one before uses it: that goes behind the other's work. A stream
        that is captured goes behind others of the capture alone, since it begins on an idle GPU.
        """
        now = torch.cuda.current_stream(device)
        if self.event_stream is not None and (not capturing or self.is_captured()):
            now.wait_stream(self.event_stream)
        self.stream, self.event_stream = stream, now

    def finish(self) -> None:
        """Waits for the run of a call that was interrupted: it still reads and writes here."""
        if self.rung is not None:
            with contextlib.suppress(errors.Error):  # its caller's
                self.rung.wait()
            self.rung = None

    def settle(self) -> None:
        """Waits until no stream uses it."""
        if self.event_stream is not None:
            self.event_stream.synchronize()


class _Shared:
    """Some of a session's memory on a GPU, and how many layers have something armed on it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.users = 0


class SharedPlan:
    """A plan that layers of one shape have in common: each arms it with its own weights.

    Attributes
    ----------
    weights : tuple of Buffer
        Of the layer that made it.
    """

    def __init__(self, plan: Plan, weights: tuple[Buffer, ...]) -> None:
        self.plan = plan
        self.weights = weights
        self.users = 1

    def serves(self, weights: tuple[Buffer, ...]) -> bool:
        """Whether those that are one buffer there are one of these, too: what is rebound is buffers."""
        pairs = zip(self.weights, weights, strict=True)
        made_of = {(old.buffer_id, new.buffer_id) for old, new in pairs}
        return len(made_of) == len({one.buffer_id for one in self.weights})

    def rebound_to(self, weights: tuple[Buffer, ...]) -> Rebind:
        pairs = zip(self.weights, weights, strict=True)
        return {old: new for old, new in pairs if old.buffer_id != new.buffer_id}


def _room(nbytes: int) -> int:
    """A power of two: calls of all sizes find theirs among few, and what is armed there stays."""
    return max(LEAST_BYTES, 1 << (nbytes - 1).bit_length())


class Neighbours:
    """What a session's layers have in common. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.results = SharedResults()
        self._calls: weakref.WeakSet[Seats] = weakref.WeakSet()
        self._idle: defaultdict[str, IdlePlaces] = defaultdict(IdlePlaces)  # by the server's device
        self._plans: dict[tuple[Memory, Forward], SharedPlan] = {}
        self._lanes: dict[int, dict[int, int]] = {}  # by the GPU's ordinal here and stream
        # By the GPU and lane, and the bytes of `io` and `scratch`.
        self._shared: dict[tuple[tuple[int, int], int, int], _Shared] = {}

    def add(self, calls: Seats) -> None:
        with self._lock:
            self._calls.add(calls)

    def but(self, calls: Seats) -> list[Seats]:
        with self._lock:
            return [one for one in self._calls if one is not calls]

    def close(self, calls: Seats) -> list[Place]:
        """A layer has ended: what is to be deleted if it was the last one."""
        with self._lock:
            self._calls.discard(calls)
            if self._calls:
                return []
            idle, self._idle = self._idle, defaultdict(IdlePlaces)
            return [place for one in idle.values() for place in iter(one.take_smallest, None)]

    def take_idle(self, device: str, step: Forward) -> tuple[Place | None, Place | None]:
        """Memory for a call by gRPC until `give_idle`, and if there is none one to delete, that is
        too small.
        """
        with self._lock:
            idle = self._idle[device]
            found = idle.take(step)
            return found, idle.take_smallest() if found is None else None

    def give_idle(self, device: str, place: Place) -> None:
        with self._lock:
            self._idle[device].give(place)

    def lane_of(self, device: int, stream: int) -> int:
        """Which of a GPU's memories the calls of a stream have: streams wait for one another where
        there are more of them than lanes.
        """
        lanes = self._lanes.get(device)
        if lanes is not None and lanes.get(stream) is not None:
            return lanes[stream]
        with self._lock:
            lanes = self._lanes.setdefault(device, {})
            if stream not in lanes:
                lanes[stream] = len(lanes) % MAX_LANES
            return lanes[stream]

    def join(
        self, lane: tuple[int, int], step: Forward, make: Callable[[int, int], Memory]
    ) -> Memory:
        """The session's memory for such a step in a lane of a GPU, until `leave`; made with so many
        bytes for `io` and for `scratch` if there is none.
        """
        key = lane, _room(step.io_bytes), _room(step.scratch_bytes)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                shared = self._shared[key] = _Shared(make(*key[1:]))
            shared.users += 1
            return shared.memory

    def take_plan(
        self, memory: Memory, step: Forward, make: Callable[[], SharedPlan]
    ) -> SharedPlan:
        """The step's plan in the session's memory, until `give_plan`."""
        key = memory, step
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                found.users += 1
                return found
        made = make()  # without the lock: it may have another layer give up a plan
        with self._lock:
            found = self._plans.setdefault(key, made)
            if found is made:
                return made
            found.users += 1
        made.plan.delete()  # another layer was faster
        return found

    def give_plan(self, memory: Memory, step: Forward) -> None:
        key = memory, step
        with self._lock:
            shared = self._plans[key]
            shared.users -= 1
            if shared.users > 0:
                return
            del self._plans[key]
        shared.plan.delete()

    def leave(self, memory: Memory) -> bool:
        """Whether it is nobody's now, and the caller's to delete."""
        with self._lock:
            found = [key for key, one in self._shared.items() if one.memory is memory]
            if not found:
                return True  # a layer's own
            shared = self._shared[found[0]]
            shared.users -= 1
            if shared.users == 0:
                del self._shared[found[0]]
            return shared.users == 0


# Weak, since its plans and buffers keep the session, which could not be dropped then: layers keep it.
_of_sessions: weakref.WeakKeyDictionary[Session, weakref.ref[Neighbours]] = (
    weakref.WeakKeyDictionary()
)
_of_sessions_lock = threading.Lock()


def neighbours(session: Session) -> Neighbours:
    """Of a session's layers."""
    with _of_sessions_lock:
        known = _of_sessions.get(session)
        found = None if known is None else known()
        if found is None:
            found = Neighbours()
            _of_sessions[session] = weakref.ref(found)
        return found
