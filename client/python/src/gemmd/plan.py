"""Plan: a program that is kept and run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmd import methods, programs, wire
from gemmd.ops import Op
from gemmd.programs import Priority, Rebind, ReportLevel
from gemmd.result import Result
from gemmd.v1 import compute_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.work import Work


class PlanHandle:
    """What both faces' plans know without asking.

    Attributes
    ----------
    plan_id : bytes
    device : str
    estimated_seconds : float
        Of device time, by the server's model.
    kernels : tuple of str
        One an op.
    """

    def __init__(self, message: pb.Plan, ops: Sequence[Op]) -> None:
        self.plan_id = message.plan_id
        self.device = message.device
        self.estimated_seconds = message.estimated_seconds
        self.kernels = tuple(step.kernel for step in message.steps)
        self.ops = tuple(ops)
        self.reads = programs.reads_of(ops)
        self.writes = programs.writes_of(ops)
        self._plain = self.encode(None, None)

    def encode(
        self, rebind: Rebind | None, inputs: Sequence[Any] | None
    ) -> Sequence[wire.BytesLike]:
        return programs.run_field(programs.plan_run(self.plan_id, self.writes, rebind, inputs))

    def body(
        self,
        rebind: Rebind | None,
        inputs: Sequence[Any] | None,
        priority: Priority,
        report: ReportLevel,
    ) -> Sequence[wire.BytesLike]:
        """RunPlanRequest without session and op_id, in pieces."""
        plain = rebind is None and inputs is None
        run = self._plain if plain else self.encode(rebind, inputs)
        return [*run, programs.options(priority, report)]


class Plan(PlanHandle):
    """Made by `session.plan(ops)`. As a context manager it is deleted at the end of the block."""

    def __init__(self, session: Work, message: pb.Plan, ops: Sequence[Op]) -> None:
        super().__init__(message, ops)
        self.session = session

    def run(
        self,
        rebind: Rebind | None = None,
        inputs: Sequence[Any] | None = None,
        *,
        priority: Priority = "normal",
        report: ReportLevel = "full",
        timeout_s: float | None = None,
    ) -> Result:
        """Runs the plan once.

        Parameters
        ----------
        rebind : mapping of Buffer to Buffer, optional
            Puts the values in the place of the keys, for this run.
        inputs : sequence of array, optional
            One for each write op, of its shape; by default what the ops were made with.

        Raises
        ------
        InvalidArgument
            A buffer put in another's place is smaller than the plan's views reach, or on another
            device.
        """
        body = self.body(rebind, inputs, priority, report)
        return self.session.run(methods.RUN_PLAN, body, self.reads, timeout_s)

    def delete(self) -> None:
        self.session.delete_plan(self)

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()
