"""adopt of MLPs without a gate: one Sequential each, against the fake. Skips without torch."""

from itertools import pairwise

import pytest

import gemmd

from ..fake.machine import Refused

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .models import Gated, relative_error  # noqa: E402

EXACT = {"quantize": None, "min_elements": 0}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


class Mlp(nn.Module):
    """As timm has it."""

    def __init__(self, act=nn.GELU, norm=nn.Identity, bias=True):
        super().__init__()
        self.fc1, self.act, self.drop1 = nn.Linear(40, 48, bias=bias), act(), nn.Dropout(0.5)
        self.norm, self.fc2, self.drop2 = norm(), nn.Linear(48, 40, bias=bias), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop2(self.fc2(self.norm(self.drop1(self.act(self.fc1(x))))))


class Named(nn.Module):
    """As transformers have it, under many names, and what is activated is registered last."""

    def __init__(self, up, down, act):
        super().__init__()
        self.names = up, down
        self.add_module(up, nn.Linear(40, 48))
        self.add_module(down, nn.Linear(48, 40))
        self.function = act

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        up, down = (getattr(self, name) for name in self.names)
        return down(self.function(up(hidden_states)).to(down.weight.dtype))


class Layers(nn.Module):
    """As DETR has it: its Linears in a list, and the function in forward."""

    def __init__(self, *sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(k, n) for k, n in pairwise(sizes))

    def forward(self, x):
        for at, layer in enumerate(self.layers):
            x = F.relu(layer(x)) if at < len(self.layers) - 1 else layer(x)
        return x


class Flat(Mlp):
    """It makes rows of x, and x of them again."""

    def forward(self, x):
        return super().forward(x.reshape(-1, 40)).view(x.shape)


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


FOUND = {
    "timm's": (Mlp, ["gelu_erf", "none"]),
    "without biases": (lambda: Mlp(nn.SiLU, bias=False), ["silu", "none"]),
    "Nemotron's": (
        lambda: Named("up_proj", "down_proj", lambda x: torch.square(F.relu(x))),
        ["relu_squared", "none"],
    ),
    "in place": (lambda: Mlp(lambda: nn.ReLU(inplace=True)), ["relu", "none"]),
    "tanh's gelu": (lambda: Mlp(lambda: nn.GELU("tanh")), ["gelu_tanh", "none"]),
    "CLIP's names": (lambda: Named("fc1", "fc2", F.gelu), ["gelu_erf", "none"]),
    "up and down": (lambda: Named("up_proj", "down_proj", new_gelu), ["gelu_tanh", "none"]),
    "NeoX's": (lambda: Named("dense_h_to_4h", "dense_4h_to_h", nn.GELU()), ["gelu_erf", "none"]),
    "GPT's": (lambda: Named("c_fc", "c_proj", F.silu), ["silu", "none"]),
    "torchvision's": (
        lambda: nn.Sequential(
            nn.Linear(40, 48), nn.GELU(), nn.Dropout(), nn.Linear(48, 40), nn.Dropout()
        ),
        ["gelu_erf", "none"],
    ),
    "three": (lambda: Layers(40, 48, 32, 40), ["relu", "relu", "none"]),
    "one in another": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Linear(40, 8), nn.SiLU()), nn.Linear(8, 40), nn.ReLU()
        ),
        ["silu", "relu"],
    ),
    "nothing between": (
        lambda: nn.Sequential(nn.Linear(40, 8, bias=False), nn.Linear(8, 40)), ["none", "none"],
    ),
    "rows": (Flat, ["gelu_erf", "none"]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantize", ["fp8-block", None])
@pytest.mark.parametrize("what", FOUND)
def test_it_is_one_layer_whatever_its_parts_are_called(session, what, quantize, dtype):
    make, activations = FOUND[what]
    model = nn.ModuleDict({"mlp": make()}).eval().to(getattr(torch, dtype))
    x = torch.randn(2, 3, 40, dtype=getattr(torch, dtype))
    wanted = model["mlp"](x)
    adopted = gemmd.adopt(model, session, quantize=quantize, min_elements=0)
    (layer,) = adopted
    assert str(adopted) == "adopted 1 layer (1 Sequential), none left"
    assert adopted.layers == {"mlp": layer} and model["mlp"].layer is layer
    assert [one._activation for one in layer.layers] == activations
    got = model["mlp"](x)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    exact = 1e-5 if dtype == "float32" else 0.02
    assert relative_error(got, wanted) < (0.15 if quantize else exact)


class Residual(Mlp):
    def forward(self, x):
        return x + super().forward(x)


class Scaled(Mlp):
    def forward(self, x):
        return 1.01 * super().forward(x)


class Between(Mlp):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)) + 0.001)


class Clamped(Mlp):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)).clamp(max=12))


class First(Mlp):
    def forward(self, x):
        return super().forward(self.act(x))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(40, 40), nn.Linear(40, 40)

    def forward(self, x):
        return self.fc2(self.fc1(self.fc1(x)))


class OneIsNotCalled(Twice):
    def forward(self, x):
        return self.fc1(x)


class WithoutABias(Mlp):
    def forward(self, x):
        return F.linear(self.act(self.fc1(x)), self.fc2.weight)


class InPart(Mlp):
    def forward(self, x):
        return F.linear(self.act(self.fc1(x)), self.fc2.weight[:], self.fc2.bias)


class TakesMore(Mlp):
    def forward(self, x, scale=None):
        return super().forward(x) if scale is None else scale * super().forward(x)


class OfTwo(Mlp):
    """As BLOOM's, which adds the residual."""

    def forward(self, x, residual):
        return residual + super().forward(x)


class KeepsSomething(Mlp):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(40, 40) for _ in range(4))

    def forward(self, x):
        return self.out(F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))


class QuickGelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


ALONE = {
    one.__name__: one
    for one in (
        Residual, Scaled, Between, Clamped, First, Twice, OneIsNotCalled, WithoutABias, InPart,
        TakesMore, OfTwo, KeepsSomething, Attention,
    )
} | {
    "a norm": lambda: Mlp(norm=lambda: nn.LayerNorm(48)),
    "a norm that learns nothing": lambda: Mlp(norm=lambda: nn.RMSNorm(48, None, False)),
    "an activation that layers have not": lambda: Mlp(QuickGelu),
    "one weight for both": lambda: tied(Twice()),
    "no forward": lambda: nn.ModuleList([nn.Linear(40, 40), nn.Linear(40, 40)]),
}  # fmt: skip


def tied(module):
    module.fc2.weight = module.fc1.weight
    return module


@pytest.mark.parametrize("what", ALONE)
def test_what_computes_something_else_is_taken_one_by_one(session, what):
    model = nn.ModuleDict({"m": ALONE[what]()}).eval()
    calls = [torch.randn(3, 40) for _ in range(2 if what == "OfTwo" else 1)]
    computes = what != "no forward"
    wanted = model["m"](*calls) if computes else None
    adopted = gemmd.adopt(model, session, **EXACT)
    assert {type(one) for one in adopted} == {gemmd.Linear} and len(adopted) >= 1
    if computes:
        assert relative_error(model["m"](*calls), wanted) < 1e-5


def test_dropout_that_is_on_is_none_and_draws_nothing(session):
    model = nn.Sequential(Mlp()).requires_grad_(False)
    before = torch.get_rng_state()
    adopted = gemmd.adopt(model, session, **EXACT)
    assert sorted(adopted.layers) == ["0.fc1", "0.fc2"]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    assert model(torch.randn(3, 40)).eq(0).any()


class Encoder(nn.Module):
    """As Whisper's layer: fc1 and fc2 stand beside the attention."""

    def __init__(self):
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(40)
        self.fc1, self.fc2 = nn.Linear(40, 48), nn.Linear(48, 40)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


def test_those_that_stand_among_others_stay_linears(session):
    model = Encoder().eval()
    x = torch.randn(2, 5, 40)
    wanted = model(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert len(adopted) == 4 and {type(one) for one in adopted} == {gemmd.Linear}
    assert relative_error(model(x), wanted) < 1e-5


class Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 40))

    def forward(self, x):
        return self.net(x)


class Iterated(Called):
    def forward(self, x):
        for one in self.net:
            x = x + one(x)
        return x


class Indexed(Called):
    def forward(self, x):
        return x + self.net[2](self.net[0](x))


class OfChildren(Called):
    def forward(self, x):
        return self.last(self.net.children(), x)

    def last(self, parts, x):
        return list(parts)[-1](x)


class ReadFromAbove(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Mlp()

    def forward(self, x):
        return self.mlp(x) + self.mlp.fc1(x)[..., :40]


@pytest.mark.parametrize("kind", [Called, Iterated, Indexed, OfChildren, ReadFromAbove])
def test_what_is_taken_apart_by_a_module_above_is_taken_one_by_one(session, kind):
    model = nn.Sequential(nn.LayerNorm(40), kind()).eval()
    x = torch.randn(3, 40)
    wanted = model(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert [type(one) for one in adopted].count(gemmd.Sequential) == (kind is Called)
    assert relative_error(model(x), wanted) < 1e-5


def test_one_within_another_is_found_where_the_other_is_none(session):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain, self.gated = Mlp(), Gated()

        def forward(self, x):
            return self.plain(x) + self.gated(x)

    model = nn.ModuleDict({"both": Two(), "all": nn.Sequential(Mlp(), Mlp(nn.ReLU))}).eval()
    x = torch.randn(3, 40)
    wanted = model["both"](x), model["all"](x)
    adopted = gemmd.adopt(model, session, **EXACT)
    kinds = {path: type(one).__name__ for path, one in adopted.layers.items()}
    assert kinds == {"both.plain": "Sequential", "both.gated": "MLP", "all": "Sequential"}
    assert len(adopted.layers["all"].layers) == 4
    for got, one in zip((model["both"](x), model["all"](x)), wanted, strict=True):
        assert relative_error(got, one) < 1e-5


def test_hooks_where_and_places_count_as_for_other_layers(session):
    model = nn.ModuleDict({name: Mlp() for name in ("a", "b", "c", "d")}).eval()
    model["a"].act.register_forward_hook(lambda *_: None)
    model["again"] = model["c"].fc1
    model["d_too"] = model["d"]
    adopted = gemmd.adopt(model, session, where=lambda path, _: path != "b.fc2", **EXACT)
    assert sorted(adopted.layers) == ["a.fc1", "a.fc2", "b.fc1", "c.fc1", "c.fc2", "d"]
    assert model["d_too"] is model["d"]


def test_its_weights_count_together(session):
    model = nn.Sequential(Mlp()).eval()
    with pytest.raises(ValueError, match=r"1920 elements, min_elements is 3841"):
        gemmd.adopt(model, session, min_elements=3841)
    assert list(gemmd.adopt(model, session, min_elements=3840).layers) == ["0"]


def test_its_weights_are_published_as_those_of_linears(session, server):
    """So that workers find them which take them one by one."""
    model, x = nn.ModuleDict({"m": Mlp(), "n": Layers(40, 48, 40)}).eval(), torch.randn(3, 40)
    wanted = model["n"](x)
    adopted = gemmd.adopt(model, session, name="w", quantize=None, min_elements=0)
    assert sorted(server.published) == ["w/m.fc1", "w/m.fc2", "w/n.layers.0", "w/n.layers.1"]
    with torch.device("meta"):
        other, alone = (nn.ModuleDict({"m": Mlp(), "n": Layers(40, 48, 40)}).eval() for _ in "12")
    found = gemmd.adopt(other, session, name="w", quantize=None, min_elements=0)
    assert [type(one) for one in found] == [gemmd.Sequential] * 2
    alone["n"].register_forward_hook(lambda *_: None)
    alone["m"].act.register_forward_hook(lambda *_: None)
    assert len(gemmd.adopt(alone, session, name="w", quantize=None, min_elements=0)) == 4
    for one in (model, other, alone):
        assert relative_error(one["n"](x), wanted) < 1e-5
    adopted.unpublish()
    assert not server.published


def test_other_weights_of_its_names_are_refused(session, server):
    gemmd.Linear(session, torch.randn(48, 40), name="w/m.fc1", quantize=None)
    gemmd.Linear(session, torch.randn(56, 48), bias=torch.ones(56), name="w/n.fc2", quantize=None)
    others = {"m": r"w/m\.fc1 is published without a bias", "n": r"other shapes or biases .*n\.fc2 has"}
    for name, why in others.items():
        published = dict(server.published)
        model = nn.ModuleDict({name: Mlp()}).eval()
        with pytest.raises(gemmd.FailedPrecondition, match=why):
            gemmd.adopt(model, session, name="w", **EXACT)
        assert type(model[name]) is Mlp and server.published == published
    options = {"bias": torch.ones(48), "name": "w/o.fc1", "quantize": None}
    kept = gemmd.Linear(session, torch.randn(48, 40), **options)
    model = nn.ModuleDict({"o": Mlp()}).eval()
    with pytest.raises(gemmd.FailedPrecondition, match="other values than the model's o has"):
        gemmd.adopt(model, session, name="w", **EXACT)
    assert kept.name in server.published and "w/o.fc2" not in server.published


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_after_a_failure_nothing_is_left(session, server, monkeypatch, fails_at):
    model = nn.Sequential(Mlp(), nn.LayerNorm(40), Mlp()).eval()
    original, calls = server.publish_buffer, []

    def refuse(request):
        calls.append(request)
        if len(calls) == fails_at:
            raise Refused("RESOURCE_EXHAUSTED", "tenant has 8, limit 8", "QUOTA")
        return original(request)

    monkeypatch.setattr(server, "publish_buffer", refuse)
    before = dict(model.named_modules())
    with pytest.raises(gemmd.ResourceExhausted, match="limit 8"):
        gemmd.adopt(model, session, name="w", min_elements=0)
    assert dict(model.named_modules()) == before and not server.published
    assert not [one.label for one in session.buffers() if one.label.startswith("gemmd.Linear")]
    assert len(gemmd.adopt(model, session, name="w", min_elements=0)) == 2
