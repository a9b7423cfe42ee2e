"""Models under torch's autocast, against the fake. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gemmd._layers import siblings  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import Gated, relative_error  # noqa: E402

DTYPE = torch.bfloat16


class Layer(nn.Module):
    """A decoder's, whose norms and sums are in float32 under autocast."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(40), nn.LayerNorm(40)
        self.q_proj, self.k_proj, self.v_proj, self.out = (nn.Linear(40, 40) for _ in range(4))
        self.mlp = Gated()

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.out(
            F.scaled_dot_product_attention(self.q_proj(h), self.k_proj(h), self.v_proj(h))
        )
        return x + self.mlp(self.norm2(x))


def autocast():
    return torch.autocast("cpu", dtype=DTYPE)


def model_and_x():
    return nn.Sequential(Layer(), nn.Linear(40, 24)).eval(), torch.randn(2, 5, 40)


@pytest.mark.parametrize(("quantize", "most"), [("fp8-block", 0.1), (None, 0.01)])
@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_compile_multiplies_in_autocasts_type(session, quantize, most, rest):
    model, x = model_and_x()
    with autocast():
        wanted = model(x)
    with gemmd.compile(model, session, quantize=quantize, rest=rest, min_elements=0) as fast:
        with autocast():
            got = fast(x)
        assert got.dtype is wanted.dtype is DTYPE
        assert relative_error(got, wanted) < most
        # query, key and value by one product; the MLP by two
        assert (len(fast), fast.left) == (4, []), fast
        assert sum(len(block.weights) for block in fast) == 5
        exact = model(x)  # it was compiled for autocast, and is compiled again
        got = fast(x)
        assert got.dtype is exact.dtype is torch.float32
        assert relative_error(got, exact) < most


@pytest.mark.parametrize("quantize", ["fp8-block", None])
def test_adopted_layers_give_what_torchs_would(session, quantize):
    model, x = model_and_x()
    with autocast():
        wanted = model(x), model[0].mlp(x), model[0].q_proj(x)
    gemmd.adopt(model, session, quantize=quantize, min_elements=0)
    with autocast():
        got = model(x), model[0].mlp(x), model[0].q_proj(x)
        with pytest.warns(gemmd.PrecisionWarning):
            assert model[0].mlp(x.double()).dtype is not DTYPE
    assert [one.dtype for one in got] == [one.dtype for one in wanted] == [DTYPE] * 3
    assert all(relative_error(a, b) < 0.1 for a, b in zip(got, wanted, strict=True))
    assert model[0].q_proj(x).dtype is torch.float32  # the same x as just before


def test_siblings_share_a_product_under_autocast_too(session, monkeypatch):
    model, x = model_and_x()
    gemmd.adopt(model, session, min_elements=0)
    products, multiply = [], siblings.called_as_torch
    monkeypatch.setattr(
        siblings, "called_as_torch", lambda *given: products.append(0) or multiply(*given)
    )
    with autocast():
        for one in (model[0].q_proj, model[0].k_proj, model[0].v_proj):
            one(x)
    assert len(products) == 1


def test_autocast_that_is_on_within_a_model(session):
    class Within(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(40, 40), nn.Linear(40, 40)

        def forward(self, x):
            with autocast():
                y = self.a(x)
                with torch.autocast("cpu", enabled=False):
                    y = self.b(y.float())
            return y

    model, x = Within().eval(), torch.randn(3, 40)
    wanted = model(x)
    with gemmd.compile(model, session, min_elements=0) as fast:
        got = fast(x)
        assert (got.dtype, len(fast), fast.left) == (wanted.dtype, 2, [])
        assert relative_error(got, wanted) < 0.1


def test_a_compiled_adopted_model_follows_autocast(session):
    model, x = model_and_x()
    with autocast():
        wanted = model(x)
        gemmd.adopt(model, session, min_elements=0)
        got = torch.compile(model, backend="eager", fullgraph=True)(x)
    assert got.dtype is DTYPE and relative_error(got, wanted) < 0.1
