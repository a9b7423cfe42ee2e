"""What work cost: the server's report on a program, and the client's on a transfer."""

from __future__ import annotations

from dataclasses import dataclass

from gemmd.v1 import types_pb2 as pb

REPORT_LEVELS = {
    "full": pb.REPORT_LEVEL_FULL,
    "summary": pb.REPORT_LEVEL_SUMMARY,
    "none": pb.REPORT_LEVEL_NONE,
}
PRIORITIES = {"normal": pb.PRIORITY_NORMAL, "high": pb.PRIORITY_HIGH, "low": pb.PRIORITY_LOW}


def _rate(amount: float, seconds: float, unit: float) -> float:
    return amount / seconds / unit if seconds > 0 else 0.0


@dataclass(frozen=True)
class OpReport:
    """What one op cost on the device."""

    op: str
    kernel: str
    reason: str  # why this kernel: "table", "model", "forced", "fallback", "only"
    device_seconds: float
    flops: float  # that the op asks for: 2mnk for a matmul
    bytes: float  # that the op must move at least
    device: str = ""  # of a program on several devices, where it ran

    @property
    def tflops(self) -> float:
        """TFLOP/s reached."""
        return _rate(self.flops, self.device_seconds, 1e12)

    @property
    def gb_per_s(self) -> float:
        return _rate(self.bytes, self.device_seconds, 1e9)


@dataclass(frozen=True)
class Report:
    """What a program cost, end to end on the server."""

    device: str  # of a program on several "cuda:0,cuda:1"
    queue_seconds: float  # accepted to started on the device
    device_seconds: float  # first op's start to last op's end
    ops: tuple[OpReport, ...]  # in order; empty unless the report level is "full"
    path: str = "call"  # or "armed": rung in shared memory, and then `ops` is empty

    @property
    def kernel(self) -> str:
        """Of the matmul that took longest, or of the longest op if there is no matmul."""
        pool = [op for op in self.ops if op.op == "matmul"] or list(self.ops)
        return max(pool, key=lambda op: op.device_seconds).kernel if pool else ""

    @property
    def tflops(self) -> float:
        """TFLOP/s over the whole program."""
        return _rate(sum(op.flops for op in self.ops), self.device_seconds, 1e12)

    @classmethod
    def from_message(cls, message: pb.ProgramReport) -> Report:
        ops = tuple(
            OpReport(
                op.op,
                op.kernel,
                pb.ChoiceReason.Name(op.reason).removeprefix("CHOICE_REASON_").lower(),
                op.device_seconds,
                op.flops,
                op.bytes,
                op.device,
            )
            for op in message.ops
        )
        return cls(message.device, message.queue_seconds, message.device_seconds, ops)


@dataclass(frozen=True)
class Transfer:
    """How bytes travelled.

    Attributes
    ----------
    path : str
        "shm" when client and server shared memory, else "grpc".
    why : str
        Why not "shm"; empty when it was.
    resumed : int
        How often the stream was cut and taken up again.
    """

    nbytes: int
    seconds: float
    path: str
    why: str = ""
    resumed: int = 0

    @property
    def gb_per_s(self) -> float:
        return _rate(self.nbytes, self.seconds, 1e9)
