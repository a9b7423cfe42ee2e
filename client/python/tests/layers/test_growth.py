"""Caches that grow in graphs of compile: where they lie, and that each is as torch's own would be.
Skips without torch."""

import copy
import threading

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gemmd._layers.graph.growth import grown  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402
from .test_compile import EXACT  # noqa: E402

WIDTH, HEADS = 64, 4
ROOM = 64  # rows that a new one has at least


def memory_of(x):
    return x.untyped_storage().data_ptr()


def some(rows, batch=3):
    return torch.randn(batch, HEADS, rows, 8)


def begun(rows=5, batch=3):
    return grown(torch.tensor([]), some(rows, batch), 2)


def test_rows_are_written_behind_those_before():
    keys = wanted = begun()
    first = memory_of(keys)
    for rows in (1, 1, 7, ROOM - 9):
        more = some(rows)
        wanted = torch.cat((wanted, more), 2)
        keys = grown(keys, more, 2)
        assert torch.equal(keys, wanted)
        assert memory_of(keys) == first
    keys = grown(keys, more, 2)
    assert torch.equal(keys, torch.cat((wanted, more), 2))
    assert memory_of(keys) != first, "there was no room"


def test_no_stride_depends_on_how_far_it_has_grown():
    keys, strides = begun(), set()
    for rows in (1, 1, 2 * ROOM, 1, 500):
        keys = grown(keys, some(rows), 2)
        strides.add(keys.stride())
    assert len(strides) == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis_but_the_last(axis):
    x, more = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    keys = grown(torch.tensor([]), x, axis)
    after = grown(keys, more, axis)
    assert torch.equal(after, torch.cat((x, more), axis))
    assert memory_of(after) == memory_of(keys)


def test_two_that_continue_the_same_one_do_not_write_to_each_other():
    prompt = begun()
    kept, one, two = prompt.clone(), some(1), some(2)
    first, second = grown(prompt, one, 2), grown(prompt, two, 2)
    assert torch.equal(first, torch.cat((kept, one), 2))
    assert torch.equal(second, torch.cat((kept, two), 2))
    assert torch.equal(prompt, kept)


def test_what_is_cut_off_is_not_written_to():
    keys = grown(begun(), some(3), 2)
    kept, more = keys.clone(), some(1)
    after = grown(keys[:, :, :6], more, 2)  # as where guessed tokens were wrong
    assert torch.equal(after, torch.cat((kept[:, :, :6], more), 2))
    assert torch.equal(keys, kept)


def test_a_window_moves_in_its_memory():
    keys = begun(8)
    wanted, first = keys.clone(), memory_of(keys)
    for _ in range(ROOM):
        more = some(1)
        keys, wanted = grown(keys, more, 2)[:, :, 1:], torch.cat((wanted, more), 2)[:, :, 1:]
        assert torch.equal(keys, wanted)
        assert memory_of(keys) == first
    assert memory_of(grown(keys, more, 2)) != first


def test_a_copy_grows_by_itself():
    prompt = begun()
    kept = prompt.clone()
    copied = copy.deepcopy(prompt)  # as a prompt that many begin with
    after = grown(copied, some(1), 2)
    again = grown(after, some(1), 2)
    assert memory_of(again) == memory_of(after)
    grown(prompt, some(1), 2)
    assert torch.equal(after[:, :, :5], kept)


@pytest.mark.parametrize(
    "before",
    [some(5), torch.randn(3, 5, HEADS, 16).transpose(1, 2)[..., :8]],
    ids=["torch's", "columns of another"],
)
def test_what_lies_otherwise_is_joined_by_torch(before):
    more = some(1)
    after = grown(before, more, 2)
    assert torch.equal(after, torch.cat((before, more), 2))
    assert after.is_contiguous()


def test_gradients_pass():
    x = some(2).requires_grad_()
    with torch.enable_grad():
        grown(torch.tensor([]), x, 2).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_what_inference_mode_made_grows_outside_of_it():
    with torch.inference_mode():
        keys = begun()
    more = some(1)
    assert torch.equal(grown(keys, more, 2), torch.cat((keys, more), 2))
    with torch.inference_mode():
        assert memory_of(grown(keys, more, 2)) == memory_of(keys)


def test_one_of_many_threads_has_the_room():
    prompt, results = begun(), []
    more = [some(1) for _ in range(8)]
    together = threading.Barrier(len(more))

    def run(one):
        together.wait()
        with torch.no_grad():
            results.append((one, grown(prompt, one, 2)))

    threads = [threading.Thread(target=run, args=(one,)) for one in more]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(results) == len(more)
    assert all(torch.equal(after, torch.cat((prompt, one), 2)) for one, after in results)
    assert sum(memory_of(after) == memory_of(prompt) for _, after in results) == 1


class Caching(nn.Module):
    """Gives out keys and values of all tokens so far, as transformers' caches have them."""

    def __init__(self, window=None, ask=lambda keys: keys):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.window, self.ask = window, ask

    def forward(self, x, cached=None):
        q, k, v = (
            one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1)
        )
        keys, values = cached or (torch.tensor([], dtype=x.dtype),) * 2
        keys = torch.cat([keys, k], dim=-2)
        values = torch.cat([values, v], dim=-2)
        last = slice(None) if self.window is None else slice(-self.window, None)
        y = self.attend(q, self.ask(keys), values, cached is None)
        y = x + self.out(y.transpose(1, 2).flatten(-2))
        return y, (keys[:, :, last], values[:, :, last])

    def attend(self, q, keys, values, causal):
        return F.scaled_dot_product_attention(q, keys, values, is_causal=causal)


def decoded(model, x, prompt=5):
    """Of each token, and where the keys lay behind each call."""
    y, cached = model(x[:, :prompt])
    ys, places = [y], [memory_of(cached[0])]
    for at in range(prompt, x.shape[1]):
        y, cached = model(x[:, at : at + 1], cached)
        ys.append(y)
        places.append(memory_of(cached[0]))
    return torch.cat(ys, 1), places


class Biased(Caching):
    """Spelt out, with a bias of each key, as where places are told by one."""

    def attend(self, q, keys, values, causal):
        bias = (
            torch.arange(keys.shape[2])[None, None, None] * torch.ones(HEADS)[None, :, None, None]
        )
        shares = torch.baddbmm(
            bias.expand(len(q), -1, q.shape[2], -1).flatten(0, 1),
            q.flatten(0, 1),
            keys.flatten(0, 1).transpose(1, 2),
        )
        return (shares.softmax(-1) @ values.flatten(0, 1)).unflatten(0, (len(q), HEADS))


@pytest.mark.parametrize("kind", [Caching, Biased])
@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("batch", [1, 2])
def test_decoding_is_as_torchs(session, batch, window, kind):
    model = kind(window).eval()
    x = torch.randn(batch, 2 * ROOM, WIDTH)
    wanted, _ = decoded(model, x)
    with gemmd.compile(model, session, **EXACT) as fast:
        got, places = decoded(fast, x)
        assert relative_error(got, wanted) < 1e-5
        assert len(set(places)) <= 4, "with each token the cache was copied"
        assert fast._compiling.graphs <= 3


@pytest.mark.parametrize("padded", [False, True])
def test_one_with_a_mask_grows(session, padded):
    """As transformers makes masks while it is traced."""

    class Masked(Caching):
        def forward(self, x, cached=None, mask=None):
            first = 0 if cached is None else cached[0].shape[2]
            last = torch.arange(x.shape[1])[None, None, :, None] + first
            may = torch.arange(first + x.shape[1])[None, None, None, :] <= last
            self.mask = may if mask is None else may & mask[:, None, None, :].bool()
            return super().forward(x, cached)

        def attend(self, q, keys, values, causal):
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask)

    model = Masked().eval()
    x = torch.randn(2, 14, WIDTH)
    mask = torch.ones(2, 14, dtype=torch.int64)
    mask[0, :2] = 0

    def run(model):
        calls = [(x[:, :5], None), *((x[:, at : at + 1], at) for at in range(5, 14))]
        cached, places = None, []
        for part, at in calls:
            known = mask[:, : 5 if at is None else at + 1] if padded else None
            y, cached = model(part, cached, known)
            places.append(memory_of(cached[0]))
            yield y[1:], places[-1]  # the first row of a padded prompt looks at nothing

    wanted = list(run(model))
    with gemmd.compile(model, session, **EXACT) as fast:
        got = list(run(fast))
    for (one, _), (other, _) in zip(got, wanted, strict=True):
        assert relative_error(one, other) < 1e-5
    assert len({place for _, place in got}) == 1
    assert fast._compiling.graphs <= 4


def test_a_view_that_asks_how_keys_lie_is_given_torchs(session):
    dense = Caching(ask=lambda keys: keys.transpose(1, 2).contiguous().transpose(1, 2)).eval()
    viewed = Caching(ask=lambda keys: keys.view(len(keys), -1, 16).view(keys.shape)).eval()
    doubled = Caching(ask=lambda keys: (keys * 2).view(len(keys), -1, 16).view(keys.shape)).eval()
    x = torch.randn(2, 11, WIDTH)
    for one, in_place in ((dense, True), (viewed, False), (doubled, False)):
        wanted, _ = decoded(one, x)
        with gemmd.compile(one, session, **EXACT) as fast:
            got, places = decoded(fast, x)
            assert relative_error(got, wanted) < 1e-5
            assert (len(set(places)) == 1) == in_place


def test_one_that_a_graph_writes_to_stays_torchs(session):
    class Writing(Caching):
        def forward(self, x, cached=None):
            y, (keys, values) = super().forward(x, cached)
            keys[:, :, 0] = 0
            return y, (keys, values)

    model = Writing().eval()
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        _, cached = fast(x)
        kept = cached[0].clone()
        _, after = fast(x[:, :1], cached)
        assert torch.equal(cached[0], kept)
        assert relative_error(after[0][:, :, :5], kept) == 0


def test_one_beside_what_a_graph_writes_to_grows(session):
    class Counting(Caching):
        """Writes to another tensor, as to the state of a convolution."""

        def forward(self, x, cached=None, state=None):
            state[:, 0] += 1
            return super().forward(x + state, cached)

    model = Counting().eval()
    x = torch.randn(2, 12, WIDTH)

    def run(model):
        state = torch.zeros(2, 1, WIDTH)
        return decoded(lambda *given: model(*given, state=state), x)

    wanted, _ = run(model)
    with gemmd.compile(model, session, **EXACT) as fast:
        got, places = run(fast)
        assert relative_error(got, wanted) < 1e-5
        assert len(set(places)) == 1
