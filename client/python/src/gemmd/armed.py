"""Armed plans: a run without a call, for callers on the server's host."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmd import errors, native, share
from gemmd._connection.forked import Home
from gemmd._connection.here_only import Unpickled
from gemmd.report import Report
from gemmd.v1 import armed_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.plan import Plan
    from gemmd.plan_handle import PlanHandle
    from gemmd.session import Session

# Of a session's region: layers times row counts, and results. 1.6 MiB of memory.
SLOTS = 8192
OLDER_SLOTS = 1024  # the most that servers of older releases have
REGION_TEXT = 47  # bytes of a run's message that the region holds


@dataclass(frozen=True)
class ArmedReport:
    """Of an armed plan's last run that was answered.

    Attributes
    ----------
    run : int
        Which it was, since the plan was armed; 0: none was answered yet.
    queue_seconds : float
        From the ring to the device's start.
    """

    run: int
    device: str
    queue_seconds: float
    device_seconds: float

    def as_report(self) -> Report:
        """As the report of a call, whose `path` is "armed"."""
        return Report(self.device, self.queue_seconds, self.device_seconds, (), "armed")


def open_region(parts: pb.ArmedRegion) -> Any:
    """The region that the server's answer stands for, mapped."""
    try:
        memory = share.fetch_descriptor(parts.share_socket, parts.region_token)
        try:
            wake = share.fetch_descriptor(parts.share_socket, parts.wake_token)
        except BaseException:
            os.close(memory)
            raise
    except ConnectionError as error:  # it has answered just now, and has ended since
        raise errors.Unavailable(f"{parts.share_socket}: {error}") from error
    except OSError as error:
        raise errors.FailedPrecondition(f"{parts.share_socket}: {error}") from error
    return native.module().Region(
        memory, wake, parts.size_bytes, parts.slots, parts.layout_version, parts.share_socket
    )


def stream_handle(stream: Any) -> int:
    """A CUDA stream as a number: one already, a torch or CuPy stream; None is torch's current."""
    if stream is None:
        import torch

        return int(torch.cuda.current_stream().cuda_stream)
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise TypeError(f"{stream!r} is no CUDA stream; give its handle as an integer")


class ArmedHandle(Unpickled):
    """What both faces' armed plans have. See `Armed`."""

    def __init__(self, plan: PlanHandle, message: pb.ArmedPlan, slot: Any, by_stream: bool) -> None:
        self.plan = plan
        self._home = Home()
        self.slot_index = message.slot
        self.device = message.device
        self.by_stream = by_stream
        self.slot = slot
        self._ring, self._ring_on, self._wait_on = slot.ring, slot.ring_on, slot.wait_on

    def ring(self) -> None:
        """Runs the plan once; returns at once.

        Raises
        ------
        FailedPrecondition
            The last run has not been waited for.
        Unavailable
            The server or the session has ended.
        """
        self._home.check()
        self._ring()

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(self.slot.done())

    def ring_on(self, stream: Any = None) -> None:
        """The same by a CUDA stream, behind what it has been given: returns at once, and may be
        captured in a graph together with `wait_on`. Runs read and write memory of the plan's
        buffers as the stream has left it.

        Parameters
        ----------
        stream : optional
            A handle, a torch.cuda.Stream; by default torch's current stream.

        Raises
        ------
        FailedPrecondition
            The plan was not armed with `by_stream`, the stream is of another GPU, or there is no
            CUDA. And any error of an earlier run, once.
        """
        self._ring_on(stream if type(stream) is int else stream_handle(stream))

    def wait_on(self, stream: Any = None) -> None:
        """Holds the stream, and not the host, until the run is done. If it fails, or the server is
        gone, the stream goes on: outputs hold NaN, and the next call raises.
        """
        self._wait_on(stream if type(stream) is int else stream_handle(stream))

    def check(self) -> None:
        """Raises the error of the last run that was answered."""
        self.slot.check()

    @property
    def report(self) -> ArmedReport:
        """Of the last run that was answered."""
        run, device_ns, queued_ns, _, _, _ = self.slot.report()
        return ArmedReport(run, self.device, queued_ns * 1e-9, device_ns * 1e-9)

    def _give_up(self) -> bool:
        """False if it is disarmed already. What a stream rings from now on fails."""
        if self.slot is None:
            return False
        self.slot = None
        for name in ("_ring", "_ring_on", "_wait_on"):
            setattr(self, name, self._disarmed)
        return True

    def _disarmed(self, *_: Any) -> None:
        raise errors.FailedPrecondition(f"slot {self.slot_index} is disarmed", reason="DISARMED")

    def __repr__(self) -> str:
        by = "by stream or host" if self.by_stream else "by host"
        return f"Armed(slot {self.slot_index} on {self.device}, rung {by})"


class Armed(ArmedHandle):
    """A plan that is rung instead of called. Made by `plan.arm()`; needs a server on this host.

    `ring` and `wait`, or `run`, from the host; `ring_on` and `wait_on` from CUDA streams. One run
    at a time: to have several under way, arm the plan several times. For one thread at a time.

    Attributes
    ----------
    report : ArmedReport
    """

    def __init__(
        self, session: Session, plan: Plan, message: pb.ArmedPlan, slot: Any, by_stream: bool
    ) -> None:
        super().__init__(plan, message, slot, by_stream)
        self.session = session
        self._wait = slot.wait

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for the run that `ring` began; other threads run meanwhile.

        Raises
        ------
        DeadlineExceeded
            It is not done: it goes on, and may be waited for again.
        Error
            The run failed, or the server is gone.
        """
        try:
            self._wait(-1.0 if timeout_s is None else timeout_s)
        except errors.Error as error:
            raise self.session.arming.whole(error, self.slot_index) from None

    def run(self, timeout_s: float | None = None) -> ArmedReport:
        """`ring` and `wait`."""
        self.ring()
        self.wait(timeout_s)
        return self.report

    def disarm(self) -> None:
        """Frees the slot. Streams that still ring it are synchronised before. Again: nothing."""
        self._wait = self._disarmed
        if self._give_up():
            self.session.arming.disarm(self.slot_index)

    def __enter__(self) -> Armed:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):
            self.disarm()
