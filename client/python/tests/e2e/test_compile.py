"""compile on a real daemon: blocks of every kind, by the host and on a GPU. Skips without torch."""

import time

import pytest

import gemmd

pytestmark = pytest.mark.e2e

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ..layers import test_compile as layers  # noqa: E402
from ..layers.compiling import no_gradients  # noqa: E402, F401
from ..layers.models import relative_error  # noqa: E402
from .graphs import check_graph  # noqa: E402


@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row", None])
@pytest.mark.parametrize("kind", layers.MODELS)
def test_by_the_host(session, kind, quantize):
    model = layers.MODELS[kind]().eval()
    x = torch.randn(2, 5, layers.WIDTH)
    with gemmd.compile(model, session, quantize=quantize, min_elements=0) as fast:
        assert relative_error(fast(x), model(x)) < (layers.FP8 if quantize else 1e-4)
        assert (len(fast), fast.left) == (3, []), fast


def test_two_workers_have_one_copy(client, address):
    name = f"compiled/{time.time_ns()}"
    model = layers.MODELS["llama"]().eval()
    x = torch.randn(2, 5, layers.WIDTH)
    with (
        client.session() as session,
        gemmd.compile(model, session, name=name, min_elements=0) as fast,
    ):
        y = fast(x)
        published = [one for one in client.published() if one.published_name.startswith(name)]
        assert len(published) == 8, published  # of each layer qkv, out, gate and up, down
        with gemmd.Client(address) as second, second.session() as session:
            torch._dynamo.reset()
            with gemmd.compile(model, session, name=name, min_elements=0) as found:
                assert torch.equal(found(x), y)
                found.unpublish()
        assert torch.equal(fast(x), y)
    assert not [one for one in client.published() if one.published_name.startswith(name)]


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("kind", ["norms first", "norms behind", "llama", "phi"])
@pytest.mark.usefixtures("shared_gpu")
def test_on_a_gpu_in_a_graph_too(session, kind, rest):
    model = layers.MODELS[kind]().eval().to("cuda", torch.bfloat16)
    x = torch.randn(2, 700, layers.WIDTH, device="cuda", dtype=torch.bfloat16)
    fast = gemmd.compile(model, session, min_elements=0, rest=rest)
    for _ in range(3):
        assert relative_error(fast(x), model(x)) < layers.FP8
    assert (len(fast), fast.left) == (3, []), fast
    with torch.inference_mode():
        assert relative_error(fast(x), model(x)) < layers.FP8
    check_graph(fast, x, model, layers.FP8)


class Cached(torch.nn.Module):
    """With a cache of one size, as transformers' static one: written to at a place that moves."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, cache, place):
        cache.index_copy_(1, place, x)
        place.add_(1)
        return self.inner(x + cache.mean(1, keepdim=True))


@pytest.mark.usefixtures("shared_gpu")
def test_graphs_that_torch_captures(session):
    """For each shape one, of all calls of the forward: blocks are among what it captures."""
    model = layers.MODELS["llama"]().eval().to("cuda", torch.bfloat16)
    options = {"min_elements": 0, "rest": "inductor", "mode": "reduce-overhead"}
    fast = gemmd.compile(model, session, **options)
    random = torch.Generator("cuda").manual_seed(1)
    for rows in (1, 700, 1, 700, 700, 1, 1):
        x = torch.randn(
            2, rows, layers.WIDTH, device="cuda", dtype=torch.bfloat16, generator=random
        )
        assert relative_error(fast(x), model(x)) < layers.FP8
    assert (len(fast), fast.left) == (3, []), fast
    fast.close()


@pytest.mark.usefixtures("shared_gpu")
def test_graphs_of_a_call_that_writes_to_a_cache(session):
    model = Cached(layers.MODELS["llama"]()).eval().to("cuda", torch.bfloat16)
    shape = (2, 64, layers.WIDTH)
    caches = [torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    places = [torch.zeros(1, device="cuda", dtype=torch.int64) for _ in range(2)]
    for one in (*caches, *places):
        torch._dynamo.mark_static_address(one)
    torch._dynamo.utils.counters.clear()
    options = {"min_elements": 0, "rest": "inductor", "mode": "reduce-overhead"}
    with gemmd.compile(model, session, **options) as fast:
        for seed in range(8):
            torch.manual_seed(seed)
            x = torch.randn(2, 1, layers.WIDTH, device="cuda", dtype=torch.bfloat16)
            got = fast(x, caches[0], places[0]).clone()
            assert relative_error(got, model(x, caches[1], places[1])) < layers.FP8
            assert torch.equal(*caches) and torch.equal(*places)
    assert not torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]


class Attends(nn.Module):
    """Of rows of any number; on Hopper torch takes cuDNN's attention, which plans for each."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(256, 768), nn.Linear(256, 256)

    def forward(self, x):
        q, k, v = (
            one.view(*x.shape[:2], 4, 64).transpose(1, 2) for one in self.qkv(x).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


@pytest.mark.usefixtures("shared_gpu")
def test_attentions_of_lengths_that_come_once_are_not_planned(session):
    model = Attends().eval().to("cuda", torch.bfloat16)

    def plans(called, length):
        x = torch.randn(1, length, 256, device="cuda", dtype=torch.bfloat16)
        kind = torch.profiler.ProfilerActivity.CPU
        with torch.profiler.profile(activities=[kind]) as seen:
            y = called(x)
        assert relative_error(y, model(x)) < layers.FP8
        return any("cudnn_attention" in one.name for one in seen.events())

    if not plans(model, 99):
        pytest.skip("torch takes another attention here")
    with gemmd.compile(model, session, min_elements=0, dynamic=True) as fast:
        fast(torch.randn(1, 98, 256, device="cuda", dtype=torch.bfloat16))  # torch traces it
        assert not any(plans(fast, length) for length in range(100, 110))
        assert [plans(fast, 120) for _ in range(4)] == [False, False, True, True]


class Shares(nn.Module):
    """Four heads share a key and a value, which are repeated as transformers does; all rows attend, or
    the last one, to those in front, or to those that a mask has.
    """

    def __init__(self, last):
        super().__init__()
        self.qkv, self.out, self.last = nn.Linear(256, 384), nn.Linear(256, 256), last

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (
            one.view(b, n, -1, 64).transpose(1, 2) for one in self.qkv(x).split([256, 64, 64], -1)
        )
        rows = torch.arange(n, device=x.device)
        mask = (rows <= rows[:, None]).expand(b, 1, n, n)
        if self.last:
            q, mask = q[:, :, -1:], (x[:, None, None, :, 0] > -1.5).expand(b, 1, 1, n)
        k, v = (one[:, :, None].expand(b, 1, 4, n, 64).reshape(b, 4, n, 64) for one in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, -1, 256))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.usefixtures("shared_gpu")
def test_shared_heads_on_a_gpu(session, last, dynamic):
    model = Shares(last).eval().to("cuda", torch.bfloat16)
    with gemmd.compile(model, session, quantize=None, min_elements=0, dynamic=dynamic) as fast:
        for rows in (40, 41, 300):
            x = torch.randn(3, rows, 256, device="cuda", dtype=torch.bfloat16)
            assert relative_error(fast(x), model(x)) < 0.02
