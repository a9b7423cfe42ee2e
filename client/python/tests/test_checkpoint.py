"""Checkpoints on disk, and what of them becomes a weight. The files are what anybody may have."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from gemmd import loads
from gemmd.checkpoint import SERVED, FileTensor, open_checkpoint


def file_text(tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def floats(count, seed=0):
    return np.random.default_rng(seed).standard_normal(count, "f4").tobytes()


def sharded(folder, shards):
    shard_of = {}
    for number, tensors in enumerate(shards):
        name = f"{number}.safetensors"
        (folder / name).write_bytes(file_text(tensors))
        shard_of |= dict.fromkeys(tensors, name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shard_of}))
    return index


@pytest.fixture
def model(tmp_path):
    sharded(
        tmp_path,
        [
            {"a.w": ("F32", [4, 6], floats(24)), "a.bias": ("F32", [4], floats(4))},
            {
                "b.w": ("F8_E4M3", [130, 4], bytes(520)),
                "b.w_scale_inv": ("F32", [2, 1], floats(2)),
                "s": ("F32", [], floats(1)),
            },
        ],
    )
    return tmp_path


def weights(path, **wanted):
    return loads.weights_of(open_checkpoint(path), loads.Wanted(**wanted))


def test_a_folder_is_read_by_its_index(model):
    found = {one.name: one for one in open_checkpoint(model)}
    assert set(found) == {"a.w", "a.bias", "b.w", "b.w_scale_inv", "s"}
    assert found["a.w"].shape == (4, 6)
    assert bytes(found["a.w"].data) == floats(24)
    assert len(open_checkpoint(model / "0.safetensors")) == 2
    assert len(open_checkpoint(str(model / "model.safetensors.index.json"))) == 5


def test_scales_lie_behind_their_values(model):
    by_name = {one.name: one for one in weights(model, prefix="m@2")}
    assert set(by_name) == {"m@2/a.w", "m@2/a.bias", "m@2/b.w", "m@2/s"}
    stored = by_name["m@2/b.w"]
    assert (stored.form, stored.size_bytes) == ("with-scales", 768 + 256)
    assert stored.layout is not None and stored.layout.scales_at == 768
    assert by_name["m@2/s"].shape == (1,)
    assert by_name["m@2/a.bias"].layout is None


def test_quantising_is_for_matrices_of_floats(model):
    forms = {one.name: one.form for one in weights(model, quantize="fp8-block")}
    assert forms == {"a.w": "fp8-block", "a.bias": "plain", "b.w": "with-scales", "s": "plain"}
    by_row = {one.name: one for one in weights(model, quantize="fp8-row")}
    assert [one.form for one in by_row.values()] == ["fp8-row", "plain", "with-scales", "plain"]
    layout = by_row["a.w"].layout
    assert (by_row["a.w"].dtype.itemsize, layout.by_row, layout.scales_shape) == (1, True, (4,))
    with pytest.raises(ValueError, match="use one of fp8-block, fp8-row"):
        weights(model, quantize="fp9")


def test_the_hash_tells_content_form_and_shape_apart(tmp_path):
    def digest(dtype, shape, raw, **wanted):
        (tmp_path / "x.safetensors").write_bytes(file_text({"w": (dtype, shape, raw)}))
        return weights(tmp_path / "x.safetensors", **wanted)[0].content_hash()

    base = digest("F32", [4, 6], floats(24))
    assert len(base) == 32
    assert digest("F32", [4, 6], floats(24)) == base
    assert digest("F32", [4, 6], floats(24), prefix="m") == base
    others = [
        digest("F32", [6, 4], floats(24)),
        digest("F32", [4, 6], floats(24, seed=1)),
        digest("F32", [4, 6], floats(24), quantize="fp8-block"),
        digest("F32", [4, 6], floats(24), quantize="fp8-row"),
        digest("BF16", [8, 6], floats(24)),
    ]
    assert len({base, *others}) == 6


def test_the_hash_is_that_of_the_docs():
    # printf 'gemmd-weight/1 plain f32 2\n\0\0\200?\0\0\0@' | sha256sum
    one = FileTensor("w", Path("x"), "F32", (2,), memoryview(b"\0\0\x80?\0\0\0@"))
    (weight,) = loads.weights_of([one], loads.Wanted())
    assert weight.content_hash().hex() == HASH


def test_fp8_of_either_kind_is_served_and_one_has_scales(tmp_path):
    tensors = {"w": ("F8_E5M2", [130, 4], bytes(520)), "w_scale_inv": ("F32", [2, 1], floats(2))}
    (tmp_path / "x.safetensors").write_bytes(file_text(tensors))
    found = weights(tmp_path / "x.safetensors", quantize="fp8-block")
    assert [(one.name, one.form) for one in found] == [("w", "plain"), ("w_scale_inv", "fp8-block")]
    # (printf 'gemmd-weight/1 plain e5m2 130x4\n'; head -c 520 /dev/zero) | sha256sum
    assert found[0].content_hash().hex() == HASH_OF_E5M2


BLOCKS = np.array([[0.5, 0.25], [2, 0.125]], "f4")  # exact in 16 bits


@pytest.mark.parametrize(
    ("ending", "dtype", "scales"),
    [
        ("_scale_inv", "BF16", BLOCKS),
        ("_scale", "F16", BLOCKS),
        ("_scale", "F32", np.float32(0.5)),
        ("_scale", "BF16", np.full((1, 1), 0.5, "f4")),
        ("_scale_inv", "F32", np.full(1, 0.5, "f4")),
    ],
)
def test_scales_may_be_one_for_all_and_of_any_floats(tmp_path, ending, dtype, scales):
    def loaded(dtype, scales):
        raw = scales.astype(SERVED[dtype]).tobytes()
        tensors = {"w": ("F8_E4M3", [130, 200], bytes(26000))}
        tensors["w" + ending] = (dtype, list(scales.shape), raw)
        (tmp_path / "x.safetensors").write_bytes(file_text(tensors))
        (weight,) = weights(tmp_path / "x.safetensors")
        return weight

    blocks = np.broadcast_to(scales, (2, 2))
    weight = loaded(dtype, scales)
    assert weight.form == "with-scales"
    np.testing.assert_array_equal(weight.scales_behind(), blocks)
    assert weight.content_hash() == loaded("F32", blocks).content_hash()


def stored_by_row(tmp_path, n, shape, dtype="F32", ending="_scale", k=4):
    raw = np.arange(1, n + 1).astype(SERVED[dtype]).tobytes()
    tensors = {"w": ("F8_E4M3", [n, k], bytes(n * k)), "w" + ending: (dtype, shape, raw)}
    (tmp_path / "x.safetensors").write_bytes(file_text(tensors))
    return weights(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("shape", "dtype", "ending"),
    [
        ([130, 1], "F32", "_scale"),
        ([130], "F64", "_scale"),
        ([130], "BF16", "_scale_inv"),
        ([130, 1], "F16", "_scale"),
    ],
)
def test_a_scale_for_each_row_lies_behind_its_values(tmp_path, shape, dtype, ending):
    (weight,) = stored_by_row(tmp_path, 130, shape, dtype, ending)
    assert (weight.form, weight.dtype.name) == ("with-row-scales", "float8_e4m3fn")
    assert weight.size_bytes == 768 + 768
    assert weight.layout.label == "gemmd.Linear.row/1" and weight.layout.scales_at == 768
    np.testing.assert_array_equal(weight.scales_behind(), np.arange(1, 131, dtype="f4"))
    # (printf 'gemmd-weight/1 with-row-scales e4m3 130x4\n'; head -c 520 /dev/zero;
    #  perl -e 'print pack("f<130", 1..130)') | sha256sum
    assert weight.content_hash().hex() == HASH_BY_ROW


@pytest.mark.parametrize(("n", "shape", "k"), [(1, [1, 1], 4), (1, [1], 4), (1, [1, 1], 300)])
def test_of_a_single_row_a_single_scale_is_one_for_all_blocks(tmp_path, n, shape, k):
    (weight,) = stored_by_row(tmp_path, n, shape, k=k)
    assert weight.form == "with-scales" and not weight.layout.by_row


@pytest.mark.parametrize("shape", [[1, 130], [65, 2], [130, 1, 1]])
def test_scales_of_another_shape_stay_beside_their_values(tmp_path, shape):
    found = stored_by_row(tmp_path, 130, shape)
    assert [(one.name, one.form) for one in found] == [("w", "plain"), ("w_scale", "plain")]


HASH_BY_ROW = "4ede4db6f1bf1cd9369e7b9779a6a2bcea12049f7e365dd7433075635b92de1b"
HASH_OF_E5M2 = "09b2c94cfe4bab4cee3dd70cbe525ee03a40af4df7746cdfb09f88fc609f27eb"
HASH = "ace752a4e5ffd92aac805b6c8959fc540273891481b2793eb4ea2f686c230cb3"


def test_patterns_choose(model):
    assert [one.name for one in weights(model, only="*.w")] == ["a.w", "b.w"]
    assert [one.name for one in weights(model, only="*.w*", skip="b.*")] == ["a.w"]
    with pytest.raises(ValueError, match="none of the 5 tensors"):
        weights(model, skip="*")


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"i": ("I64", [2], bytes(16))}, "I64, which is not served"),
        ({"w": ("F32", [1, 1, 1, 2], bytes(8))}, r"\[1, 1, 1, 2\]"),
        ({"w": ("F32", [0, 4], b"")}, r"\[0, 4\]"),
        (
            {"a b": ("F32", [1], bytes(4)), "a-b": ("F32", [1], bytes(4))},
            "both be published as a-b",
        ),
        ({"n" * 130: ("F32", [1], bytes(4))}, "limit 128"),
        ({"": ("F32", [1], bytes(4))}, r"tensor '' has no name .*only=\"\?\*\" leaves it out"),
        ({}, "the checkpoint holds no tensor"),
        ({"w": ("F32", [3], bytes(8))}, "does not take the 8 bytes"),
        ({"w": ("F32", [-1], bytes(4))}, "header is wrong"),
        ({"w": ("F32", "x", bytes(4))}, "header is wrong"),
    ],
)
def test_what_cannot_be_a_weight_is_named(tmp_path, tensors, says):
    (tmp_path / "x.safetensors").write_bytes(file_text(tensors))
    with pytest.raises(ValueError, match=says):
        weights(tmp_path)


def test_damaged_files_are_named(model):
    shard = model / "1.safetensors"
    whole = shard.read_bytes()
    for cut in (0, 7, 8, 40, len(whole) - 3):
        shard.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"1\.safetensors"):
            open_checkpoint(model)
    shard.write_bytes(whole + b"x")
    with pytest.raises(ValueError, match="the file's data"):
        open_checkpoint(model)
    for length, says in ((2**63, "the format allows 100000000"), (len(whole) + 1, "is cut short")):
        shard.write_bytes(struct.pack("<Q", length) + whole)
        with pytest.raises(ValueError, match=f"header claims {length} bytes, .*{says}"):
            open_checkpoint(model)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=r"names 1\.safetensors"):
        open_checkpoint(model)
    shard.write_bytes((model / "0.safetensors").read_bytes())
    with pytest.raises(ValueError, match="by the index"):
        open_checkpoint(model)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the index is wrong"),
        ("[]", "no object"),
        ("{}", "no weight_map"),
        ('{"weight_map": []}', "no weight_map"),
        ('{"weight_map": {"a": 1}}', "no .safetensors file beside"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "no .safetensors file beside"),
        ('{"weight_map": {"a": "0.safetensors", "a": "1.safetensors"}}', "is there twice"),
        ('{"weight_map": {"a.w": "0.safetensors"}}', "is in no file by the index"),
        ("[" * 100000, "the index is wrong"),
    ],
)
def test_a_wrong_index_is_refused(model, text, says):
    (model / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=says):
        open_checkpoint(model)


def test_a_folder_must_say_which_file(model):
    (model / "model.safetensors.index.json").unlink()
    with pytest.raises(ValueError, match="no single index"):
        open_checkpoint(model)
    with pytest.raises(FileNotFoundError):
        open_checkpoint(model / "none.safetensors")
    with pytest.raises(ValueError, match="neither"):
        open_checkpoint(model / "x.bin")
