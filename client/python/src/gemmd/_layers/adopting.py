"""How `gemmd.adopt` goes: modules are chosen, a layer is made and tried for each, and then all of
them are replaced. Before that the model is not touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from gemmd import errors
from gemmd._layers.agreement import bound, bound_of_fp8, differs, exact
from gemmd._layers.chain import by_scale, x_name_of
from gemmd._layers.experts import count_of, holds_batched_experts, holds_experts
from gemmd._layers.layer import Layer
from gemmd._layers.match import Match
from gemmd._layers.mixture import experts_within
from gemmd._layers.patterns import (
    PATTERNS,
    experts,
    linear,
    linears_within,
    mixture,
    siblings,
)
from gemmd._layers.siblings import SiblingModule, Siblings
from gemmd._layers.told import Told
from gemmd._layers.tree import Tree
from gemmd.loads import MOST_NAME_BYTES, published_name
from gemmd.moe import LARGEST_EXPERTS
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
        self._matches: dict[Any, Match] = {}  # of those made
        self._parts: dict[Any, list[Any]] = {}  # of each that is made or being made
        self._sent: set[Layer] = set()  # parts whose weights were not there before
        self._todo: deque[tuple[Any, Match]] = deque()
        self.left: dict[str, str] = {}

    @property
    def spots(self) -> dict[Any, list[tuple[Any, str]]]:
        """Where each module stands: parents and attributes."""
        return self._tree.spots

    @property
    def layers(self) -> dict[str, Layer]:
        paths = self._tree.paths
        return {paths[one]: self._made[one] for one in paths if one in self._made}

    def choose(self, where: Callable[[str, Any], bool] | None) -> None:
        """What is to be replaced: each module with the layer that can take its place."""
        paths = self._tree.paths
        stays = {
            module: self._tree.why_linear_stays(module)
            or self._why_router(module)
            or ("" if where is None or where(path, module) else "where= left it out")
            for module, path in paths.items()
            if isinstance(module, torch.nn.Linear)
        }
        within = self._choose_mixtures(stays)
        for module in paths:
            match = None if module in within else self._match(module, stays)
            if match is not None:
                self._todo.append((module, match))
                within.update(module.modules())
        for module, path in paths.items():
            match = None if module in within else self._siblings_in(module, path, stays)
            if match is not None and within.isdisjoint(match.holders):
                self._todo.append((match.holders[0], match))
                within.update(match.holders)
        for module, why in stays.items():
            if module not in within:
                self._choose_linear(module, why)
        self._choose_stacked(where, within)

    def _choose_mixtures(self, stays: dict[Any, str]) -> set[Any]:
        """What is within them."""
        within = set[Any]()
        for module in self._tree.paths if self._quantize is not None else ():
            held = experts_within(module)
            if not held or module in within or not self._may_go(module, held):
                continue
            if any(stays.get(one) for one in held.modules()):
                continue
            match = mixture(module)
            if match is None or match.experts_count > LARGEST_EXPERTS:
                continue
            if match.elements >= self._least:
                self._todo.append((module, match))
                within.update((module, *held.modules()))
        return within

    def choose_experts(self) -> None:
        """Mixtures and modules of experts alone."""
        stays = {
            module: self._tree.why_linear_stays(module)
            for module in self._tree.paths
            if isinstance(module, torch.nn.Linear)
        }
        self._choose_stacked(None, self._choose_mixtures(stays))

    def _choose_stacked(
        self, where: Callable[[str, Any], bool] | None, within: Container[Any]
    ) -> None:
        """But for those `within` others. The last choice."""
        for module, path in self._tree.paths.items():
            if module not in within and (holds_experts(module) or holds_batched_experts(module)):
                self._choose_experts(module, where is None or where(path, module))
        self._check()

    def _why_router(self, module: Any) -> str:
        """Of a Linear beside as many experts as it has columns."""
        for parent, _ in self._tree.spots[module]:
            for name, one in parent.named_children():
                if count_of(name, one) == module.out_features:
                    return "it chooses experts; rounded weights would choose others"
        return ""

    def _match(self, module: Any, stays: dict[Any, str]) -> Match | None:
        """Of a module that may be replaced as a whole, with all that is in it. Patterns may call
        it, so all else comes first.
        """
        linears = linears_within(module)
        if len(linears) < 2 or sum(one.weight.numel() for one in linears) < self._least:
            return None
        if any(stays[one] for one in linears) or not self._may_go(module, module):
            return None
        return next((found for one in PATTERNS if (found := one(module)) is not None), None)

    def _may_go(self, module: Any, part: Any) -> bool:
        """Whether a part of a module may go with it, or all of it."""
        for one in (module, *part.modules()):
            if self._tree.why_stays(one) or self._tree.why_read(one, beyond=module):
                return False
            if one is not module and self._tree.occurs_again(one):
                return False
        return True

    def _siblings_in(self, parent: Any, path: str, stays: dict[Any, str]) -> Match | None:
        """Of a module's Linears that get the same x."""
        match = siblings(parent, path)
        if match is None or match.elements < self._least:
            return None
        for one in match.holders:
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

    def _choose_experts(self, module: Any, wanted: bool) -> None:
        why = self._tree.why_experts_stay(module)
        if not why and not wanted:
            why = "where= left it out"
        if not why and self._quantize is None:
            why = "experts are of FP8, and quantize is None"
        match = None if why else experts(module)
        if not why and match is None:
            why = "it computes something else than experts of gemmd.MoE do"
        if match is not None and match.experts_count > LARGEST_EXPERTS:
            why = f"it has {match.experts_count} experts, a layer takes {LARGEST_EXPERTS}"
        elif match is not None and match.elements < self._least:
            why = f"its weights have {match.elements} elements, min_elements is {self._least}"
        if why or match is None:
            self.left[self._tree.paths[module]] = why
        else:
            self._todo.append((module, match))

    def _check(self) -> None:
        """Raises for what would fail later, before anything is sent."""
        names = dict[str, str]()
        for _, match in self._todo:
            for one in match.holders:
                path = self._tree.paths[one]
                if one.training and any(weight.requires_grad for weight in one.parameters()):
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
                alone = ((self._name_of(one), self._tree.paths[one]) for one in part.holders)
                yield from ((name, path) for name, path in alone if name not in whole)

    def _name_of(self, module: Any) -> str:
        return published_name(self._name, self._tree.paths[module]) if self._name else ""

    def run(self) -> None:
        """Makes the layers, and puts them into the model: all of them, or none."""
        try:
            put(self._tree.spots, self.make())
        except BaseException as error:
            self.discard()
            error.add_note("nothing was adopted: the model is as it was")
            raise

    def make(self) -> dict[Any, Any]:
        """What takes the place of each module; all of them, or none."""
        made = dict[Any, Any]()
        try:
            while self._todo:
                module, match = self._todo.popleft()
                if self._tried(module, match):
                    continue
                for one in match.holders:  # one by one, then
                    self._choose_linear(one)
            for module, layer in self._made.items():
                for one, in_its_place in self._modules(module, layer):
                    made[one] = in_its_place.train(one.training)
                    if isinstance(one, torch.nn.Linear):
                        in_its_place.told = Told(one.weight)
        except BaseException:
            self.discard()
            raise
        return made

    def discard(self) -> None:
        """Closes all that was made."""
        for module in list(self._parts):
            self._discard(module)

    def _modules(self, module: Any, layer: Layer) -> Iterator[tuple[Any, Any]]:
        """What is replaced by a layer, and by what."""
        match = self._matches[module]
        if not match.columns:
            made = match.made(module, layer)
            for name in () if match.mixture is None else match.mixture.kept:
                self._tree.spots[getattr(module, name)].append((made, name))
            yield module, made
            return
        shared = Siblings(layer, match.columns)
        for which, one in enumerate(match.holders):
            yield one, SiblingModule(shared, which, x_name_of(one))

    def _tried(self, module: Any, match: Match) -> bool:
        """Makes a layer and compares its results with the module's. False: one layer does not do
        what the module does, and its Linears are left to try.
        """
        whole = len(match.holders) > 1
        own, path = match.own(module), self._tree.paths[module]
        inputs = None if match.on_meta else match.inputs()
        compute = None if match.compute is own else match.compute
        most = bound_of_fp8(2) if match.of_fp8 else None  # the module rounds activations, too
        if inputs and compute is not None and not _computes(own, compute, inputs, most):
            if not whole:
                self.left[path] = "its forward computes something else than on small weights"
            return not whole
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
        off = None
        if inputs:
            rows = by_scale(own(*inputs)), by_scale(match.called(module, layer)(*inputs))
            off = differs(*rows, self._bound(module, inputs[0]))
        if off is None:
            self._matches[module] = match
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
            if [(*one.shape, one.has_bias) for one in _weights(layer)] != part.shapes:
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


def put(spots: dict[Any, list[tuple[Any, str]]], made: dict[Any, Any]) -> None:
    """Modules in the place of others, by where these stand: all of them, or none."""
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for module, in_its_place in made.items():
            for parent, attribute in spots[module]:
                setattr(parent, attribute, in_its_place)
                replaced.append((parent, attribute, module))
    except BaseException:
        for parent, attribute, module in replaced:
            setattr(parent, attribute, module)
        raise


def _weights(layer: Any) -> tuple[Any, ...]:
    return layer.weights if isinstance(layer.weights, tuple) else (layer.weights,)


def _computes(
    module: Callable[..., Any],
    compute: Callable[..., Any],
    inputs: tuple[Any, ...],
    most: float | None,
) -> bool:
    """Whether a module's forward is that, as far as its results tell. `most`: by what they may
    differ, if not by torch's own rounding.
    """
    try:
        own, wanted = module(*inputs), compute(*inputs)
    except Exception:  # it takes something else than x alone, for instance
        return False
    if not isinstance(own, torch.Tensor) or not own.any():
        return False
    if own.shape != wanted.shape or own.dtype != wanted.dtype:
        return False
    return differs(by_scale(own), by_scale(wanted), most or exact(inputs[0])) is None
