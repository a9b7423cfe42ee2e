"""Padding masks in graphs of compile: what runs where all tokens are let through. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gemmd._layers.graph import padding  # noqa: E402
from gemmd._layers.graph.attention import Attention  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402
from .test_compile import EXACT  # noqa: E402
from .test_masks import WIDTH  # noqa: E402

TOKENS = 8


class Padded(nn.Module):
    """Whose mask is made of a padding mask, as transformers makes it while it is traced."""

    def __init__(self, causal=True, twice=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.causal, self.twice = causal, twice

    def forward(self, x, mask):
        tokens = torch.arange(x.shape[1])
        rows = tokens[None, None, :, None]
        may = mask.bool()[:, None, None, :]
        may = may & (tokens[None, None, None, :] <= rows) if self.causal else may & (rows >= 0)
        may = may | (tokens == rows)  # or a row of padding has nobody to look at
        q, k, v = (one.unflatten(-1, (-1, 8)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=may).transpose(1, 2).flatten(-2)
        if self.twice:
            y = y * mask[..., None].to(y.dtype)  # it is asked for elsewhere, too
        return x + self.out(y)


@pytest.fixture
def asked(monkeypatch):
    """What each attention that ran was told: causal, a mask or nothing."""
    monkeypatch.setattr(padding, "LEAST", TOKENS)
    told, attend = [], Attention.attend

    def spy(self, query, key, value, **options):
        mask = options.get("attn_mask")
        told.append("causal" if options.get("is_causal") else "all" if mask is None else "mask")
        return attend(self, query, key, value, **options)

    monkeypatch.setattr(Attention, "attend", spy)
    return told


def of(*lengths, tokens=TOKENS, dtype=torch.int64):
    """A mask of sequences that are padded at their begin."""
    return torch.stack([torch.arange(tokens) >= tokens - length for length in lengths]).to(dtype)


def check(fast, model, mask, tokens=TOKENS):
    x = torch.randn(len(mask), tokens, WIDTH)
    assert relative_error(fast(x, mask), model(x, mask)) < 1e-5


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("twice", [True, False])
def test_without_padding_an_attention_has_no_mask(session, asked, causal, twice, dtype):
    model = Padded(causal, twice).eval()
    with gemmd.compile(model, session, **EXACT) as fast:
        for lengths in ((8, 8), (8, 5), (8, 8)):
            check(fast, model, of(*lengths, dtype=dtype))
    assert asked == ["causal" if causal else "all", "mask", "mask"]  # the last one is not asked


def test_extents_may_grow(session, asked):
    model = Padded().eval()
    with gemmd.compile(model, session, **EXACT, dynamic=True) as fast:
        for tokens in (8, 9, 12, 15):
            check(fast, model, of(tokens, tokens, tokens=tokens), tokens)
            asked.clear()
        check(fast, model, of(12, 7, tokens=12), 12)
    assert asked == ["mask"]


def test_few_tokens_are_not_worth_asking(session, asked):
    model = Padded().eval()
    with gemmd.compile(model, session, **EXACT) as fast:
        check(fast, model, of(4, 4, tokens=4), 4)
    assert asked == ["mask"]


def test_where_there_is_padding_it_is_asked_less_often(session, asked, monkeypatch):
    looked, sums = [], torch.Tensor.all
    monkeypatch.setattr(torch.Tensor, "all", lambda one: looked.append(0) or sums(one))
    model = Padded().eval()
    with gemmd.compile(model, session, **EXACT) as fast:
        for _ in range(40):
            check(fast, model, of(8, 5))
        few = len(looked)
        assert few < 8
        for _ in range(padding._LONGEST + 1):
            check(fast, model, of(8, 8))
        assert asked[-1] == "causal"
        assert len(looked) > few + 10  # with each call again


def test_a_mask_of_more_than_padding_stays(session, asked):
    class Windows(Padded):
        def forward(self, x, mask, kinds):
            return super().forward(x, mask.bool() & (kinds > 0))

    model = Windows().eval()
    x, mask, kinds = torch.randn(2, TOKENS, WIDTH), of(8, 8), torch.ones(2, TOKENS)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x, mask, kinds), model(x, mask, kinds)) < 1e-5
    assert asked == ["mask"]


def test_a_mask_that_is_written_to_stays(session, asked):
    class Writing(Padded):
        def forward(self, x, mask):
            mask[:, 0] = 1
            return super().forward(x, mask)

    model = Writing().eval()
    x, mask = torch.randn(2, TOKENS, WIDTH), of(8, 8)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x, mask), model(x, mask)) < 1e-5
        mask[:, 0] = 0
        fast(x, mask)
    assert mask.all() and set(asked) == {"mask"}
