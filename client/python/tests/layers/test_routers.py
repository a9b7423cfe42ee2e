"""Routers of experts in compiled models: which are a block's, and that those chosen are torch's. Skips
without torch.
"""

import copy

import pytest

import gemmd

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gemmd._layers.choice import Choice  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .experts import EXPERTS, HIDDEN, INNER, TOP, Layer, Mixture, Stacked  # noqa: E402
from .models import relative_error  # noqa: E402

FP8 = 0.25
GROUPS = 4
MANY = 16


def experts_of(count):
    made = Stacked()
    made.gate_up_proj = nn.Parameter(torch.randn(count, 2 * INNER, HIDDEN) / 7)
    made.down_proj = nn.Parameter(torch.randn(count, HIDDEN, INNER) / 5)
    return made


class Routed(Mixture):
    """One that chooses by `choose`, of as many experts as there are."""

    def __init__(self, count=EXPERTS, bias=False):
        super().__init__(experts_of(count))
        self.gate = nn.Linear(HIDDEN, count, bias=bias)
        self.register_buffer("correction", torch.rand(count) / 4)

    def logits(self, x):
        return self.gate(x)

    def forward(self, x):
        flat = x.reshape(-1, HIDDEN)
        experts, weights = self.choose(self.logits(flat))
        return self.experts(flat, experts, weights.to(x.dtype)).view(x.shape)


class Shares(Routed):
    """As OLMoE: shares of all experts."""

    def choose(self, logits):
        weights, experts = F.softmax(logits, dim=1, dtype=torch.float).topk(TOP, dim=-1)
        return experts, weights


class Biased(Routed):
    """As gpt-oss: shares of those chosen, of logits with a bias."""

    def __init__(self):
        super().__init__(bias=True)

    def choose(self, logits):
        values, experts = torch.topk(logits, TOP, dim=-1)
        return experts, F.softmax(values, dim=1, dtype=values.dtype)


class Typed(Routed):
    """As Granite: shares of those chosen, in float32, and then in x's type."""

    def logits(self, x):
        self.like = x
        return self.gate(x).float()

    def choose(self, logits):
        values, experts = logits.topk(TOP, dim=-1)
        return experts, torch.softmax(values, dim=-1).type_as(self.like)


class Grouped(Routed):
    """As DeepSeek-V3: logits in float32, sigmoids, a correction, the best groups, and a factor."""

    def __init__(self):
        super().__init__(MANY)

    def logits(self, x):
        return F.linear(x.type(torch.float32), self.gate.weight.type(torch.float32))

    def choose(self, logits):
        scores = logits.sigmoid()
        by = scores + self.correction.float()
        groups = by.view(-1, GROUPS, MANY // GROUPS).topk(2, dim=-1)[0].sum(dim=-1)
        best = torch.topk(groups, k=2, dim=-1, sorted=False)[1]
        mask = torch.zeros_like(groups)
        mask.scatter_(1, best, 1)
        mask = mask.unsqueeze(-1).expand(-1, GROUPS, MANY // GROUPS).reshape(-1, MANY)
        by = by.masked_fill(~mask.bool(), 0.0)
        experts = torch.topk(by, k=TOP, dim=-1, sorted=False)[1]
        weights = scores.gather(1, experts)
        return experts, weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * 2.5


class Limited(Routed):
    """As DeepSeek-V2: a group is as good as its best."""

    def __init__(self):
        super().__init__(MANY)

    def choose(self, logits):
        scores = logits.softmax(dim=-1, dtype=torch.float32)
        groups = scores.view(len(scores), GROUPS, -1).max(dim=-1).values
        best = torch.topk(groups, k=2, dim=-1, sorted=False)[1]
        mask = torch.zeros_like(groups).scatter_(1, best, 1)
        mask = mask.unsqueeze(-1).expand(-1, GROUPS, MANY // GROUPS).reshape(len(scores), -1)
        weights, experts = scores.masked_fill(~mask.bool(), 0.0).topk(TOP)
        return experts, weights * 16.0


class Shared(Shares):
    """With an expert of all tokens."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN)

    def forward(self, x):
        return super().forward(x) + self.down(F.silu(self.up(x)))


class Tempered(Routed):
    """Chooses as no op does."""

    def choose(self, logits):
        weights, experts = (logits * logits).softmax(-1).topk(TOP)
        return experts, weights


class Capped(Routed):
    """Nearly a choice by shares, as long as logits are small."""

    def choose(self, logits):
        weights, experts = (12 * torch.tanh(logits / 12)).softmax(-1).topk(TOP)
        return experts, weights


class Watched(Shares):
    """Whose logits somebody else needs."""

    def logits(self, x):
        self.told = super().logits(x)
        return self.told

    def forward(self, x):
        return super().forward(x) + self.told.std()


class Apart(nn.Module):
    """Whose layers torch compiles by themselves: one graph of their class serves both."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for layer in self.layers:
            torch._dynamo.graph_break()
            x = layer(x)
        return x


def layers_of(mixture):
    first = Layer()
    first.mlp = mixture()
    return nn.Sequential(first, copy.deepcopy(first)).eval()


def usual_error(got, wanted):
    """A token's: for some of them a near choice is another one by FP8, or by bfloat16."""
    off = (got - wanted).float().norm(dim=-1) / wanted.float().norm(dim=-1)
    return float(off.median())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [Mixture, Shares, Biased, Typed, Grouped, Limited, Shared])
def test_a_mixture_goes_along_with_what_is_around_it(session, kind, dtype):
    model = layers_of(kind).to(dtype)
    with gemmd.compile(model, session, min_elements=0) as fast:
        for shape in ((2, 16), (1, 17), (24, 1)):
            x = torch.randn(*shape, HIDDEN, dtype=dtype)
            got, wanted = fast(x), model(x)
            assert got.dtype is dtype and got.shape == wanted.shape
            assert usual_error(got, wanted) < FP8
        assert fast.left == []
        mixed = [one for block in fast for one in block.recipe.experts]
        assert len(mixed) >= 2 and "experts, top 2" in repr(list(fast)), list(fast)


def test_what_is_told_of_a_router(session):
    model = layers_of(Grouped)
    with gemmd.compile(model, session, min_elements=0) as fast:
        fast(torch.randn(1, 4, HIDDEN))
        (choice,) = {one.choice for block in fast for one in block.recipe.experts}
    assert (choice.scores, choice.groups, choice.top_groups) == ("sigmoid", GROUPS, 2)
    assert choice.renormalize and choice.group_score == "top2_sum"
    assert choice.scale == pytest.approx(2.5, rel=1e-4)


def test_a_router_in_float32_stays_exact(session):
    model = layers_of(Grouped).to(torch.bfloat16)
    for layer in model:
        nn.init.normal_(layer.mlp.gate.float().weight, std=0.1)
    x = torch.randn(2, 16, HIDDEN, dtype=torch.bfloat16)
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert usual_error(fast(x), model(x)) < FP8
        routers = [one for block in fast for one in block.recipe.routers]
        assert [one.dtype for one in routers] == [gemmd.float32] * 2 and fast.left == []


def test_layers_that_share_a_graph_have_a_correction_each(session):
    model = Apart(layers_of(Grouped)).eval()
    model.layers[1].mlp.correction = 1 - 4 * model.layers[0].mlp.correction
    x = torch.randn(2, 16, HIDDEN)
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert usual_error(fast(x), model(x)) < FP8 and fast.left == []


def test_one_token_tells_a_small_correction_and_groups(session):
    model = layers_of(Grouped)
    for layer in model:
        layer.mlp.correction *= 1e-4
    with gemmd.compile(model, session, min_elements=0) as fast:
        fast(torch.randn(1, 1, HIDDEN))
        chosen = [one for block in fast for one in block.recipe.experts]
    assert len(chosen) == 2 and all(one.bias_at is not None for one in chosen)
    assert {(one.choice.groups, one.choice.group_score) for one in chosen} == {(GROUPS, "top2_sum")}


@pytest.mark.parametrize("kind", [Tempered, Capped, Watched])
def test_another_router_stays_torchs(session, kind):
    model = layers_of(kind)
    x = torch.randn(2, 5, HIDDEN)
    with gemmd.compile(model, session, min_elements=0) as fast:
        assert relative_error(fast(x), model(x)) < FP8
        assert len(fast.left) == 2 and all("chooses experts" in one for one in fast.left)
        assert len(fast.experts) == 2 and len(fast) == 4


def test_by_inductor(session):
    model = layers_of(Mixture)
    x = torch.randn(2, 5, HIDDEN)
    with gemmd.compile(model, session, min_elements=0, rest="inductor") as fast:
        assert relative_error(fast(x), model(x)) < FP8
        assert len(fast) == 3 and fast.left == []


def test_closing_leaves_the_experts_to_who_made_them(session, server):
    model = layers_of(Mixture)
    fast = gemmd.compile(model, session, min_elements=0)
    fast(torch.randn(2, 5, HIDDEN))
    experts = fast.experts["0.mlp.experts"]
    for block in fast:
        block.close()
    x = torch.randn(3, HIDDEN)
    assert experts.route(x, torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1)).shape == x.shape
    fast.close()


WAYS = [
    Choice(3, scores, renormalize, 1.5, groups, min(2, groups), score)
    for scores in ("softmax", "sigmoid")
    for renormalize in (True, False)
    for groups, score in ((1, "max"), (GROUPS, "max"), (GROUPS, "top2_sum"))
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_server_chooses_as_torch_does(session, way):
    logits = torch.randn(7, MANY)
    bias = torch.rand(MANY)
    for given in (None, bias):
        placed = session.upload(logits.numpy())
        offset = None if given is None else session.upload(given.numpy())
        experts = session.create_buffer(shape=(7, 3), dtype="i32")
        weights = session.create_buffer(shape=(7, 3), dtype="f32")
        tensors = [one.tensor() for one in (placed, experts, weights)]
        session.execute([way.op(*tensors, None if offset is None else offset.tensor())])
        chosen, shares = way.of(logits, given)
        assert experts.download().tolist() == chosen.tolist()
        assert relative_error(torch.as_tensor(weights.download()), shares) < 1e-5
