"""How `gemmd.adopt` goes: modules are chosen, a layer is made and tried for each, and then all of
them are replaced. Before that the model is not touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from gemmd import errors
from gemmd._layers.agreement import bound, differs, exact
from gemmd._layers.chain import random_rows, x_name_of
from gemmd._layers.layer import Layer
from gemmd._layers.patterns import PATTERNS, Match, linear, linears_within, siblings
from gemmd._layers.siblings import SiblingModule, Siblings
from gemmd._layers.torch_module import LayerModule
from gemmd._layers.tree import Tree
from gemmd.loads import MOST_NAME_BYTES, published_name
from gemmd.resident import Quantize
from gemmd.sequential import Sequential

if TYPE_CHECKING:
    from gemmd.session import Session


class Adoption:
    """One call of `gemmd.adopt`.

    Attributes
    ----------
    layers : dict
        By path, once `run` has returned.
    left : dict
        Why a Linear was left alone, by path.
    """

    def __init__(
        self, model: Any, session: Session, name: str, quantize: Quantize | None, least: int
    ) -> None:
        self._tree = Tree(model)
        self._session = session
        self._name = name
        self._quantize = quantize
        self._least = least
        self._made: dict[Any, Layer] = {}
        self._siblings: dict[Any, Match] = {}  # of those made for several modules
        self._parts: dict[Any, list[Any]] = {}  # of each that is made or being made
        self._sent: set[Layer] = set()  # parts whose weights were not there before
        self._todo: deque[tuple[Any, Match]] = deque()
        self.left: dict[str, str] = {}

    @property
    def layers(self) -> dict[str, Layer]:
        paths = self._tree.paths
        return {paths[one]: self._made[one] for one in paths if one in self._made}

    def choose(self, where: Callable[[str, Any], bool] | None) -> None:
        """What is to be replaced: each module with the layer that can take its place."""
        paths = self._tree.paths
        stays = {
            module: self._tree.why_linear_stays(module)
            or ("" if where is None or where(path, module) else "where= left it out")
            for module, path in paths.items()
            if isinstance(module, torch.nn.Linear)
        }
        within = set[Any]()
        for module in paths:
            match = None if module in within else self._match(module, stays)
            if match is not None:
                self._todo.append((module, match))
                within.update(module.modules())
        for module, path in paths.items():
            match = None if module in within else self._siblings_in(module, path, stays)
            if match is not None and within.isdisjoint(match.linears):
                self._todo.append((match.linears[0], match))
                within.update(match.linears)
        for module, why in stays.items():
            if module not in within:
                self._choose_linear(module, why)
        self._check()

    def _match(self, module: Any, stays: dict[Any, str]) -> Match | None:
        """Of a module that may be replaced as a whole, with all that is in it. Patterns may call
        it, so all else comes first.
        """
        linears = linears_within(module)
        if len(linears) < 2 or sum(one.weight.numel() for one in linears) < self._least:
            return None
        if any(stays[one] for one in linears):
            return None
        for one in module.modules():
            if self._tree.why_stays(one) or self._tree.why_read(one, beyond=module):
                return None
            if one is not module and self._tree.occurs_again(one):
                return None
        return next((found for one in PATTERNS if (found := one(module)) is not None), None)

    def _siblings_in(self, parent: Any, path: str, stays: dict[Any, str]) -> Match | None:
        """Of a module's Linears that get the same x."""
        match = siblings(parent, path)
        if match is None or sum(one.weight.numel() for one in match.linears) < self._least:
            return None
        for one in match.linears:
            if stays[one] or self._tree.occurs_again(one) or self._tree.why_read(one, beyond=one):
                return None
        return match

    def _choose_linear(self, module: Any, why_stays: str = "") -> None:
        why = why_stays or self._tree.why_read(module, beyond=module)
        if not why and module.weight.numel() < self._least:
            count = module.weight.numel()
            why = f"its weight has {count} elements, min_elements is {self._least}"
        if why:
            self.left[self._tree.paths[module]] = why
        else:
            self._todo.append((module, linear(module)))

    def _check(self) -> None:
        """Raises for what would fail later, before anything is sent."""
        names = dict[str, str]()
        for _, match in self._todo:
            for one in match.linears:
                path = self._tree.paths[one]
                if one.training and one.weight.requires_grad:
                    raise ValueError(
                        f"{path} is in training mode and its weight requires a gradient; layers"
                        " have no gradients: call model.eval() first"
                    )
                if match.on_meta and not self._name:
                    raise ValueError(
                        f"{path} is on the meta device, without values; give name=, by which"
                        " another worker has published them, or load the model first"
                    )
            for name, path in self._names(match):
                if len(name) > MOST_NAME_BYTES:
                    raise ValueError(
                        f"{path} would be published as {name}, {len(name)} bytes, limit"
                        f" {MOST_NAME_BYTES}; give a shorter name=, or leave it out by where="
                    )
                if names.setdefault(name, path) != path:
                    raise ValueError(
                        f"{names[name]} and {path} would both be published as {name}; leave one"
                        " out by where="
                    )

    def _names(self, match: Match) -> Iterator[tuple[str, str]]:
        """Those that weights are published by, as a whole or one by one, and of which path."""
        if self._name:
            for part in match.parts:
                whole = {self._name_of(part.module) + ending for ending in part.endings}
                yield from ((name, self._tree.paths[part.module]) for name in whole)
                alone = ((self._name_of(one), self._tree.paths[one]) for one in part.linears)
                yield from ((name, path) for name, path in alone if name not in whole)

    def _name_of(self, module: Any) -> str:
        return published_name(self._name, self._tree.paths[module]) if self._name else ""

    def run(self) -> None:
        """Makes the layers, and puts them into the model: all of them, or none.

        Raises
        ------
        ValueError
            There is none to make.
        """
        replaced: list[tuple[Any, str, Any]] = []
        try:
            while self._todo:
                module, match = self._todo.popleft()
                if self._tried(module, match):
                    continue
                for one in match.linears:  # one by one, then
                    self._choose_linear(one)
            for module, layer in self._made.items():
                for one, made in self._modules(module, layer):
                    made.train(one.training)
                    for parent, attribute in self._tree.spots[one]:
                        setattr(parent, attribute, made)
                        replaced.append((parent, attribute, one))
        except BaseException as error:
            for parent, attribute, module in replaced:
                setattr(parent, attribute, module)
            for module in list(self._parts):
                self._discard(module)
            error.add_note("nothing was adopted: the model is as it was")
            raise

    def _modules(self, module: Any, layer: Layer) -> Iterator[tuple[Any, Any]]:
        """What is replaced by a layer, and by what."""
        match = self._siblings.get(module)
        if match is None:
            yield module, LayerModule(layer, x_name_of(module))
            return
        shared = Siblings(layer, match.columns)
        for which, one in enumerate(match.linears):
            yield one, SiblingModule(shared, which, x_name_of(one))

    def _tried(self, module: Any, match: Match) -> bool:
        """Makes a layer and compares its results with the module's. False: one layer does not do
        what the module does, and its Linears are left to try.
        """
        whole = len(match.linears) > 1
        own = match.compute if match.columns else module
        x = None if match.on_meta else _rows(match)
        if whole and own is module and x is not None and not _computes(module, match.compute, x):
            return False
        path = self._tree.paths[module]
        try:
            layer = self._made[module] = self._layer(module, match)
        except errors.NotFound as error:
            if not match.on_meta:
                raise
            if whole:
                self._discard(module)
                return False
            raise errors.NotFound(
                f"{path} is on the meta device, without values, and {error.message}; let a worker"
                f" that has them adopt its model with name={self._name!r} first, or leave {path}"
                " out by where=",
                reason=error.reason,
            ) from error
        off = None if x is None else differs(own(x), layer(x), self._bound(module, x))
        if off is None:
            if match.columns:
                self._siblings[module] = match
            return True
        if not match.sent:
            self._refuse(layer, path, "values")
        self._discard(module)
        if not whole:
            self.left[path] = f"a layer's results differ from its by {off:.2g} of their norm"
            return True
        return False

    def _layer(self, module: Any, match: Match) -> Layer:
        """Made of its parts, which `_discard` finds if one of them fails."""
        parts = self._parts[module] = list[Any]()
        for part in match.parts:
            layer = part.make(self._session, self._name_of(part.module), self._quantize)
            parts.append(layer)
            if part.sent:
                self._sent.add(layer)
            if [(one.n, one.k, one.has_bias) for one in _weights(layer)] != part.shapes:
                self._refuse(layer, self._tree.paths[part.module], "shapes or biases")
        return parts[0] if len(parts) == 1 else Sequential(*parts)

    def _bound(self, module: Any, x: Any) -> float:
        """Of the layer that was made for a module."""
        parts = self._parts[module]
        return bound(x, (one for part in parts for one in _weights(part)), len(parts))

    def _refuse(self, layer: Layer, path: str, what: str) -> None:
        raise errors.FailedPrecondition(
            f"{layer!r} is published with other {what} than the model's {path} has; give another"
            " name=, or unpublish that one",
            reason="OTHER_WEIGHT",
        )

    def _discard(self, module: Any) -> None:
        parts = self._parts.pop(module)
        for part in parts:
            with suppress(errors.Error):  # it would hide a failure
                if part.name and part in self._sent:
                    part.unpublish()
        for layer in (self._made.pop(module, None), *parts):
            if layer is not None:
                with suppress(errors.Error):
                    layer.close()


def _weights(layer: Any) -> tuple[Any, ...]:
    return layer.weights if isinstance(layer.weights, tuple) else (layer.weights,)


def _rows(match: Match) -> Any:
    weight = match.linears[0].weight
    return random_rows(weight.shape[1], weight.device, weight.dtype)


def _computes(module: Any, compute: Callable[[Any], Any], x: Any) -> bool:
    """Whether a module's forward is that, as far as its results tell."""
    try:
        own, wanted = module(x), compute(x)
    except Exception:  # it takes something else than x alone, for instance
        return False
    if not isinstance(own, torch.Tensor) or not own.any():
        return False
    if own.shape != wanted.shape or own.dtype != wanted.dtype:
        return False
    return differs(own, wanted, exact(x)) is None
