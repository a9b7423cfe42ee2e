"""A router and a list of expert modules, as one module that is called with x alone: which experts it
takes, and by which weights, is told by its results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from gemmd._layers.agreement import differs, exact
from gemmd._layers.chain import by_scale, random_rows, takes_x_alone

Scores = Literal["softmax", "sigmoid", "own"]

_MOST_TOP = 16


@dataclass(frozen=True)
class Mixture:
    """What the module computes: the sum of `top_k` experts' results, weighted by their scores.

    Attributes
    ----------
    router, experts : str
        Its children: a Linear with a column for each expert, or with scores of "own" a module that
        returns each token's experts and their weights; and the list.
    shared, shared_gate : str
        An expert of all tokens, whose result is multiplied by the sigmoid of a Linear with one column;
        "" where there is none.
    renormalized : bool
        The weights are brought to a sum of 1.
    tells : bool
        The module returns the router's logits behind the result.
    """

    router: str
    experts: str
    shared: str = ""
    shared_gate: str = ""
    scores: Scores = "softmax"
    top_k: int = 1
    renormalized: bool = False
    tells: bool = False

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
        scores = told.float()
        scores = scores.softmax(-1) if self.scores == "softmax" else scores.sigmoid()
        weights, experts = scores.topk(self.top_k)
        if self.renormalized:
            weights = weights / weights.sum(-1, keepdim=True)
        return experts, weights

    def told(self, module: Any, x: Any, rows: Any) -> Any:
        """What the router of a module returns; its own kind sees x as the module does."""
        router = getattr(module, self.router)
        return router(x if self.scores == "own" else rows)

    def beside(self, module: Any, x: Any) -> Any:
        """What the shared expert adds; None without one."""
        if not self.shared:
            return None
        y = getattr(module, self.shared)(x)
        return y * getattr(module, self.shared_gate)(x).sigmoid() if self.shared_gate else y


def experts_within(module: Any) -> Any:
    """The one list of modules that a module has; else none."""
    lists = [one for one in module.children() if isinstance(one, torch.nn.ModuleList)]
    return lists[0] if len(lists) == 1 and len(lists[0]) > 1 else ()


def mixture_of(module: Any, mlps: Any) -> Mixture | None:
    """Of these, which the module has as a list. None: it computes something else."""
    x = _rows_for(mlps) if takes_x_alone(module) else None
    way = None if x is None else _parts_of(module, mlps, x)
    if way is None or x is None:
        return None
    rows = x.flatten(0, 1)
    try:
        own, each = module(x), torch.stack([one(rows) for one in mlps], 1)
    except Exception:  # it wants something else than x
        return None
    tells = isinstance(own, tuple)
    if tells and (len(own) != 2 or tuple(own[1].shape) != (x[..., 0].numel(), _count(module, way))):
        return None
    own = own[0] if tells else own
    if not isinstance(own, torch.Tensor) or own.shape != x.shape or not own.any():
        return None
    for one in _ways(module, replace(way, tells=tells)):
        got = _computed(module, one, x, each).view(x.shape)
        if differs(by_scale(own), by_scale(got.to(own.dtype)), exact(x)) is None:
            return one
    return None


def _rows_for(experts: Any) -> Any:
    """Random rows that they take; None where they have no values."""
    linear = next((one for one in experts.modules() if type(one) is torch.nn.Linear), None)
    if linear is None or linear.weight.is_meta:
        return None
    return random_rows(linear.in_features, linear.weight.device, linear.weight.dtype)


def _count(module: Any, way: Mixture) -> int:
    return len(getattr(module, way.experts))


def _parts_of(module: Any, mlps: Any, x: Any) -> Mixture | None:
    """By its children."""
    if any(one is not None for one in module._parameters.values()):
        return None
    count, experts = len(mlps), next(name for name, one in module.named_children() if one is mlps)
    learnt = {
        name: child
        for name, child in module.named_children()
        if child is not mlps and next(child.parameters(), None) is not None
    }
    linears = {name for name, child in learnt.items() if type(child) is torch.nn.Linear}
    routers = [name for name in linears if learnt[name].out_features == count]
    scores: Scores = "softmax" if routers else "own"
    if not routers:
        routers = [name for name in learnt if name not in linears and _chooses(learnt[name], x)]
    gates = [name for name in linears if learnt[name].out_features == 1 and name not in routers]
    others = [name for name in learnt if name not in routers and name not in gates]
    if len(routers) != 1 or len(gates) > len(others) or len(others) > 1:
        return None
    shared, gate = (next(iter(one), "") for one in (others, gates))
    return Mixture(routers[0], experts, shared, gate, scores=scores)


def _chooses(router: Any, x: Any) -> bool:
    try:
        return _choices_in(router(x)) is not None
    except Exception:  # it wants something else
        return False


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
    count = _count(module, way)
    kept = [one for one in vars(module).values() if type(one) is int and 0 < one <= count]
    for top in dict.fromkeys([*kept, *range(1, min(count, _MOST_TOP) + 1)]):
        for scores in ("softmax", "sigmoid"):
            for renormalized in (True, False):
                yield replace(way, scores=scores, top_k=top, renormalized=renormalized)


def _computed(module: Any, way: Mixture, x: Any, each: Any) -> Any:
    """[rows, n], of the experts' results [rows, experts, n]."""
    rows = x.flatten(0, 1)
    experts, weights = way.routing(way.told(module, x, rows))
    taken = each.gather(1, experts[..., None].expand(-1, -1, each.shape[-1]))
    y = (taken.float() * weights[..., None]).sum(1)
    beside = way.beside(module, rows)
    return y if beside is None else y + beside.float()
