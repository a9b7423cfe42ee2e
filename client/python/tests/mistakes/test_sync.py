"""The usual mistakes, each with what its error must say: the choices, the limit, or the way."""

import asyncio
import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd.v1.device_service_pb2 import Limits, ServerInfo

X = np.ones((3, 8), "f4")
W = np.ones((8, 5), "f4")
WORDS_OF_QUANTIZE = "fp8-block, fp8-row, fp8-tensor, int8-block, int8-row, int8-tensor"
WORDS_OF_ACTIVATION = "none, relu, silu, gelu_tanh, gelu_erf"


def closed_layer(session):
    with gemmd.Linear(session, W.T, quantize=None) as layer:
        layer(X)
    layer(X)


def closed_client(session):
    with gemmd.Client(session.client.transport.target) as client:
        other = client.session()
    other.buffers()


def waiting_closed_client(session):
    with gemmd.Client(session.client.transport.target) as client:
        pass
    client.wait_ready(1)


# What is done to a session s, and words of the error in their order.
OF_A_SESSION = {
    "quantize, a word cut short": (
        lambda s: s.matmul(X, W, quantize="fp8"),
        ValueError, ["quantize 'fp8'", "use one of " + WORDS_OF_QUANTIZE],
    ),
    "quantize, underscores": (
        lambda s: s.matmul(X, W, quantize="fp8_block"),
        ValueError, ["did you mean 'fp8-block'"],
    ),
    "quantize, of another type": (
        lambda s: s.matmul(X, W, quantize=8), ValueError, ["quantize 8", "fp8-block"],
    ),
    "activation that is none": (
        lambda s: s.matmul(X, W, activation="gelu"),
        ValueError, ["activation 'gelu'", "use one of " + WORDS_OF_ACTIVATION],
    ),
    "alpha of several numbers": (
        lambda s: s.matmul(X, W, alpha=X), TypeError, ["alpha has type ndarray", "give a number"],
    ),
    "elements that are masked": (
        lambda s: s.matmul(np.ma.masked_less(X, 2), s.upload(W)),
        TypeError, ["masked elements", "array.filled(0)"],
    ),
    "an option misspelt": (
        lambda s: s.matmul(X, W, quantise="fp8-block"),
        TypeError, ["no option 'quantise'", "did you mean 'quantize'"],
    ),
    "an option of torch": (
        lambda s: s.matmul(X, W, dtype="f32"),
        TypeError, ["no option 'dtype'", "did you mean 'out_dtype'"],
    ),
    "an option of nobody": (
        lambda s: s.matmul(X, W, color=1), TypeError, ["no option 'color'", "quantize, bias"],
    ),
    "out_dtype that is none": (
        lambda s: s.matmul(X, W, out_dtype="f64"), TypeError, ["'f64'", "f32, bf16, f16"],
    ),
    "out_dtype that numpy does not know": (
        lambda s: s.matmul(X, W, out_dtype="bfloat"), TypeError, ["'bfloat'", "f32, bf16, f16"],
    ),
    "k differs": (lambda s: s.matmul(X, W.T), ValueError, ["3, 8]", "5, 8]", "k differs"]),
    "a vector": (lambda s: s.matmul(X[0], W), ValueError, ["a has shape (8,)", "a matrix"]),
    "a list": (
        lambda s: s.matmul([[1.0]], W),
        TypeError, ["list", "numpy.asarray", "session.upload(array)"],
    ),
    "an array to write to": (
        lambda s: s.matmul(X, W, out=X), TypeError, ["ndarray is no tensor", "session.upload"],
    ),
    "a number": (
        lambda s: s.matmul(np.float32(1), W), TypeError, ["float32 is neither an array"],
    ),
    "integers": (
        lambda s: s.matmul(X.astype("i8"), W),
        TypeError, ["a has dtype int64", "a.astype('float32')"],
    ),
    "integers of 32 bits": (
        lambda s: s.matmul(X.astype("i4"), W), TypeError, ["int32, which is not multiplied"],
    ),
    "booleans": (lambda s: s.matmul(X > 0, W), TypeError, ["a has dtype bool", "float32"]),
    "complex numbers": (lambda s: s.matmul(X + 1j, W), TypeError, ["a has dtype complex"]),
    "int8 by float32": (
        lambda s: s.matmul(X.astype("int8"), W),
        TypeError, ["int8 multiplies int8 alone", "convert the other side first"],
    ),
    "float32 by int8": (
        lambda s: s.matmul(X, W.astype("int8")),
        TypeError, ["b has dtype int8", "convert b first, b.astype('float32')"],
    ),
    "alpha that is no number": (
        lambda s: s.matmul(X, W, alpha="2"), TypeError, ["alpha has type str; give a number"],
    ),
    "a size that is not whole": (
        lambda s: s.create_buffer(2.5), TypeError, ["size_bytes=2.5 is no whole number"],
    ),
    "a shape that is not whole": (
        lambda s: s.create_buffer(shape=(2, 2.5), dtype="f32"),
        TypeError, ["an extent of shape=2.5 is no whole number"],
    ),
    "a device by its number": (
        lambda s: s.create_buffer(64, device=0), TypeError, ["device has type int; give a str"],
    ),
    "a name that is none": (lambda s: s.find(5), TypeError, ["name has type int; give a str"]),
    "a time that is none": (
        lambda s: s.client.session(ttl_s="1 h"), TypeError, ["ttl_s has type str; give a number"],
    ),
    "a time that is no number": (
        lambda s: s.client.session(ttl_s=float("nan")), ValueError, ["ttl_s=nan is not within 0"],
    ),
    "a time without end": (
        lambda s: s.client.session(grace_s=float("inf")), ValueError, ["grace_s=inf", "within 0"],
    ),
    "a layer of a client": (
        lambda s: gemmd.Linear(s.client, W), TypeError, ["type Client", "client.session()"],
    ),
    "experts of a client": (
        lambda s: gemmd.MoE(s.client, np.ones((2, 8, 4), "f4"), np.ones((2, 4, 4), "f4"), top_k=1),
        TypeError, ["type Client", "client.session()"],
    ),
    "numpy takes a buffer for an array": (
        lambda s: np.asarray(s.upload(W)), TypeError, ["Buffer(float32[8, 5]", "download()", "@"],
    ),
    "numpy adds to a tensor": (lambda s: X + s.upload(W).T, TypeError, ["lies on the server"]),
    "numpy takes a tensor": (lambda s: np.sum(s.upload(W).T), TypeError, ["lies on the server"]),
    "@ of an untyped buffer": (
        lambda s: X @ s.create_buffer(64), ValueError, ["untyped", "dtype and shape"],
    ),
    "an untyped buffer as a tensor": (
        lambda s: s.create_buffer(64).tensor(), ValueError, ["give dtype and shape"],
    ),
    "quantised the way that only a is": (
        lambda s: s.matmul(X, s.operand((5, 8), gemmd.Granularity.BLOCK_1X128).T),
        ValueError, ["BLOCK_1X128 is for a", "BLOCK_128X128 for b"],
    ),
    "memory_kind that is none": (
        lambda s: s.create_buffer(64, memory_kind="shared"),
        ValueError, ["memory_kind 'shared'", "use one of device, host_shared, device_shared"],
    ),
    "a dtype that is none": (
        lambda s: s.create_buffer(shape=(2, 2), dtype="f64"), TypeError, ["'f64'", "f32, bf16"],
    ),
    "int64 uploaded": (
        lambda s: s.upload(np.arange(3)),
        TypeError, ["data has dtype int64", "data.astype('float32')"],
    ),
    "a scalar uploaded": (
        lambda s: s.upload(np.float32(3)), ValueError, ["data has shape ()", "at least 1"],
    ),
    "nothing uploaded": (
        lambda s: s.upload(W[:0]), ValueError, ["data has shape (0, 5)", "at least 1"],
    ),
    "an op in the place of a list": (
        lambda s: s.execute(gemmd.fill(s.upload(W), 0)), TypeError, ["ops has type Op", "a list"],
    ),
    "a list among ops": (
        lambda s: s.plan([gemmd.fill(s.upload(W), 0), [1]]),
        TypeError, ["ops[1] has type list", "gemmd.read"],
    ),
    "a number submitted": (
        lambda s: s.queue().submit([7]), TypeError, ["ops[0] has type int", "gemmd.read"],
    ),
    "an upload past the end": (
        lambda s: s.upload(W).upload(W, 8), ValueError, ["offset_bytes=8", "past the buffer's 160"],
    ),
    "a download past the end": (
        lambda s: s.upload(W).download(8, 400), ValueError, ["400", "160"],
    ),
    "a download into another type": (
        lambda s: s.upload(W).download(out=np.empty((8, 5), "f8")),
        ValueError, ["float64", "buffer of float32"],
    ),
    "a download into an array that has gaps": (
        lambda s: s.upload(W).download(out=np.empty((8, 10), "f4")[:, ::2]),
        ValueError, ["dense and row-major", "download without out"],
    ),
    "a name that nobody published": (
        lambda s: s.find("model/w1"), gemmd.NotFound, ["model/w1"],
    ),
    "an index past the end": (lambda s: s.upload(W).tensor()[9], IndexError, ["index 9 of 8"]),
    "a step backwards": (lambda s: s.upload(W).tensor()[::-1], IndexError, ["positive step"]),
    "reshape to another size": (
        lambda s: s.upload(W).tensor().reshape(7, 7), ValueError, ["40 elements", "(7, 7)"],
    ),
    "reshape with gaps": (
        lambda s: s.upload(W).T.reshape(40), ValueError, ["leave gaps", "copy first"],
    ),
    "an index that is a mask": (
        lambda s: s.upload(W)[W > 0], TypeError, ["ndarray", "integers and slices"],
    ),
    "an index that is True": (lambda s: s.upload(W)[True], TypeError, ["bool", "integers"]),
    "an index with a fraction": (lambda s: s.upload(W)[1.5], TypeError, ["float", "integers"]),
    "an ellipsis": (lambda s: s.upload(W)[..., 0], TypeError, ["ellipsis", "slices"]),
    "reshape to an extent below 0": (
        lambda s: s.upload(W).tensor().reshape(-2, -20), ValueError, ["40 elements", "(-2, -20)"],
    ),
    "reshape to nothing": (
        lambda s: s.upload(W).tensor().reshape(0, -1), ValueError, ["40 elements", "(0, -1)"],
    ),
    "a download of less than nothing": (
        lambda s: s.upload(W).download(0, -4), ValueError, ["nbytes=-4", "leave it out"],
    ),
    "a download into a list": (
        lambda s: s.upload(W).download(out=[0.0]), TypeError, ["list", "numpy array"],
    ),
    "more experts a token than there are": (
        lambda s: gemmd.MoE(s, np.ones((2, 8, 8), "f4"), np.ones((2, 8, 4), "f4"), top_k=3),
        ValueError, ["top_k=3", "2 experts"],
    ),
    "a layer after its end": (
        closed_layer, gemmd.FailedPrecondition, ["Linear(8 -> 5", "closed", "make another"],
    ),
    "a client after its end": (
        closed_client, gemmd.Cancelled, ["the client is closed", "make another"],
    ),
    "a view of another width": (
        lambda s: s.upload(W).tensor().view("bf16"), ValueError, ["bfloat16 has 2 bytes"],
    ),
    "an array as an op's destination": (
        lambda s: gemmd.fill(W, 1.0), TypeError, ["ndarray", "session.upload(array)"],
    ),
    "write of another shape": (
        lambda s: gemmd.write(s.upload(W), X), ValueError, ["(3, 8)", "(8, 5)"],
    ),
    "quantise into what has no scales": (
        lambda s: gemmd.quantize(s.upload(W), gemmd.Operand(s.upload(W).tensor())),
        ValueError, ["session.operand(shape, granularity)"],
    ),
    "priority that is none": (
        lambda s: s.execute([], priority="urgent"),
        ValueError, ["priority 'urgent'", "use one of normal, high, low"],
    ),
    "report that is none": (
        lambda s: s.execute([], report="all"),
        ValueError, ["report 'all'", "use one of full, summary, none"],
    ),
    "one input too many": (
        lambda s: s.plan([gemmd.fill(s.upload(W), 0)]).run(inputs=[W]),
        ValueError, ["1 inputs", "0 write ops"],
    ),
    "a layer's weight of three dimensions": (
        lambda s: gemmd.Linear(s, np.ones((2, 8, 5), "f4")), ValueError, ["(2, 8, 5)", "[n, k]"],
    ),
    "a layer's weight without a row": (
        lambda s: gemmd.Linear(s, np.ones((0, 5), "f4")),
        ValueError, ["(0, 5)", "[n, k] of 1 and more"],
    ),
    "a layer's weight of e5m2": (
        lambda s: gemmd.Linear(s, W.astype(gemmd.as_dtype("e5m2")), quantize=None),
        ValueError, ["float8_e5m2", 'quantize="fp8-block"'],
    ),
    "a layer of a buffer without its scales": (
        lambda s: (
            s.upload(W.astype(gemmd.as_dtype("e4m3"))).publish("plain"),
            gemmd.Linear(s, name="plain"),
        ),
        gemmd.FailedPrecondition, ["has no scales behind it", "128x128 [1, 1]", "one a row [8]"],
    ),
    "a layer of a vector": (
        lambda s: (s.upload(W[0]).publish("vector"), gemmd.Linear(s, name="vector")),
        gemmd.FailedPrecondition, ["is no matrix", "another name"],
    ),
    "an activation by its short name": (
        lambda s: gemmd.Linear(s, W, activation="gelu"), ValueError, ["did you mean 'gelu_"],
    ),
    "arrays of four extents": (
        lambda s: s.matmul(np.ones((2, 3, 4, 5), "f4"), np.ones((2, 3, 5, 4), "f4")),
        ValueError, ["(2, 3, 4, 5)", "1 to 3 extents", "reshape it"],
    ),
    "a layer without a weight": (lambda s: gemmd.Linear(s), ValueError, ["a weight, or the name"]),
    "a layer's activation": (
        lambda s: gemmd.Linear(s, W, activation="swish"),
        ValueError, ["activation 'swish'", WORDS_OF_ACTIVATION],
    ),
    "a layer's quantize": (
        lambda s: gemmd.Linear(s, W, quantize="fp8"),
        ValueError,
        ["quantize 'fp8'", "did you mean 'fp8-block'", "use one of fp8-block, fp8-row"],
    ),
    "a time that is text": (
        lambda s: s.execute([gemmd.fill(s.upload(W), 0)], timeout_s="5s"),
        TypeError, ["timeout_s has type str", "give a number"],
    ),
    "experts that are no whole numbers": (
        lambda s: gemmd.MoE(s, np.ones((4, 16, 8), "f4"), np.ones((4, 8, 8), "f4"), top_k=1)(
            X, np.zeros((3, 1), "f4"), np.ones((3, 1), "f4")
        ),
        TypeError, ["experts has dtype float32", "whole numbers"],
    ),
    "a layer's x": (
        lambda s: gemmd.Linear(s, W, quantize=None)(np.ones((3, 9), "f4")),
        ValueError, ["(3, 9)", "k=5"],
    ),
    "a layer's split": (
        lambda s: gemmd.Linear(s, W, split="column"),
        ValueError, ["split 'column'", "did you mean 'columns'", "use one of columns, rows"],
    ),
    "a layer's devices without a split": (
        lambda s: gemmd.Linear(s, W, devices=["cpu:0"]), ValueError, ["give split="],
    ),
    "an MLP's layout": (
        lambda s: gemmd.MLP(s, W, W, layout="stacked"),
        ValueError, ["layout 'stacked'", "halves, interleaved"],
    ),
    "an option of explain misspelt": (
        lambda s: s.client.explain(8, 8, 8, outdtype="f32"),
        TypeError, ["no option 'outdtype'", "did you mean 'out_dtype'"],
    ),
    "explain's quantize": (
        lambda s: s.client.explain(8, 8, 8, quantize="fp8"), ValueError, [WORDS_OF_QUANTIZE],
    ),
    "explain's groups left out": (
        lambda s: s.client.explain(8, 8, 8, layout="offsets"), TypeError, ["give groups, too"],
    ),
    "shared_memory that is none": (
        lambda s: s.client.session(shared_memory="on"),
        ValueError, ["shared_memory 'on'", "auto, off, require"],
    ),
    "text uploaded": (
        lambda s: s.upload(np.array(["1", "2"]), dtype="f32"), TypeError, ["dtype <U1", "numbers"],
    ),
    "records written": (
        lambda s: gemmd.write(s.create_buffer(shape=3, dtype="f32"), np.zeros(3, [("a", "f4")])),
        TypeError, ["'a'", "none of numbers", "a field"],
    ),
    "dates uploaded into a buffer": (
        lambda s: s.create_buffer(shape=2, dtype="f32").upload(np.zeros(2, "M8[s]")),
        TypeError, ["datetime64", "none of numbers"],
    ),
    "masked elements shared": (
        lambda s: s.import_array(np.ma.masked_less(X, 2)), TypeError, ["masked elements"],
    ),
    "whole numbers that wrap around": (
        lambda s: s.create_buffer(shape=2, dtype="i8").upload(np.array([1, 200], "u1")),
        TypeError, ["uint8", "numbers that int8 lacks"],
    ),
    "fractions of a type of ml_dtypes for integers": (
        lambda s: s.create_buffer(shape=1, dtype="i8").upload(
            np.array([4.5], ml_dtypes.float8_e4m3fnuz)
        ),
        TypeError, ["float8_e4m3fnuz", "numbers that int8 lacks"],
    ),
    "nothing to fill with": (
        lambda s: gemmd.fill(s.upload(W), None), TypeError, ["value has type NoneType", "a number"],
    ),
    "a granularity by its name": (
        lambda s: s.operand((4, 4), "per_row"),
        TypeError, ["granularity is 'per_row'", "gemmd.Granularity", "PER_ROW"],
    ),
    "an operand of a vector": (
        lambda s: s.operand((4,), gemmd.Granularity.PER_ROW), ValueError, ["(4,)", "[rows, k]"],
    ),
    "a tensor's extent that is not whole": (
        lambda s: s.upload(W).tensor((2.5, 3), "f32"), TypeError, ["float", "integer"],
    ),
    "inputs where rebind stands": (
        lambda s: s.plan([gemmd.write(s.upload(W), W)]).run([W]),
        TypeError, ["rebind has type list", "a dict of buffers", "inputs=["],
    ),
    "buffers by their names": (
        lambda s: s.plan([gemmd.fill(s.upload(W), 0)]).run({"x": "y"}),
        TypeError, ["rebind has 'x' in it", "no buffer"],
    ),
    "a number of inputs": (
        lambda s: s.plan([gemmd.write(s.upload(W), W)]).run(inputs=1),
        TypeError, ["inputs has type int", "give a list"],
    ),
    "inputs of ops that are no plan": (
        lambda s: s.queue().submit([gemmd.write(s.upload(W), W)], inputs=[W]),
        ValueError, ["are of a plan's run", "session.plan(ops)"],
    ),
    "a name of another type": (
        lambda s: s.upload(W).publish(5), TypeError, ["name has type int; give a str"],
    ),
    "shared memory copied": (
        lambda s: copy.copy(gemmd.SharedArray(4)), TypeError, ["SharedArray(float32[4]", "its own"],
    ),
    "a closed client that waits": (
        waiting_closed_client,
        gemmd.Cancelled, ["the client is closed"],
    ),
    "a session pickled": (lambda s: pickle.dumps(s), TypeError, ["Session(s-", "open a session"]),
    "a client pickled": (lambda s: pickle.dumps(s.client), TypeError, ["gemmd.connect()"]),
    "a buffer pickled": (
        lambda s: pickle.dumps(s.upload(W)), TypeError, ["publish(name)", "session.find(name)"],
    ),
    "a tensor copied deep": (lambda s: copy.deepcopy(s.upload(W).T), TypeError, ["publish(name)"]),
    "a plan pickled": (
        lambda s: pickle.dumps(s.plan([gemmd.fill(s.upload(W), 0)])),
        TypeError, ["session.plan(ops)"],
    ),
    "a layer pickled": (
        lambda s: pickle.dumps(gemmd.Linear(s, W, quantize=None)), TypeError, ["give it a name"],
    ),
    "one server where several are wanted": (
        lambda s: gemmd.Replicas("gemm-0:8470", lambda session: session),
        TypeError, ["give a list", "['gemm-0:8470']"],
    ),
    "an option of Replicas misspelt": (
        lambda s: gemmd.Replicas(["gemm-0:8470"], lambda session: session, timeout=3),
        TypeError, ["no option 'timeout'", "did you mean 'timeout_s'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OF_A_SESSION)
def test_a_mistake_is_told_with_the_way_out(session, what):
    mistake, kind, words = OF_A_SESSION[what]
    with pytest.raises(kind) as caught:
        mistake(session)
    text, at = str(caught.value), 0
    for word in words:
        assert word in text[at:], f"{word!r} is not in {text!r} behind what was found before it"
        at = text.index(word, at)


@pytest.mark.parametrize("way", ["execute", "queue", "asyncio"])
def test_data_beyond_a_message_is_told_with_the_way_it_goes(fake, way):
    data = np.zeros(17 << 20, "f4")

    async def awaited():
        async with gemmd.aio.Client(fake.target) as client, client.session() as session:
            held = await session.create_buffer(shape=data.shape, dtype="f32")
            await session.execute([gemmd.write(held, data)])

    def called():
        with gemmd.Client(fake.target) as client, client.session() as session:
            ops = [gemmd.write(session.create_buffer(shape=data.shape, dtype="f32"), data)]
            if way == "execute":
                session.execute(ops)
            with session.queue() as queue:
                queue.submit(ops).result()

    with pytest.raises(gemmd.ResourceExhausted, match=r"than max .*by session\.upload or buffer"):
        asyncio.run(awaited()) if way == "asyncio" else called()


@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_a_batch_too_large_for_a_message_does_not_end_its_queue(fake, monkeypatch, face):
    limits = Limits(max_message_bytes=4 << 20)
    monkeypatch.setattr(fake, "get_server_info", lambda _: ServerInfo(limits=limits))
    data, refused = np.zeros(1 << 20, "f4"), r"a message holds 4194304; .*session\.upload"

    async def awaited():
        async with gemmd.aio.Client(fake.target) as client, client.session() as session:
            held = await session.create_buffer(shape=data.shape, dtype="f32")
            async with session.queue() as queue:
                before = await queue.submit([gemmd.fill(held, 3)])
                with pytest.raises(gemmd.ResourceExhausted, match=refused):
                    await queue.submit([gemmd.write(held, data)])
                await before
                return await (await queue.submit([gemmd.read(held[:2])]))

    def called():
        with gemmd.Client(fake.target) as client, client.session() as session:
            held = session.create_buffer(shape=data.shape, dtype="f32")
            with session.queue() as queue:
                before = queue.submit([gemmd.fill(held, 3)])
                with pytest.raises(gemmd.ResourceExhausted, match=refused):
                    queue.submit([gemmd.write(held, data)])
                before.result()
                return queue.submit([gemmd.read(held[:2])]).result()

    result = called() if face == "sync" else asyncio.run(awaited())
    np.testing.assert_array_equal(result[0], [3, 3])
