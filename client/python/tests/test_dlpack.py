"""Memory handed to other packages and taken from them, on the host: no GPU, no torch."""

import gc
import weakref

import numpy as np
import pytest

import gemmd
from gemmd._memory import cuda, dlpack, imports, interop

from .conftest import QUICK


@pytest.fixture
def client(sharing_fake):
    with gemmd.Client(sharing_fake.target, timeout_s=20, retry=QUICK) as client:
        yield client


class Producer:
    """An array that is none of numpy's, as far as the client can tell."""

    def __init__(self, array, device=(dlpack.CPU, 0)):
        self.array = array
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        array = self.array
        return dlpack.capsule(array.ctypes.data, self.device, array.dtype, array.shape, array)


def test_numpy_takes_a_shared_buffer_without_a_copy(session):
    buffer = session.create_buffer(shape=(3, 4), dtype="f32", memory_kind="host_shared")
    taken = np.from_dlpack(buffer)
    taken[2, 3] = 7
    assert buffer.array()[2, 3] == 7 and taken.shape == (3, 4)
    session.execute([gemmd.fill(buffer, 5)])
    assert (taken == 5).all()


def test_what_is_lent_lives_as_long_as_whoever_took_it(random):
    array = random.standard_normal((5, 7), "f4")
    producer = Producer(array.copy())
    kept = weakref.ref(producer.array)
    gc.collect()
    before = len(dlpack._lent)
    taken = np.from_dlpack(producer)
    assert len(dlpack._lent) == before + 1
    del producer
    gc.collect()
    assert kept() is not None
    np.testing.assert_array_equal(taken, array)
    del taken
    gc.collect()
    assert kept() is None and len(dlpack._lent) == before


def test_a_capsule_that_nobody_consumes_is_let_go():
    gc.collect()
    before = len(dlpack._lent)
    held = Producer(np.zeros(4, "f4")).__dlpack__()
    assert len(dlpack._lent) == before + 1
    del held
    gc.collect()
    assert len(dlpack._lent) == before


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "e4m3", "e5m2", "i8"])
def test_every_element_type_is_described_as_it_is(random, dtype):
    array = (random.standard_normal((6, 5)) * 8).astype(gemmd.as_dtype(dtype))
    memory = dlpack.describe(Producer(array))
    assert (memory.dtype, memory.shape, memory.strides) == (array.dtype, (6, 5), (5, 1))
    assert memory.pointer == array.ctypes.data and not memory.on_gpu
    back = interop.as_numpy(Producer(array))
    np.testing.assert_array_equal(back.view(np.uint8), array.view(np.uint8))


def test_strides_of_a_producer_are_kept(random):
    array = random.standard_normal((6, 10), "f4")
    memory = dlpack.describe(array[::2, 1::3])
    assert (memory.shape, memory.strides) == ((3, 3), (20, 3))
    np.testing.assert_array_equal(dlpack.as_host_array(memory), array[::2, 1::3])


def test_host_arrays_of_other_packages_are_uploaded(session, random):
    array = random.standard_normal((8, 9), "f4")
    tensor = session.from_dlpack(Producer(array))
    np.testing.assert_array_equal(tensor.owner.download(), array)
    np.testing.assert_array_equal(session.upload(Producer(array)).download(), array)


@pytest.mark.parametrize(
    "bad, says",
    [
        (Producer(np.zeros(3, np.uint8)), "not an element type"),
        (Producer(np.zeros(3, "f4"), device=(7, 0)), "device type 7"),
        (object(), "no __dlpack__"),
    ],
    ids=["type", "device", "no producer"],
)
def test_what_gemmd_has_no_tensor_for_is_refused(session, bad, says):
    with pytest.raises(TypeError, match=says):
        session.from_dlpack(bad)


def test_a_read_only_buffer_is_not_lent_for_writing(session):
    buffer = session.create_buffer(shape=(4,), dtype="f32", memory_kind="host_shared")
    buffer.publish("lent/for-reading")
    with pytest.raises(BufferError, match="read-only"):
        buffer.__dlpack__()  # as a consumer asks that knows no versions
    assert not np.from_dlpack(buffer).flags.writeable


def test_a_copy_or_another_device_is_not_given(session):
    buffer = session.create_buffer(shape=(4,), dtype="f32", memory_kind="host_shared")
    with pytest.raises(BufferError, match="no copy"):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="no device"):
        buffer.__dlpack__(dl_device=(dlpack.CUDA, 0))


def test_device_memory_that_is_not_shared_says_what_is(session):
    buffer = session.create_buffer(shape=(4,), dtype="f32")
    for use in (buffer.device_array, buffer.torch, lambda: np.from_dlpack(buffer)):
        with pytest.raises(gemmd.FailedPrecondition, match="device_shared"):
            use()


def test_a_machine_without_a_gpu_says_so(session):
    if not cuda.why_not():
        pytest.skip("this machine has a GPU")
    buffer = session.create_buffer(shape=(4,), dtype="f32", memory_kind="device_shared")
    assert buffer.memory_kind == "device_shared"
    with pytest.raises(gemmd.Unavailable, match=r"driver|CUDA"):
        buffer.device_array()
    with pytest.raises(gemmd.Unavailable):
        session.from_dlpack(Producer(np.zeros(4, "f4"), device=(dlpack.CUDA, 0)))


@pytest.mark.parametrize(
    "shape, strides, says",
    [((), (), "1 to 3"), ((2, 0), (1, 1), "1 to 3"), ((4,), (-1,), "negative")],
    ids=["scalar", "empty", "backwards"],
)
def test_shapes_without_a_tensor_are_refused_before_the_driver_is_asked(shape, strides, says):
    memory = dlpack.Memory(0, True, 0, np.dtype("f4"), shape, strides, None)
    with pytest.raises(ValueError, match=says):
        imports.of_gpu(memory)
