"""gemmd._native, the compiled hot path of armed plans, where it was built."""

from __future__ import annotations

from typing import Any

from gemmd import errors


def _error(code: int, message: str) -> errors.Error:
    """What a call of the module came to. Of a run that failed the reason stands in front."""
    reason, colon, text = message.partition(": ")
    if colon and reason.isupper() and reason.replace("_", "").isalnum():
        return errors.from_code(code, text, reason)
    return errors.from_code(code, message)


_native: Any
try:
    from gemmd import _native  # type: ignore[attr-defined, no-redef]

    _why_not = ""
    _native.set_errors(_error)
except ImportError as error:
    _native = None
    _why_not = (
        f"the package was installed without its native module ({error}); install a C++ compiler"
        " and the package again"
    )


def why_not() -> str:
    """Why plans cannot be armed from this process; "" if they can."""
    return _why_not


def module() -> Any:
    """The module.

    Raises
    ------
    FailedPrecondition
        It was not built.
    """
    if _native is None:
        raise errors.FailedPrecondition(_why_not, reason="NO_NATIVE_MODULE")
    return _native
