"""Whole blocks of transformers, attention and all: each Linear and MLP of torch's beside gemmd's, by turns, as torch calls
them and as a captured graph.

    python3 blocks.py
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from typing import Any

import figure
import torch
from torch import nn
from torch.nn import functional

TURNS = 5
TURN_S = 0.02  # of calls, at least five


class Attention(nn.Module):
    """Of all of a sequence; one with a cache adds a token to `context` others."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, bias: bool, rows: int = 0, context: int = 0) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.of_head = heads, kv_heads, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.of_head, bias)
        self.out = nn.Linear(hidden, hidden, bias)
        self.causal = not bias and not context
        for name in ("keys", "values") if context else ():
            self.register_buffer(name, torch.randn(rows, kv_heads, context, self.of_head))

    def forward(self, x: Any) -> Any:
        batch, tokens, hidden = x.shape
        kv = self.kv_heads * self.of_head
        q, k, v = self.projected(x, [hidden, kv, kv])
        q, k, v = (one.view(batch, tokens, -1, self.of_head).transpose(1, 2) for one in (q, k, v))
        if hasattr(self, "keys"):
            self.keys[:, :, -1:], self.values[:, :, -1:] = k, v
            k, v = self.keys, self.values
        y = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, enable_gqa=self.kv_heads != self.heads
        )
        return self.out(y.transpose(1, 2).reshape(batch, tokens, hidden))


    def projected(self, x: Any, columns: list[int]) -> Any:
        return self.qkv(x).split(columns, -1)


class Apart(Attention):
    """With three Linears, as most of Hugging Face's models have them."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, bias: bool, rows: int = 0, context: int = 0) -> None:
        super().__init__(hidden, heads, kv_heads, bias, rows, context)
        del self.qkv
        kv = kv_heads * self.of_head
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(hidden, n, bias) for n in (hidden, kv, kv))

    def projected(self, x: Any, columns: list[int]) -> Any:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


class Plain(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x: Any) -> Any:
        return self.fc2(functional.gelu(self.fc1(x)))


class Gated(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(hidden, 2 * inner, False), nn.Linear(inner, hidden, False)

    def forward(self, x: Any) -> Any:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(functional.silu(gate) * up)


class GatedApart(nn.Module):
    """With three Linears, likewise."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(inner, hidden, False), nn.SiLU()

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, hidden: int, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.attention, self.mlp = attention, mlp

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


def encoder(hidden: int, heads: int, count: int, apart: bool = False) -> Callable[[], nn.Module]:
    """With biases and GELU, as BERT, ViT and Whisper have them."""
    attention = Apart if apart else Attention
    return lambda: nn.Sequential(
        *(Block(hidden, attention(hidden, heads, heads, True), Plain(hidden, 4 * hidden)) for _ in range(count))
    )


def decoder(
    hidden: int, heads: int, inner: int, count: int, rows: int = 0, apart: bool = False
) -> Callable[[], nn.Module]:
    """As Llama has it; with `rows`, that many sequences that get a token behind 1023 others."""
    attention, mlp = (Apart, GatedApart) if apart else (Attention, Gated)
    return lambda: nn.Sequential(
        *(
            Block(hidden, attention(hidden, heads, 8, False, rows, 1024 if rows else 0), mlp(hidden, inner))
            for _ in range(count)
        )
    )


# What x is, and the model.
PROGRAMS = {
    "ViT-L, 8 images": ((8, 577, 1024), encoder(1024, 16, 8)),
    "BERT-B, 32 of 128 tokens": ((32, 128, 768), encoder(768, 12, 8)),
    "Whisper-L's encoder": ((1, 1500, 1280), encoder(1280, 20, 8)),
    "DiT of 1536, 2 of 1024": ((2, 1024, 1536), encoder(1536, 24, 8)),
    "Llama-3-8B, prefill of 2048": ((1, 2048, 4096), decoder(4096, 32, 14336, 4)),
    "Llama-3-8B, decode of 32": ((32, 1, 4096), decoder(4096, 32, 14336, 4, 32)),
    "Llama-3-70B, decode of 16": ((16, 1, 8192), decoder(8192, 64, 28672, 2, 16)),
    "ViT-L, 8 images, adopted": ((8, 577, 1024), encoder(1024, 16, 8, True)),
    "BERT-B, 32 of 128 tokens, adopted": ((32, 128, 768), encoder(768, 12, 8, True)),
    "Llama-3-8B, decode of 32, adopted": ((32, 1, 4096), decoder(4096, 32, 14336, 4, 32, True)),
}
ADOPTED = 1 << 19  # elements of the smallest weight that is


def with_layers(session: Any, model: nn.Module) -> nn.Module:
    import gemmd

    if any(isinstance(one, Apart) for one in model.modules()):
        gemmd.adopt(model, session, min_elements=ADOPTED)
        return model

    def linear(one: nn.Linear, activation: Any = "none") -> Any:
        return gemmd.Linear(session, one.weight, bias=one.bias, activation=activation)

    for name, child in list(model.named_children()):
        if isinstance(child, Plain):
            both = gemmd.Sequential(linear(child.fc1, "gelu_erf"), linear(child.fc2))
            setattr(model, name, both.module())
        elif isinstance(child, Gated):
            setattr(model, name, gemmd.MLP(session, child.gate_up.weight, child.down.weight).module())
        elif type(child) is nn.Linear:
            setattr(model, name, linear(child).module())
        else:
            with_layers(session, child)
    return model


def call_us(call: Callable[[Any], Any], x: Any, count: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        call(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e6 / count


def graph_of(model: nn.Module, x: Any) -> Callable[[Any], Any]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return lambda _: graph.replay()


def by_turns(ways: dict[str, Callable[[Any], Any]], x: Any) -> dict[str, float]:
    for way in ways.values():
        call_us(way, x, 40)  # results are kept from the 33rd on
    count = max(5, int(TURN_S * 1e6 / call_us(ways["torch"], x, 10)))
    times = [{name: call_us(way, x, count) for name, way in ways.items()} for _ in range(TURNS)]
    return {name: figure.percentile([one[name] for one in times], 0.5) for name in ways}


def shown(name: str, way: str) -> str:
    return f"{name}, {way}" if way == "compiled" else name


@torch.no_grad()
def main() -> None:
    import gemmd

    torch.set_default_dtype(torch.bfloat16)
    with gemmd.Client(figure.server()) as client:
        for name, (shape, make) in PROGRAMS.items():
            torch.manual_seed(1)
            with torch.device("cuda"):  # no default: every call of torch would look for one, 3 us long
                model, x = make().eval(), torch.randn(*shape)
            with client.session(label="blocks", device=figure.device()) as session:
                ways = {"torch": model, "gemmd": with_layers(session, copy.deepcopy(model))}
                if "adopted" not in name:
                    torch._dynamo.reset()
                    ways["compiled"] = gemmd.compile(model, session)
                wanted = model(x).float()
                for way in list(ways)[1:]:
                    error = float((ways[way](x).float() - wanted).norm() / wanted.norm())
                    figure.add("blocks", f"{shown(name, way)}: relative error to torch's", error, "ratio", 0.12)
                called = by_turns(ways, x)
                replayed = by_turns({way: graph_of(one, x) for way, one in ways.items()}, x)
                for way in list(ways)[1:]:
                    for what, times in (("over torch", called), ("over torch, as graphs", replayed)):
                        figure.add("blocks", f"{shown(name, way)}: {what}", times[way] / times["torch"], "ratio", **times)
                del ways
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
