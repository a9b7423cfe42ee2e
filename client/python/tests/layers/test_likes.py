"""adopt: modules that compute what a Linear does without being one, against the fake. Skips without
torch.
"""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402

EXACT = {"quantize": None, "min_elements": 0}


class Turned(nn.Module):
    """As GPT-2's Conv1D: the weight is [k, n]."""

    def __init__(self, n, k):
        super().__init__()
        self.n = n
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(
            *x.shape[:-1], self.n
        )


class Sub(nn.Linear):
    """As Falcon's."""

    def forward(self, input):
        y = input @ self.weight.T
        return y if self.bias is None else y + self.bias


class Feed(nn.Module):
    """As GPT-2's MLP."""

    def __init__(self, make, inner=64):
        super().__init__()
        self.c_fc, self.c_proj = make(inner, 40), make(40, inner)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


def sub(n, k):
    return Sub(k, n)


def model_of(make):
    return nn.ModuleDict({"mlp": Feed(make), "square": make(40, 40), "plain": nn.Linear(40, 24)})


def computed(model, x):
    return torch.cat([model[one](x) for one in model], -1)


@pytest.mark.parametrize("make", [Turned, sub, lambda n, k: Sub(k, n, bias=False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_become_layers(session, make, dtype):
    model = model_of(make).eval().to(dtype)
    x = torch.randn(2, 3, 40, dtype=dtype)
    wanted, state = computed(model, x), torch.get_rng_state()
    adopted = gemmd.adopt(model, session, **EXACT)
    assert torch.equal(torch.get_rng_state(), state)
    kinds = {path: type(one).__name__ for path, one in adopted.layers.items()}
    assert kinds == {"mlp": "Sequential", "square": "Linear", "plain": "Linear"}
    assert adopted.left == {} and not model.state_dict()
    assert relative_error(computed(model, x), wanted) < (1e-5 if dtype == torch.float32 else 0.02)


def test_those_that_are_left_are_the_models_own(session):
    model = model_of(Turned).eval()
    own = dict(model.named_modules())
    seen = {}

    def where(path, module):
        seen[path] = module
        return path == "plain"

    adopted = gemmd.adopt(model, session, where=where, min_elements=0)
    assert list(adopted.layers) == ["plain"] and seen["square"] is own["square"]
    assert adopted.left["mlp.c_fc"] == "where= left it out"
    assert all(model.get_submodule(path) is own[path] for path in own if path != "plain")


def test_after_an_error_the_model_is_as_it_was(session):
    model = model_of(Turned).eval()
    own, state = dict(model.named_modules()), model.state_dict()
    with pytest.raises(ValueError, match="limit 128"):
        gemmd.adopt(model, session, name="n" * 120, min_elements=0)
    assert dict(model.named_modules()) == own and model.state_dict().keys() == state.keys()


def test_one_that_stands_twice_is_one_layer(session):
    twice = Turned(40, 40)
    model = nn.Sequential(twice, nn.ReLU(), twice).eval()
    x = torch.randn(3, 40)
    wanted = model(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert list(adopted.layers) == ["0"] and model[0] is model[2]
    assert relative_error(model(x), wanted) < 1e-5


def test_without_values_they_are_found_by_name(session):
    gemmd.adopt(nn.ModuleDict({"a": Turned(24, 40)}).eval(), session, name="m", min_elements=0)
    with torch.device("meta"):
        other = nn.ModuleDict({"a": Turned(24, 40)}).eval()
    adopted = gemmd.adopt(other, session, name="m", min_elements=0)
    assert list(adopted.layers) == ["a"] and adopted.layers["a"].weights.shape == (24, 40)


class Lora(nn.Linear):
    """Adds what is nothing before it is trained."""

    def __init__(self, k, n):
        super().__init__(k, n)
        self.a, self.b = nn.Parameter(torch.randn(4, k)), nn.Parameter(torch.zeros(n, 4))

    def forward(self, x):
        return super().forward(x) + x @ self.a.T @ self.b.T


class Clamped(nn.Linear):
    def forward(self, x):
        return super().forward(x).clamp(-1, 1)


class Scaled(nn.Linear):
    def forward(self, x, scale=1):
        return super().forward(x) * scale


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 40))

    def forward(self, x):
        return self.weight[: x.shape[0], : x.shape[-1]].expand(x.shape) * x


@pytest.mark.parametrize(
    "odd", [lambda: Lora(40, 40), lambda: Clamped(40, 40), lambda: Scaled(40, 40), Table]
)
def test_what_computes_or_takes_something_else_stays(session, odd):
    model = nn.ModuleDict({"odd": odd(), "plain": nn.Linear(40, 40)}).eval()
    own = model["odd"]
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert list(adopted.layers) == ["plain"] and model["odd"] is own
    assert ("odd" in adopted.left) == isinstance(own, nn.Linear)


def test_embeddings_and_norms_stay(session):
    parts = {"embed": nn.Embedding(40, 40), "norm": nn.LayerNorm(40), "plain": nn.Linear(40, 40)}
    model = nn.ModuleDict(parts).eval()
    assert list(gemmd.adopt(model, session, min_elements=0).layers) == ["plain"]
