"""adopt and compile of models of several kinds on a real daemon, on the host and on a GPU: FP8
weights, autocast, torch.nn's attention, mixtures that weigh x. Skips without torch.
"""

import copy

import pytest

import gemmd

pytestmark = pytest.mark.e2e

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ..layers import test_autocast, test_likes, test_scaled  # noqa: E402
from ..layers.compiling import no_gradients  # noqa: E402, F401
from ..layers.experts import HIDDEN, Weighed  # noqa: E402
from ..layers.models import Gated, relative_error  # noqa: E402
from .graphs import check_graph  # noqa: E402

FP8 = 0.15


def encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def scaled(kind):
    """A model of bfloat16, but for what is FP8 and its scales, and one of what its weights stand for."""
    exact = test_scaled.Layer(kind).eval()
    model = copy.deepcopy(exact)
    for one in model.parameters():
        if one.dim() == 1:
            one.data = one.data.bfloat16()
    return model, lambda x: exact.to(x.device).computed(x.float())


@pytest.mark.parametrize("kind", test_scaled.KINDS)
def test_fp8_weights_by_the_host(session, kind):
    model, own = scaled(kind)
    x = torch.randn(2, 5, 256).bfloat16()
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert relative_error(fast(x), own(x)) < FP8 and fast.left == []
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert relative_error(model(x), own(x)) < FP8 and adopted.left == {}


def check_autocast(session, device):
    model, x = test_autocast.model_and_x()
    model, x = model.to(device), x.to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        wanted = model(x)
        with gemmd.compile(model, session, min_elements=0) as fast:
            assert relative_error(fast(x), wanted) < FP8 and len(fast) == 4
        gemmd.adopt(model, session, min_elements=0)
        got = model(x)
    assert got.dtype is wanted.dtype and relative_error(got, wanted) < FP8


def test_autocast_by_the_host(session):
    check_autocast(session, "cpu")


def test_torchs_encoder_by_the_host(session):
    model, x = encoder().eval(), torch.randn(2, 9, 64)
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert relative_error(fast(x), model(x)) < FP8
        assert sum(len(block.weights) for block in fast) == 8


def test_what_computes_as_a_linear_by_the_host(session):
    model, x = test_likes.model_of(test_likes.Turned).eval(), torch.randn(2, 3, 40)
    wanted = test_likes.computed(model, x)
    assert len(gemmd.adopt(model, session, min_elements=0)) == 3
    assert relative_error(test_likes.computed(model, x), wanted) < FP8


def test_a_mixture_that_weighs_x_by_the_host(session):
    model = nn.ModuleDict({"mlp": Weighed(lambda: Gated(HIDDEN, 24, HIDDEN))}).eval()
    x = torch.randn(2, 7, HIDDEN)
    wanted = model.mlp(x)
    gemmd.adopt(model, session, min_elements=0)
    got = model.mlp(x)
    assert relative_error(got[0], wanted[0]) < FP8 and torch.equal(got[1], wanted[1])


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.usefixtures("shared_gpu")
def test_torchs_encoder_on_a_gpu_in_a_graph_too(session, rest):
    model = encoder().eval().to("cuda", torch.bfloat16)
    x = torch.randn(2, 90, 64, device="cuda", dtype=torch.bfloat16)
    fast = gemmd.compile(model, session, min_elements=0, rest=rest)
    for _ in range(3):
        assert relative_error(fast(x), model(x)) < FP8
    check_graph(fast, x, model, FP8)


@pytest.mark.parametrize("kind", test_scaled.KINDS)
@pytest.mark.usefixtures("shared_gpu")
def test_fp8_weights_on_a_gpu_in_a_graph_too(session, kind):
    model, own = scaled(kind)
    x = torch.randn(2, 5, 256, device="cuda", dtype=torch.bfloat16)
    model.to("cuda")
    with gemmd.compile(model, session, min_elements=0) as fast:
        for _ in range(3):
            assert relative_error(fast(x), own(x)) < FP8
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert relative_error(model(x), own(x)) < FP8 and adopted.left == {}
    check_graph(model, x, own, FP8)


@pytest.mark.usefixtures("shared_gpu")
def test_autocast_on_a_gpu(session):
    check_autocast(session, "cuda")
