"""How a mixture chooses a token's experts by its router's logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmd import grouped
from gemmd.grouped import GroupScore, RouterScores
from gemmd.ops import Op
from gemmd.tensor import Tensor

MOST_TOP = 32  # of `choose`


@dataclass(frozen=True)
class Choice:
    """What `gemmd.choose` does, but for the bias: see there."""

    top_k: int
    scores: RouterScores = "softmax"
    renormalize: bool = True
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_score: GroupScore = "max"

    def op(self, logits: Tensor, experts: Tensor, weights: Tensor, bias: Tensor | None) -> Op:
        return grouped.choose(
            logits,
            experts,
            weights,
            bias=bias,
            scores=self.scores,
            renormalize=self.renormalize,
            scale=self.scale,
            groups=self.groups,
            top_groups=self.top_groups,
            group_score=self.group_score,
        )

    def of(self, logits: Any, bias: Any = None) -> tuple[Any, Any]:
        """The same by torch: experts and weights [tokens, top_k] of logits [tokens, experts]."""
        values = logits.float()
        scores = values.softmax(-1) if self.scores == "softmax" else values.sigmoid()
        chosen_by = scores if bias is None else scores + bias
        if self.groups > 1:
            chosen_by = self._within_groups(chosen_by)
        experts = chosen_by.topk(self.top_k).indices
        weights = scores.gather(-1, experts)
        if self.renormalize:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return experts, weights * self.scale

    def _within_groups(self, chosen_by: Any) -> Any:
        """Those of other groups than the best at -inf."""
        parts = chosen_by.unflatten(-1, (self.groups, -1))
        most = parts.topk(1 if self.group_score == "max" else 2).values.sum(-1)
        best = most.topk(self.top_groups).indices
        allowed = most.new_zeros(most.shape, dtype=bool).scatter(-1, best, True)
        return parts.masked_fill(~allowed[..., None], float("-inf")).flatten(-2)
