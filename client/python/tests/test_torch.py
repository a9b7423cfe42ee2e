"""Layers and torch on the CPU: the op, its fake kernel, the compiler. Skips without torch."""

import numpy as np
import pytest

import gemmd
from gemmd import native

from .conftest import QUICK

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())


@pytest.fixture
def session(arming_fake):
    with (
        gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client,
        client.session() as session,
    ):
        yield session


@pytest.fixture
def layer(session, random):
    return gemmd.Linear(session, random.standard_normal((24, 40), "f4"), quantize=None)


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


def test_a_compiled_call_gives_the_same_bits_as_an_eager_one(layer):
    call = compiled(lambda x: torch.relu(layer(x)) + 1)
    for rows in ((3,), (3,), (2, 5)):
        x = torch.randn(*rows, 40)
        assert torch.equal(call(x), torch.relu(layer(x)) + 1)


def test_the_op_passes_torchs_own_checks(layer):
    x = torch.randn(3, 40)
    arguments = (x, layer._traced.key, 24, torch.float32)
    torch.library.opcheck(
        torch.ops.gemmd.layer.default,
        arguments,
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("out", [None, "f32", "bf16"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_the_fake_kernel_knows_the_results_type(session, random, kind, out):
    from torch._subclasses.fake_tensor import FakeTensorMode

    w = random.standard_normal((8, 16), "f4")
    layer = gemmd.Linear(session, w, quantize=None, out_dtype=out)
    x = torch.randn(2, 3, 16, dtype=getattr(torch, kind))
    y = layer(x)
    with FakeTensorMode() as mode:
        fake = layer._traced.call(mode.from_tensor(x))
    assert (fake.shape, fake.dtype) == (y.shape, y.dtype)


@pytest.mark.parametrize("options", [{}, {"quantize": "fp8-block"}, {"out_dtype": "bf16"}])
def test_matmul_takes_tensors_and_gives_one(session, options):
    x, w, bias = torch.randn(6, 40), torch.randn(24, 40), torch.randn(24)
    resident = session.upload(w)
    wanted = session.matmul(x.numpy(), w.numpy().T, bias=bias.numpy(), **options)
    for a, b in ((x, w.T), (x, resident.T), (x.numpy(), w.T), (x.requires_grad_(), w.T)):
        y = session.matmul(a, b, bias=bias, **options)
        assert isinstance(y, torch.Tensor) and not y.requires_grad
        assert torch.equal(y, torch.from_numpy(np.array(wanted, "f4")).to(y.dtype))
    assert torch.equal(x @ resident.T, session.matmul(x, w.T))
    assert session.matmul(x[:0], w.T).shape == (0, 24)
    large = torch.randn(900, 800)
    assert session.matmul(large, large.T).shape == (900, 900)
    assert type(session.matmul(x.detach().numpy(), resident.T)) is gemmd.Array


def test_a_layer_that_is_gone_says_so(session, random):
    layer = gemmd.Linear(session, random.standard_normal((8, 16), "f4"), quantize=None)
    key = layer._traced.key
    del layer
    with pytest.raises(RuntimeError, match="is gone"):
        torch.ops.gemmd.layer(torch.zeros(1, 16), key, 8, torch.float32)


def test_a_wrong_extent_is_refused_under_the_compiler_too(layer):
    call = compiled(layer)
    with pytest.raises(Exception, match="must be k=40"):
        call(torch.randn(3, 41))


@pytest.mark.parametrize("shape", [(0, 40), (2, 0, 40)])
def test_x_without_a_row_gives_a_result_without_one(layer, shape):
    x = torch.randn(*shape, dtype=torch.bfloat16)
    for call in (layer, compiled(layer)):
        y = call(x)
        assert (y.shape, y.dtype) == ((*shape[:-1], 24), torch.float32)


def test_the_compiler_knows_the_types_that_a_layer_takes(layer):
    call = compiled(layer)
    x = torch.randn(3, 40).to(torch.float8_e4m3fn)
    assert torch.equal(call(x), layer(x))
    with pytest.raises(Exception, match="x has dtype int32; a layer takes float32"):
        call(x.int())


def test_a_call_takes_no_part_in_gradients(layer):
    x = torch.randn(3, 40, requires_grad=True)
    for call in (layer, compiled(layer)):
        assert not call(x).requires_grad


def test_experts_are_compiled_too(session, random):
    gate_up, down = random.standard_normal((4, 16, 24), "f4"), random.standard_normal((4, 8, 8))
    moe = gemmd.MoE(session, gate_up, down.astype("f4"), top_k=2)
    by_choice, by_logits = compiled(moe), torch.compile(moe.from_logits, fullgraph=True)
    for tokens in (3, 0, 5):
        x, logits = torch.randn(tokens, 24), torch.randn(tokens, 4)
        choice = torch.randint(0, 4, (tokens, 2)), torch.rand(tokens, 2)
        assert torch.equal(by_choice(x, *choice), moe(x, *choice))
        assert torch.equal(by_logits(x, logits), moe.from_logits(x, logits))


def test_more_blocks_than_torch_compiles_anew_share_their_code(session, random):
    """As docs/python.md says."""

    class Block(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x) + 1

    weights = [random.standard_normal((8, 8), "f4") for _ in range(10)]
    blocks = [Block(gemmd.Linear(session, w, quantize=None)) for w in weights]
    torch._dynamo.reset()
    x = torch.randn(3, 8)
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True, recompile_limit=4):
        for block in blocks:
            y = block(x)
            block.compile(fullgraph=True, backend="aot_eager")
            assert torch.equal(block(x), y)


def test_an_unquantised_layer_answers_in_its_weights_type(layer):
    x = torch.randn(4, 40).to(torch.bfloat16)
    y = layer(x)
    assert y.dtype == torch.float32
    w = torch.from_numpy(np.array(layer.buffer.download()))
    torch.testing.assert_close(y, x.float() @ w.T, rtol=1e-4, atol=1e-4)
