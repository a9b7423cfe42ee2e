"""compile: when an attention may plan for a shape. Skips without torch."""

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

from gemmd._layers.graph import attention  # noqa: E402


@pytest.fixture
def plans(monkeypatch):
    """Calls an attention with so many keys; whether it may plan."""
    monkeypatch.setattr(attention, "_owed", {})
    monkeypatch.setattr(attention, "_is_cudnns", lambda *_: True)
    switched = []
    monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", switched.append)
    one = attention.Attention()

    def call(keys, one=one, **options):
        switched.clear()
        q, k = torch.randn(2, 4, 1, 16), torch.randn(2, 4, keys, 16)
        got = one.attend(q, k, k, **options)
        assert torch.equal(got, F.scaled_dot_product_attention(q, k, k, **options))
        assert switched in ([], [False, True])
        return not switched

    return call


def test_not_for_lengths_that_come_once(plans):
    assert not any(plans(keys) for keys in range(1, 20))
    assert not any(plans(keys) for keys in range(1, 20))


def test_for_one_that_comes_again_at_once(plans):
    assert [plans(7) for _ in range(4)] == [False, False, True, True]
    assert [plans(keys) for keys in (8, 7, 8, 7)] == [False, True, False, True]
    assert plans(7, attention.Attention())  # another of the model's


def test_for_one_that_a_plan_would_have_paid_for(plans, monkeypatch):
    monkeypatch.setattr(attention, "_saving_us", lambda *_: 10e3)
    assert [plans(keys) for keys in [7, 8] * 4] == [False] * 6 + [True] * 2


def test_none_where_torch_takes_other_kernels(plans, monkeypatch):
    monkeypatch.setattr(attention, "_is_cudnns", lambda *_: False)
    assert all(plans(keys) for keys in range(1, 20))


def test_shapes_are_forgotten_before_they_are_too_many(plans, monkeypatch):
    monkeypatch.setattr(attention, "_MOST_SHAPES", 5)
    for keys in range(1, 30):
        plans(keys)
    assert len(attention._owed) <= 5


@pytest.mark.usefixtures("plans")
def test_what_was_switched_off_stays_off(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda: False)
    switched = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", switched.append)
    q = torch.randn(2, 4, 1, 16)
    attention.Attention().attend(q, q, q)
    assert switched == [False, False]


def test_what_a_plan_saves_grows_with_the_attention():
    q, k = torch.empty(1, 32, 1, 128), torch.empty(1, 32, 16000, 128)
    few = attention._saving_us(q, k, None)
    more = attention._saving_us(q.expand(8, -1, -1, -1), k, None)
    most = attention._saving_us(q.expand(-1, -1, 16000, -1), k, None)
    assert 0 < few < more < most
    assert attention._saving_us(q, k, torch.ones(1)) > few
