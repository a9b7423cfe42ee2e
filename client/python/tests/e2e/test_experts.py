"""Modules of experts on a real daemon, by adopt and by compile, on the host and on a GPU. Skips without
torch.
"""

import pytest

import gemmd

pytestmark = pytest.mark.e2e

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ..layers.compiling import no_gradients  # noqa: E402, F401
from ..layers.experts import (  # noqa: E402
    HIDDEN, Alone, AloneTransposed, Apart, Layer, Routed, Stacked, Transposed,
)  # fmt: skip
from ..layers.models import Gated, relative_error  # noqa: E402
from .graphs import check_graph  # noqa: E402

KINDS = {
    "halves": Stacked,
    "fused": lambda: Stacked(inner=128),
    "transposed": Transposed,
    "no ups": lambda: Alone(inner=128),
    "no ups, transposed": AloneTransposed,
}
FP8 = 0.25


def model_of(kind):
    return nn.Sequential(Layer(KINDS[kind]()), Layer(KINDS[kind]())).eval()


@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row"])
@pytest.mark.parametrize("kind", KINDS)
def test_by_the_host(session, kind, quantize):
    model, x = model_of(kind), torch.randn(2, 5, HIDDEN)
    wanted = model(x)
    with gemmd.compile(model, session, quantize=quantize, min_elements=0) as fast:
        assert relative_error(fast(x), wanted) < FP8
        assert (len(fast), len(fast.experts)) == (3, 2), fast
    with gemmd.adopt(model, session, quantize=quantize, min_elements=0) as adopted:
        assert relative_error(model(x), wanted) < FP8
        assert sum(type(one) is gemmd.MoE for one in adopted) == 2


def test_a_router_and_a_list_of_mlps_by_the_host(session):
    model = nn.ModuleDict({"mlp": Routed(lambda: Gated(HIDDEN, 24, HIDDEN, bias=True))}).eval()
    x = torch.randn(2, 7, HIDDEN)
    wanted = model.mlp(x)
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert [type(one).__name__ for one in adopted] == ["MoE", "MLP"], adopted
    assert relative_error(model.mlp(x), wanted) < FP8


def test_weights_apart_by_the_host(session):
    model = nn.ModuleDict({"experts": Apart()}).eval()
    x, experts = torch.randn(6, HIDDEN), torch.rand(6, 5).argsort(1)[:, :2]
    weights = torch.rand(6, 2)
    wanted = model.experts(x, weights, experts)
    gemmd.adopt(model, session, min_elements=0)
    assert relative_error(model.experts(x, weights, experts), wanted) < FP8


@pytest.mark.usefixtures("shared_gpu")
def test_as_many_rows_with_more_experts_each_on_a_gpu(session):
    count, hidden, inner = 8, 256, 128
    gate_up = torch.randn(count, 2 * inner, hidden) / 16
    down = torch.randn(count, hidden, inner) / 11
    moe = gemmd.MoE(session, gate_up, down)
    x = torch.randn(8, hidden, device="cuda", dtype=torch.bfloat16)
    for top in (2, 1, 4, 2):
        experts = torch.rand(8, count, device="cuda").argsort(1)[:, :top]
        weights = torch.rand(8, top, device="cuda")
        wanted = moe.route(x.cpu(), experts.cpu(), weights.cpu())
        for _ in range(2):
            assert relative_error(moe.route(x, experts, weights).cpu(), wanted) < 0.02
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = moe.route(x, experts, weights)
        graph.replay()
        assert relative_error(y.cpu(), wanted) < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("shared_gpu")
def test_logits_choose_on_a_gpu_in_a_graph_too(session, dtype):
    count, hidden, inner = 32, 256, 128
    gate_up = torch.randn(count, 2 * inner, hidden) / 16
    moe = gemmd.MoE(session, gate_up, torch.randn(count, hidden, inner) / 11, top_k=4)
    for scores in ("softmax", "sigmoid"):
        options = {"scores": scores, "groups": 4, "top_groups": 2, "group_score": "top2_sum"}
        for rows in (1, 13, 200):
            x = torch.randn(rows, hidden, device="cuda", dtype=dtype)
            logits = torch.randn(rows, count, device="cuda", dtype=dtype)
            wanted = moe.from_logits(x.cpu(), logits.cpu(), **options)
            for _ in range(2):
                got = moe.from_logits(x, logits, **options).cpu()
                assert relative_error(got, wanted) < 0.02
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = moe.from_logits(x, logits, **options)
            graph.replay()
            assert relative_error(y.cpu(), wanted) < 0.02


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("shared_gpu")
def test_compiled_on_a_gpu_in_a_graph_too(session, kind, rest):
    model = model_of(kind).to("cuda", torch.bfloat16)
    check(model, gemmd.compile(model, session, min_elements=0, rest=rest))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("shared_gpu")
def test_adopted_on_a_gpu_in_a_graph_too(session, kind):
    model, own = model_of(kind), model_of(kind)
    own.load_state_dict(model.state_dict())
    model, own = (one.to("cuda", torch.bfloat16) for one in (model, own))
    gemmd.adopt(model, session, min_elements=0)
    check(own, model)


def check(own, fast):
    """A loop over experts waits for the host, so torch's own model is in no graph."""
    x = torch.randn(2, 350, HIDDEN, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        assert relative_error(fast(x), own(x)) < FP8
    with torch.inference_mode():
        assert relative_error(fast(x), own(x)) < FP8
    check_graph(fast, x, own, FP8)
