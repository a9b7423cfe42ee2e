"""What calls on this host run by: the plans armed on a `Memory`, and a run each.

`Place` and `Seat` outlive a call; `HostRun` is one of the host's, `GpuCall` what a stream's call
goes by. Who hands them out is `local.LocalCalls`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from gemmd import errors
from gemmd._layers.memory import Memory
from gemmd._layers.results import ResultMemory
from gemmd._memory import interop
from gemmd.armed import Armed, ArmedReport
from gemmd.report import Report

if TYPE_CHECKING:
    from gemmd._layers.forward import Forward

MAX_RESULTS = 3  # of one step that are alive at once without a copy
COPIED_FIRST = 32  # results of a step, before one stays where it is
MOST_SECONDS_TO_A_REPORT = 0.01


class Lent(Protocol):
    """Memory of torch's that a seat uses."""

    @property
    def size_bytes(self) -> int: ...

    def delete(self) -> object: ...


class Seat:
    """A step's armed plan.

    Attributes
    ----------
    lent : tuple
        What it holds of tensors that results are written to, or that x is read of.
    captured : bool
        By a graph, which rings it as long as it lives.
    used : int
        The place's count of calls at the last one.
    """

    def __init__(
        self, armed: Armed, drop_plan: Callable[[], None], lent: tuple[Lent, ...] = ()
    ) -> None:
        self.armed = armed
        self._drop_plan = drop_plan
        self.lent = lent
        self.alive = True
        self.captured = False
        self.graph: Any = None  # the `graphs.Graph` that alone has it
        self.used = 0

    @property
    def lent_bytes(self) -> int:
        return sum(one.size_bytes for one in self.lent)

    def give_up(self) -> None:
        self.alive = False
        self.armed.disarm()
        self._drop_plan()
        for one in self.lent:
            one.delete()


class Place:
    """A layer's armed plans on some memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.seats: dict[tuple[Forward, int], Seat] = {}  # by step, and which of its results
        self.calls = 0
        self.results = 0  # ever: each has a seat of its own, by this number


class HostRun:
    """A call of the host's with x [m, k], rung: x is in. Its place's memory, taken before, is busy
    until `result` has returned or anything has raised.
    """

    def __init__(self, place: Place, seat: Seat, step: Forward, x: npt.NDArray[Any]) -> None:
        self._memory = memory = place.memory
        self._step = step
        self._rows = len(x)
        self.armed = seat.armed
        place.calls = seat.used = place.calls + 1
        try:
            memory.finish()
            step.bring(x, memory.mapped)
            memory.rung = self.armed  # before: an interrupt between the two would leave it unknown
            self.armed.ring()
        except BaseException:
            memory.busy.release()
            raise

    def result(self) -> tuple[npt.NDArray[Any], Report]:
        """[m, n], and the report; waits if there is none yet. Raises what the run failed with."""
        memory = self._memory
        try:
            try:
                self.armed.wait()
            except errors.Error:
                memory.rung = None
                raise
            memory.rung = None
            report = first_report(self.armed).as_report()
            out = self._step.result_in(memory.mapped, self._rows).copy()
        finally:
            memory.busy.release()
        return out, report


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
    """A step's seat that writes its result to a tensor of torch's."""

    def __init__(self, seat: Seat, memory: ResultMemory) -> None:
        self.seat = seat
        self.memory = memory


class GpuCall:
    """All that a call of a step on one GPU needs, found by one look-up."""

    def __init__(self, place: Place, seat: Seat, step: Forward) -> None:
        self.place = place
        self.memory = place.memory
        self.seat = seat
        self.step = step
        self.in_dtype = interop.torch_dtype(step.in_dtype)
        self.out_dtype = interop.torch_dtype(step.out_dtype)
        self.call_on = seat.armed.slot.call_on
        self.x_row_bytes, self.d_row_bytes = step.x_row_bytes, step.d_row_bytes
        self.fills = step.filler is not None
        self.x_at = place.memory.mapped
        self.d_at = place.memory.mapped + step.d_at
        self.copied = 0  # results, since one could not be made
        self.results: list[DirectResult] = []
        self.most_results = MAX_RESULTS

    def lacking_bytes(self, rows: int) -> int:
        """Of x, behind that of a call, which the stream is to fill."""
        return (self.step.m - rows) * self.x_row_bytes if self.fills else 0

    def free_result(self, stream: int) -> DirectResult | None:
        """One that is taken: `handed_out` or `give_back` follows."""
        for one in self.results:
            memory = one.memory
            if one.seat.alive and memory.may_take(stream) and memory.take():
                if memory.is_ours():
                    return one
                memory.give_back()
                one.seat.alive = False
                self.most_results = 0  # a caller who does so gets copies from now on
        return None

    def lacks_result(self) -> bool:
        """Whether to make another: it takes as long as a thousand copies."""
        return self.copied >= COPIED_FIRST and len(self.results) < self.most_results

    def forget(self) -> None:
        """Lets go of the results whose seats were given up."""
        self.results = [one for one in self.results if one.seat.alive]


class Known:
    """A call and the x's that it was for."""

    def __init__(self, call: GpuCall, shape: tuple[int, ...], rows: int) -> None:
        self.call = call
        self.shape = shape
        self.rows = rows
        self.x_bytes = rows * call.x_row_bytes
        self.d_bytes = rows * call.d_row_bytes
        self.lacking_bytes = call.lacking_bytes(rows)
