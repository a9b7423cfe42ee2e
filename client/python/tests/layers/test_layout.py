"""compile: what depends on how a Linear's result lies in memory, where a block's lies otherwise. Skips
without torch.
"""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gemmd._layers.graph import compiling  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402
from .test_compile import EXACT  # noqa: E402

WIDTH, ROWS = 32, 8


def windows(x):
    """Of four rows, half of which the next one has, too: as Longformer has them."""
    batch, rows, columns = x.shape
    return x.as_strided(
        (batch, rows // 2 - 1, 4, columns), (rows * columns, 2 * columns, columns, 1)
    )


READERS = {
    "as_strided": lambda x: windows(x).sum(2),
    "of a view": lambda x: windows(
        x.view(len(x), -1, 4, 8).transpose(1, 2).transpose(1, 2).flatten(2)
    ),
    "one row": lambda x: x.view(-1)[: ROWS * WIDTH].view(ROWS, WIDTH),
    "columns with rows": lambda x: x.view(len(x), -1, 4).sum(1),
    "written to": lambda x: windows(x.mul_(2)).sum(2),
}


class Three(nn.Module):
    """Products of one input, which a block has side by side."""

    def __init__(self, read, turned=False):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.read, self.turned = read, turned

    def forward(self, x):
        x = x.transpose(0, 1) if self.turned else x
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.read(q) + self.read(k).tanh(), v.view(len(v), -1, 4, 8).transpose(1, 2)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("read", READERS)
def test_results_are_read_as_they_would_lie(session, read, dynamic, turned):
    model = Three(READERS[read], turned).eval()
    with gemmd.compile(model, session, dynamic=dynamic, **EXACT) as fast:
        for batch in (ROWS, ROWS + 4) if dynamic else (ROWS,):
            x = torch.randn(batch, ROWS, WIDTH)
            for got, wanted in zip(fast(x), model(x), strict=True):
                assert relative_error(got, wanted) < 1e-5
        assert len(fast) == 1


@pytest.fixture
def copies(monkeypatch):
    """How many results a graph copies."""
    seen, lie = [], compiling.lie_as_traced

    def spy(node, really):
        before = len(node.graph.find_nodes(op="call_method", target="contiguous"))
        lie(node, really)
        seen.append(len(node.graph.find_nodes(op="call_method", target="contiguous")) - before)

    monkeypatch.setattr(compiling, "lie_as_traced", spy)
    return seen


class Attention(Three):
    """Whose heads may lie anyhow."""

    def forward(self, x):
        q, k, v = (
            one(x).view(len(x), -1, 4, 8).transpose(1, 2) for one in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(self.read(q), k, v).transpose(1, 2)
        return x + y.flatten(-2)


def test_what_may_lie_anyhow_is_not_copied(session, copies):
    model = Attention(lambda q: q * 2).eval()
    x = torch.randn(2, ROWS, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5
    assert copies == [0, 0, 0]


def test_a_caller_is_given_results_as_they_would_lie(session, copies):
    """And no memory of others'."""
    model = Three(lambda x: x).eval()
    x = torch.randn(2, ROWS, WIDTH)
    with gemmd.compile(model, session, **EXACT) as fast:
        _, values = fast(x)
        assert values.transpose(1, 2).is_contiguous()
        assert values.untyped_storage().nbytes() == values.nbytes
    assert sorted(copies) == [0, 0, 1]
