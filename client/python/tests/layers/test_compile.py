"""compile: a model's stretches between attentions as one call each, against the fake. Skips without
torch.
"""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import Block, relative_error  # noqa: E402

EXACT = {"quantize": None, "min_elements": 0}
FP8 = 0.2  # of two layers; a norm behind a product makes more of its rounding
WIDTH = 32


def attention(q, k, v, heads=2):
    """[batch, rows, width] each."""
    q, k, v = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


class SpeltNorm(nn.Module):
    """As Llama has it."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(width) + 0.5), eps

    def forward(self, hidden):
        dtype = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + self.eps)
        return self.weight * hidden.to(dtype)


class GemmaNorm(SpeltNorm):
    def forward(self, x):
        normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (normed * (1.0 + self.weight.float())).type_as(x)


def layer_norm(width):
    norm = nn.LayerNorm(width)
    norm.weight.data.uniform_(0.5, 1.5)
    norm.bias.data.uniform_(-0.5, 0.5)
    return norm


class Attention(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out = (
            nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(4)
        )

    def forward(self, x):
        return self.out(attention(self.q_proj(x), self.k_proj(x), self.v_proj(x)))


class Encoder(nn.Module):
    """As ViT and Whisper have it: norms first, and dropout that is off."""

    def __init__(self, act=None):
        super().__init__()
        self.norm1, self.norm2, self.attention = layer_norm(WIDTH), layer_norm(WIDTH), Attention()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)
        self.act, self.dropout = act or nn.GELU(), nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.fc2(self.dropout(self.act(self.fc1(self.norm2(x))))))


class Bert(Encoder):
    """Norms behind the sums."""

    def forward(self, x):
        x = self.norm1(self.attention(x) + x)
        return self.norm2(self.fc2(self.act(self.fc1(x))) + x)


class Llama(nn.Module):
    def __init__(self, norm=SpeltNorm, bias=False):
        super().__init__()
        self.norm1, self.norm2, self.attention = norm(WIDTH), norm(WIDTH), Attention(bias)
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, 48, bias=bias) for _ in range(2))
        self.down_proj = nn.Linear(48, WIDTH, bias=bias)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Phi(Llama):
    """Gate and up are halves of one product."""

    def __init__(self):
        super().__init__(nn.RMSNorm)
        self.gate_up = nn.Linear(WIDTH, 96, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down_proj(up * F.silu(gate))


class Parallel(Encoder):
    """As GPT-J has it: one norm for both, and a sum of three."""

    def forward(self, x):
        h = self.norm1(x)
        y = self.fc2(self.act(self.fc1(h)))
        y += self.attention(h)  # as Falcon adds them
        return y + x


class Flattened(Encoder):
    """As OPT has it: rows in other groups on the way."""

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x.reshape(-1, x.size(-1)))
        return x + self.fc2(self.act(self.fc1(h))).view(x.shape)


class ByColumns(Encoder):
    """As GPT-2 has it: weights [k, n], and rows in other groups."""

    def linear(self, one, x):
        y = torch.addmm(one.bias, x.view(-1, x.size(-1)), one.weight.t())
        return y.view(*x.shape[:-1], -1)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.linear(self.fc2, self.act(self.linear(self.fc1, self.norm2(x))))


class Scaled(Encoder):
    """As DINOv2 has it, with LayerScale, and a bias that is added apart."""

    def __init__(self):
        super().__init__()
        self.gamma1, self.gamma2 = (nn.Parameter(torch.rand(WIDTH) + 0.5) for _ in range(2))

    def forward(self, x):
        x = x + self.attention(self.norm1(x)) * self.gamma1
        y = self.act(self.norm2(x) @ self.fc1.weight.T + self.fc1.bias)
        return x + self.gamma2 * self.fc2(y)


class Behind(Llama):
    """As Gemma 2 has it: a norm behind each half, too."""

    def __init__(self):
        super().__init__()
        self.norm3, self.norm4 = SpeltNorm(WIDTH), SpeltNorm(WIDTH)

    def forward(self, x):
        x = x + self.norm3(self.attention(self.norm1(x)))
        h = self.norm2(x)
        return x + self.norm4(self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h)))


class SpeltLayerNorm(SpeltNorm):
    """As Cohere has it."""

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
        x = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + self.eps)
        return (self.weight.to(torch.float32) * x).to(dtype)


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def squared_relu(x):
    return F.relu(x) ** 2


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


MODELS = {
    "norms first": lambda: nn.Sequential(Encoder(), Encoder()),
    "norms behind": lambda: nn.Sequential(Bert(), Bert()),
    "llama": lambda: nn.Sequential(Llama(), Llama()),
    "gemma": lambda: nn.Sequential(Llama(GemmaNorm), Llama(GemmaNorm)),
    "rms with biases": lambda: nn.Sequential(Llama(nn.RMSNorm, bias=True), Llama(nn.RMSNorm)),
    "phi": lambda: nn.Sequential(Phi(), Phi()),
    "a tanh spelt out": lambda: nn.Sequential(*(Encoder(Called(new_gelu)) for _ in range(2))),
    "quick GELU": lambda: nn.Sequential(*(Encoder(Called(quick_gelu)) for _ in range(2))),
    "parallel": lambda: nn.Sequential(Parallel(), Parallel()),
    "flattened": lambda: nn.Sequential(Flattened(), Flattened()),
    "by columns": lambda: nn.Sequential(ByColumns(), ByColumns()),
    "scaled": lambda: nn.Sequential(Scaled(), Scaled()),
    "norms on both sides": lambda: nn.Sequential(Behind(), Behind()),
    "a LayerNorm spelt out": lambda: nn.Sequential(*(Llama(SpeltLayerNorm) for _ in range(2))),
    "relu's square": lambda: nn.Sequential(*(Encoder(Called(squared_relu)) for _ in range(2))),
    "relu in place": lambda: nn.Sequential(*(Encoder(nn.ReLU(inplace=True)) for _ in range(2))),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_layer_is_one_call(session, server, kind):
    model = MODELS[kind]().eval()
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5
        # In front of the first attention, between the two, and behind the second.
        assert (len(fast), fast.left) == (3, []), fast
        again = torch.randn(3, 7, WIDTH)  # of other rows, by other graphs
        assert relative_error(fast(again), model(again)) < 1e-5
        assert (len(fast), fast.left) == (3, []), fast


@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row"])
@pytest.mark.parametrize("kind", MODELS)
def test_in_fp8(session, kind, quantize):
    model = MODELS[kind]().eval()
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, quantize=quantize, min_elements=0) as fast:
        assert 1e-4 < relative_error(fast(x), model(x)) < FP8
        assert (len(fast), fast.left) == (3, []), fast


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits(session, dtype):
    model = MODELS["llama"]().eval().to(dtype)
    x = torch.randn(2, 5, WIDTH, dtype=dtype)
    with gemmd.compile(model, session, **EXACT) as fast:
        y = fast(x)
        assert y.dtype is dtype
        assert relative_error(y, model(x)) < 0.02


def test_a_whole_language_model(session):
    model = nn.Sequential(nn.Embedding(24, WIDTH), Block(WIDTH), nn.Linear(WIDTH, 24)).eval()
    tokens = torch.arange(12).reshape(2, 6)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(tokens), model(tokens)) < 1e-5
        assert "2 blocks" in repr(fast), fast


def test_what_writes_in_place_is_not_moved(session):
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            h = self.one(x)
            x += h  # x is the caller's
            x.mul_(2)
            return self.two(x) + h

    model = Writes().eval()
    x = torch.randn(4, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        mine, own = x.clone(), x.clone()
        assert relative_error(fast(mine), model(own)) < 1e-5
        assert relative_error(mine, own) < 1e-5


def test_what_differs_stays_torchs(session, monkeypatch):
    from gemmd._layers.graph import pointwise

    def wrong(before, after):
        return "relu"

    monkeypatch.setattr(pointwise, "activation_between", wrong)
    model = MODELS["norms first"]().eval()
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5
        assert any("differ from its" in one for one in fast.left)


def test_small_blocks_are_left(session):
    model = MODELS["norms first"]().eval()
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, min_elements=1 << 20) as fast:
        assert relative_error(fast(x), model(x)) < 1e-6
        assert len(fast) == 0
        assert "min_elements is 1048576" in repr(fast)


def test_weights_are_published_by_their_paths(session, server, client):
    model = MODELS["llama"]().eval()
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, name="m", **EXACT) as fast:
        own = fast(x)
        names = set(server.published)
        assert "m/0.attention.q_proj.k_proj.v_proj" in names
        assert "m/1.gate_proj.up_proj" in names
        fast.unpublish()
        assert not server.published
        assert torch.equal(fast(x), own)


def test_weights_that_are_computed_have_names_too(session, server):
    x = torch.randn(2, 5, WIDTH)
    for kind, names in (("by columns", 8), ("scaled", 8)):
        model = MODELS[kind]().eval()
        with gemmd.compile(model, session, name="m", **EXACT) as fast:
            own = fast(x)
            assert len(server.published) == names, server.published
            torch._dynamo.reset()
            with gemmd.compile(model, session, name="m", **EXACT) as again:
                assert torch.equal(again(x), own)
                again.unpublish()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_epsilon_of_a_norm_without_one(session, dtype):
    model = nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)).eval().to(dtype)
    x = torch.randn(4, WIDTH).to(dtype) * 2**-10  # beside which it shows
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 0.02
        assert sum(len(one.recipe.norms) for one in fast) == 1


def test_a_factor_of_what_is_added_is_not_lost(session):
    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.norm, self.vector = nn.LayerNorm(WIDTH), nn.Parameter(torch.randn(WIDTH))

        def forward(self, x):
            h = torch.add(x, self.one(x), alpha=3)
            return self.two(self.norm(torch.add(h, self.vector, alpha=2)))

    model = Added().eval()
    x = torch.randn(4, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5
        assert not fast.left


def test_a_gate_of_two_inputs_is_none(session):
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return F.silu(self.one(x)) * self.two(x.flip(-1))

    model = Crossed().eval()
    x = torch.randn(4, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5
        assert not fast.left


def test_weights_that_are_published_and_are_others_are_refused(session, client):
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(MODELS["llama"]().eval(), session, name="m", **EXACT) as fast:
        fast(x)
        with client.session() as other:
            second = gemmd.compile(MODELS["llama"]().eval(), other, name="m", **EXACT)
            with pytest.raises(gemmd.FailedPrecondition, match="other values than the model"):
                second(x)


def test_in_place_until_it_is_closed(session):
    class Sampled(nn.Sequential):
        def generate(self, x):
            return self(x) + 1

    model = Sampled(Llama(), Llama()).eval()
    x = torch.randn(2, 5, WIDTH)
    wanted = model.generate(x)
    with gemmd.compile(model, session, in_place=True, **EXACT) as fast:
        assert relative_error(model.generate(x), wanted) < 1e-5
        assert len(fast) in (3, 4), fast  # torch may compile each of the two by itself
        assert relative_error(fast(x) + 1, wanted) < 1e-5
    assert torch.equal(model.generate(x), wanted)


def test_modules_of_one_graph_have_blocks_of_their_own(session):
    """Where torch cuts a model between two modules of a class, both have the same graph, and their
    parameters are its inputs.
    """

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Llama() for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
                torch._dynamo.graph_break()
            return x

    model, x = Cut().eval(), torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        for _ in range(2):
            assert relative_error(fast(x), model(x)) < 1e-5
        assert len(fast) == 6, fast


def test_bad_arguments(session):
    model = MODELS["llama"]()
    with pytest.raises(ValueError, match="training mode"):
        gemmd.compile(model.train(), session)
    with pytest.raises(TypeError, match="torch.nn.Module"):
        gemmd.compile(lambda x: x, session)
    with pytest.raises(TypeError, match=r"gemmd\.Session"):
        gemmd.compile(model.eval(), None)
    with pytest.raises(ValueError, match="inductor"):
        gemmd.compile(model, session, rest="inducktor")
    with pytest.raises(ValueError, match='rest="inductor"'):
        gemmd.compile(model, session, mode="reduce-overhead")
    with pytest.raises(ValueError, match="reduce-overhead"):
        gemmd.compile(model, session, rest="inductor", mode="reduced-overhead")
