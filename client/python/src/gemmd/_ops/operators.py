"""What Python's operators and numpy do with matrices that lie on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np


class Resident:
    """`@` multiplies on the server, in the session that made the memory; with asyncio it is
    awaited. numpy does not take the elements by itself: they would have to be downloaded.
    """

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array @ self`, which numpy asks for in this way."""
        if ufunc is np.matmul and method == "__call__" and not options:
            return _session(*inputs).matmul(*inputs)
        raise self._not_here()

    def __matmul__(self, other: Any) -> Any:
        """`session.matmul(self, other)`."""
        return _session(self, other).matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        """`session.matmul(other, self)`."""
        return _session(self, other).matmul(other, self)

    if not TYPE_CHECKING:  # which would take it for an array, and `array @ self` for numpy's

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise self._not_here()

    def _not_here(self) -> TypeError:
        return TypeError(
            f"{self!r} lies on the server; buffer.download() brings its elements here, and"
            " session.matmul or @ multiplies it where it is"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} belongs to this process's session and cannot be pickled; publish it with"
            " buffer.publish(name), and call session.find(name) in the other process"
        )


def _session(*values: Any) -> Any:
    for value in values:
        # An operand has values, a tensor an owner; a buffer has the session itself.
        value = getattr(value, "values", value)
        session = getattr(getattr(value, "owner", value), "session", None)
        if session is not None:
            return session
    shown = " @ ".join(repr(value) for value in values)
    raise TypeError(f"{shown}: neither side was made by a session; call session.matmul(a, b)")
