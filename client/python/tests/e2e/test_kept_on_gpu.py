"""What layers keep on a GPU between calls, and what is left of it. Skips without torch or a GPU."""

import gc

import pytest

import gemmd

from .test_cuda import numbers, torch

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("shared_gpu")]

MIB = 1 << 20


@pytest.fixture
def w():
    return numbers((4096, 512), "bfloat16", 1)


@pytest.fixture
def layer(session, w):
    layer = gemmd.Linear(session, w, quantize=None)
    x = numbers((4, 512), "bfloat16", 2)
    assert is_near(layer(x), x, w)  # and torch has its own memory for products
    return layer


def is_near(y, x, w):
    exact = x.double() @ w.double().T
    return float((y.double() - exact).norm() / exact.norm()) < 0.012


def allocated():
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def test_results_of_many_row_counts_are_few(layer, w):
    before, most = allocated(), 0
    for m in range(1, 500, 5):
        x = numbers((m, 512), "bfloat16", m)
        held = [layer(x) for _ in range(3)]
        assert all(torch.equal(y, held[0]) for y in held)
        assert is_near(held[2], x, w)
        del held, x
        most = max(most, allocated() - before)
    assert most < 20 * MIB
    layer.close()
    assert allocated() - before < 2 * MIB


def test_a_result_that_made_room_stays_its_holders(layer, w):
    x, others = (numbers((m, 512), "bfloat16", m) for m in (256, 300))
    kept = layer(x)
    for m in range(300, 290, -1):  # 2 MiB each
        for _ in range(300):  # so long unused, the others make room
            layer(others[:m])
    assert is_near(kept, x, w)
    assert is_near(layer(x), x, w)
    assert is_near(layer(others), others, w)


def test_a_layer_of_a_session_that_has_ended_raises_at_once(client, w):
    with client.session() as session:
        layer = gemmd.Linear(session, w, quantize=None)
        x = numbers((4, 512), "bfloat16", 2)
        for _ in range(3):
            last = layer(x)
        assert is_near(last, x, w)
        del last
    with pytest.raises(gemmd.Unavailable, match="session has ended"):
        layer(x)


def test_sessions_that_end_leave_nothing(client):
    def turn(closes):
        with client.session() as session:
            layers = [gemmd.Linear(session, numbers((512, 512), "bfloat16", i)) for i in range(4)]
            x = numbers((8, 512), "bfloat16", 9)
            for layer in layers * 3:
                x = layer(x)
            if closes:
                for layer in layers:
                    layer.close()

    turn(False)
    before, used = allocated(), [one.used_bytes for one in client.devices()]
    for i in range(6):
        turn(i % 2 == 0)
    assert allocated() <= before
    assert [one.used_bytes for one in client.devices()] == used


def test_graphs_of_the_compiler_hold_nothing_that_layers_keep(session, w):
    torch._dynamo.reset()
    linear = gemmd.Linear(session, w, quantize=None)
    halves, down = numbers((1024, 512), "bfloat16", 3), numbers((512, 512), "bfloat16", 4)
    mlp = gemmd.MLP(session, halves / 22, down / 22)
    # The trees of graphs of mode="reduce-overhead", which look at all that their pool holds.
    compiled = torch.compile(lambda x: (linear(x), mlp(x)), backend="cudagraphs", fullgraph=True)
    with torch.no_grad():
        for turn in range(6):  # a warm-up, a capture, replays
            x = numbers((16, 512), "bfloat16", 10 + turn)
            y, z = compiled(x)
            assert is_near(y, x, w)
            assert torch.equal(y, linear(x)) and torch.equal(z, mlp(x))
            del y, z
