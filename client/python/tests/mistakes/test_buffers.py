"""The usual mistakes with buffers, tensors and ops, and what their errors must tell."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import gemmd

from .told import check_told

X = np.ones((3, 8), "f4")
W = np.ones((8, 5), "f4")


# What is done to a session s, and words of the error in their order.
MISTAKES = {
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
    "one input too many": (
        lambda s: s.plan([gemmd.fill(s.upload(W), 0)]).run(inputs=[W]),
        ValueError, ["1 inputs", "0 write ops"],
    ),
    "a time that is text": (
        lambda s: s.execute([gemmd.fill(s.upload(W), 0)], timeout_s="5s"),
        TypeError, ["timeout_s has type str", "give a number"],
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
    "a buffer pickled": (
        lambda s: pickle.dumps(s.upload(W)), TypeError, ["publish(name)", "session.find(name)"],
    ),
    "a tensor copied deep": (lambda s: copy.deepcopy(s.upload(W).T), TypeError, ["publish(name)"]),
    "a plan pickled": (
        lambda s: pickle.dumps(s.plan([gemmd.fill(s.upload(W), 0)])),
        TypeError, ["session.plan(ops)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_with_the_way_out(session, what):
    check_told(session, *MISTAKES[what])
