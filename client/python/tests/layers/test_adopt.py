"""adopt: a model of torch whose Linears become layers, against the fake. Skips without torch."""

import gc
import weakref

import pytest

import gemmd


torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .models import PATHS, TOKENS, Gated, Model, relative_error  # noqa: E402

EXACT = {"quantize": None, "min_elements": 0}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row", None])
def test_a_model_computes_what_it_did(session, dtype, quantize):
    model = Model().eval().to(getattr(torch, dtype))
    wanted = model(TOKENS)
    with gemmd.adopt(model, session, quantize=quantize, min_elements=0) as adopted:
        assert sorted(adopted.layers) == sorted(PATHS) and adopted.left == {}
        assert [type(one).__name__ for one in adopted].count("MLP") == 2 and len(adopted) == 7
        assert str(adopted) == "adopted 7 layers (2 MLP, 5 Linear), none left"
        got = model(TOKENS)
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        # Half of the error is the residual stream's, which passes the layers by.
        assert relative_error(got, wanted) < (0.1 if quantize else 0.02)
        assert (relative_error(got, wanted) > 0.001) == bool(quantize) or dtype != "float32"
        assert model.blocks[0].mlp.layer is adopted.layers["blocks.0.mlp"]
        assert (model.lm_head.in_features, model.lm_head.out_features) == (40, 56)
        assert not model.lm_head.training
    with pytest.raises(gemmd.FailedPrecondition, match="is closed"):
        model(TOKENS)


@pytest.mark.parametrize("name", ["", "m"])
def test_torchs_weights_go_and_an_embedding_keeps_its_own(session, name):
    model = Model().eval()
    gone = [weakref.ref(one) for block in model.blocks for one in block.mlp.parameters()]
    gone.append(weakref.ref(model.blocks[0].qkv.weight))
    kept = model.embed.weight
    gc.disable()  # it comes late where it is a GPU's memory that waits
    try:
        gemmd.adopt(model, session, name=name, min_elements=0)
        assert [one() for one in gone] == [None] * 7
    finally:
        gc.enable()
    assert model.embed.weight is kept
    assert {name.split(".")[-2] for name in model.state_dict()} == {"embed", "norm"}


def test_torchs_random_numbers_are_not_drawn_from(session):
    model = Model().eval()
    before = torch.get_rng_state()
    gemmd.adopt(model, session, min_elements=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "act", [nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.ReLU(), nn.SiLU(inplace=True)]
)
@pytest.mark.parametrize("bias", [False, True])
def test_a_gated_mlp_is_one_layer_whatever_its_activation(session, act, bias):
    model = nn.Sequential(Gated(act=act, bias=bias)).eval()
    x = torch.randn(3, 40)
    wanted = model(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert [type(one) for one in adopted] == [gemmd.MLP]
    assert relative_error(model(x), wanted) < 1e-5


class Optional(Gated):
    def forward(self, hidden_states, scale=None):
        y = super().forward(hidden_states)
        return y if scale is None else scale * y


def test_an_mlp_that_may_be_given_more_than_x_is_left_to_its_linears(session):
    model, x = nn.ModuleDict({"mlp": Optional()}).eval(), torch.randn(3, 40)
    wanted = model.mlp(x, scale=2)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert sorted(adopted.layers) == ["mlp.down_proj", "mlp.gate_proj", "mlp.up_proj"]
    assert relative_error(model.mlp(x, scale=2), wanted) < 1e-5


class Named(Gated):
    def forward(self, hidden_states):
        return super().forward(hidden_states)


def test_x_may_be_given_by_the_name_that_the_module_has_for_it(session):
    model = nn.ModuleDict({"mlp": Named(), "head": nn.Linear(40, 24)}).eval()
    x = torch.randn(3, 40)
    wanted = model.mlp(hidden_states=x), model.head(input=x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert sorted(adopted.layers) == ["head", "mlp"]
    for got, own in zip((model.mlp(hidden_states=x), model.head(input=x)), wanted, strict=True):
        assert relative_error(got, own) < 1e-5
    assert relative_error(adopted.layers["head"].module()(x=x), wanted[1]) < 1e-5
    with pytest.raises(TypeError, match="mask"):
        model.mlp(hidden_states=x, mask=None)


class Halved(nn.Module):
    """As Phi-3 has it; `functional`: without a module for its activation."""

    def __init__(self, act=None, functional=F.silu, bias=False):
        super().__init__()
        self.gate_up, self.down = nn.Linear(40, 96, bias=bias), nn.Linear(48, 40, bias=bias)
        self.functional = functional
        if act is not None:
            self.activation_fn = act

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(up * getattr(self, "activation_fn", self.functional)(gate))


@pytest.mark.parametrize("name", ["", "m"])
@pytest.mark.parametrize("quantize", ["fp8-block", None])
@pytest.mark.parametrize("options", [{}, {"act": nn.GELU("tanh"), "bias": True}, {"functional": F.relu}])
def test_a_gate_in_one_linear_with_its_up_is_an_mlp(session, options, quantize, name):
    model = nn.Sequential(Halved(**options)).eval()
    x = torch.randn(3, 40)
    wanted = model(x)
    adopted = gemmd.adopt(model, session, name=name, quantize=quantize, min_elements=0)
    assert [type(one) for one in adopted] == [gemmd.MLP]
    assert relative_error(model(x), wanted) < (0.1 if quantize else 1e-5)


class UpFirst(Halved):
    def forward(self, x):
        up, gate = self.gate_up(x).chunk(2, -1)
        return self.down(up * F.silu(gate))


def test_halves_the_other_way_round_are_two_layers(session):
    model = nn.Sequential(UpFirst()).eval()
    x = torch.randn(3, 40)
    wanted = model(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert sorted(adopted.layers) == ["0.down", "0.gate_up"]
    assert relative_error(model(x), wanted) < 1e-5


class Scaled(Gated):
    def forward(self, x):
        return 1.02 * super().forward(x)


class Clamped(Gated):
    def forward(self, x):
        return self.down_proj((self.act_fn(self.gate_proj(x)) * self.up_proj(x)).clamp(-3, 3))


class UpIsActivated(Gated):
    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class WithMask(Gated):
    def forward(self, x, mask=None):
        return super().forward(x) if mask is not None else super().forward(x).unsqueeze(0)


class WithAdapter(Gated):
    """Its adapter is to be loaded later, and adds nothing before."""

    def __init__(self):
        super().__init__()
        self.adapter = nn.Parameter(torch.zeros(40))

    def forward(self, x):
        return super().forward(x) + self.adapter


class OfZeros(Scaled):
    """Any forward computes 0 of its weights."""

    def __init__(self):
        super().__init__()
        self.down_proj.weight.zero_()


@pytest.mark.parametrize("quantize", ["fp8-block", None])
@pytest.mark.parametrize("kind", [Scaled, Clamped, UpIsActivated, WithMask, WithAdapter, OfZeros])
def test_names_alone_make_no_gated_mlp(session, kind, quantize):
    model = nn.Sequential(kind()).eval()
    x = torch.randn(3, 40) * 4
    wanted = model(x)
    adopted = gemmd.adopt(model, session, quantize=quantize, min_elements=0)
    assert sorted(adopted.layers) == ["0.down_proj", "0.gate_proj", "0.up_proj"]
    assert (model(x) - wanted).norm() <= (0.15 if quantize else 1e-4) * wanted.norm()


def test_a_module_that_occurs_several_times_is_one_layer(session, server):
    first, mlp = nn.Linear(40, 40), Gated()
    model = nn.ModuleDict({"a": first, "m": nn.Sequential(mlp, first), "n": mlp}).eval()
    model["b"] = model["m"]
    model["up"] = up = Gated().eval()
    model["up_again"] = up.up_proj
    adopted = gemmd.adopt(model, session, **EXACT)
    assert sorted(adopted.layers) == ["a", "m.0", "up.down_proj", "up.gate_proj", "up.up_proj"]
    assert model["a"] is model["m"][1] is model["b"][1] and model["n"] is model["m"][0]
    assert model["up_again"] is model["up"].up_proj
    assert not any(isinstance(one, nn.Linear) for one in model.modules())


def test_small_weights_and_those_that_where_leaves_out_stay(session):
    model = Model().eval()
    asked = []

    def where(path, module):
        asked.append((path, type(module)))
        return "blocks.1" not in path

    adopted = gemmd.adopt(model, session, where=where, min_elements=40 * 48)
    assert sorted(adopted.layers) == ["blocks.0.mlp", "blocks.0.qkv", "lm_head"]
    assert adopted.left["blocks.0.out"] == "its weight has 1600 elements, min_elements is 1920"
    assert adopted.left["blocks.1.mlp.up_proj"] == "where= left it out"
    assert str(adopted).endswith(
        "6 left: blocks.0.out: its weight has 1600 elements, min_elements is 1920;"
        " blocks.1.mlp.gate_proj, blocks.1.mlp.up_proj, blocks.1.mlp.down_proj and 2 more:"
        " where= left it out"
    )
    assert ("lm_head", nn.Linear) in asked and len(asked) == 11


def test_an_mlps_weights_count_together(session):
    for least, layers in ((3 * 1920, ["0"]), (3 * 1920 + 1, None)):
        model = nn.Sequential(Gated()).eval()
        if layers is None:
            with pytest.raises(ValueError, match=r"1920 elements, min_elements is 5761"):
                gemmd.adopt(model, session, min_elements=least)
        else:
            assert list(gemmd.adopt(model, session, min_elements=least).layers) == layers


def test_weights_that_train_are_refused_with_the_remedy(session):
    model = Model()
    before = dict(model.named_modules())
    with pytest.raises(ValueError, match=r"gate_proj is in training mode.*call model\.eval\(\)"):
        gemmd.adopt(model, session, min_elements=0)
    assert dict(model.named_modules()) == before
    assert len(gemmd.adopt(model.requires_grad_(False), session, min_elements=0)) == 7
    assert model.lm_head.training
