"""Modules of experts for the tests, as models have them: called with tokens, experts and weights."""

import torch
import torch.nn.functional as F
from torch import nn

EXPERTS, HIDDEN, INNER, TOP = 5, 48, 24, 2


class Stacked(nn.Module):
    """As transformers has them, with a loop over the experts that have tokens."""

    def __init__(self, act=None, inner=INNER):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(EXPERTS, 2 * inner, HIDDEN) / 7)
        self.down_proj = nn.Parameter(torch.randn(EXPERTS, HIDDEN, inner) / 5)
        self.act_fn = act or nn.SiLU()

    def rows(self, x, e):
        gate, up = F.linear(x, self.gate_up_proj[e]).chunk(2, -1)
        return F.linear(self.act_fn(gate) * up, self.down_proj[e])

    def forward(self, hidden_states, top_k_index, top_k_weights):
        y = torch.zeros_like(hidden_states)
        for e in top_k_index.unique().tolist():
            token, place = torch.where(top_k_index == e)
            rows = self.rows(hidden_states[token], e) * top_k_weights[token, place, None]
            y.index_add_(0, token, rows.to(y.dtype))
        return y


class Alone(Stacked):
    """Without ups, as Nemotron-H has them."""

    def __init__(self, act=None, inner=INNER):
        super().__init__(act, inner)
        self.up_proj = nn.Parameter(self.gate_up_proj[:, :inner].clone())
        self.down_proj = nn.Parameter(self.down_proj.clone())  # behind the other
        del self.gate_up_proj

    def rows(self, x, e):
        return F.linear(self.act_fn(F.linear(x, self.up_proj[e])), self.down_proj[e])


class AloneTransposed(Alone):
    """As MegaBlocks has them, with biases."""

    def __init__(self):
        super().__init__(nn.GELU())
        for name in ("up_proj", "down_proj"):
            weight = getattr(self, name)
            bias = nn.Parameter(torch.randn(EXPERTS, weight.shape[1]) / 5)
            setattr(self, name + "_bias", bias)
            setattr(self, name, nn.Parameter(weight.transpose(1, 2).contiguous()))

    def rows(self, x, e):
        hidden = self.act_fn(x @ self.up_proj[e] + self.up_proj_bias[e])
        return hidden @ self.down_proj[e] + self.down_proj_bias[e]


class Transposed(Stacked):
    """As gpt-oss has them: gates and ups take turns, with biases, a clamp and a factor."""

    def __init__(self):
        super().__init__()
        for name in ("gate_up_proj", "down_proj"):
            weight = getattr(self, name)
            bias = nn.Parameter(torch.randn(EXPERTS, weight.shape[1]) / 5)
            setattr(self, name + "_bias", bias)
            setattr(self, name, nn.Parameter(weight.transpose(1, 2).contiguous()))
        self.alpha, self.limit = 1.702, 1.5

    def rows(self, x, e):
        both = x @ self.gate_up_proj[e] + self.gate_up_proj_bias[e]
        gate = both[:, ::2].clamp(max=self.limit)
        up = both[:, 1::2].clamp(-self.limit, self.limit)
        hidden = (up + 1) * gate * torch.sigmoid(self.alpha * gate)
        return hidden @ self.down_proj[e] + self.down_proj_bias[e]


class Apart(Stacked):
    """Gate and up are weights of their own, and a token's weights come before its experts."""

    def __init__(self):
        super().__init__()
        up, gate = (nn.Parameter(one.clone()) for one in self.gate_up_proj.chunk(2, 1))
        self.w3, self.w1 = up, gate
        self.w2 = self.down_proj
        del self.gate_up_proj, self.down_proj

    def rows(self, x, e):
        return F.linear(F.gelu(F.linear(x, self.w1[e])) * F.linear(x, self.w3[e]), self.w2[e])

    def forward(self, x, scores, chosen):
        return super().forward(x, chosen, scores)


class Normed(Stacked):
    """Computes something else."""

    def rows(self, x, e):
        return F.rms_norm(super().rows(x, e), (HIDDEN,))


class Scaled(Stacked):
    def rows(self, x, e):
        return 1.1 * super().rows(x, e)


class Mixture(nn.Module):
    """A router and its experts."""

    def __init__(self, experts=None):
        super().__init__()
        self.gate, self.experts = nn.Linear(HIDDEN, EXPERTS, bias=False), experts or Stacked()

    def forward(self, x):
        flat = x.reshape(-1, HIDDEN)
        shares = self.gate(flat).softmax(-1, dtype=torch.float32)
        weights, experts = shares.topk(TOP)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        return self.experts(flat, experts, weights).view(x.shape)


class Layer(nn.Module):
    """A decoder's, without the attention's mask."""

    def __init__(self, experts=None):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.mlp = Mixture(experts)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return x + self.mlp(self.norm2(x))


class Listed(nn.Module):
    """A router and a list of MLPs, as Mixtral had them before transformers 5."""

    def __init__(self, make, top=TOP):
        super().__init__()
        self.top_k, self.gate = top, nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(make() for _ in range(EXPERTS))

    def weights_of(self, logits):
        weights, chosen = logits.softmax(-1, dtype=torch.float32).topk(self.top_k)
        return weights / weights.sum(-1, keepdim=True), chosen

    def mixed(self, x):
        flat = x.view(-1, x.shape[-1])
        logits = self.gate(flat)
        weights, chosen = self.weights_of(logits)
        y = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            token, place = torch.where(chosen == e)
            if len(token):
                y.index_add_(
                    0, token, expert(flat[token]) * weights[token, place, None].to(x.dtype)
                )
        return y.view(x.shape), logits

    def forward(self, hidden_states):
        return self.mixed(hidden_states)[0]


class Telling(Listed):
    def forward(self, hidden_states):
        return self.mixed(hidden_states)


class Shared(Listed):
    """As Qwen2-MoE: weights as they are, and an expert of all tokens behind a gate."""

    def __init__(self, make):
        super().__init__(make)
        self.shared_expert, self.shared_expert_gate = make(), nn.Linear(HIDDEN, 1, bias=False)

    def weights_of(self, logits):
        return logits.softmax(-1, dtype=torch.float32).topk(self.top_k)

    def forward(self, hidden_states):
        shared = self.shared_expert(hidden_states)
        return (
            self.mixed(hidden_states)[0] + self.shared_expert_gate(hidden_states).sigmoid() * shared
        )


class Sigmoids(Listed):
    def weights_of(self, logits):
        weights, chosen = logits.float().sigmoid().topk(self.top_k)
        return weights / weights.sum(-1, keepdim=True), chosen


class Grouped(Listed):
    """Chooses among the first three alone."""

    def weights_of(self, logits):
        weights, chosen = logits.softmax(-1, dtype=torch.float32)[:, :3].topk(self.top_k)
        return weights / weights.sum(-1, keepdim=True), chosen


class Router(nn.Module):
    """Of its own kind, as DeepSeek has it: a bias takes part in the choice alone."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(EXPERTS, HIDDEN) / 7),
            nn.Parameter(torch.randn(EXPERTS)),
        )

    def forward(self, x):
        scores = F.linear(x.view(-1, HIDDEN).float(), self.weight.float()).sigmoid()
        chosen = (scores + self.bias).topk(TOP).indices
        weights = scores.gather(1, chosen)
        return chosen, 2.5 * weights / weights.sum(-1, keepdim=True)


class Routed(Listed):
    """With such a router, and an expert of all tokens."""

    def __init__(self, make):
        super().__init__(make)
        self.gate, self.shared_experts = Router(), make()

    def forward(self, hidden_states):
        flat = hidden_states.view(-1, HIDDEN)
        chosen, weights = self.gate(hidden_states)
        y = torch.stack([one(flat) for one in self.experts], 1)
        y = y.gather(1, chosen[..., None].expand(-1, -1, HIDDEN))
        y = (y * weights[..., None].to(y.dtype)).sum(1).view(hidden_states.shape)
        return y + self.shared_experts(hidden_states)


class Batched(nn.Module):
    """As Llama 4 has them: called with as many rows for each expert, one expert's behind another's."""

    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(EXPERTS, HIDDEN, 2 * INNER) / 7)
        self.down_proj = nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN) / 5)

    def forward(self, rows):
        gate, up = torch.bmm(rows.view(EXPERTS, -1, HIDDEN), self.gate_up_proj).chunk(2, -1)
        return torch.bmm(up * F.silu(gate), self.down_proj).view(-1, HIDDEN)


class AllScores(nn.Linear):
    """A router that gives weights of all experts: 0 for those that it does not choose."""

    def __init__(self, top=TOP):
        super().__init__(HIDDEN, EXPERTS, bias=False)
        self.top_k = top

    def forward(self, rows):
        logits = super().forward(rows)
        values, chosen = logits.topk(self.top_k, dim=1)
        scores = torch.full_like(logits, float("-inf")).scatter_(1, chosen, values)
        return scores.float().sigmoid().to(rows.dtype), logits


class Weighed(nn.Module):
    """As Llama 4: what the experts are given is weighted, not what they return."""

    def __init__(self, make, top=TOP):
        super().__init__()
        self.gate, self.experts = AllScores(top), Batched()
        self.shared_expert = make()

    def forward(self, hidden_states):
        rows = hidden_states.reshape(-1, HIDDEN)
        scores, logits = self.gate(rows)
        given = rows.repeat(EXPERTS, 1) * scores.t().reshape(-1, 1)
        out = self.shared_expert(rows)
        out.add_(self.experts(given).view(EXPERTS, -1, HIDDEN).sum(0))
        return out, logits


class WeighedBehind(Weighed):
    def forward(self, hidden_states):
        rows = hidden_states.reshape(-1, HIDDEN)
        scores, _ = self.gate(rows)
        each = self.experts(rows.repeat(EXPERTS, 1)) * scores.t().reshape(-1, 1)
        return self.shared_expert(rows) + each.view(EXPERTS, -1, HIDDEN).sum(0)
