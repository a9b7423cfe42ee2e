"""Attention masks in graphs of compile: those that say nothing go, and causal ones are said. Skips
without torch.
"""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gemmd._layers.graph.masks import _Mask  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402

WIDTH, HEADS = 32, 2


@pytest.fixture
def attentions(monkeypatch):
    """Of each graph that is compiled: the mask, and whether it is causal, of its attentions."""
    from gemmd._layers.graph import compiling

    seen, say = [], compiling.say_masks

    def spy(graph, as_op):
        say(graph, as_op)
        for node in graph.nodes:
            if node.target is F.scaled_dot_product_attention:
                mask = node.kwargs.get("attn_mask")
                seen.append((mask is not None and mask.name, node.kwargs.get("is_causal")))
            elif getattr(node.target, "__name__", "") == "attention":
                seen.append("by numbers")

    monkeypatch.setattr(compiling, "say_masks", spy)
    return seen


def all_of(tokens, x):
    """As transformers makes it for encoders: its last stride is 0."""
    return (torch.arange(tokens)[None, None, :, None] >= 0).expand(len(x), -1, tokens, tokens)


def causal(tokens, x):
    rows = torch.arange(tokens)
    mask = torch.ones((), dtype=torch.bool) & (rows[None, :] <= rows[:, None])
    return mask.expand(len(x), 1, tokens, tokens)


def zeros(tokens, x):
    return torch.zeros(tokens, tokens).expand(len(x), 1, tokens, tokens)


def window(tokens, x):
    rows = torch.arange(tokens)
    return ((rows[None, :] - rows[:, None]).abs() < 3)[None, None].expand(len(x), -1, -1, -1)


def drawn(tokens, x):
    return torch.rand(tokens, tokens) > 0.5


def written(tokens, x):
    mask = torch.ones(tokens, tokens, dtype=torch.bool)
    mask[0, 1:] = False
    return mask


def of_x(tokens, x):
    return (x[:, None, :1, :1] > -9).expand(-1, -1, tokens, tokens)


class Layer(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.qkv, self.out, self.mask = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), mask

    def forward(self, x):
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in parts)
        mask = self.mask(x.shape[1], x)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)
        return x + self.out(y.transpose(1, 2).flatten(-2))


FOUND = {
    all_of: (False, False),
    causal: (False, True),
    zeros: (False, False),
    window: ("mask", False),
    written: ("mask", None),
    of_x: ("contiguous", False),
}


@pytest.mark.parametrize("mask", FOUND)
def test_a_mask_of_extents_is_what_it_says(session, attentions, mask):
    model, x = Layer(mask).eval(), torch.randn(2, 9, WIDTH)
    with gemmd.compile(model, session, quantize=None, min_elements=0, dynamic=False) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5
        ((name, is_causal),) = attentions
        wanted, said = FOUND[mask]
        assert bool(name) == bool(wanted) and bool(is_causal) == bool(said)
        assert not wanted or wanted in name, name


@pytest.mark.parametrize("mask", [all_of, causal, zeros, window])
def test_extents_may_change(session, attentions, mask):
    model = Layer(mask).eval()
    with gemmd.compile(model, session, quantize=None, min_elements=0, dynamic=True) as fast:
        for batch, tokens in ((2, 9), (3, 12), (2, 5), (2, 9)):
            x = torch.randn(batch, tokens, WIDTH)
            assert relative_error(fast(x), model(x)) < 1e-5
    assert set(attentions) == {"by numbers"}


def test_a_mask_that_is_drawn_is_drawn_each_time(session, attentions):
    model, x = Layer(drawn).eval(), torch.randn(2, 9, WIDTH)
    with gemmd.compile(model, session, quantize=None, min_elements=0) as fast:
        assert not torch.equal(fast(x), fast(x))
    assert attentions[0][0]


@pytest.mark.parametrize("on", ["meta", "cuda"])
def test_a_small_mask_is_looked_at_in_the_hosts_memory(on):
    """Where nobody waits for a GPU: a decoding token's."""
    graph = torch.fx.Graph()
    where = torch.device(on) if on == "meta" else on
    mask = graph.call_function(torch.ones, (1, 8), {"device": where, "dtype": torch.bool})
    graph.output(mask)
    assert _Mask.of(mask).kind_of((), 1, 8) == "all"
