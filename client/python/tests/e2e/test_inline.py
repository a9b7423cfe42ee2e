"""Inline data through memory shared with a real daemon."""

import threading

import numpy as np
import pytest

import gemmd

pytestmark = pytest.mark.e2e


def kinds(result):
    return [op.op for op in result.report.ops]


def test_programs_of_both_ways_give_the_same_bytes(session, random):
    x = session.create_buffer(shape=(96, 512), dtype="bf16")
    w = session.upload(random.standard_normal((256, 512), "f4").astype(gemmd.as_dtype("bf16")))
    y = session.create_buffer(shape=(96, 256), dtype="f32")
    array = random.standard_normal((96, 512), "f4").astype(gemmd.as_dtype("bf16"))
    program = [gemmd.write(x, array), gemmd.matmul(x, w, y), gemmd.read(y), gemmd.read(x)]
    shared = session.execute(program)
    assert [op.op for op in shared.report.ops] == ["write", "matmul", "read", "read"]
    with session.client.session(shared_memory="off") as other:
        x, w = other.create_buffer(shape=(96, 512), dtype="bf16"), other.upload(w.download())
        y = other.create_buffer(shape=(96, 256), dtype="f32")
        sent = other.execute(
            [gemmd.write(x, array), gemmd.matmul(x, w, y), gemmd.read(y), gemmd.read(x)]
        )
    assert kinds(sent) == ["write", "matmul", "read", "read"]
    for one, two in zip(shared.outputs, sent.outputs, strict=True):
        np.testing.assert_array_equal(one.view("u1"), two.view("u1"))


def test_many_threads_share_one_memory(session, random):
    arrays = [random.standard_normal((64, 512), "f4") for _ in range(4)]
    failures = []

    def work(array):
        x = session.create_buffer(shape=array.shape, dtype="f32")
        for i in range(25):
            sent = array + np.float32(i)
            result = session.execute([gemmd.write(x, sent), gemmd.read(x)])
            if not np.array_equal(result[0], sent):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
