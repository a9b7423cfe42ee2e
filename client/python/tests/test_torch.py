"""Layers and torch on the CPU: the op, its fake kernel, the compiler. Skips without torch."""

import copy
import subprocess
import sys

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
    for a, b in ((x, w.T), (x, resident.T), (x.numpy(), w.T)):
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


@pytest.fixture
def moe(session, random):
    gate_up, down = random.standard_normal((4, 16, 24), "f4"), random.standard_normal((4, 8, 8))
    return gemmd.MoE(session, gate_up, down.astype("f4"), top_k=2)


def refuses_a_gradient(y):
    assert y.requires_grad
    y += 1  # as a model's own layers' results
    with pytest.raises(RuntimeError, match=r"no gradients: call them under torch\.no_grad"):
        y.sum().backward()


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_a_gradient_is_refused_and_not_left_out(layer, moe, way):
    """Of x + layer(x) it would be wrong without a word."""
    calls = [layer, moe] if way == "eager" else [compiled(layer), compiled(moe)]
    x = torch.randn(3, 40, requires_grad=True)
    refuses_a_gradient(x * 1 + torch.cat([calls[0](x), x[:, 24:]], 1))
    refuses_a_gradient(calls[0](x))
    rows, choice = torch.randn(3, 24), torch.randint(0, 4, (3, 2))
    refuses_a_gradient(calls[1](rows.requires_grad_(), choice, torch.rand(3, 2)))
    refuses_a_gradient(calls[1](rows.detach(), choice, torch.rand(3, 2, requires_grad=True)))
    with torch.no_grad():
        assert not calls[0](x).requires_grad
    assert not calls[0](x.detach()).requires_grad


def test_a_type_of_torchs_names_one(session, layer):
    for kind in ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8"):
        held = session.create_buffer(shape=(2, 2), dtype=getattr(torch, kind))
        assert held.dtype == gemmd.as_dtype(kind)
    x, w = torch.randn(3, 40), torch.randn(24, 40)
    assert session.matmul(x, w.T, out_dtype=torch.bfloat16).dtype == torch.bfloat16
    assert gemmd.Linear(session, w, out_dtype=torch.float16)(x).dtype == torch.float16
    with pytest.raises(TypeError, match="float64 is not an element type of gemmd"):
        session.create_buffer(shape=(2, 2), dtype=torch.float64)


def test_a_matmul_refuses_a_gradient_too(session):
    x, w = torch.randn(6, 40, requires_grad=True), torch.randn(24, 40)
    resident = session.upload(w)
    for y in (session.matmul(x, w.T), x @ resident.T, session.matmul(w, x.T)):
        refuses_a_gradient(y)
    with torch.no_grad():
        assert not session.matmul(x, w.T).requires_grad


def test_tensors_without_memory_give_such(layer, moe):
    """As tools have them that look at shapes alone, and vmap."""
    x = torch.empty(2, 3, 40, device="meta", dtype=torch.bfloat16)
    assert (layer(x).shape, layer(x).device.type) == ((2, 3, 24), "meta")
    choice = torch.zeros(3, 2, device="meta", dtype=torch.long), torch.ones(3, 2, device="meta")
    assert moe(torch.empty(3, 24, device="meta"), *choice).shape == (3, 8)
    x = torch.randn(4, 3, 40)
    for dim in (0, 1):
        y = torch.vmap(layer, in_dims=dim)(x.movedim(0, dim))
        torch.testing.assert_close(y, layer(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["sparse", "nested", "nested, jagged", "quantised"])
def test_tensors_that_are_not_dense_are_refused(session, layer, kind):
    x = torch.randn(3, 40)
    odd = {
        "sparse": x.to_sparse,
        "nested": lambda: torch.nested.nested_tensor([x, x[:2]]),
        "nested, jagged": lambda: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged),
        "quantised": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    }[kind]()
    for call in (layer, session.upload):
        with pytest.raises(TypeError, match=f"{kind.split(',')[0]}.*a dense one is needed"):
            call(odd)
    assert torch.equal(layer(torch._neg_view(x)), layer(-x))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = torch.nn.LayerNorm(40), torch.nn.Linear(40, 24)

    def forward(self, x):
        return self.mlp(self.norm(x))


@torch.no_grad()
def test_a_layer_takes_a_modules_place(layer, tmp_path):
    block, x = Block(), torch.randn(3, 40)
    block.mlp = layer.module()
    y = block(x)
    assert torch.equal(y, layer(block.norm(x)))
    assert torch.equal(torch.nn.Sequential(block.norm, layer.module())(x), y)
    assert torch.equal(compiled(block)(x), y)
    assert repr(layer) in repr(block)
    assert (block.mlp.in_features, block.mlp.out_features) == (40, 24)
    assert set(block.state_dict()) == {"norm.weight", "norm.bias"}
    torch.save(block.state_dict(), tmp_path / "block.pt")
    block.load_state_dict(torch.load(tmp_path / "block.pt"))
    copied = copy.deepcopy(block)
    assert copied.mlp.layer is layer and copied.mlp is not block.mlp
    assert copied.norm.weight is not block.norm.weight
    copied.eval()
    assert block.mlp.training and not copied.mlp.training
    assert torch.equal(copied(x), y)
    block.to(torch.bfloat16)
    assert block(x.bfloat16()).dtype == layer(x.bfloat16()).dtype


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_what_records_a_model_records_a_layer_as_one_step(layer, moe):
    """A constant of the first call would come back for every other x."""

    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.moe = torch.nn.Linear(24, 4), moe.module()

        def forward(self, x):
            weights, choice = self.router(x).softmax(-1).topk(2)
            return self.moe(x, choice, weights)

    model = torch.nn.Sequential(layer.module(), Experts())
    x, other = torch.randn(3, 40), torch.randn(5, 40)
    assert torch.equal(torch.jit.trace(model, (x,))(other), model(other))
    assert torch.equal(torch.fx.symbolic_trace(model)(other), model(other))
    with pytest.raises(TypeError, match="trace a module that holds this one"):
        torch.fx.symbolic_trace(layer.module())


ELSEWHERE = """
import sys
import numpy as np, torch, gemmd

target, named, unnamed = sys.argv[1:]
x = torch.ones(2, 8)
with gemmd.Client(target) as client, client.session() as session:
    others = [gemmd.Linear(session, np.full((8, 8), 7, "f4"), quantize=None) for _ in range(3)]
    layer = gemmd.Linear(session, name="exported", quantize=None)
    assert torch.equal(torch.export.load(named).module()(x), layer(x))
    try:
        torch.export.load(unnamed).module()(x)
    except RuntimeError as error:
        assert "another process's" in str(error), error
    else:
        raise AssertionError("another layer was called")
"""


def test_an_exported_program_calls_the_layer_of_that_name_elsewhere_and_no_other(
    session, random, tmp_path
):
    x = torch.ones(2, 8)
    w = random.standard_normal((8, 8), "f4")
    paths = []
    for name in ("exported", ""):
        layer = gemmd.Linear(session, w, name=name, quantize=None)
        program = torch.export.export(layer.module(), (x,))
        assert torch.equal(program.module()(x), layer(x))
        paths.append(str(tmp_path / f"program{name}.pt2"))
        torch.export.save(program, paths[-1])
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, session.client.transport.target, *paths],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_two_layers_of_a_name_are_told_apart(session, random):
    w = random.standard_normal((8, 8), "f4")
    first = gemmd.Linear(session, w, name="twice", quantize=None)
    second = gemmd.Linear(session, name="twice", quantize=None, activation="relu")
    third = gemmd.Linear(session, name="twice", quantize=None)
    x = torch.randn(2, 8)
    calls = [compiled(layer) for layer in (first, second, third)]
    assert torch.equal(calls[0](x), first(x))
    assert torch.equal(calls[1](x), torch.relu(first(x)))
    assert torch.equal(calls[2](x), first(x))
    del first
    assert torch.equal(calls[2](x), third(x))


def test_experts_are_a_module_with_three_inputs(moe):
    x, choice = torch.randn(3, 24), (torch.randint(0, 4, (3, 2)), torch.rand(3, 2))
    y, module = moe(x, *choice), moe.module()
    assert torch.equal(module(x, *choice), y)
    assert torch.equal(module(x, weights=choice[1], experts=choice[0]), y)
    assert torch.equal(moe(x, *(one.numpy() for one in choice)), y)


def test_a_module_or_a_tensor_without_elements_is_no_weight(session):
    module = torch.nn.Linear(8, 24)
    for mistake in (
        lambda: gemmd.Linear(session, module),
        lambda: gemmd.MLP(session, module, torch.randn(8, 12)),
        lambda: gemmd.MLP(session, torch.randn(24, 8), module),
    ):
        with pytest.raises(TypeError, match=r"is a module of torch, Linear; give its \.weight"):
            mistake()
    with pytest.raises(TypeError, match="on the meta device has no elements"):
        gemmd.Linear(session, torch.empty(24, 8, device="meta"))


def test_experts_are_compiled_too(moe):
    by_choice, by_logits = compiled(moe), torch.compile(moe.from_logits, fullgraph=True)
    for tokens in (3, 0, 5):
        x, logits = torch.randn(tokens, 24), torch.randn(tokens, 4)
        choice = torch.randint(0, 4, (tokens, 2)), torch.rand(tokens, 2)
        assert torch.equal(by_choice(x, *choice), moe(x, *choice))
        # torch's compiler may round another way in softmax.
        torch.testing.assert_close(by_logits(x, logits), moe.from_logits(x, logits))


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


def by_dual_numbers(function, x):
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        result = function(forward_ad.make_dual(x, torch.ones_like(x)))
        return forward_ad.unpack_dual(result).tangent


FORWARD = {
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (torch.ones_like(x),)),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "linearize": lambda function, x: torch.func.linearize(function, x)[1](x),
    "dual numbers": by_dual_numbers,
    "jvp of vmap": lambda function, x: torch.func.jvp(
        torch.vmap(function), (x,), (torch.ones_like(x),)
    ),
    "compiled jvp": lambda function, x: compiled(
        lambda x: torch.func.jvp(function, (x,), (torch.ones_like(x),))
    )(x),
}
BACKWARD = {
    "grad": lambda function, x: torch.func.grad(lambda x: function(x).sum())(x),
    "vjp": lambda function, x: torch.func.vjp(function, x)[1](torch.ones(3, 24)),
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
}


@pytest.mark.parametrize("way", [*FORWARD, *BACKWARD])
def test_a_derivative_by_a_transform_is_refused_and_not_zero(layer, way):
    ways = FORWARD | BACKWARD
    kind = "derivatives" if way in FORWARD else "gradients"
    x = torch.randn(3, 40)
    layer(x)
    with pytest.raises(Exception, match=f"have no {kind}.*detach"):
        ways[way](layer, x)


@pytest.mark.parametrize("way", ["jvp", "dual numbers"])
def test_a_forward_derivative_of_a_matmul_or_of_an_older_layer_is_refused(layer, session, way):
    x = torch.randn(3, 40)
    w = session.upload(torch.randn(24, 40))
    layer._traced = None  # as of one that was made before torch was imported
    functions = [lambda x: session.matmul(x, w.T), lambda x: x @ w.T]
    if way == "dual numbers":
        functions.append(layer)
    for function in functions:
        with pytest.raises(RuntimeError, match=r"have no derivatives.*detach"):
            FORWARD[way](function, x)


def test_a_derivative_by_experts_is_refused_and_not_zero(moe):
    x, choice = torch.randn(3, 24), (torch.randint(0, 4, (3, 2)), torch.rand(3, 2))
    for way in ("jvp", "dual numbers"):
        with pytest.raises(RuntimeError, match=r"have no derivatives.*detach"):
            FORWARD[way](lambda x: moe(x, *choice), x)
        with pytest.raises(RuntimeError, match=r"have no derivatives.*detach"):
            FORWARD[way](lambda weights: moe(x, choice[0], weights), choice[1])
    with pytest.raises(RuntimeError, match=r"have no derivatives.*detach"):
        mapped = torch.vmap(lambda x: moe(x, *choice))
        FORWARD["jvp"](mapped, torch.randn(2, 3, 24))


def test_a_derivative_may_pass_beside_a_layer(layer):
    x, y = torch.randn(3, 40), torch.randn(3, 24)
    wanted = torch.ones_like(y)
    for function in (lambda y: layer(x) + y, lambda y: layer(x.detach()).detach() + y):
        assert torch.equal(torch.func.jvp(function, (y,), (wanted,))[1], wanted)
        assert torch.equal(torch.func.grad(lambda y, f=function: f(y).sum())(y), wanted)
    through = torch.func.jvp(
        lambda x: layer(x.detach()).sum() + x.sum(), (x,), (torch.ones_like(x),)
    )
    assert through[1] == 120


def test_vmap_maps_a_layer_and_a_matmul_says_why_not(layer, session):
    x = torch.randn(5, 3, 40)
    for got in (torch.vmap(layer)(x), torch.vmap(torch.vmap(layer))(x)):
        assert torch.equal(got, layer(x))
    assert torch.equal(torch.vmap(layer, in_dims=1, out_dims=1)(x), layer(x))
    w = session.upload(torch.randn(24, 40))
    with pytest.raises(TypeError, match=r"within a transform.*gemmd\.Linear"):
        torch.vmap(lambda x: session.matmul(x, w.T))(x)
