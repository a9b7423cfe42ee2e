"""Heads that share keys and values in graphs of compile. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402
from .test_masks import WIDTH, causal, window  # noqa: E402


def repeated(x, times):
    """As transformers has it."""
    b, heads, rows, columns = x.shape
    wide = x[:, :, None, :, :].expand(b, heads, times, rows, columns)
    return wide.reshape(b, heads * times, rows, columns)


REPEATS = {
    "expand": repeated,
    "unsqueeze": lambda x, times: (
        x.unsqueeze(2).expand(-1, -1, times, -1, -1).reshape(len(x), -1, *x.shape[2:])
    ),
    "repeat_interleave": lambda x, times: x.repeat_interleave(times, 1),
    "torch's": lambda x, times: torch.repeat_interleave(x, times, dim=1),
}


class Sharing(nn.Module):
    """Two heads of four share their keys and values; all rows, or the last one, look at all."""

    def __init__(self, mask, repeat=repeated, one=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mask, self.repeat, self.one = mask, repeat, one

    def forward(self, x):
        q, k, v = self.qkv(x).split([WIDTH, WIDTH // 2, WIDTH // 2], -1)
        q, k, v = (one.unflatten(-1, (-1, 8)).transpose(1, 2) for one in (q, k, v))
        mask = self.mask(x.shape[1], x)
        if self.one:
            q, mask = q[:, :, -1:], None if mask is None else mask[:, :, -1:]
        k, v = (self.repeat(one, 2) for one in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x[:, -y.shape[2] :] + self.out(y.transpose(1, 2).flatten(-2))


def of_rows(tokens, x):
    """As of a batch whose prompts differ in length."""
    return (x[:, None, None, :, 0] > -1).expand(-1, 1, tokens, -1)


@pytest.fixture
def repeats(monkeypatch):
    """How many keys and values the graphs repeat."""
    from gemmd._layers.graph import compiling

    seen, call = [], compiling.call_directly

    def spy(graph):
        call(graph)
        wide = (node.target in ("expand", "repeat_interleave") for node in graph.nodes)
        seen.append(
            sum(wide) + len(graph.find_nodes(op="call_function", target=torch.repeat_interleave))
        )

    monkeypatch.setattr(compiling, "call_directly", spy)
    return seen


def check_sharing(session, model, dynamic=False):
    model = model.eval().bfloat16()
    with gemmd.compile(model, session, quantize=None, min_elements=0, dynamic=dynamic) as fast:
        for tokens in (9, 11, 9) if dynamic else (9,):
            x = torch.randn(2, tokens, WIDTH, dtype=torch.bfloat16)
            assert relative_error(fast(x), model(x)) < 0.01


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("repeat", REPEATS)
def test_heads_that_share_keys_are_said_to(session, repeats, repeat, dynamic):
    check_sharing(session, Sharing(causal, REPEATS[repeat]), dynamic)
    assert set(repeats) == {0}


@pytest.mark.parametrize("one", [False, True])
def test_extents_may_need_a_mask_of_shared_heads(session, one):
    check_sharing(session, Sharing(window, one=one), dynamic=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("repeat", REPEATS)
def test_one_query_takes_shared_heads_as_rows(session, repeats, repeat, dynamic):
    check_sharing(session, Sharing(of_rows, REPEATS[repeat], one=True), dynamic)
    assert set(repeats) == {1}  # the mask


def test_what_else_is_repeated_stays(session, repeats):
    check_sharing(session, Sharing(of_rows))
    check_sharing(session, Sharing(causal, lambda x, times: x.repeat(1, times, 1, 1)))
    assert repeats[0] > 1


QUERIES = []


@torch._dynamo.register_backend(name="queries")
def queries(graph_module, inputs):
    QUERIES.extend(
        tuple(node.args[0].meta["example_value"].shape)
        for node in graph_module.graph.nodes
        if node.target is F.scaled_dot_product_attention
    )
    return graph_module.forward


@pytest.mark.parametrize("batch", [2, 40])
def test_compiled_further_many_are_packed(session, batch):
    """Of few, cuDNN's attention has more of a GPU at work where they are not."""
    QUERIES.clear()
    model = Sharing(of_rows, one=True).eval().bfloat16()
    x = torch.randn(batch, 9, WIDTH, dtype=torch.bfloat16)
    options = {"quantize": None, "min_elements": 0, "rest": "queries"}
    with gemmd.compile(model, session, **options) as fast:
        assert relative_error(fast(x), model(x)) < 0.01
    assert QUERIES == [(2, 4, 1, 8) if batch == 2 else (40, 2, 2, 8)]
