"""Models of torch for the tests of adopt: small, and made as users make theirs."""

import torch
import torch.nn.functional as F
from torch import nn


class Gated(nn.Module):
    def __init__(self, k=40, i=48, n=40, act=None, bias=False):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(k, i, bias=bias) for _ in range(2))
        self.down_proj = nn.Linear(i, n, bias=bias)
        self.act_fn = act or nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(width), Gated(width, 48, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    """A language model, small and with all its parts."""

    def __init__(self, width=40, vocabulary=56, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


PATHS = [
    *(f"blocks.{at}.{part}" for at in range(2) for part in ("mlp", "qkv", "out")),
    "lm_head",
]  # fmt: skip
TOKENS = torch.arange(12).reshape(2, 6)


def relative_error(got, wanted):
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())
