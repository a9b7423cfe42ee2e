"""adopt by a name, and where it fails: against the fake. Skips without torch."""

import asyncio
import copy
import sys

import pytest

import gemmd
import gemmd.aio

from ..fake.machine import Refused

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from .models import PATHS, TOKENS, Model  # noqa: E402


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def test_a_second_worker_finds_the_weights_with_its_own_on_the_meta_device(session, server):
    first = Model().eval()
    gemmd.adopt(first, session, name="m", min_elements=0)
    published = {f"m/{path}" for path in PATHS if "mlp" not in path}
    published |= {f"m/blocks.{at}.mlp.{part}" for at in (0, 1) for part in ("gate_up", "down")}
    assert set(server.published) == published
    with torch.device("meta"):
        second = Model().eval()
    adopted = gemmd.adopt(second, session, name="m", min_elements=0)
    assert sorted(adopted.layers) == sorted(PATHS)
    second.load_state_dict(first.state_dict(), assign=True)  # the embedding and the norms
    assert torch.equal(second(TOKENS), first(TOKENS))
    adopted.unpublish()
    assert not server.published
    assert torch.equal(second(TOKENS), first(TOKENS))


def test_a_second_worker_with_the_same_weights_shares_them(session):
    first = Model().eval()
    second = copy.deepcopy(first)
    one, other = (
        gemmd.adopt(model, session, name="m", min_elements=0) for model in (first, second)
    )
    for path, layer in one.layers.items():
        ids = [[buffer.buffer_id for buffer in each.held] for each in (layer, other.layers[path])]
        assert ids[0] == ids[1]  # the fake has one id a buffer
    assert torch.equal(first(TOKENS), second(TOKENS))


def with_a_bias():
    """Without values: those would differ, too."""
    with torch.device("meta"):
        model = Model().eval()
        model.lm_head = nn.Linear(40, 56)
    return model


OTHERS = {
    "values of a Linear": (Model, "lm_head", "with other values than the model's lm_head"),
    "values of an MLP": (Model, ".mlp.", r"with other values than the model's blocks\.0\.mlp"),
    "a shape": (lambda: Model(vocabulary=57), "lm_head", "published with other shapes or biases"),
    "a bias": (with_a_bias, "lm_head", "published with other shapes or biases"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_weights_that_are_published_and_are_others_are_refused(session, server, what):
    make, part, why = OTHERS[what]
    gemmd.adopt(Model().eval(), session, name="m", min_elements=0)
    published, other = dict(server.published), make().eval()
    before = dict(other.named_modules())
    with pytest.raises(gemmd.FailedPrecondition, match=why) as raised:
        gemmd.adopt(other, session, name="m", min_elements=0, where=lambda path, _: part in path)
    assert raised.value.reason == "OTHER_WEIGHT"
    assert dict(other.named_modules()) == before and server.published == published


def test_a_weight_without_values_must_be_published(session):
    with torch.device("meta"):
        model = Model().eval()
    with pytest.raises(ValueError, match=r"mlp\.gate_proj is on the meta device.*give name="):
        gemmd.adopt(model, session, min_elements=0)
    with pytest.raises(
        gemmd.NotFound, match=r'meta device.*"m/.*not published; let a worker.*where='
    ):
        gemmd.adopt(model, session, name="m", min_elements=0)
    assert sum(isinstance(one, nn.Linear) for one in model.modules()) == 11


def test_names_hold_to_the_servers_rules(session, server):
    model = nn.ModuleDict({"a b": nn.Linear(40, 40), "c": nn.Linear(40, 40)}).eval()
    gemmd.adopt(model, session, name="v/1@2", min_elements=0)
    assert sorted(server.published) == ["v/1@2/a-b", "v/1@2/c"]
    for name, why in (("a b", r"name='a b' has ' '.*A-Za-z"), ("x" * 127, "129 bytes, limit 128")):
        model = nn.ModuleDict({"c": nn.Linear(40, 40)}).eval()
        with pytest.raises(ValueError, match=why):
            gemmd.adopt(model, session, name=name, min_elements=0)
    model = nn.ModuleDict({"a b": nn.Linear(40, 40), "a-b": nn.Linear(40, 40)}).eval()
    with pytest.raises(ValueError, match="a b and a-b would both be published as w/a-b"):
        gemmd.adopt(model, session, name="w", min_elements=0)


def refuse_the_ninth(monkeypatch, server, method):
    original, calls = getattr(server, method), []

    def refuse(request):
        calls.append(request)
        if len(calls) == 9:
            raise Refused("RESOURCE_EXHAUSTED", "tenant has 8, limit 8", "QUOTA")
        return original(request)

    monkeypatch.setattr(server, method, refuse)


@pytest.mark.parametrize(
    ("method", "name"),
    [("create_buffer", ""), ("create_buffer", "m"), ("publish_buffer", "m"), ("execute", "m")],
)
def test_after_a_failure_model_and_server_are_as_before(session, server, monkeypatch, method, name):
    model = Model().eval()
    wanted, before = model(TOKENS), dict(model.named_modules())
    refuse_the_ninth(monkeypatch, server, method)
    with pytest.raises(gemmd.ResourceExhausted, match="limit 8") as raised:
        gemmd.adopt(model, session, name=name, min_elements=0)
    assert "nothing was adopted: the model is as it was" in raised.value.__notes__
    assert dict(model.named_modules()) == before and torch.equal(model(TOKENS), wanted)
    assert not server.published
    assert not [one.label for one in session.buffers() if one.label.startswith("gemmd.Linear")]
    assert len(gemmd.adopt(model, session, name=name, min_elements=0)) == 7


def test_a_model_whose_children_cannot_be_set_is_put_back(session):
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(40, 40)
            self.fixed = True

        def __setattr__(self, name, value):
            if self.__dict__.get("fixed"):
                raise AttributeError("the children of Fixed are fixed")
            super().__setattr__(name, value)

    model = nn.ModuleList([nn.Linear(40, 40), Fixed()])
    for part in model.modules():
        part.__dict__["training"] = False
    before = dict(model.named_modules())
    with pytest.raises(AttributeError, match="are fixed"):
        gemmd.adopt(model, session, min_elements=0)
    assert dict(model.named_modules()) == before
    assert not [one.label for one in session.buffers() if one.label.startswith("gemmd.Linear")]


def test_weights_that_fp8_does_not_hold_stay(session, server):
    model = nn.ModuleDict({"plain": nn.Linear(40, 40), "odd": nn.Linear(40, 40)}).eval()
    model["odd"].weight[3, 3] = torch.nan
    adopted = gemmd.adopt(model, session, name="m", min_elements=0)
    assert list(adopted.layers) == ["plain"] and list(server.published) == ["m/plain"]
    assert "results differ from its by nan" in adopted.left["odd"]


def test_mistakes_are_told(session):
    model = Model().eval()
    for mistake, error, words in (
        (
            lambda: gemmd.adopt(model.state_dict(), session),
            TypeError,
            "OrderedDict.*torch.nn.Module",
        ),
        (
            lambda: gemmd.adopt(model, session.client),
            TypeError,
            "gemmd.Client; give.*client.session",
        ),
        (
            lambda: gemmd.adopt(model, session, quantize="fp8"),
            ValueError,
            "did you mean 'fp8-block'",
        ),
        (
            lambda: gemmd.adopt(model, session, min_elements=0.5),
            TypeError,
            "min_elements=0.5 is no",
        ),
        (lambda: gemmd.adopt(model, session, name=None), TypeError, "name has type NoneType"),
        (lambda: gemmd.adopt(model, session, where="mlp"), TypeError, "where has type str"),
        (
            lambda: gemmd.adopt(nn.GELU(), session),
            ValueError,
            r"of GELU .*has no torch\.nn\.Linear",
        ),
        (
            lambda: gemmd.adopt(nn.Linear(8, 8).eval(), session),
            ValueError,
            "the model: it is the model",
        ),
        (
            lambda: gemmd.adopt(model, session),
            ValueError,
            "7 more: its weight has|min_elements is 16777216",
        ),
    ):
        with pytest.raises(error, match=words):
            mistake()


def test_an_asyncio_session_is_refused(fake):
    async def main():
        async with gemmd.aio.Client(fake.target) as client, client.session() as session:
            with pytest.raises(TypeError, match=r"gemmd\.aio\.Session; give a gemmd\.Session"):
                gemmd.adopt(Model().eval(), session)

    asyncio.run(main())


def test_without_torch_it_says_so(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="needs torch: pip install torch"):
        gemmd.adopt(object(), session)
