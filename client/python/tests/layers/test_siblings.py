"""Siblings: an attention's query, key and value as one layer, against the fake. Skips without torch."""

import copy
import threading
import warnings

import pytest

import gemmd
from gemmd._wire import methods

from ..conftest import QUICK

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from .models import relative_error  # noqa: E402

EXACT = {"quantize": None, "min_elements": 0}


class Attention(nn.Module):
    """Of four heads of query and two of keys and values; keys have no bias, as Whisper's."""

    def __init__(self, names=("q_proj", "k_proj", "v_proj"), k=40):
        super().__init__()
        self.names = names
        for name, (n, bias) in zip(names, ((32, True), (16, False), (16, True)), strict=True):
            self.add_module(name, nn.Linear(k, n, bias=bias))
        self.out = nn.Linear(32, k)

    def heads(self, x, other=None):
        other = x if other is None else other
        q, k, v = (getattr(self, name)(at) for name, at in zip(self.names, (x, other, other), strict=True))
        return [one.view(*x.shape[:-1], -1, 8).transpose(-3, -2) for one in (q, k, v)]

    def forward(self, x, other=None):
        q, k, v = self.heads(x, other)
        y = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return x + self.out(y.transpose(-3, -2).reshape(*x.shape[:-1], 32))


class Model(nn.Module):
    def __init__(self, **named):
        super().__init__()
        for name, one in (named or {"attention": Attention()}).items():
            self.add_module(name, one)

    def forward(self, x):
        for one in self.children():
            x = one(x)
        return x


@pytest.fixture(autouse=True)
def no_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def rows(*shape):
    return torch.randn(*shape, 40)


@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row", None])
@pytest.mark.parametrize("names", [("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q", "k", "v")])
def test_three_are_one_layer_and_one_call(session, server, quantize, names):
    model, x = Model(attention=Attention(names)).eval(), rows(2, 6)
    wanted = model(x)
    with gemmd.adopt(model, session, quantize=quantize, min_elements=0) as adopted:
        assert list(adopted.layers) == ["attention." + names[0], "attention.out"] and not adopted.left
        assert str(adopted) == "adopted 2 layers (2 Linear), none left"
        plans = server.count(methods.CREATE_PLAN)
        assert relative_error(model(x), wanted) < (0.1 if quantize else 1e-5)
        assert server.count(methods.CREATE_PLAN) == plans + 2
        found = [getattr(model.attention, name) for name in names]
        assert [one.out_features for one in found] == [32, 16, 16]
        assert "columns 32 to 48 of Linear(40 -> 64" in repr(found[1])
        x = rows(2, 6)
        for _ in range(3):
            assert relative_error(model(x), copy.deepcopy(model)(x)) == 0


def test_each_has_what_its_own_x_gives(session):
    model = Model().eval()
    own = copy.deepcopy(model)
    gemmd.adopt(model, session, **EXACT)
    x, other = rows(5), rows(5)
    for call in (lambda m: m.q_proj(x), lambda m: m.k_proj(other), lambda m: m.v_proj(x),
                 lambda m: m.k_proj(x), lambda m: m.k_proj(x), lambda m: m(x[None], other[None])):  # fmt: skip
        assert relative_error(call(model.attention), call(own.attention)) < 1e-5
    q = model.attention.q_proj(x)
    x.mul_(2)  # torch counts that
    q.zero_()
    assert relative_error(model.attention.k_proj(x), own.attention.k_proj(x)) < 1e-5
    assert relative_error(model.attention.q_proj(x), own.attention.q_proj(x)) < 1e-5
    with torch.inference_mode():
        x = rows(3)
        assert relative_error(model.attention(x[None]), own.attention(x[None])) < 1e-5


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_each_result_lies_as_a_linears(session, rows, compiled):
    class Viewing(Attention):
        """Each head is a row."""

        def heads(self, x, other=None):
            q, k, v = (getattr(self, name)(x) for name in self.names)
            q, k = (nn.functional.normalize(one.view(-1, 8), dim=-1).view(one.shape) for one in (q, k))
            return [one.view(*x.shape[:-1], -1, 8).transpose(-3, -2) for one in (q, k, v)]

    model = Model(attention=Viewing()).eval()
    x = torch.randn(2 if rows > 1 else 1, rows, 40)
    wanted = model(x)
    with gemmd.adopt(model, session, **EXACT):
        run = torch.compile(model, fullgraph=True, backend="eager") if compiled else model
        assert relative_error(run(x), wanted) < 1e-5
        assert all(getattr(model.attention, name)(x).is_contiguous() for name in model.attention.names)


def test_a_result_is_kept_no_longer_than_it_is_needed(session):
    model = Model().eval()
    gemmd.adopt(model, session, **EXACT)
    attention, x = model.attention, rows(4)
    attention.heads(x)
    assert attention.q_proj.siblings._of_thread.last is None


def test_threads_do_not_share_results(session):
    model = Model().eval()
    own = copy.deepcopy(model)
    gemmd.adopt(model, session, **EXACT)
    wrong = []

    def work(seed):
        with torch.no_grad():
            for turn in range(20):
                x = torch.randn(1, 3, 40, generator=torch.Generator().manual_seed(100 * seed + turn))
                if relative_error(model(x), own(x)) > 1e-5:
                    wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert not wrong


class CrossAttention(Attention):
    pass


def test_those_of_other_kinds_stay_apart(session):
    uneven = Attention()
    uneven.k_proj = nn.Linear(24, 16)
    model = Model(
        encoder_attn=Attention(), second=CrossAttention(), third=uneven, fourth=Attention(), fifth=Attention()
    ).eval()
    model.fourth.q_proj.register_forward_hook(lambda *_: None)
    adopted = gemmd.adopt(model, session, where=lambda path, _: path != "fifth.v_proj", **EXACT)
    assert not any(hasattr(one, "siblings") for one in model.modules())
    assert sorted(adopted.left) == ["fifth.v_proj", "fourth.q_proj"]
    assert len(adopted) == 4 * 5 - 2


def test_their_weights_count_together(session):
    model = Model().eval()
    adopted = gemmd.adopt(model, session, quantize=None, min_elements=64 * 40)
    assert list(adopted.layers) == ["attention.q_proj"] and list(adopted.left) == ["attention.out"]


def test_another_worker_finds_them_without_weights(session, server):
    model, x = Model().eval(), rows(1, 4)
    with torch.device("meta"):
        empty = Model().eval()
    gemmd.adopt(model, session, name="m", **EXACT)
    with gemmd.Client(server.target, retry=QUICK) as client, client.session() as another:
        adopted = gemmd.adopt(empty, another, name="m", **EXACT)
        assert adopted.layers["attention.q_proj"].name == "m/attention.q_proj.k_proj.v_proj"
        assert torch.equal(empty(x), model(x))


def test_who_never_shares_is_told(session):
    model = Model().eval()
    gemmd.adopt(model, session, **EXACT)
    x, other = rows(2), rows(2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(40):
            model.attention.q_proj(x), model.attention.k_proj(other)
    assert ["each is called with an x of its own" in str(one.message) for one in told] == [True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(100):
            model(x[None])


def test_torchs_compiler_makes_one_call_of_them(session, monkeypatch):
    from gemmd._layers.layer import Layer

    model, x = Model().eval(), rows(2, 6)
    gemmd.adopt(model, session, **EXACT)
    wanted, calls, run = model(x), [], Layer.run
    monkeypatch.setattr(Layer, "run", lambda self, *given, **named: calls.append(self) or run(self, *given, **named))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        calls.clear()
        assert relative_error(compiled(x), wanted) < 1e-6
    assert len(calls) == 2 and model.attention.q_proj.siblings._traced_x is None
