"""What comes back: arrays that carry their report, and results that are decoded when looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmd import human
from gemmd._wire import wire
from gemmd._wire.wire import BytesLike
from gemmd.report import NO_REPORT, NO_TRANSFER, Report, Transfer
from gemmd.tensor import Tensor
from gemmd.v1 import compute_service_pb2 as pb
from gemmd.v1 import types_pb2 as types_pb


class Array(np.ndarray):
    """A numpy array with what it cost: `.report` of the program that made it, `.transfer` of the
    way it came. Both are always there. Where there is nothing to tell they are false and their
    fields empty: an array that was computed from one of these has neither.
    """

    report: Report
    transfer: Transfer

    @classmethod
    def of(
        cls,
        array: npt.NDArray[Any],
        report: Report = NO_REPORT,
        transfer: Transfer = NO_TRANSFER,
    ) -> Array:
        """The array, with what it cost."""
        out = array.view(cls)
        out.report, out.transfer = report, transfer
        return out

    def __array_finalize__(self, source: Any) -> None:
        # A view or a sum did not cost this.
        self.report = NO_REPORT
        self.transfer = NO_TRANSFER


# An answer of more bytes is taken apart where it lies: a message class would copy its outputs.
_LARGE_BYTES = 16 << 10


def decode(data: BytesLike, tensor: Tensor) -> npt.NDArray[Any]:
    """Dense bytes as a read-only array of the tensor's dtype and shape, without a copy."""
    return np.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape)


class Result:
    """What Execute, RunPlan or a completed batch answered. Decoded on first use: an unread result
    costs nothing.

    `result[i]` is `result.outputs[i]`.
    """

    __slots__ = ("_message", "_outputs", "_reads", "_report")

    def __init__(
        self,
        answer: bytes | pb.ExecuteResponse | pb.Completion,
        reads: Sequence[Tensor],
        outputs: Sequence[npt.NDArray[Any]] | None = None,
    ) -> None:
        self._message = answer
        self._reads = reads
        self._report: Report | None = None
        # Given when the answer does not carry them.
        self._outputs = None if outputs is None else tuple(outputs)

    @property
    def message(self) -> pb.ExecuteResponse | pb.Completion:
        """The server's answer as the wire has it."""
        if isinstance(self._message, bytes):
            self._message = pb.ExecuteResponse.FromString(self._message)
        return self._message

    @property
    def outputs(self) -> tuple[npt.NDArray[Any], ...]:
        """One read-only array per read op, in order."""
        if self._outputs is None:
            large = self._large()
            found: Sequence[BytesLike] = (
                self.message.outputs if large is None else wire.execute_response(large)[1]
            )
            pairs = zip(found, self._reads, strict=True)
            self._outputs = tuple(decode(data, tensor) for data, tensor in pairs)
        return self._outputs

    def _large(self) -> bytes | None:
        answer = self._message
        return answer if isinstance(answer, bytes) and len(answer) > _LARGE_BYTES else None

    @property
    def report(self) -> Report:
        """Kernel, device time and queue time; empty fields if the call asked for no report."""
        if self._report is None:
            large = self._large()
            if large is None:
                message = self.message.report
            else:
                message = types_pb.ProgramReport.FromString(wire.execute_response(large)[0])
            self._report = Report.from_message(message)
        return self._report

    @property
    def replayed(self) -> bool:
        """True if a retry was answered with the first attempt's result."""
        return bool(getattr(self.message, "replayed", False))

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        return self.outputs[index]

    def __len__(self) -> int:
        return len(self._reads)

    def __repr__(self) -> str:
        shown = ", ".join(f"{one.dtype.name}{list(one.shape)}" for one in self._reads)
        took = human.seconds(self.report.device_seconds)
        what = f"{took} on {self.report.device}" if self.report else "no report"
        return f"Result([{shown}], {what})"

    def array(self, index: int = 0) -> Array:
        """An output that carries the report."""
        return Array.of(self.outputs[index], self.report)
