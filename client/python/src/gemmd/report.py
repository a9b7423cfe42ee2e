"""What work cost: the server's report on a program, and the client's on a transfer."""

from __future__ import annotations

from dataclasses import dataclass

from gemmd import human
from gemmd.v1 import types_pb2 as pb

REPORT_LEVELS = {
    "full": pb.REPORT_LEVEL_FULL,
    "summary": pb.REPORT_LEVEL_SUMMARY,
    "none": pb.REPORT_LEVEL_NONE,
}
PRIORITIES = {"normal": pb.PRIORITY_NORMAL, "high": pb.PRIORITY_HIGH, "low": pb.PRIORITY_LOW}


# Why a kernel was chosen, in gemmctl's words.
_REASONS = {
    "table": "measured fastest (tuning table)",
    "model": "the cost model's best",
    "forced": "asked for",
    "fallback": "fallback: nothing better serves this problem",
    "only": "the only one",
}


def _rate(amount: float, seconds: float, unit: float) -> float:
    return amount / seconds / unit if seconds > 0 else 0.0


@dataclass(frozen=True)
class OpReport:
    """What one op cost on the device. `print` shows the line that gemmctl prints."""

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
        """GB/s of the bytes that the op must move at least."""
        return _rate(self.bytes, self.device_seconds, 1e9)

    def __str__(self) -> str:
        rate = f", {self.tflops:.3f} TFLOP/s" if self.flops > 0 else ""
        why = _REASONS.get(self.reason, "reason not given")
        kernel = f"; {self.kernel}, {why}" if self.kernel else ""
        where = f" on {self.device}" if self.device else ""
        took = human.seconds(self.device_seconds)
        return f"{self.op:<9}  {took}{rate}, {self.gb_per_s:.2f} GB/s{kernel}{where}"


@dataclass(frozen=True, repr=False)
class Report:
    """What a program cost, end to end on the server. `print` shows it as gemmctl does.

    False where there is nothing to tell: the array comes from no program, or the call asked for
    `report="none"`.
    """

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

    def __bool__(self) -> bool:
        return bool(self.device)

    def __repr__(self) -> str:
        if not self:
            return "Report(of no program)"
        kernel = f"{self.kernel}, " if self.kernel else ""
        took = human.seconds(self.device_seconds)
        return f"Report({kernel}{took} on {self.device}, {len(self.ops)} ops, by {self.path})"

    def __str__(self) -> str:
        if not self:
            return "no report: nothing ran for this, or the call asked for none"
        waited, took = human.seconds(self.queue_seconds), human.seconds(self.device_seconds)
        whole = f"queued     {waited}, on the device {took}"
        return "\n".join([f"on {self.device}", *map(str, self.ops), whole])

    @classmethod
    def from_message(cls, message: pb.ProgramReport) -> Report:
        """Of what the server sent."""
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


NO_REPORT = Report("", 0.0, 0.0, ())


@dataclass(frozen=True)
class Transfer:
    """How bytes travelled. `print` shows it as gemmctl does; false where nothing was moved.

    Attributes
    ----------
    path : str
        "shm" when client and server shared memory, else "grpc"; "" when nothing was moved.
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
        """GB/s of the whole transfer."""
        return _rate(self.nbytes, self.seconds, 1e9)

    def __bool__(self) -> bool:
        return bool(self.path)

    def __str__(self) -> str:
        if not self:
            return "nothing was moved"
        times = "time" if self.resumed == 1 else "times"
        resumed = f", resumed {self.resumed} {times}" if self.resumed else ""
        took = f"{human.seconds(self.seconds)}, {self.gb_per_s:.2f} GB/s"
        return f"{human.size(self.nbytes)} by {self.path} in {took}{resumed}"


NO_TRANSFER = Transfer(0, 0.0, "")
