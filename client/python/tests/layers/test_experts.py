"""Modules of experts as layers of experts, by adopt and by compile, against the fake. Skips without
torch.
"""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .experts import (
    EXPERTS,
    HIDDEN,
    TOP,
    Alone,
    AloneTransposed,
    Apart,
    Layer,
    Mixture,
    Normed,
    Scaled,
    Stacked,
    Transposed,
)  # noqa: E402
from .models import relative_error  # noqa: E402

FP8 = 0.15


def routed(tokens, dtype=torch.float32, top=TOP):
    experts = torch.rand(tokens, EXPERTS).argsort(1)[:, :top]
    return experts, torch.rand(tokens, top).to(dtype)


KINDS = {
    "halves": Stacked,
    "relu": lambda: Stacked(nn.ReLU()),
    "gelu_tanh": lambda: Stacked(nn.GELU("tanh")),
    "transposed": Transposed,
    "no ups": Alone,
    "no ups, relu": lambda: Alone(nn.ReLU()),
    "no ups, relu_squared": lambda: Alone(lambda x: nn.functional.relu(x).square()),
    "no ups, transposed": AloneTransposed,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_experts_are_a_layer_whatever_their_gate(session, kind, dtype):
    model = nn.ModuleDict({"experts": KINDS[kind]()}).eval().to(getattr(torch, dtype))
    x, (experts, weights) = torch.randn(9, HIDDEN).to(getattr(torch, dtype)), routed(9)
    weights = weights.to(x.dtype)
    wanted = model.experts(x, experts, weights)
    with gemmd.adopt(model, session, min_elements=0) as adopted:
        assert [type(one) for one in adopted] == [gemmd.MoE] and adopted.left == {}
        got = model.experts(x, top_k_weights=weights, top_k_index=experts)
        assert got.dtype == x.dtype and 0.005 < relative_error(got, wanted) < FP8
        assert torch.equal(model.experts(x, experts, weights), got)
        one = model.experts(x, experts[:, :1], weights[:, :1])  # another number of them
        assert one.shape == x.shape and not torch.equal(one, got)
        with pytest.raises(TypeError, match="2 arguments; hidden_states, top_k_index"):
            model.experts(x, experts)


def test_weights_may_be_apart_and_experts_come_last(session):
    model = nn.ModuleDict({"experts": Apart()}).eval()
    x, (experts, weights) = torch.randn(3, 2, HIDDEN), routed(6)
    wanted = model.experts(x.flatten(0, 1), weights, experts).view(x.shape)
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert "5 x 24 -> 48, float8_e4m3fn, gelu_erf" in repr(adopted.layers["experts"])
    assert relative_error(model.experts(x, scores=weights, chosen=experts), wanted) < FP8


@pytest.mark.parametrize("kind", [Normed, Scaled])
def test_experts_that_compute_something_else_are_left(session, kind):
    model = nn.ModuleDict({"experts": kind(), "head": nn.Linear(HIDDEN, 8)}).eval()
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert list(adopted.layers) == ["head"] and type(model.experts) is kind
    assert "something else than experts" in adopted.left["experts"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"quantize": None}, "quantize is None"),
        ({"where": lambda path, _: path != "experts"}, "where= left it out"),
        ({"min_elements": 20000}, "have 17280 elements, min_elements is 20000"),
    ],
)
def test_experts_are_left_as_options_say(session, options, why):
    model = nn.ModuleDict({"experts": Stacked(), "head": nn.Linear(HIDDEN, 500)}).eval()
    adopted = gemmd.adopt(model, session, **{"min_elements": 0, **options})
    assert list(adopted.layers) == ["head"] and why in adopted.left["experts"]


def test_a_router_is_left_alone(session):
    model = Layer().eval()
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert sorted(adopted.layers) == ["mlp.experts", "out", "qkv"]
    assert "chooses experts" in adopted.left["mlp.gate"]


def test_workers_find_experts_by_name_without_values(session):
    first, second, third = (nn.ModuleDict({"experts": Transposed()}).eval() for _ in range(3))
    x, given = torch.randn(4, HIDDEN), routed(4)
    with pytest.raises(gemmd.NotFound, match="let a worker that has them"):
        gemmd.adopt(third.to("meta"), session, name="m", min_elements=0)
    gemmd.adopt(first, session, name="m", min_elements=0)
    gemmd.adopt(third, session, name="m", min_elements=0)
    assert torch.equal(first.experts(x, *given), third.experts(x, *given))
    with pytest.raises(gemmd.FailedPrecondition, match="other values than the model's experts"):
        gemmd.adopt(second, session, name="m", min_elements=0)


@pytest.mark.parametrize("kind", [Stacked, Transposed])
def test_compile_has_experts_beside_its_blocks(session, kind):
    model = nn.Sequential(Layer(kind()), Layer(kind())).eval()
    x = torch.randn(2, 5, HIDDEN)
    wanted = model(x)
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert list(fast.experts) == ["0.mlp.experts", "1.mlp.experts"]
        assert relative_error(fast(x), wanted) < 0.25
        assert len(fast) == 3 and fast.left == [], fast
        assert "2 layers of experts" in repr(fast)
        assert type(model[0].mlp.experts) is kind and torch.equal(model(x), wanted)
        other = torch.randn(1, 3, HIDDEN)
        assert relative_error(fast(other), model(other)) < 0.25


def test_compile_in_place_gives_experts_back(session):
    model = nn.Sequential(Layer(), Layer()).eval()
    x = torch.randn(2, 5, HIDDEN)
    wanted = model(x)
    with gemmd.compile(model, session, in_place=True, min_elements=0):
        assert 0.005 < relative_error(model(x), wanted) < 0.25
    assert type(model[1].mlp.experts) is Stacked and torch.equal(model(x), wanted)


def test_a_model_with_experts_adopted_is_compiled(session):
    model = nn.Sequential(Layer(), Layer()).eval()
    x = torch.randn(2, 5, HIDDEN)
    wanted = model(x)
    experts = gemmd.adopt(model, session, min_elements=0, where=lambda path, _: "experts" in path)
    assert len(experts) == 2
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert relative_error(fast(x), wanted) < 0.25
        assert len(fast) == 3 and not fast.experts


def test_experts_that_occur_twice_are_left(session):
    shared = Stacked()
    model = nn.ModuleList([Mixture(shared), Mixture(shared), nn.Linear(HIDDEN, 64)]).eval()
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert "several times" in adopted.left["0.experts"] and list(adopted.layers) == ["2"]


def test_more_experts_than_a_layer_takes_are_left(session):
    experts = Stacked()
    for name in ("gate_up_proj", "down_proj"):
        weight = getattr(experts, name)[:1, :, :].repeat(513, 1, 1)
        setattr(experts, name, nn.Parameter(weight))
    model = nn.ModuleDict({"experts": experts, "head": nn.Linear(HIDDEN, 8)}).eval()
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert adopted.left == {"experts": "it has 513 experts, a layer takes 512"}
