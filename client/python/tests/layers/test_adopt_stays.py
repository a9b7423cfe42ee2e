"""adopt: what stays in torch, and why, against the fake. Skips without torch."""

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from .models import Gated, relative_error  # noqa: E402

EXACT = {"quantize": None, "min_elements": 0}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def hooked(module):
    module.register_forward_hook(lambda *_: None)
    return module


def with_its_own_forward(module):
    module.forward = lambda x: F.linear(x, module.weight)
    return module


class Lora(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


class Reads(nn.Module):
    """As torch's own encoder hands its weights to a function."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(40, 40)

    def rows(self, x):
        return x + 0 * self.proj.weight.sum()

    def forward(self, x):
        return self.proj(self.rows(x))


class ReadsParameters(nn.Module):
    """As Wan's embedding of times does."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(40, 40)

    def forward(self, x):
        return self.proj(x.to(next(iter(self.proj.parameters())).dtype))


class AsksAbove(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleDict({"proj": nn.Linear(40, 40)})

    def forward(self, x):
        return self.embed["proj"](x.to(next(self.embed.parameters()).dtype))


STAY = {
    "a subclass": (lambda: Lora(40, 40), "", "it is a Lora, a subclass"),
    "hooks": (lambda: hooked(nn.Linear(40, 40)), "", "it has hooks"),
    "weight_norm": (lambda: nn.utils.weight_norm(nn.Linear(40, 40)), "", "it has hooks"),
    "parametrised": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(40, 40)), "", "is parametrised",
    ),
    "a forward of its own": (
        lambda: with_its_own_forward(nn.Linear(40, 40)), "", "forward was set on the instance",
    ),
    "double precision": (lambda: nn.Linear(40, 40).double(), "", "torch.float64; layers take"),
    "a weight that is read": (Reads, ".proj", "the forward of Reads reads proj.weight"),
    "parameters of what is above": (AsksAbove, ".embed.proj", "reads embed.parameters"),
    "parameters that are read": (ReadsParameters, ".proj", "reads proj.parameters"),
}  # fmt: skip


class AsksType(nn.Module):
    """As T5's feed-forward, and LoRA's by way of a variable, look at a weight's type."""

    def __init__(self, by_variable):
        super().__init__()
        self.proj, self.by_variable = nn.ModuleDict({"a": nn.Linear(40, 40)}), by_variable
        self.out = nn.Linear(40, 40)

    def forward(self, x):
        proj = self.proj["a"]
        x = proj(x.to(proj.weight.dtype)) if self.by_variable else proj(x)
        return self.out(x.sin().to(self.out.weight.dtype).to(self.out.weight.device))


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_weights_type_may_be_asked(session, by_variable):
    model = nn.ModuleDict({"m": AsksType(by_variable)}).eval()
    x = torch.randn(3, 40)
    wanted = model.m(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert sorted(adopted.layers) == ["m.out", "m.proj.a"] and adopted.left == {}
    assert relative_error(model.m(x), wanted) < 1e-5
    compiled = torch.compile(model.m, backend="eager", fullgraph=True)
    assert relative_error(compiled(x), wanted) < 1e-5
    told = model.m.out.weight
    assert (told.dtype, tuple(told.shape), told.ndim) == (torch.float32, (40, 40), 2)


class NamedAlike(nn.Module):
    """As encoders and decoders of transformers are, whose heads have a Linear of that name, too."""

    def __init__(self):
        super().__init__()
        self.decoder, self.head = nn.Identity(), nn.ModuleDict({"decoder": nn.Linear(40, 40)})
        self.decoder.config = {"scale": 2.0}

    def forward(self, x):
        return self.head["decoder"](x) * self.decoder.config["scale"]


def test_what_another_module_of_that_name_has_may_be_read(session):
    model = nn.ModuleDict({"m": NamedAlike()}).eval()
    x = torch.randn(3, 40)
    wanted = model.m(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert list(adopted.layers) == ["m.head.decoder"] and adopted.left == {}
    assert relative_error(model.m(x), wanted) < 1e-5


def test_a_weights_values_are_not_there_to_be_asked(session):
    model = nn.ModuleDict({"proj": nn.Linear(40, 40), "mlp": Gated()}).eval()
    gemmd.adopt(model, session, **EXACT)
    weight = model.proj.weight
    for ask in (lambda: weight.sum(), lambda: F.linear(torch.randn(2, 40), weight), lambda: weight.T):
        with pytest.raises((AttributeError, TypeError), match="it lies on the server.*where="):
            ask()
    assert not hasattr(model.mlp, "weight") and "proj.weight" not in model.state_dict()


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("what", STAY)
def test_what_a_layer_cannot_stand_for_is_left_alone(session, what):
    make, path, why = STAY[what]
    odd = make()
    model = nn.ModuleDict({"odd": odd, "plain": nn.Linear(40, 40)}).eval()
    x = torch.randn(3, 40, dtype=next(odd.parameters()).dtype)
    wanted = odd(x)
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert list(adopted.layers) == ["plain"] and list(adopted.left) == [f"odd{path}"]
    assert why in adopted.left[f"odd{path}"]
    assert model["odd"] is odd and torch.equal(odd(x), wanted)


def test_torchs_own_transformers_still_run(session):
    options = {"d_model": 40, "nhead": 2, "dim_feedforward": 64, "batch_first": True}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), 1)
    decoder = nn.TransformerDecoderLayer(**options)
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder}).eval()
    x = torch.randn(2, 5, 40)
    wanted = decoder(x, encoder(x))
    adopted = gemmd.adopt(model, session, **EXACT)
    assert list(adopted.layers) == ["decoder.linear1", "decoder.linear2"]
    ends = [path.removeprefix("encoder.layers.0.") for path in adopted.left]
    assert ends == [
        "self_attn.out_proj", "linear1", "linear2",
        "decoder.self_attn.out_proj", "decoder.multihead_attn.out_proj",
    ]  # fmt: skip
    assert relative_error(decoder(x, encoder(x)), wanted) < 1e-5
    assert "reads linear1.weight" in str(adopted)


def test_a_hook_on_an_mlp_or_within_it_keeps_it_from_being_one_layer(session):
    model = nn.ModuleList([hooked(Gated()), Gated(), Gated()]).eval()
    hooked(model[1].act_fn)
    adopted = gemmd.adopt(model, session, min_elements=0)
    assert [type(adopted.layers.get(str(at))).__name__ for at in range(3)] == [
        "NoneType", "NoneType", "MLP",
    ]  # fmt: skip
    assert len(adopted) == 7


def test_a_forward_that_reads_its_mlps_weights_does_not_matter_where_it_goes(session):
    class Sliced(Gated):
        def forward(self, x):
            if self.training:
                return self.gate_proj.weight.sum()
            return super().forward(x)

    model = nn.Sequential(Sliced()).eval()
    assert [type(one) for one in gemmd.adopt(model, session, **EXACT)] == [gemmd.MLP]

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = Sliced()

        def forward(self, x):
            return self.mlp(x.to(self.mlp.down_proj.weight.dtype))

    model = Outer().eval()
    x = torch.randn(3, 40)
    wanted = model(x)
    adopted = gemmd.adopt(model, session, **EXACT)
    assert sorted(adopted.layers) == ["mlp.down_proj", "mlp.up_proj"]
    assert sorted(adopted.left) == ["mlp.gate_proj"]
    assert relative_error(model(x), wanted) < 1e-5
