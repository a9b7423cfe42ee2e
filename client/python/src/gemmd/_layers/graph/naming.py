"""What a block's weights are called."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from gemmd._layers.graph.reading import Reading
from gemmd._layers.graph.written import Matrix
from gemmd.loads import MOST_NAME_BYTES, published_name


class Naming:
    """By the paths of a model's parameters.

    Parameters
    ----------
    prefix : str
        Of names that weights are published by; "" if they are not.
    """

    def __init__(self, model: Any, prefix: str) -> None:
        self._prefix = prefix
        self._paths = {id(one): path for path, one in model.named_parameters()}

    def shown(self, reading: Reading, weights: Iterable[Any]) -> str:
        """For people."""
        paths = list[str]()
        for one in weights:
            known = _replaced((reading.origin(one),), self._paths)
            paths.append(next(iter(_texts(known)), "a weight").removesuffix(".weight"))
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return paths[0] + more

    def of(self, reading: Reading, matrix: Matrix) -> str:
        """ "" if the weights have none."""
        paths = [self._path_of(reading.origin(one)) for one in matrix.weights]
        if not self._prefix or not all(paths):
            return ""
        first, *others = paths
        ending = "".join("." + path.rpartition(".")[2] for path in others)
        name = published_name(self._prefix, first + ending)
        if len(name) > MOST_NAME_BYTES:
            raise ValueError(
                f"{first} would be published as {name}, {len(name)} bytes, limit {MOST_NAME_BYTES};"
                " give a shorter name="
            )
        return name

    def _path_of(self, origin: Any) -> str:
        """The module's that has the weight; of one that is computed of it with a digest of how."""
        if isinstance(origin, int):
            return str(self._paths.get(origin, "")).removesuffix(".weight")
        paths = _replaced(origin, self._paths)
        first = next(iter(_texts(paths[1:])), "")
        digest = hashlib.sha256(repr(paths).encode()).hexdigest()[:8]
        return f"{first.removesuffix('.weight')}-{digest}" if first else ""


def _replaced(origin: Any, paths: dict[int, str]) -> Any:
    """With paths for parameters."""
    if isinstance(origin, tuple):
        return tuple(_replaced(one, paths) for one in origin)
    return paths.get(origin, "") if isinstance(origin, int) else origin


def _texts(origins: Iterable[Any]) -> Iterator[str]:
    """The parameters' paths, without how something is computed of them."""
    for one in origins:
        if isinstance(one, tuple):
            yield from _texts(one[1:])
        elif one:
            yield one
