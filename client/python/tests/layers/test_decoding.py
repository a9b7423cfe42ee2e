"""compile: what generate decodes with, modes of inductor and what a backend is told, against the fake.
Skips without torch."""

import copy
from types import SimpleNamespace

import pytest

import gemmd

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gemmd._layers.frames import frame_of  # noqa: E402

from .compiling import no_gradients  # noqa: E402, F401
from .models import relative_error  # noqa: E402
from .test_compile import EXACT, MODELS, WIDTH, Llama  # noqa: E402


class Cache:
    """As transformers have them: layers with tensors, made by the first call."""

    def __init__(self):
        self.layers = [SimpleNamespace(keys=None)]


class Decoding(nn.Sequential):
    """As a model of transformers: `generate` compiles what decodes with a cache of one size."""

    @classmethod
    def can_generate(cls):
        return True

    def get_compiled_call(self, config):
        return torch.compile(self.__call__, backend="eager")

    def forward(self, x, cache):
        if cache.layers[0].keys is None:
            cache.layers[0].keys = torch.zeros(2, 5, WIDTH)
        y = super().forward(x)
        cache.layers[0].keys[:, : x.shape[1]] += y
        return y + cache.layers[0].keys[:, :1]

    def generate(self, x, config=None):
        cache = Cache()
        first = self(x, cache)
        one = self.get_compiled_call(config)
        return torch.cat([first, *(one(x[:, at : at + 1], cache=cache) for at in range(3))], 1)


class NotCompiled(Decoding):
    """As Llama 4."""

    def get_compiled_call(self, config):
        return self.__call__


CONFIGS = {
    "nothing": None,
    "inductor": SimpleNamespace(backend="inductor", mode="default", options=None),
    "eager": SimpleNamespace(backend="eager", mode="reduce-overhead", fullgraph=True),
    "options": SimpleNamespace(backend="inductor", mode=None, options={"max_autotune": False}),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("options", [{}, {"rest": "inductor", "mode": "reduce-overhead"}])
def test_what_decodes_goes_by_blocks_too(session, options, config):
    model = Decoding(Llama(), Llama()).eval()
    x = torch.randn(2, 5, WIDTH)
    wanted = model.generate(x)
    with gemmd.compile(model, session, in_place=True, **options, **EXACT) as fast:
        copied = copy.deepcopy(model)
        for _ in range(2):
            assert relative_error(model.generate(x, CONFIGS[config]), wanted) < 1e-5
        assert len(fast) in (3, 4), fast  # the same for the prompt and what decodes
    assert not [name for name in vars(model) if name in ("get_compiled_call", "_gemmd_decoding")]
    assert torch.equal(model.generate(x), wanted)
    assert torch.equal(copied.generate(x), wanted)  # by its own weights, not the closed blocks


def test_what_generate_does_not_compile_is_called_as_the_model_is(session):
    model = NotCompiled(Llama(), Llama()).eval()
    x = torch.randn(2, 5, WIDTH)
    wanted = model.generate(x)
    with gemmd.compile(model, session, in_place=True, **EXACT) as fast:
        assert model.get_compiled_call(None) == model.__call__
        assert relative_error(model.generate(x), wanted) < 1e-5
        assert len(fast) in (3, 4), fast


class Inner(nn.Sequential):
    """As a model of transformers that is part of another."""

    main_input_name = "x"

    def __init__(self):
        super().__init__(Llama(), Llama())
        self.config = SimpleNamespace()


class EncoderDecoder(nn.Module):
    """`generate` calls the encoder by itself, and the model with what that gave."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Inner(), Inner()

    def forward(self, x, states=None):
        return self.decoder(x + (self.encoder(x) if states is None else states))

    def generate(self, x):
        return self(x, states=self.encoder(x))


def test_what_a_method_calls_by_itself_goes_by_blocks(session):
    model = EncoderDecoder().eval()
    x = torch.randn(2, 5, WIDTH)
    wanted = model.generate(x)
    with gemmd.compile(model, session, in_place=True, **EXACT) as fast:
        assert relative_error(model.generate(x), wanted) < 1e-5
        assert (len(fast), fast.left) == (6, []), fast
        assert relative_error(model(x), wanted) < 1e-5  # the encoder within
    assert torch.equal(model.generate(x), wanted)
    assert model.encoder._compiled_call_impl is None


@pytest.mark.parametrize("in_place", [False, True])
def test_models_of_one_class_do_not_count_together(session, monkeypatch, in_place):
    """What torch compiles of one function it counts, and stops at a limit."""
    monkeypatch.setattr("gemmd._layers.frames._MOST_KINDS", 1)
    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(3):
            model = MODELS["llama"]().eval()
            x = torch.randn(2, 5, WIDTH)
            wanted = model(x)
            with gemmd.compile(model, session, in_place=in_place, **EXACT) as fast:
                assert relative_error((model if in_place else fast)(x), wanted) < 1e-5
                assert (len(fast), fast.left) == (3, []), fast


def test_more_kinds_of_calls_than_torch_would_compile(session):
    model = MODELS["llama"]().eval()
    limit = torch._dynamo.config.patch(recompile_limit=1)
    with limit, gemmd.compile(model, session, dynamic=False, **EXACT) as fast:
        for rows in range(1, 5):
            fast(torch.randn(rows, 5, WIDTH))
        assert fast._compiling.graphs == 4, fast


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_modes_of_inductor(session, mode):
    model = MODELS["llama"]().eval()
    x = torch.randn(2, 5, WIDTH)
    with gemmd.compile(model, session, rest="inductor", mode=mode, **EXACT) as fast:
        assert relative_error(fast(x), model(x)) < 1e-5
        assert (len(fast), fast.left) == (3, [])


TOLD = []


@torch._dynamo.register_backend(name="told")
def _told(graph_module, inputs):
    nodes = graph_module.graph.find_nodes(op="placeholder")
    TOLD.append((dict(graph_module.meta), [vars(node) for node in nodes], len(inputs)))
    return graph_module.forward


def test_a_backend_is_told_what_torch_tells(session):
    """Without it inductor takes no input to lie where it is, and makes no CUDA graph of a call that
    writes to one.
    """
    TOLD.clear()
    model = MODELS["llama"]().eval()
    torch.compile(frame_of(model.__call__), backend="told")(torch.randn(2, 5, WIDTH))
    torch._dynamo.reset()
    with gemmd.compile(model, session, rest="told", **EXACT) as fast:
        fast(torch.randn(2, 5, WIDTH))
    (by_torch, own, count), (meta, nodes, other) = TOLD
    assert meta.keys() == by_torch.keys() and count == other
    assert [one.get("_dynamo_source") for one in nodes] == [one["_dynamo_source"] for one in own]
