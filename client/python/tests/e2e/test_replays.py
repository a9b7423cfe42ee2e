"""compile on a real daemon and GPU: what lies between attentions over a cache that grows, replayed.
Skips without torch.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

import gemmd

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("shared_gpu")]

torch = pytest.importorskip("torch")

from gemmd._layers.graph import compiling, replays  # noqa: E402

from ..layers import test_compile as layers  # noqa: E402
from ..layers.compiling import no_gradients  # noqa: E402, F401
from ..layers.models import relative_error  # noqa: E402
from ..layers.test_replays import Encoder, Model, empty  # noqa: E402


class Inverted(Model):
    """With an operation that waits for the GPU, which no graph can have."""

    def forward(self, x, caches):
        y = torch.linalg.inv(torch.eye(4, device=x.device) + x[0, :, :4].float().abs().T * 1e-3)
        return super().forward(x + y.sum().to(x.dtype) * 1e-3, caches)


@pytest.fixture
def pair(session, monkeypatch, request):
    """A model, the same by blocks, and what became of its graphs."""
    made, make = [], compiling.replayed

    def spy(*given):
        made.append(make(*given))
        return made[-1]

    monkeypatch.setattr(compiling, "replayed", spy)
    model = getattr(request, "param", Model)().eval().to("cuda", torch.bfloat16)
    fast = gemmd.compile(model, session, min_elements=0)
    yield model, fast, made
    fast.close()


def on_gpu(caches):
    return [tuple(one.to("cuda", torch.bfloat16) for one in pair) for pair in caches]


def decode(pair, batch, steps, caches=None):
    """Calls, each with what the one before has left: the last cache."""
    model, fast, _ = pair
    caches = on_gpu(empty(batch)) if caches is None else caches
    kept = []
    for _ in range(steps):
        x = torch.randn(batch, 1, 32, device="cuda", dtype=torch.bfloat16)
        y, _, _ = model(x, caches)
        got, _, caches = fast(x, caches)
        kept.append((got, y))
    for got, y in kept:
        assert relative_error(got, y) < layers.FP8
    return caches


def captured(pair):
    return [one for one in pair[2] if isinstance(one, replays.Replays) and one._captured]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_each_call_has_its_own_rows(pair, mode):
    with mode():
        caches = decode(pair, 1, replays.OFTEN + 20)
        [one] = captured(pair)
        assert not one.why_not and [len(got.pieces) for got in one._captured.values()] == [4]
        decode(pair, 1, 10, caches)
        for batch in (3, 2):
            decode(pair, batch, replays.OFTEN + 10)
        assert sum(len(one._captured) for one in captured(pair)) == 3
    with torch.no_grad():
        decode(pair, 1, 10)


@pytest.mark.parametrize("pair", [Encoder], indirect=True)
def test_an_encoder_is_one_graph(pair):
    model, fast, _ = pair
    for tokens in [5] * (replays.OFTEN + 4) + [6, 7] * (replays.OFTEN + 4):
        x = torch.randn(2, tokens, 32, device="cuda", dtype=torch.bfloat16)
        assert relative_error(fast(x), model(x)) < layers.FP8
    kept = [one for got in captured(pair) for one in got._captured.values()]
    assert len(kept) == 3 and all(len(one.pieces) == 1 for one in kept)


def test_threads_and_streams(pair):
    decode(pair, 1, replays.OFTEN + 5)
    assert captured(pair)

    def run():
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            decode(pair, 1, 30)

    with ThreadPoolExecutor(3) as threads:
        others = [threads.submit(run) for _ in range(3)]
        decode(pair, 1, 30)
    for one in others:
        one.result()
    torch.cuda.synchronize()


def test_none_beside_a_graph_of_the_callers(pair):
    _, fast, _ = pair
    caches = decode(pair, 1, replays.OFTEN + 5)
    assert captured(pair)
    x = torch.randn(1, 1, 32, device="cuda", dtype=torch.bfloat16)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y, _, _ = fast(x, caches)
    want, _, _ = pair[0](x, caches)
    graph.replay()
    assert relative_error(y, want) < layers.FP8
    decode(pair, 1, replays.OFTEN + 5)
    assert not captured(pair)


def test_a_parameter_that_has_moved_is_captured_anew(pair):
    caches = decode(pair, 1, replays.OFTEN + 5)
    pair[0].turn.data = pair[0].turn * 1.5
    decode(pair, 1, 5, caches)
    assert [one.why_not for one in captured(pair)] == [""]


@pytest.mark.parametrize("pair", [Inverted], indirect=True)
def test_what_cannot_be_captured_runs_as_it_did(pair):
    decode(pair, 1, replays.OFTEN + 5)
    [one] = [one for one in pair[2] if isinstance(one, replays.Replays) and one.why_not]
    assert "captur" in one.why_not and not captured(pair)
    graph, x = torch.cuda.CUDAGraph(), torch.randn(4, device="cuda")  # as torch would anyway
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = x + torch.rand_like(x)
    graph.replay()
    assert bool((y >= x).all())


def test_a_closed_model_cannot_be_called(pair):
    _, fast, _ = pair
    caches = decode(pair, 1, replays.OFTEN + 5)
    [one] = captured(pair)
    fast.close()
    assert not one._captured
    with pytest.raises(gemmd.FailedPrecondition, match="closed"):
        fast(torch.randn(1, 1, 32, device="cuda", dtype=torch.bfloat16), caches)
    torch.randn(3, device="cuda")


def test_a_session_that_has_ended_is_told(client, monkeypatch):
    monkeypatch.setattr(replays, "OFTEN", 2)
    model = Model().eval().to("cuda", torch.bfloat16)
    x = torch.randn(1, 1, 32, device="cuda", dtype=torch.bfloat16)
    caches = on_gpu(empty(1))
    with client.session() as session:
        fast = gemmd.compile(model, session, min_elements=0)
        for _ in range(8):
            _, _, caches = fast(x, caches)
    with pytest.raises(gemmd.Error):
        fast(x, caches)
