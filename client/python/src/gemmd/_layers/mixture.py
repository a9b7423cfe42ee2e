"""A router and its experts, a list of modules or stacked weights, as one module that is called with
x alone: which experts it takes, and by which weights, is told by its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from gemmd._layers.agreement import differs, exact
from gemmd._layers.chain import by_scale, random_rows, takes_x_alone
from gemmd._layers.choice import MOST_TOP, Choice
from gemmd._layers.experts import by_each, holds_batched_experts, summed

Scores = Literal["softmax", "sigmoid", "own", "all"]

_MOST_TOP = 16


@dataclass(frozen=True)
class Mixture:
    """What the module computes: the sum of `top_k` experts' results, weighted by their scores.

    Attributes
    ----------
    router, experts : str
        Its children. The router is a Linear with a column for each expert; or with scores of "own" a
        module that returns each token's experts and their weights, and with "all" one that returns
        weights of all experts, which are 0 for those that are not chosen.
    shared, shared_gate : str
        An expert of all tokens, whose result is multiplied by the sigmoid of a Linear with one column;
        "" where there is none.
    renormalized : bool
        The weights are brought to a sum of 1.
    weighs_x : bool
        The weights multiply what the experts are given, instead of what they return.
    flat : bool
        The result is [tokens, n], whatever x is.
    tells : int, optional
        The module returns the router's logits behind the result: which of what the router returns.
    """

    router: str
    experts: str
    shared: str = ""
    shared_gate: str = ""
    scores: Scores = "softmax"
    top_k: int = 1
    renormalized: bool = False
    weighs_x: bool = False
    flat: bool = False
    tells: int | None = None

    @property
    def kept(self) -> list[str]:
        """The children that go on as they are."""
        return [one for one in (self.router, self.shared, self.shared_gate) if one]

    def routing(self, told: Any) -> tuple[Any, Any]:
        """Each token's experts and their weights, of what the router returns."""
        if self.scores == "own":
            found = _choices_in(told)
            assert found is not None
            return found
        if self.scores == "all":
            weights, experts = _parts_told(told)[0].topk(self.top_k)
            return experts, weights
        scores = told.float()
        scores = scores.softmax(-1) if self.scores == "softmax" else scores.sigmoid()
        weights, experts = scores.topk(self.top_k)
        if self.renormalized:
            weights = weights / weights.sum(-1, keepdim=True)
        return experts, weights

    @property
    def choice(self) -> Choice | None:
        """What the server can do of it, given the logits."""
        if self.weighs_x or self.scores not in ("softmax", "sigmoid") or self.top_k > MOST_TOP:
            return None
        return Choice(self.top_k, self.scores, self.renormalized)

    def told(self, module: Any, x: Any, rows: Any) -> Any:
        """What the router of a module returns; its own kind sees x as the module does."""
        router = getattr(module, self.router)
        return router(x if self.scores == "own" else rows)

    def result(
        self,
        module: Any,
        x: Any,
        mixed: Callable[[Any, Any, Any], Any],
        by_choice: Callable[[Any, Any, Choice], Any] | None = None,
    ) -> Any:
        """The module's, where a function gives the experts' of tokens, experts and weights; and maybe
        another one of tokens, logits and a choice.
        """
        rows = x.reshape(-1, x.shape[-1])
        told = self.told(module, x, rows)
        choice = None if by_choice is None else self.choice
        if by_choice is not None and choice is not None:
            y = by_choice(rows, told, choice)
        else:
            y = self._weighed(rows, *self.routing(told), mixed)
        beside = self.beside(module, rows)
        y = y if beside is None else y + beside
        y = y if self.flat else y.view(*x.shape[:-1], -1)
        return y if self.tells is None else (y, _parts_told(told)[self.tells])

    def _weighed(
        self, rows: Any, experts: Any, weights: Any, mixed: Callable[[Any, Any, Any], Any]
    ) -> Any:
        if not self.weighs_x:
            return mixed(rows, experts, weights)
        # Each choice is a token, then.
        given = (rows[:, None] * weights[..., None].to(rows.dtype)).flatten(0, 1)
        alone = experts.reshape(-1, 1)
        y = mixed(given, alone, torch.ones_like(alone, dtype=torch.float32))
        return y if self.top_k == 1 else y.view(-1, self.top_k, y.shape[-1]).sum(1)

    def beside(self, module: Any, x: Any) -> Any:
        """What the shared expert adds; None without one."""
        if not self.shared:
            return None
        y = getattr(module, self.shared)(x)
        return y * getattr(module, self.shared_gate)(x).sigmoid() if self.shared_gate else y


def experts_within(module: Any) -> Any:
    """The one list of modules that a module has, or the one with rows for each expert; else none."""
    lists = [one for one in module.children() if isinstance(one, torch.nn.ModuleList)]
    if not lists:
        batched = [one for one in module.children() if holds_batched_experts(one)]
        return batched[0] if len(batched) == 1 else ()
    return lists[0] if len(lists) == 1 and len(lists[0]) > 1 else ()


def mixture_of(module: Any, experts: Any) -> Mixture | None:
    """Of these, which are a child of the module. None: it computes something else."""
    x = _rows_for(experts) if takes_x_alone(module) else None
    way = None if x is None else _parts_of(module, experts, x)
    if way is None or x is None:
        return None
    rows = x.flatten(0, 1)
    try:
        told = _parts_told(way.told(module, x, rows))
        own, *more = _parts_told(module(x))
        each = _each(experts, rows.expand(count_within(experts), *rows.shape))
    except Exception:  # it wants something else than x
        return None
    tells = next((at for at, one in enumerate(told) if more and _same(one, more[0])), None)
    if len(more) > 1 or (more and tells is None):
        return None
    shapes = {tuple(x.shape): False, tuple(rows.shape): True}
    if not isinstance(own, torch.Tensor) or tuple(own.shape) not in shapes or not own.any():
        return None
    for one in _ways(module, replace(way, flat=shapes[tuple(own.shape)], tells=tells)):
        got = _parts_told(one.result(module, x, _mixed(experts, one, each)))[0]
        if differs(by_scale(own), by_scale(got.to(own.dtype)), exact(x)) is None:
            return one
    return None


def count_within(experts: Any) -> int:
    """How many."""
    if isinstance(experts, torch.nn.ModuleList):
        return len(experts)
    return len(next(experts.parameters()))


def _each(experts: Any, rows: Any) -> Any:
    """[tokens, experts, n], of [experts, tokens, k] rows for each expert."""
    if not isinstance(experts, torch.nn.ModuleList):
        return by_each(experts, rows)
    return torch.stack([one(own) for one, own in zip(experts, rows, strict=True)], 1)


def _mixed(experts: Any, way: Mixture, each: Any) -> Callable[[Any, Any, Any], Any]:
    """The experts' result, of what each gives for the tokens as they are."""

    def mixed(rows: Any, chosen: Any, weights: Any) -> Any:
        of_rows = each
        if way.weighs_x:
            of_rows = _each(experts, rows.expand(each.shape[1], *rows.shape))
        return summed(of_rows, chosen, weights)

    return mixed


def _rows_for(experts: Any) -> Any:
    """Random rows that they take; None where they have no values."""
    own = next(experts.parameters(), None)
    linear = next((one for one in experts.modules() if type(one) is torch.nn.Linear), None)
    if own is None or own.is_meta:
        return None
    if linear is not None:
        return random_rows(linear.in_features, own.device, own.dtype)
    # Of stacked weights down is [experts, n, i] or transposed; n is what the others have, too.
    first, *others = (set(one.shape[1:]) for one in experts.parameters() if one.dim() == 3)
    columns = first.intersection(*others)
    return random_rows(max(columns), own.device, own.dtype) if columns else None


def _parts_of(module: Any, experts: Any, x: Any) -> Mixture | None:
    """By its children."""
    if any(one is not None for one in module._parameters.values()):
        return None
    count = count_within(experts)
    name_of_experts = next(name for name, one in module.named_children() if one is experts)
    learnt = {
        name: child
        for name, child in module.named_children()
        if child is not experts and next(child.parameters(), None) is not None
    }
    linears = {name for name, child in learnt.items() if type(child) is torch.nn.Linear}
    routers: dict[str, Scores] = {
        name: "softmax" for name in linears if learnt[name].out_features == count
    }
    if not routers:
        kinds = {name: _kind_of(learnt[name], x, count) for name in learnt if name not in linears}
        routers = {name: kind for name, kind in kinds.items() if kind is not None}
    gates = [name for name in linears if learnt[name].out_features == 1 and name not in routers]
    others = [name for name in learnt if name not in routers and name not in gates]
    if len(routers) != 1 or len(gates) > len(others) or len(others) > 1:
        return None
    shared, gate = (next(iter(one), "") for one in (others, gates))
    router, scores = next(iter(routers.items()))
    return Mixture(router, name_of_experts, shared, gate, scores, weighs_x=scores == "all")


def _kind_of(router: Any, x: Any, count: int) -> Scores | None:
    """What a module of its own kind returns, if it is a router."""
    with suppress(Exception):  # it wants something else
        if _choices_in(router(x)) is not None:
            return "own"
    with suppress(Exception):
        rows = x.flatten(0, 1)
        scores, *_ = _parts_told(router(rows))
        if tuple(scores.shape) == (len(rows), count) and (scores == 0).any():
            return "all"
    return None


def _parts_told(told: Any) -> tuple[Any, ...]:
    return told if isinstance(told, tuple) else (told,)


def _same(one: Any, other: Any) -> bool:
    """Whether two are the same tensor's values."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return bool(torch.equal(one, other))


def _choices_in(told: Any) -> tuple[Any, Any] | None:
    """The first whole numbers among what a router returns, and the first floats as many."""
    if not isinstance(told, tuple):
        return None
    tensors = [one for one in told if isinstance(one, torch.Tensor) and one.dim() == 2]
    whole = next((one for one in tensors if one.dtype in (torch.int64, torch.int32)), None)
    for one in tensors:
        if whole is not None and one.is_floating_point() and one.shape == whole.shape:
            return whole, one
    return None


def _ways(module: Any, way: Mixture) -> Iterator[Mixture]:
    """How it could route; the numbers that it keeps first."""
    if way.scores == "own":
        yield way
        return
    count = count_within(getattr(module, way.experts))
    kept = [one for one in vars(module).values() if type(one) is int and 0 < one <= count]
    for top in dict.fromkeys([*kept, *range(1, min(count, _MOST_TOP) + 1)]):
        if way.scores == "all":
            yield from (replace(way, top_k=top, weighs_x=one) for one in (True, False))
            continue
        for scores in ("softmax", "sigmoid"):
            for renormalized in (True, False):
                yield replace(way, scores=scores, top_k=top, renormalized=renormalized)
