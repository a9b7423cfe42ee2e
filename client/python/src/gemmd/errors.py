"""What the server answers when it cannot: one class a gRPC status code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc


class Error(Exception):
    """A call failed. The text is the server's message: what, the value, the limit, the remedy.

    Attributes
    ----------
    code : grpc.StatusCode
    reason : str
        One stable upper-case word from the server (`gemmd-reason`); empty when the failure did not
        come from gemmd itself, for instance a connection that broke.
    request_id : str
        What the server's log calls this request (`gemmd-request-id`); may be empty.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, *, reason: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.request_id = request_id

    def __str__(self) -> str:
        tail = f" [{self.reason}]" if self.reason else ""
        return f"{self.message}{tail}"


class Cancelled(Error):
    """The call was cancelled before it started on the device."""

    code = grpc.StatusCode.CANCELLED


class InvalidArgument(Error, ValueError):
    """The request is wrong whatever the state."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class DeadlineExceeded(Error, TimeoutError):
    """The deadline passed, or the server saw that it could not be kept and refused at once."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class NotFound(Error, LookupError):
    """No such session, buffer, plan, name or kernel, or it belongs to another tenant."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(Error):
    """The published name is taken."""

    code = grpc.StatusCode.ALREADY_EXISTS


class Unauthenticated(Error, PermissionError):
    """The server asks who calls, and what the call shows is nothing or not good: `reason` says
    which.
    """

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(Error, PermissionError):
    """The caller may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED


class ResourceExhausted(Error):
    """A limit, a quota or memory is used up."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(Error):
    """State must change first: a read-only buffer, a buffer that is not shared memory."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class Aborted(Error):
    """Not run because something before it failed, or another upload to the buffer is under way."""

    code = grpc.StatusCode.ABORTED


class OutOfRange(Error, ValueError):
    """A position lies past the end."""

    code = grpc.StatusCode.OUT_OF_RANGE


class Unimplemented(Error, NotImplementedError):
    """No kernel on this device serves the problem."""

    code = grpc.StatusCode.UNIMPLEMENTED


class Internal(Error):
    """A bug of the server."""

    code = grpc.StatusCode.INTERNAL


class Unavailable(Error, ConnectionError):
    """Not reachable, draining, or the device is fenced: go elsewhere."""

    code = grpc.StatusCode.UNAVAILABLE


class DataLoss(Error):
    """A chunk arrived with a CRC32C that does not match its bytes."""

    code = grpc.StatusCode.DATA_LOSS


_BY_CODE: dict[int, type[Error]] = {kind.code.value[0]: kind for kind in Error.__subclasses__()}


# Answers by which nothing of a program runs any more.
_REFUSALS = (
    InvalidArgument, NotFound, FailedPrecondition, Unimplemented, OutOfRange, ResourceExhausted,
    PermissionDenied, Unauthenticated,
)  # fmt: skip


def may_still_run(error: BaseException) -> bool:
    """Whether the program of a call that ended so may still be under way: the caller's time was
    over, it was interrupted, or the answer was lost. Memory that the program uses is not free then.
    """
    # With a reason the server drains, or its device is fenced.
    turned_away = isinstance(error, Unavailable) and bool(error.reason)
    return not (turned_away or isinstance(error, _REFUSALS))


def beside(raised: type[BaseException] | None) -> type[Error]:
    """What the end of a `with` leaves unsaid: that its thing is gone already; and if its block has
    raised, all that would stand in the way of that.
    """
    return NotFound if raised is None else Error


def from_code(code: int, message: str, reason: str = "", request_id: str = "") -> Error:
    """The exception for a google.rpc.Code."""
    return _BY_CODE.get(code, Error)(message, reason=reason, request_id=request_id)


def from_status(
    code: int, details: str | None, metadata: Iterable[tuple[str, Any]] | None
) -> Error:
    """The exception for a gRPC status with its trailing metadata."""
    words = {key: value for key, value in metadata or () if isinstance(value, str)}
    return from_code(
        code, details or "", words.get("gemmd-reason", ""), words.get("gemmd-request-id", "")
    )


def from_rpc(error: Any) -> Error:
    """The exception for a grpc.RpcError or grpc.aio.AioRpcError."""
    code: grpc.StatusCode = error.code()
    details = error.details()
    if code is grpc.StatusCode.INTERNAL and details and "Internal error from Core" in details:
        code = grpc.StatusCode.UNAVAILABLE  # grpcio's words for a stream cut under a write
    return from_status(code.value[0], details, error.trailing_metadata())
