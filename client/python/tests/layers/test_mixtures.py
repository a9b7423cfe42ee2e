"""Modules with a router and a list of experts as layers of experts, against the fake. Skips without
torch.
"""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .experts import (  # noqa: E402
    EXPERTS, HIDDEN, Grouped, Listed, Routed, Shared, Sigmoids, Telling, Weighed, WeighedBehind,
)  # fmt: skip
from .models import Gated, relative_error  # noqa: E402

FP8 = 0.15


def gated(bias=False):
    return Gated(HIDDEN, 24, HIDDEN, bias=bias)


def plain(bias=True):
    return nn.Sequential(nn.Linear(HIDDEN, 24, bias), nn.GELU(), nn.Linear(24, HIDDEN, bias))


KINDS = {
    "experts without gates": lambda: Listed(plain),
    "experts without gates and biases": lambda: Listed(lambda: plain(False), 1),
    "mixtral": lambda: Listed(gated),
    "one expert a token": lambda: Listed(gated, 1),
    "with biases": lambda: Listed(lambda: gated(True)),
    "tells logits": lambda: Telling(gated),
    "a shared expert": lambda: Shared(gated),
    "sigmoids": lambda: Sigmoids(gated),
    "a router of its own kind": lambda: Routed(gated),
    "all experts at once": lambda: Weighed(gated),
    "all experts at once, one a token": lambda: Weighed(gated, 1),
    "all experts at once, weighed behind": lambda: WeighedBehind(gated),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_router_and_its_experts_are_a_layer(session, kind):
    model = nn.ModuleDict({"mlp": KINDS[kind]()}).eval()
    x = torch.randn(2, 7, HIDDEN)
    wanted = model.mlp(x)
    with gemmd.adopt(model, session, min_elements=0) as adopted:
        kinds = [type(one).__name__ for one in adopted]
        own = kind == "a router of its own kind"
        assert kinds[0] == "MoE" and ("mlp.gate" in adopted.left) != own
        assert ("MLP" in kinds) == bool(model.mlp.mixture.shared)
        got = model.mlp(hidden_states=x)
        if isinstance(wanted, tuple):
            assert torch.equal(got[1], wanted[1])
            got, wanted = got[0], wanted[0]
        assert 0.005 < relative_error(got, wanted) < FP8
        assert "mlp.gate.weight" in model.state_dict()
        assert not [name for name in model.state_dict() if "expert" in name and "gate" not in name]


@pytest.mark.parametrize("rest", [Grouped])
def test_a_router_of_another_kind_is_left_to_its_linears(session, rest):
    model = nn.ModuleDict({"mlp": rest(gated)}).eval()
    x = torch.randn(2, 7, HIDDEN)
    wanted = model.mlp(x)
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert [type(one) for one in adopted] == [gemmd.MLP] * EXPERTS
    assert relative_error(model.mlp(x), wanted) < FP8


def test_two_workers_find_a_mixture_by_name(session):
    first, second = (nn.ModuleDict({"mlp": Listed(gated)}).eval() for _ in range(2))
    adopted = gemmd.adopt(first, session, name="m", min_elements=0)
    with pytest.raises(gemmd.FailedPrecondition, match="other values than the model's mlp"):
        gemmd.adopt(second, session, name="m", min_elements=0)
    assert adopted.layers["mlp"].name == "m/mlp"


def test_compile_takes_a_mixture_whose_own_forward_torch_cuts(session):
    model = nn.Sequential(nn.RMSNorm(HIDDEN), Shared(gated)).eval()
    x = torch.randn(2, 7, HIDDEN)
    wanted = model(x)
    with gemmd.compile(model, session, min_elements=0, fullgraph=True) as fast:
        assert relative_error(fast(x), wanted) < FP8
        assert list(fast.experts) == ["1"] and type(model[1]) is Shared
    assert torch.equal(model(x), wanted)


class Depths(nn.Module):
    """No mixture: layers, and a head with as many columns."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(gated() for _ in range(3)), nn.Linear(HIDDEN, 3)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def test_layers_below_a_head_are_no_mixture(session):
    model = nn.ModuleDict({"net": Depths()}).eval()
    x = torch.randn(2, 7, HIDDEN)
    wanted = model.net(x)
    adopted = gemmd.adopt(model, session, quantize="fp8-row", min_elements=0)
    assert sorted(adopted.layers) == ["net.head", *(f"net.layers.{at}" for at in range(3))]
    assert relative_error(model.net(x), wanted) < FP8


def test_experts_may_stay(session):
    model = nn.Sequential(nn.RMSNorm(HIDDEN), Listed(gated)).eval()
    x = torch.randn(2, 7, HIDDEN)
    with gemmd.compile(model, session, min_elements=0, experts=False) as fast:
        assert relative_error(fast(x), model(x)) < FP8 and not fast.experts
