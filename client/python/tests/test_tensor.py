import numpy as np
import pytest

from gemmd import Granularity, Tensor, as_dtype, bfloat16, float8_e4m3fn, float8_e5m2
from gemmd.tensor import row_major

ID = b"0123456789abcdef"


def numpy_twin(tensor, memory):
    """What numpy makes of the same offset, shape and strides."""
    width = tensor.dtype.itemsize
    return np.ndarray(
        tensor.shape,
        tensor.dtype,
        memory.data,
        tensor.offset_bytes,
        [s * width for s in tensor.strides],
    )


CASES = {
    "one row": lambda x: x[2],
    "a block": lambda x: x[1:4, 2:6],
    "every second column": lambda x: x[:, ::2],
    "negative index": lambda x: x[-1],
    "negative bounds": lambda x: x[-3:-1, :-2],
    "transposed": lambda x: x.T,
    "transposed block": lambda x: x[1:3, 1:5].T,
    "block of transposed": lambda x: x.T[2:5, 1:2],
    "reshaped": lambda x: x.reshape(3, -1),
    "reshaped to a tuple": lambda x: x.reshape((12, 4)),
    "numpy's integer": lambda x: x[np.int64(2), np.uint8(1) :],
    "reshaped rows": lambda x: x[2:4].reshape(16),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_views_select_the_elements_that_numpy_selects(case):
    array = np.arange(48, dtype=np.float32).reshape(6, 8)
    view = CASES[case](Tensor(ID, "f32", (6, 8)))
    np.testing.assert_array_equal(numpy_twin(view, array), CASES[case](array))


def test_views_of_a_batch_keep_the_batch_outermost():
    array = np.arange(2 * 3 * 4, dtype=np.float16).reshape(2, 3, 4)
    tensor = Tensor(ID, "f16", (2, 3, 4))
    np.testing.assert_array_equal(numpy_twin(tensor.T, array), array.swapaxes(1, 2))
    np.testing.assert_array_equal(numpy_twin(tensor[1, :, 1:3], array), array[1, :, 1:3])


@pytest.mark.parametrize("index", [6, -7, slice(3, 3), slice(None, None, -1), (0, 0), (0, 0, 0)])
def test_an_index_that_leaves_nothing_or_lies_outside_is_refused(index):
    with pytest.raises(IndexError):
        Tensor(ID, "f32", (6, 8))[index]


def test_only_dense_tensors_reshape():
    with pytest.raises(ValueError, match="leave gaps"):
        Tensor(ID, "f32", (6, 8)).T.reshape(48)
    with pytest.raises(ValueError, match="do not make"):
        Tensor(ID, "f32", (6, 8)).reshape(7, 7)


def test_a_dense_tensor_travels_without_strides_and_a_view_with_them():
    dense, view = Tensor(ID, "bf16", (6, 8)), Tensor(ID, "bf16", (6, 8))[1:, 2:4]
    assert list(dense.message.strides) == []
    assert list(view.message.strides) == [8, 1]
    assert view.message.offset_bytes == (8 + 2) * 2


def test_a_view_as_another_dtype_keeps_the_width():
    assert Tensor(ID, "i8", (4, 4)).view("e4m3").dtype == float8_e4m3fn
    assert Tensor(ID, "i8", (4, 4)).view("e5m2").dtype == float8_e5m2
    with pytest.raises(ValueError, match="bytes"):
        Tensor(ID, "i8", (4, 4)).view("f32")


@pytest.mark.parametrize("shape", [(), (1, 2, 3, 4)])
def test_rank_is_one_to_three(shape):
    with pytest.raises(ValueError, match="1 to 3"):
        Tensor(ID, "f32", shape)


def test_dtypes_go_by_short_name_numpy_type_and_ml_dtypes_type():
    assert as_dtype("bf16") == as_dtype(bfloat16) == bfloat16
    assert as_dtype(np.float32) == as_dtype("float32")
    with pytest.raises(TypeError, match="float64 is not an element type"):
        as_dtype(np.float64)


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        (Granularity.PER_TENSOR, (1,)),
        (Granularity.PER_ROW, (129,)),
        (Granularity.BLOCK_1X128, (129, 3)),
        (Granularity.BLOCK_128X128, (2, 3)),
    ],
)
def test_scales_cover_partial_blocks(granularity, expected):
    assert granularity.scales_shape((129, 257)) == expected
    assert granularity.scales_shape((5, 129, 257)) == (5, *expected)


def test_strides_of_a_row_major_array_count_elements():
    assert row_major((2, 3, 4)) == (12, 4, 1)


@pytest.mark.parametrize("rows", [1, 3, 4, 62, 130])
@pytest.mark.parametrize("batch", [(), (1,), (5,)], ids=str)
def test_scales_of_1x128_lie_along_the_rows_in_padded_columns(rows, batch):
    blocks, shape = Granularity.BLOCK_1X128, (*batch, rows, 300)
    room = Tensor(ID, "f32", blocks.scales_room(shape), offset_bytes=256)
    scales = blocks.scales_in(room, shape)
    assert scales.shape == blocks.scales_shape(shape)
    assert scales.offset_bytes == 256
    assert scales.strides[-2] == 1
    assert scales.strides[-1] == -(-rows // 4) * 4
    assert all(stride % 4 == 0 for stride in scales.strides[:-2])
    memory = np.zeros(64 + room.size, "f4")  # no place serves two scales
    numpy_twin(scales, memory)[...] = np.arange(1, scales.size + 1).reshape(scales.shape)
    assert np.count_nonzero(memory) == scales.size


@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_ROW", "BLOCK_128X128"])
def test_other_scales_lie_row_major(kind):
    granularity = Granularity[kind]
    assert granularity.scales_room((129, 257)) == granularity.scales_shape((129, 257))
    room = Tensor(ID, "f32", granularity.scales_room((129, 257)))
    scales = granularity.scales_in(room, (129, 257))
    assert scales.is_dense and scales.shape == granularity.scales_shape((129, 257))


def test_a_room_that_does_not_fit_the_scales_is_refused():
    with pytest.raises(ValueError, match="do not make shape"):
        Granularity.BLOCK_1X128.scales_in(Tensor(ID, "f32", (130, 3)), (130, 300))
    with pytest.raises(ValueError, match="leave gaps"):
        Granularity.BLOCK_1X128.scales_in(Tensor(ID, "f32", (132, 3)).T, (130, 300))
