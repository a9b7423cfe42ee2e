"""What opens asynchronously: to be awaited, or entered with `async with`, which closes it at the
end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from gemmd._connection.here_only import Awaited


class Closable(Protocol):
    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None: ...


T = TypeVar("T", bound=Closable)


class Opening(Generic[T], Awaited):
    """`thing = await opening`, or `async with opening as thing`."""

    def __init__(self, opener: Callable[[], Awaitable[T]]) -> None:
        self._opener = opener
        self._opened: T | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name!r} of something that is not open yet: `await` it first, or open it with"
            " `async with .. as`"
        )

    def __await__(self) -> Generator[Any, None, T]:
        return self._opener().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._opener()
        return self._opened

    async def __aexit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, *about)
