"""Words that a caller chooses among. One that does not exist is told with those that do."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def chosen(what: str, word: object, choices: Mapping[str, T]) -> T:
    """The value of a word.

    Raises
    ------
    ValueError
        It is none of the choices; names them, and the nearest.
    """
    try:
        return choices[word]  # type: ignore[index]
    except (KeyError, TypeError):
        raise ValueError(_no_such(what, word, choices)) from None


def check(what: str, word: object, choices: Iterable[str]) -> None:
    """`chosen`, where the word itself is the value."""
    known = tuple(choices)
    if word not in known:
        raise ValueError(_no_such(what, word, known))


def check_options(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """That a call was given no keyword that it does not have.

    Raises
    ------
    TypeError
        Names the keyword, those that exist, and the nearest.
    """
    names = tuple(known)
    for name in given:
        if name not in names:
            raise TypeError(
                f"{call} has no option {name!r}{_nearest(name, names)}; it takes {', '.join(names)}"
            )


def number(what: str, value: object) -> float:
    """Of an argument that is a number.

    Raises
    ------
    TypeError
        It is none; names the argument.
    """
    try:
        if not isinstance(value, str | bytes):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # an array of several, a tensor without any
        pass
    raise TypeError(f"{what} has type {type(value).__name__}; give a number")


def whole(what: str, value: object) -> int:
    """The same of a whole number."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what}={value!r} is no whole number; give an int") from None


def text(what: str, value: object) -> str:
    """The same of a string."""
    if not isinstance(value, str):
        raise TypeError(f"{what} has type {type(value).__name__}; give a str")
    return value


def _no_such(what: str, word: object, choices: Iterable[str]) -> str:
    known = tuple(choices)
    listed = ", ".join(known)
    return f"{what} {word!r} does not exist{_nearest(word, known)}; use one of {listed}"


def _nearest(word: object, known: Iterable[str]) -> str:
    choices, given = list(known), str(word).lower()
    near = [one for one in choices if given and one.startswith(given)]
    near += difflib.get_close_matches(given.replace("_", "-"), choices, 1, 0.5)
    return f", did you mean {near[0]!r}?" if near else ""
