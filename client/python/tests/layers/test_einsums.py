"""compile: products that are written as einsums, against the fake. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402

EXACT = {"quantize": None, "min_elements": 0}
X = torch.randn(2, 7, 40)
HEADS = torch.randn(2, 7, 4, 10)
PRODUCTS = {
    "btd,df->btf": (X, (40, 24)),
    "btd,fd->btf": (X, (24, 40)),
    "...d,df->...f": (X, (40, 24)),
    "b t d, d h k -> b t h k": (X, (40, 4, 6)),
    "bthk,hkd->btd": (HEADS, (4, 10, 24)),
    "...hk,dhk->...d": (HEADS, (24, 4, 10)),
}


class Einsum(nn.Module):
    def __init__(self, equation, shape, turned=False):
        super().__init__()
        self.equation, self.turned = equation, turned
        self.weight = nn.Parameter(torch.randn(shape) / 6)

    def forward(self, x):
        if self.turned:
            inputs, _, result = self.equation.partition("->")
            first, second = inputs.split(",")
            return torch.einsum(f"{second},{first}->{result}", self.weight, x)
        return torch.einsum(self.equation, x, self.weight)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("equation", PRODUCTS)
def test_an_einsum_with_a_weight_is_a_product(session, equation, turned):
    x, shape = PRODUCTS[equation]
    model = Einsum(equation, shape, turned).eval()
    wanted = model(x)
    with gemmd.compile(model, session, fullgraph=True, **EXACT) as fast:
        got = fast(x)
        assert (len(fast), fast.left) == (1, []) and got.shape == wanted.shape
        assert relative_error(got, wanted) < 1e-5


OTHERS = {
    "bthk,hkd->bthkd": (HEADS, (4, 10, 6)),
    "bthk,khd->btd": (HEADS, (10, 4, 24)),
    "btd,dd->btd": (X, (40, 40)),
    "btd,df->bft": (X, (40, 24)),
    "btd,bf->btdf": (X, (2, 6)),
    "btd,tf->bdf": (X, (7, 6)),
}


@pytest.mark.parametrize("equation", OTHERS)
def test_others_are_right_too(session, equation):
    x, shape = OTHERS[equation]
    model = Einsum(equation, shape).eval()
    with gemmd.compile(model, session, fullgraph=True, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5


def test_small_ones_are_not_turned(session):
    x, shape = PRODUCTS["btd,df->btf"]
    model = Einsum("btd,df->btf", shape).eval()
    with gemmd.compile(model, session, quantize=None, min_elements=40 * 24 + 1) as fast:
        assert torch.equal(fast(x), model(x)) and len(fast) == 0


def test_a_model_of_einsums_in_fp8(session):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.RMSNorm(64)
            self.up, self.down = (nn.Parameter(torch.randn(64, 128) / 9) for _ in range(2))

        def forward(self, x):
            hidden = torch.einsum("...d,df->...f", self.norm(x), self.up)
            return x + torch.einsum("...f,df->...d", nn.functional.gelu(hidden), self.down)

    model, x = Model().eval(), torch.randn(2, 9, 64)
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert relative_error(fast(x), model(x)) < 0.1
        assert (len(fast), fast.left) == (1, [])
