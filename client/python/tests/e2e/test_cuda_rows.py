"""Row counts that change from call to call, and memory that a model's layers have in common, on a GPU. Skips without
torch or a GPU.
"""

import random

import pytest

import gemmd

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("shared_gpu")]

try:
    import torch
except ImportError:
    torch = None

N, K = 512, 1024
MANY = 8192  # rows


def normal(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def error(y, exact):
    return float((y.double() - exact).norm() / exact.norm())


def layers_of(session, count):
    weights = [normal(N, K) for _ in range(count)]
    return weights, [gemmd.Linear(session, w, quantize=None) for w in weights]


def is_near(y, x, w):
    return error(y, x.double() @ w.double().T) < 0.01


def used_bytes(client):
    return client.devices()[0].used_bytes


def test_each_count_has_its_rows_and_the_same_bits_each_time(session):
    torch.manual_seed(0)
    (w,), (layer,) = layers_of(session, 1)
    draw = random.Random(3)
    given = {m: normal(m, K) for m in {draw.randint(1, 300) for _ in range(60)}}
    first = {m: layer(x).clone() for m, x in given.items()}
    for m, x in given.items():
        y = layer(x)
        assert y.shape == (m, N) and is_near(y, x, w)
        assert torch.equal(y, first[m])
        three = layer(x.view(1, m, K))
        assert three.shape == (1, m, N) and torch.equal(three[0], y)


def test_experts_of_rows_that_are_nobodys_are_nobodys(session):
    torch.manual_seed(1)
    experts, hidden, inner, top_k = 8, 256, 128, 2
    moe = gemmd.MoE(
        session, normal(experts, 2 * inner, hidden), normal(experts, hidden, inner), top_k=top_k
    )
    x = normal(64, hidden)
    chosen = torch.rand(64, experts, device="cuda").topk(top_k).indices
    weights = torch.rand(64, top_k, device="cuda")
    whole = moe(x, chosen, weights)
    for m in (1, 3, 5, 7, 13, 33, 61):
        some = moe(x[:m], chosen[:m], weights[:m])
        assert error(some, whole[:m].double()) < 0.02
        again = moe(x[:m], chosen[:m], weights[:m])
        assert torch.equal(some, again)


def test_layers_have_their_memory_in_common(client, session):
    torch.manual_seed(2)
    weights, layers = layers_of(session, 6)
    x = normal(MANY, K)
    before = used_bytes(client)
    assert is_near(layers[0](x), x, weights[0])
    one = used_bytes(client) - before
    for w, layer in zip(weights, layers, strict=True):
        assert is_near(layer(x), x, w)
    torch.cuda.synchronize()
    assert used_bytes(client) - before < 1.5 * one
    streams = [torch.cuda.Stream() for _ in layers]
    for _ in range(5):
        results = []
        for layer, stream in zip(layers, streams, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                results.append(layer(x))
        torch.cuda.synchronize()
        assert all(is_near(y, x, w) for y, w in zip(results, weights, strict=True))
    for layer in layers:
        layer.close()
    assert used_bytes(client) <= before


def test_a_graph_keeps_memory_of_its_own(session):
    torch.manual_seed(3)
    weights, layers = layers_of(session, 2)
    x, other = normal(MANY, K), normal(MANY, K)
    for layer in layers:
        layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = [layer(x) for layer in layers]
    side = torch.cuda.Stream()
    for _ in range(5):
        x.copy_(normal(MANY, K))
        torch.cuda.synchronize()
        with torch.cuda.stream(side):  # beside the replay
            eager = layers[0](other)
        graph.replay()
        torch.cuda.synchronize()
        assert is_near(eager, other, weights[0])
        assert all(is_near(y, x, w) for y, w in zip(captured, weights, strict=True))
