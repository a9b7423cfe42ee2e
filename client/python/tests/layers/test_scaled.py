"""adopt: Linears and experts whose weights are FP8 with scales, against the fake. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402

E4M3 = torch.float8_e4m3fn
KINDS = ("block", "row", "one")


def quantized(weight, kind):
    """Values and scales of [n, k], and what they stand for."""
    n, k = weight.shape
    if kind == "block":
        rows, columns = -(-n // 128), -(-k // 128)
        whole = F.pad(weight, (0, columns * 128 - k, 0, rows * 128 - n))
        scales = whole.view(rows, 128, columns, 128).abs().amax((1, 3)) / 400  # not what we would
        full = scales.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
    elif kind == "row":
        scales = full = weight.abs().amax(1, keepdim=True) / 400
    else:
        scales = full = weight.abs().amax() / 400
    values = (weight / full).to(E4M3)
    return values, scales, values.float() * full


class Fp8Linear(nn.Linear):
    """As transformers' FP8Linear and FbgemmFp8Linear; its kernels are not here."""

    def __init__(self, k, n, kind="block", bias=False):
        super().__init__(k, n, bias=bias)
        values, scales, self.exact = quantized(torch.randn(n, k) / k**0.5, kind)
        self.weight = nn.Parameter(values, requires_grad=False)
        name = "weight_scale_inv" if kind == "block" else "weight_scale"
        setattr(self, name, nn.Parameter(scales, requires_grad=False))
        self.activation_scale = None

    def forward(self, input):
        raise NotImplementedError("no kernel for this device")

    def computed(self, x):
        return F.linear(x, self.exact.to(x.device), self.bias)


class Mlp(nn.Module):
    def __init__(self, kind, hidden=256, inner=384):
        super().__init__()
        self.gate_proj, self.up_proj = (Fp8Linear(hidden, inner, kind) for _ in range(2))
        self.down_proj, self.act_fn = Fp8Linear(inner, hidden, kind), nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))

    def computed(self, x):
        hidden = F.silu(self.gate_proj.computed(x)) * self.up_proj.computed(x)
        return self.down_proj.computed(hidden)


class Attention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.q_proj, self.k_proj = Fp8Linear(256, 256, kind, True), Fp8Linear(256, 128, kind, True)
        self.v_proj = Fp8Linear(256, 128, kind, True)

    def forward(self, x):
        return torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], -1)

    def computed(self, x):
        return torch.cat([one.computed(x) for one in (self.q_proj, self.k_proj, self.v_proj)], -1)


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_scales_are_taken_as_they_are(session, kind):
    model = nn.ModuleDict({"mlp": Mlp(kind), "attn": Attention(kind), "odd": Fp8Linear(200, 77, kind)})
    own = {name: one.weight for name, one in model.named_modules() if isinstance(one, Fp8Linear)}
    x = torch.randn(2, 3, 256, dtype=torch.bfloat16)
    wanted = {name: model[name].computed(x.float()) for name in ("mlp", "attn")}
    odd = model["odd"].computed(x.float()[..., :200])
    adopted = gemmd.adopt(model.eval(), session, min_elements=0)
    kinds = {path: type(one).__name__ for path, one in adopted.layers.items()}
    assert kinds == {"mlp": "MLP", "attn.q_proj": "Linear", "odd": "Linear"}, adopted
    assert adopted.left == {} and not model.state_dict()
    for name, one in wanted.items():
        assert relative_error(model[name](x), one) < 0.06
    assert relative_error(model["odd"](x[..., :200].contiguous()), odd) < 0.06
    layer = adopted.layers["mlp"]
    both = torch.cat([own["mlp.gate_proj"].view(torch.uint8), own["mlp.up_proj"].view(torch.uint8)])
    got = layer.buffers[0].download().view("u1").reshape(-1)[: both.numel()]
    assert torch.equal(torch.from_numpy(got.copy()), both.flatten())
    assert model["attn"].q_proj.weight.dtype is torch.bfloat16


def test_one_whose_own_results_are_others_stays(session):
    class Other(Fp8Linear):
        def forward(self, input):
            return self.computed(input.float()).to(input.dtype) * 2

    class Same(Fp8Linear):
        def forward(self, input):
            return self.computed(input.float()).to(input.dtype)

    model = nn.ModuleDict({"other": Other(256, 128), "same": Same(256, 128)}).eval()
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert list(adopted.layers) == ["same"]
    assert "subclass" in adopted.left["other"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: setattr(one, "extra", nn.Parameter(torch.ones(3))),
        lambda one: setattr(one, "weight_scale_inv", nn.Parameter(torch.ones(3, 3))),
        lambda one: one.register_buffer("zero_point", torch.ones(2, 2)),
        lambda one: delattr(one, "weight_scale_inv"),
    ],
)
def test_what_is_not_understood_stays(session, spoil):
    model = nn.ModuleDict({"odd": Fp8Linear(256, 128), "plain": nn.Linear(40, 40)}).eval()
    own = model["odd"]
    spoil(own)
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert list(adopted.layers) == ["plain"] and list(adopted.left) == ["odd"]
    assert model["odd"] is own


def test_two_workers_share_them_by_name(session):
    first, second = (nn.ModuleDict({"mlp": Mlp("block")}).eval() for _ in range(2))
    second.load_state_dict(first.state_dict())
    gemmd.adopt(first, session, name="m", min_elements=0)
    with torch.device("meta"):
        third = nn.ModuleDict({"mlp": Mlp("block")}).eval()
    x = torch.randn(2, 256, dtype=torch.bfloat16)
    for other in (second, third):
        adopted = gemmd.adopt(other, session, name="m", min_elements=0)
        assert adopted.layers["mlp"].name == "m/mlp"
        assert torch.equal(other["mlp"](x), first["mlp"](x))


class Fp8Experts(nn.Module):
    """As transformers' FP8Experts: with other weights than FP8 it computes without its kernels."""

    def __init__(self, kind="block", experts=4, hidden=256, inner=128):
        super().__init__()
        parts = {"gate_up_proj": (2 * inner, hidden), "down_proj": (hidden, inner)}
        self.exact = {}
        for name, (n, k) in parts.items():
            made = [quantized(torch.randn(n, k) / k**0.5, kind) for _ in range(experts)]
            values, scales, self.exact[name] = (torch.stack(one) for one in zip(*made, strict=True))
            setattr(self, name, nn.Parameter(values, requires_grad=False))
            setattr(self, name + "_scale_inv", nn.Parameter(scales, requires_grad=False))
        self.kernels = False

    def forward(self, hidden_states, top_k_index, top_k_weights):
        up, down = self.gate_up_proj, self.down_proj
        if up.element_size() == 1:
            if not self.kernels:
                raise ImportError("no kernels")
            up, down = (self.exact[name] for name in ("gate_up_proj", "down_proj"))
        return self.computed(hidden_states, top_k_index, top_k_weights, up, down)

    def computed(self, x, chosen, weights, up, down):
        y = torch.zeros_like(x, dtype=torch.float32)
        for e in chosen.unique().tolist():
            token, place = torch.where(chosen == e)
            gate, other = F.linear(x[token].to(up.dtype), up[e]).chunk(2, -1)
            rows = F.linear(F.silu(gate) * other, down[e]) * weights[token, place, None].to(up.dtype)
            y.index_add_(0, token, rows.float())
        return y.to(x.dtype)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_experts_of_fp8_are_taken_as_they_are(session, kind, kernels):
    model = nn.ModuleDict({"experts": Fp8Experts(kind)}).eval()
    experts = model["experts"]
    experts.kernels = kernels
    x = torch.randn(6, 256, dtype=torch.bfloat16)
    chosen = torch.arange(12).view(6, 2) % 4
    weights = torch.rand(6, 2, dtype=torch.bfloat16)
    up, down = (experts.exact[name] for name in ("gate_up_proj", "down_proj"))
    wanted = experts.computed(x, chosen, weights, up, down)
    values = experts.gate_up_proj.view(torch.uint8).clone()
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert list(adopted.layers) == ["experts"] and not model.state_dict()
    assert relative_error(model["experts"](x, chosen, weights), wanted) < 0.08
    got = adopted.layers["experts"].buffers[0].download().view("u1").reshape(-1)[: values.numel()]
    assert torch.equal(torch.from_numpy(got.copy()), values.flatten())


class Layer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.norm, self.attn, self.mlp = nn.RMSNorm(256), Attention(kind), Mlp(kind, 512)
        self.norm2 = nn.RMSNorm(512)

    def forward(self, x):
        y = self.attn(self.norm(x))
        return y + self.mlp(self.norm2(y))

    def computed(self, x):
        y = self.attn.computed(self.norm(x))
        return y + self.mlp.computed(self.norm2(y))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_compile_takes_them_as_they_are(session, kind, rest):
    model = Layer(kind).eval()
    x = torch.randn(2, 3, 256)
    wanted = model.computed(x)
    for one in model.parameters():
        if one.dim() == 1:  # a norm's, or a bias
            one.data = one.data.bfloat16()
    with gemmd.compile(model, session, name="m", rest=rest, min_elements=0) as fast:
        assert relative_error(fast(x.bfloat16()), wanted) < 0.08
        assert (len(fast), fast.left) == (2, [])
        names = {buffer.published_name for block in fast for buffer in block._held}
        assert {"m/attn.q_proj.k_proj.v_proj", "m/mlp.gate_proj.up_proj"} <= names
        down = session.find("m/mlp.down_proj").download().view("u1").reshape(-1)
        own = model.mlp.down_proj.weight.view(torch.uint8).flatten()
        assert torch.equal(torch.from_numpy(down[: own.numel()].copy()), own)
    assert type(model.mlp.down_proj) is Fp8Linear


def test_compile_in_place_gives_them_back(session):
    model = Mlp("block").eval()
    own, x = model.down_proj, torch.randn(3, 256, dtype=torch.bfloat16)
    wanted = model.computed(x.float())
    with gemmd.compile(model, session, in_place=True, min_elements=0) as fast:
        assert relative_error(model(x), wanted) < 0.06
        assert len(fast) == 1
    assert model.down_proj is own
