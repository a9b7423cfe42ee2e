"""compile: norms as models spell them, against the fake. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .test_compile import EXACT, WIDTH  # noqa: E402


def mean_square(x, eps=1e-6):
    return x.pow(2).mean(-1, keepdim=True) + eps


def centered(x):
    return x - x.mean(dim=-1, keepdim=True)


# As models spell norms: of x, a weight and a bias.
SPELT_NORMS = {
    "power": lambda x, w, b: (x.float() * torch.pow(mean_square(x.float()), -0.5) * w).type_as(x),
    "no weight": lambda x, w, b: x * torch.rsqrt(mean_square(x)),
    "quotient": lambda x, w, b: w * (x / torch.sqrt(mean_square(x))),
    "root as a power": lambda x, w, b: x / mean_square(x) ** 0.5 * w,
    "one over": lambda x, w, b: x * (1.0 / mean_square(x).sqrt()) * w,
    "reciprocal": lambda x, w, b: x * mean_square(x).sqrt().reciprocal() * w,
    "normalize": lambda x, w, b: F.normalize(x, dim=-1) * WIDTH**0.5 * w,
    "normalize alone": lambda x, w, b: F.normalize(x, dim=-1) * 5.0,
    "variance": lambda x, w, b: (
        centered(x) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * w + b
    ),
    "mean of squares": lambda x, w, b: (
        centered(x) * torch.rsqrt(centered(x).square().mean(-1, True) + 1e-5) * w + b
    ),
}
OTHER_NORMS = {
    "variance by one less": lambda x, w, b: (
        centered(x) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5) * w
    ),
    "of batches": lambda x, w, b: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6) * w,
    "another's": lambda x, w, b: x.flip(-1).exp() * torch.rsqrt(mean_square(x)) * w,
    "a large least norm": lambda x, w, b: F.normalize(x, dim=-1, eps=0.5) * w,
    "by columns": lambda x, w, b: F.normalize(x) * w,
}


class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.rand(WIDTH) + at) for at in (0.5, -0.5))
        self.fc, self.norm = nn.Linear(WIDTH, WIDTH), norm

    def forward(self, x):
        return self.fc(self.norm(x, self.weight, self.bias))


@pytest.mark.parametrize("kind", [*SPELT_NORMS, *OTHER_NORMS])
def test_norms_as_they_are_spelt(session, kind):
    model = Normed({**SPELT_NORMS, **OTHER_NORMS}[kind]).eval()
    x = torch.randn(3, 5, WIDTH) * torch.logspace(-5, 1, 15).reshape(3, 5, 1)
    with gemmd.compile(model, session, **EXACT) as fast:
        y, own = fast(x), model(x)
        torch.testing.assert_close(y, own, rtol=1e-4, atol=1e-5)
        (block,) = fast
        assert len(block.recipe.norms) == (kind in SPELT_NORMS)
