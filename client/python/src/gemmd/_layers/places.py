"""What calls on this host run in: places of shared memory, the plans armed on them, and a run each.

`Place` and `Seat` outlive a call; `HostRun` is one of the host's, `GpuCall` what a stream's call
goes by. Who hands them out is `local.LocalCalls`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gemmd import errors
from gemmd._memory import interop
from gemmd.armed import Armed, ArmedReport
from gemmd.buffer import Buffer
from gemmd.plan import Plan
from gemmd.report import Report

if TYPE_CHECKING:
    from gemmd._layers.linear_step import Forward

MAX_RESULTS = 3  # of one step that are alive at once without a copy
MAX_RESULT_BYTES = 4 << 20  # larger ones are copied: it costs them little
MOST_SECONDS_TO_A_REPORT = 0.01


class Seat:
    """A step's armed plan.

    Attributes
    ----------
    lent : Buffer or None
        The server's handle on a tensor that results are written to.
    captured : bool
        By a graph, which rings it as long as it lives.
    used : int
        The place's count of calls at the last one.
    """

    def __init__(self, plan: Plan, armed: Armed, lent: Buffer | None = None) -> None:
        self.plan = plan
        self.armed = armed
        self.lent = lent
        self.alive = True
        self.captured = False
        self.used = 0

    @property
    def lent_bytes(self) -> int:
        return 0 if self.lent is None else self.lent.size_bytes

    def give_up(self) -> None:
        self.alive = False
        self.armed.disarm()
        self.plan.delete()
        if self.lent is not None:
            self.lent.delete()


class Place:
    """Shared memory [x | result] and the device's scratch memory, with what is armed on them.

    Attributes
    ----------
    memory : array or int
        `io` in this process: its bytes, or its address on the GPU.
    stream : int
        The CUDA stream that used the place last, and `event_stream`, the same as torch's object.
    """

    def __init__(self, io: Buffer, scratch: Buffer, memory: Any) -> None:
        self.io = io
        self.scratch = scratch
        self.memory = memory
        self.busy = threading.Lock()
        self.rung: Armed | None = None  # by the host, until it has been waited for
        self.seats: dict[tuple[Forward, int], Seat] = {}  # by step, and which of its results
        self.calls = 0
        self.results = 0  # ever: each has a seat of its own, by this number
        self.stream = -1
        self.event_stream: Any = None

    def fits(self, step: Forward) -> bool:
        io, scratch = self.io.size_bytes, self.scratch.size_bytes
        return bool(io >= step.io_bytes and scratch >= step.scratch_bytes)

    @property
    def captured(self) -> bool:
        return any(seat.captured for seat in self.seats.values())

    def is_captured(self) -> bool:
        """Whether the stream that used it last is being captured, just now."""
        if self.event_stream is None:
            return False
        torch = interop.torch_module()
        with torch.cuda.stream(self.event_stream):
            return bool(torch._C._cuda_isCurrentStreamCapturing())

    def finish(self) -> None:
        """Waits for the run of a call that was interrupted: it still reads and writes here."""
        if self.rung is not None:
            with contextlib.suppress(errors.Error):  # its caller's
                self.rung.wait()
            self.rung = None

    def settle(self) -> None:
        """Waits until no stream uses the place."""
        if self.event_stream is not None:
            self.event_stream.synchronize()


class HostRun:
    """A call of the host's, rung: x is in. Its place, taken before, is busy until `result` has
    returned or anything has raised.
    """

    def __init__(self, place: Place, seat: Seat, step: Forward, x: npt.NDArray[Any]) -> None:
        self._place = place
        self._step = step
        self.armed = seat.armed
        place.calls = seat.used = place.calls + 1
        try:
            place.finish()
            np.copyto(place.memory[: step.x_bytes], x.reshape(-1).view(np.uint8))
            place.rung = self.armed  # before: an interrupt between the two would leave it unknown
            self.armed.ring()
        except BaseException:
            place.busy.release()
            raise

    def result(self) -> tuple[npt.NDArray[Any], Report]:
        """[m, n], and the report; waits if there is none yet. Raises what the run failed with."""
        place, step = self._place, self._step
        try:
            try:
                self.armed.wait()
            except errors.Error:
                place.rung = None
                raise
            place.rung = None
            report = first_report(self.armed).as_report()
            got = place.memory[step.d_at : step.d_at + step.d_bytes].copy()
        finally:
            place.busy.release()
        return got.view(step.out_dtype).reshape(step.m, step.n), report


def first_report(armed: Armed) -> ArmedReport:
    """The last report there is. A plan's first comes just behind its first run's end: a caller
    would be shown zeros.
    """
    report = armed.report
    until = time.monotonic() + MOST_SECONDS_TO_A_REPORT if report.run == 0 else 0.0
    while report.run == 0 and time.monotonic() < until:
        time.sleep(0)
        report = armed.report
    return report


class DirectResult:
    """A tensor of torch's that the server writes results to, and the seat that does."""

    def __init__(self, torch: Any, tensor: Any, seat: Seat) -> None:
        self.seat = seat
        self.call_on = seat.armed.slot.call_on
        self._tensor = tensor
        self._count = torch._C._storage_Use_Count
        self._storage = tensor.untyped_storage()  # kept: its number is that of a live object
        self._number = self._storage._cdata
        self._own_uses = self._count(self._number)
        self._at = self._storage.data_ptr()

    def is_free(self) -> bool:
        """Whether nobody else has a tensor over the memory."""
        return bool(self._count(self._number) == self._own_uses)

    def is_ours(self) -> bool:
        """Whether the memory is still the one that the server knows and nobody else's: a caller may
        have resized its tensor, or sent it to a process that reads it after the tensor is gone.
        """
        if self._storage.data_ptr() != self._at:
            return False
        sent = sys.modules.get("torch.multiprocessing.reductions")
        shared = None if sent is None else sent.shared_cache
        return not shared or all(one.cdata != self._number for one in shared.copy().values())

    def handed_out(self, shape: tuple[int, ...]) -> Any:
        """The result as the caller's tensor. No view of the kept one: what the caller's becomes a
        part of, as of a gradient's graph by `y += bias`, the kept one and the next result must not.
        """
        if self._tensor.shape != shape:
            self._tensor = self._tensor.view(shape).data
            self._own_uses = self._count(self._number)  # the session has the first one, too
        return self._tensor.data


class GpuCall:
    """All that a call with m rows of one type on one GPU needs, found by one look-up."""

    def __init__(self, place: Place, seat: Seat, step: Forward) -> None:
        self.place = place
        self.seat = seat
        self.step = step
        self.in_dtype = interop.torch_dtype(step.in_dtype)
        self.out_dtype = interop.torch_dtype(step.out_dtype)
        self.call_on = seat.armed.slot.call_on
        self.x_at, self.x_bytes = place.memory, step.x_bytes
        self.d_at, self.d_bytes = place.memory + step.d_at, step.d_bytes
        self.results: list[DirectResult] = []
        self.most_results = MAX_RESULTS if step.d_bytes <= MAX_RESULT_BYTES else 0

    def free_result(self) -> DirectResult | None:
        for one in self.results:
            if one.is_free() and one.seat.alive:
                if one.is_ours():
                    return one
                one.seat.alive = False
                self.most_results = 0  # a caller who does so gets copies from now on
        return None

    def forget(self) -> None:
        """Lets go of the results whose seats were given up."""
        self.results = [one for one in self.results if one.seat.alive]
