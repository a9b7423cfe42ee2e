"""compile: attentions and encoder layers of torch.nn, against the fake. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402

E, HEADS, BATCH, TOKENS = 64, 4, 2, 9
EXACT = {"quantize": None, "min_elements": 0}
PADDING = torch.arange(TOKENS)[None] >= torch.tensor([[6], [TOKENS]])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(TOKENS)
MASKS = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "padding, added": {"key_padding_mask": torch.randn(BATCH, TOKENS)},
    "causal": {"attn_mask": CAUSAL},
    "said to be causal": {"attn_mask": CAUSAL, "is_causal": True},
    "of booleans": {"attn_mask": CAUSAL < 0},
    "by heads": {"attn_mask": torch.randn(BATCH * HEADS, TOKENS, TOKENS)},
    "both": {"attn_mask": CAUSAL < 0, "key_padding_mask": PADDING},
}


class Self(nn.Module):
    def __init__(self, needs_weights=False, **options):
        super().__init__()
        self.norm = nn.LayerNorm(E)
        self.attn = nn.MultiheadAttention(E, HEADS, **options)
        self.needs_weights = needs_weights

    def forward(self, x, **masks):
        h = self.norm(x)
        return x + self.attn(h, h, h, need_weights=self.needs_weights, **masks)[0]


def check(session, model, *inputs, blocks, products, **masks):
    wanted = model.eval()(*inputs, **masks)
    with gemmd.compile(model, session, fullgraph=True, **EXACT) as fast:
        got = fast(*inputs, **masks)
        assert relative_error(got, wanted) < 1e-5
        assert (len(fast), fast.left) == (blocks, [])
        assert sum(len(one.weights) for one in fast) == products


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("needs_weights", [False, True])
def test_an_attentions_projections_are_products(session, mask, batch_first, needs_weights):
    x = torch.randn(BATCH, TOKENS, E) if batch_first else torch.randn(TOKENS, BATCH, E)
    model = Self(needs_weights, batch_first=batch_first)
    check(session, model, x, blocks=2, products=2, **MASKS[mask])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 40, "vdim": 40}])
def test_one_that_attends_to_another_x(session, batch_first, options):
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(E, HEADS, batch_first=batch_first, **options)

        def forward(self, x, y):
            return self.attn(x, y, y, need_weights=False)[0]

    shapes = (BATCH, TOKENS, E), (BATCH, 5, options.get("kdim", E))
    x, y = (torch.randn(shape) for shape in shapes)
    if not batch_first:
        x, y = x.transpose(0, 1).contiguous(), y.transpose(0, 1).contiguous()
    check(session, Cross(), x, y, blocks=3, products=3)  # key and value by one


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("mask", ["none", "padding", "causal", "of booleans"])
def test_a_layer_of_torchs_encoder_is_blocks(session, norm_first, activation, mask):
    layer = nn.TransformerEncoderLayer(
        E, HEADS, 128, activation=activation, norm_first=norm_first, batch_first=True
    )
    names = {"key_padding_mask": "src_key_padding_mask", "attn_mask": "src_mask"}
    masks = {names[name]: one for name, one in MASKS[mask].items()}
    x = torch.randn(BATCH, TOKENS, E)
    check(session, layer, x, blocks=2, products=4, **masks)


def test_torchs_encoder_by_another_batch_and_in_fp8(session):
    layer = nn.TransformerEncoderLayer(E, HEADS, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    with gemmd.compile(model, session, min_elements=0) as fast:
        for batch, tokens in ((2, 9), (3, 9), (4, 7), (5, 12)):
            x = torch.randn(batch, tokens, E)
            assert relative_error(fast(x), model(x)) < 0.15
        assert fast.left == []


def test_what_attends_in_another_way_stays(session):
    class Shares(nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.attn = nn.MultiheadAttention(E, HEADS, **options)
            self.out = nn.Linear(E, E)

        def forward(self, x):
            y, shares = self.attn(x, x, x)
            return self.out(y) * shares.sum()

    class Zero(Shares):
        def forward(self, x):
            return self.out(self.attn(x, x, x)[0])

    x = torch.randn(TOKENS, BATCH, E)
    for model, why in (
        (Shares(), "attn.in_proj_weight: somebody takes the shares that its attention gave"),
        (Zero(add_zero_attn=True), "attn.in_proj_weight: its attention has add_zero_attn"),
        (Zero(add_bias_kv=True), "attn.in_proj_weight: its attention has bias_k"),
    ):
        wanted = model.eval()(x)
        with gemmd.compile(model, session, **EXACT) as fast:
            assert relative_error(fast(x), wanted) < 1e-5
            assert (len(fast), fast.left) == (1, [why])


def test_small_ones_stay(session):
    model = Self(batch_first=True).eval()
    x = torch.randn(BATCH, TOKENS, E)
    with gemmd.compile(model, session, min_elements=4 * E * E + 1) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5 and len(fast) == 0
        assert fast.left == [f"attn.in_proj_weight: {4 * E * E} elements, min_elements is {4 * E * E + 1}"]
