"""compile: norms as models spell them, against the fake. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .test_compile import EXACT, WIDTH  # noqa: E402

HEAD = 8


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


def inverse_root(x):
    return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _written_between(x, w, b):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    x.add_(1)
    return x * scale * w


def _also_needed(x, w, b):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return x * scale * w + scale


# How many functions of torch's own they are, of which each is one kernel.
OF_HEADS = {
    "Qwen's": (lambda x, w, b: w * (x.float() * inverse_root(x.float())).to(x.dtype), "rms_norm"),
    "Gemma's": (
        lambda x, w, b: (x.float() * inverse_root(x.float()) * (1.0 + w.float())).type_as(x),
        "rms_norm",
    ),
    "without a weight": (lambda x, w, b: x * inverse_root(x), "rms_norm"),
    "centred": (
        lambda x, w, b: centered(x) * inverse_root(centered(x)) * w + b, "layer_norm"
    ),
    "a bias": (lambda x, w, b: x * inverse_root(x) * w + b, "rms_norm"),  # then the bias
    "written between": (_written_between, None),
    "also needed": (_also_needed, None),
}  # fmt: skip


class OfHeads(nn.Module):
    """A norm that is part of no block: its rows are parts of a product's."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.rand(HEAD) + at) for at in (0.5, -0.5))
        self.fc, self.norm, self.out = nn.Linear(WIDTH, WIDTH), norm, nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = self.fc(x).view(*x.shape[:-1], -1, HEAD).clone()
        return self.out(self.norm(heads, self.weight, self.bias).transpose(-2, -3).reshape(x.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", OF_HEADS)
def test_a_norm_of_heads_is_one_function(session, kind, dtype):
    norm, function = OF_HEADS[kind]
    model = OfHeads(norm).eval().to(dtype)
    x = torch.randn(3, 5, WIDTH).to(dtype)
    with gemmd.compile(model, session, **EXACT) as fast:
        y, own = fast(x), model(x)
        off = (
            {"rtol": 1e-4, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 0.05, "atol": 0.03}
        )
        torch.testing.assert_close(y, own, **off)
        assert (len(fast), fast.left) == (2, [])
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            fast(x)
        names = [one.name for one in seen.events()]
        called = [one for one in ("rms_norm", "layer_norm") if f"aten::{one}" in names]
        assert called == ([function] if function else [])
