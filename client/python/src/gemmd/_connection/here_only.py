"""What lives on connections of this process, and says so when it is taken elsewhere."""

from __future__ import annotations

from typing import Any, NoReturn


class Unpickled:
    """Mixed into what lives on connections of this process."""

    __slots__ = ()

    _elsewhere = "make one there"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} has connections of this process and cannot be pickled or copied;"
            f" {self._elsewhere}"
        )


class Awaited:
    """Mixed into what `async with` closes: a plain `with` would not wait."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        raise TypeError("this is gemmd.aio's: open it with `async with`; gemmd's own take `with`")

    def __exit__(self, *_: object) -> None:
        """Never called: `__enter__` raises."""
