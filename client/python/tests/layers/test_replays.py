"""compile: pieces of a graph between attentions, captured and replayed, against a fake of CUDA's graphs.
Skips without torch.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gemmd._layers import graphs as of_layers  # noqa: E402
from gemmd._layers.graph import compiling, replays, turn  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402

WIDTH, HEADS, LAYERS = 32, 2, 3
HEAD = WIDTH // HEADS


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, turn, cache):
        batch, tokens, _ = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (one.view(batch, tokens, HEADS, HEAD).transpose(1, 2) for one in parts)
        q, k = (one * turn.cos() + one.flip(-1) * turn.sin() for one in (q, k))
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.after(x)))), (k, v)


class Model(nn.Module):
    """Whose cache grows with every call."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.register_buffer("turn", torch.rand(HEAD))

    def forward(self, x, caches):
        made = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, self.turn, cache)
            made.append(cache)
        return x, x[..., :4], made


class Written(Model):
    """Whose results are written to in place."""

    def forward(self, x, caches):
        y, part, made = super().forward(x, caches)
        y.mul_(2)
        return y, part, made


class Encoder(Model):
    """Without a cache."""

    def forward(self, x):
        nothing = x.new_zeros(len(x), HEADS, 0, HEAD)
        for layer in self.layers:
            x, _ = layer(x, self.turn, (nothing, nothing))
        return x


def empty(batch):
    return [tuple(torch.randn(batch, HEADS, 3, HEAD) for _ in "kv") for _ in range(LAYERS)]


class Recording:
    """CUDA's graphs: a replay makes the same of what lies in the same places, in the same places."""

    captured = 0
    failing = False

    def recorded(self, run):
        if self.failing:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.captured += 1
        results = [one.clone() for one in run()]

        def replay():
            for to, made in zip(results, run(), strict=True):
                to.copy_(made)

        for one in results:
            one.fill_(float("nan"))  # as a capture leaves them
        return replay, tuple(results)


@pytest.fixture
def graphs(monkeypatch):
    recording = Recording()
    recording.made = []
    monkeypatch.setattr(replays, "DEVICE", "cpu")
    monkeypatch.setattr(replays, "stream_now", lambda: recording.stream)
    monkeypatch.setattr(turn.Turn, "recorded", lambda _, run: recording.recorded(run))
    monkeypatch.setattr(turn.Turn, "device", -1)  # as torch has it of a CPU
    recording.stream = (0, 0)
    make = compiling.replayed

    def spy(*given):
        recording.made.append(make(*given))
        return recording.made[-1]

    monkeypatch.setattr(compiling, "replayed", spy)
    return recording


@pytest.fixture
def pair(fake, request):
    """A model, and the same by blocks."""
    model = getattr(request, "param", Model)().eval()
    with gemmd.Client(fake.target) as client, client.session() as session:
        fast = gemmd.compile(model, session, quantize=None, min_elements=0)
        yield model, fast
        fast.close()


def decode(pair, batch, steps, caches=None):
    """So many calls, each with what the one before has left; the last caches."""
    model, fast = pair
    own = caches = caches or empty(batch)
    kept = []
    for _ in range(steps):
        x = torch.randn(batch, 1, WIDTH)
        y, part, own = model(x, own)
        got, got_part, caches = fast(x, caches)
        kept.append((y.clone(), got, part.clone(), got_part))
        for (k, v), (got_k, got_v) in zip(own, caches, strict=True):
            assert relative_error(got_k, k) < 1e-5 and relative_error(got_v, v) < 1e-5
    for y, got, part, got_part in kept:  # a later call has not written to them
        assert relative_error(got, y) < 1e-5 and relative_error(got_part, part) < 1e-5
    return caches


def replaying(graphs):
    return [one for one in graphs.made if isinstance(one, replays.Replays)]


def test_what_lies_between_attentions_is_replayed(pair, graphs):
    caches = decode(pair, 1, replays.OFTEN)
    assert graphs.captured == 0
    decode(pair, 1, 12, caches)
    [one] = [one for one in replaying(graphs) if one._captured]
    assert graphs.captured == len(one._captured[()].pieces) == LAYERS + 1
    assert not one.why_not


def test_each_number_of_rows_by_graphs_of_its_own(pair, graphs):
    for batch in (2, 3, 5):
        decode(pair, batch, 2)
    for batch in (3, 5, 3):
        decode(pair, batch, replays.OFTEN + 4)
    kept = [set(key) for one in replaying(graphs) for key in one._captured]
    assert kept == [{3}, {5}]


def test_a_parameter_that_has_moved_is_captured_anew(pair, graphs):
    decode(pair, 1, replays.OFTEN + 3)
    before = graphs.captured
    turn = pair[0].turn
    turn.data = turn * 1.5
    decode(pair, 1, 4)
    assert graphs.captured == 2 * before


def test_what_is_large_is_not_copied(pair, graphs, monkeypatch):
    monkeypatch.setattr(replays, "MOST_COPIED_BYTES", 2 * WIDTH * 4 - 1)
    decode(pair, 2, replays.OFTEN + 6)
    assert graphs.captured == 0


def test_no_more_is_held_than_may_be(pair, graphs, monkeypatch):
    for batch in (2, 3):
        decode(pair, batch, 2)
    decode(pair, 3, replays.OFTEN + 2)
    before = graphs.captured
    assert before > 0
    monkeypatch.setattr(replays, "MOST_HELD_BYTES", 0)
    decode(pair, 2, replays.OFTEN + 3)
    assert graphs.captured == before


def test_what_is_not_used_makes_room(pair, graphs, monkeypatch):
    for batch in (2, 3):
        decode(pair, batch, 2)
    [one] = {one for one in replaying(graphs) if one._numbers}
    decode(pair, 3, replays.OFTEN + 2)
    monkeypatch.setattr(replays, "MOST_KEYS", 1)
    decode(pair, 2, replays.OFTEN + 2)
    assert [set(key) for key in one._captured] == [{3}]
    monkeypatch.setattr(replays, "UNUSED", replays.OFTEN + 3)
    decode(pair, 2, 2)
    assert [set(key) for key in one._captured] == [{2}]


def test_a_call_of_many_rows_is_not_tried_again(pair, graphs, monkeypatch):
    def recorded(run):
        graphs.captured += 1
        raise of_layers.TooLargeError

    monkeypatch.setattr(graphs, "recorded", recorded)
    decode(pair, 1, replays.OFTEN + 8)
    assert graphs.captured == 1
    assert not any(one.why_not for one in replaying(graphs))


@pytest.mark.parametrize("pair", [Encoder], indirect=True)
def test_an_encoder_is_one_piece(pair, graphs):
    model, fast = pair
    for tokens in [5] * (replays.OFTEN + 4) + [6, 7] * (replays.OFTEN + 4):
        x = torch.randn(2, tokens, WIDTH)
        assert relative_error(fast(x), model(x)) < 1e-5
    kept = [one for got in replaying(graphs) for one in got._captured.values()]
    assert len(kept) == 3 and all(len(one.pieces) == 1 for one in kept)


def test_one_call_at_a_time_and_one_stream(pair, graphs):
    decode(pair, 1, replays.OFTEN + 2)
    [one] = [one for one in replaying(graphs) if one._captured]
    calls = []
    by_pieces, one._by_pieces = one._by_pieces, lambda *given: calls.append(1) or by_pieces(*given)
    decode(pair, 1, 2)
    assert len(calls) == 2
    graphs.stream = (0, 1)
    decode(pair, 1, 2)
    graphs.stream = None  # captured by the caller
    decode(pair, 1, 2)
    graphs.stream = (0, 0)
    with one._turn.lock:
        decode(pair, 1, 2)
    assert len(calls) == 2
    decode(pair, 1, 1)
    assert len(calls) == 3


def test_what_others_capture_is_not_replayed_beside_it(pair, graphs):
    decode(pair, 1, replays.OFTEN + 2)
    [one] = [one for one in replaying(graphs) if one._captured]
    next(iter(pair[1]))._local.is_in_graphs_of_others = True
    decode(pair, 1, replays.OFTEN + 2)
    assert not one._captured


def test_what_cannot_be_captured_runs_as_it_did(pair, graphs):
    graphs.failing = True
    decode(pair, 1, replays.OFTEN + 6)
    assert [one.why_not for one in replaying(graphs) if one.why_not] == [
        "RuntimeError: operation not permitted when stream is capturing"
    ]


@pytest.mark.parametrize("pair", [Written], indirect=True)
def test_a_graph_that_writes_in_place_is_left_alone(pair, graphs):
    decode(pair, 1, replays.OFTEN + 4)
    assert graphs.captured == 0 and not replaying(graphs)


def test_the_error_of_a_replay_is_the_next_calls(pair, graphs):
    decode(pair, 1, replays.OFTEN + 2)
    [one] = [one for one in replaying(graphs) if one._captured]

    class Ended:
        def check(self):
            raise gemmd.Unavailable("the server has ended")

    one._captured[()]._regions = [Ended()]
    with pytest.raises(gemmd.Unavailable, match="has ended"):
        decode(pair, 1, 1)
    decode(pair, 1, 2)  # by new graphs, or as torch makes them
    [captured] = one._captured.values()
    captured.seats.append(type("Seat", (), {"alive": False}))
    decode(pair, 1, 2)
    assert one._captured[()] is not captured


def test_threads_do_not_meet_in_a_graph(pair, graphs):
    decode(pair, 1, replays.OFTEN + 2)

    def run(_):
        with torch.no_grad():
            decode(pair, 1, 10)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run, range(3)))
