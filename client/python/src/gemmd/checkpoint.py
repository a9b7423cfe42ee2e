"""A model's tensors as they lie on disk: one .safetensors file, or shards with the JSON index that
tells which tensor is in which. Files are mapped, not read.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmd import dtypes

_MOST_HEADER_BYTES = 100_000_000  # the format's own limit
_METADATA = "__metadata__"
_INDEX = ".safetensors.index.json"
_SHARD = ".safetensors"

# Bytes of an element, by the format's name of its type.
_SIZES = {
    "F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "I8": 1,
    "F8_E5M2": 1, "U8": 1, "BOOL": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "I64": 8, "U64": 8,
}  # fmt: skip

# What gemmd serves; F64 becomes F32.
SERVED: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": dtypes.float32,
    "BF16": dtypes.bfloat16,
    "F16": dtypes.float16,
    "F8_E4M3": dtypes.float8_e4m3fn,
    "F8_E5M2": dtypes.float8_e5m2,
    "I8": dtypes.int8,
}


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a checkpoint; `data` are its bytes, row-major, in the mapped file."""

    name: str
    file: Path
    dtype_name: str  # as the file writes it: "F8_E4M3"
    shape: tuple[int, ...]
    data: memoryview

    def wrong(self, what: str) -> ValueError:
        """An error that names file and tensor."""
        return ValueError(f"{self.file}: tensor '{self.name}' {what}")


def open_checkpoint(path: str | os.PathLike[str]) -> list[FileTensor]:
    """The tensors of FILE.safetensors, of an index (FILE.json), or of a folder that holds one of
    either; file by file, in the order of their data.

    Raises
    ------
    FileNotFoundError
        A file is missing, also one that the index names.
    ValueError
        A file is cut short or damaged, a tensor is there twice, or index and shards differ.
    """
    place = Path(path)
    if place.is_dir():
        index = _the_only(place, _INDEX)
        if index is not None:
            return _sharded(index)
        file = _the_only(place, _SHARD)
        if file is None:
            raise FileNotFoundError(f"'{place}' holds no .safetensors file")
        return list(_tensors(file))
    if place.suffix == ".json":
        return _sharded(place)
    if place.suffix != _SHARD:
        raise ValueError(f"'{place}' is neither FILE.safetensors, its index (.json), nor a folder")
    return list(_tensors(place))


def _the_only(folder: Path, ending: str) -> Path | None:
    found = sorted(one for one in folder.iterdir() if one.name.endswith(ending))
    if len(found) > 1:
        raise ValueError(
            f"'{folder}' holds {len(found)} files *{ending} and no single index to go by; name one"
            " of them"
        )
    return found[0] if found else None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"'{key}' is there twice")
        found[key] = value
    return found


def _parsed(text: bytes, file: Path, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, a key twice, too deep
        raise ValueError(f"{file}: the {what} is wrong: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{file}: the {what} is wrong: it is no object")
    return found


def _sharded(index: Path) -> list[FileTensor]:
    shard_of = _parsed(index.read_bytes(), index, "index").get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise ValueError(f"{index}: the index is wrong: it has no weight_map with tensors in it")
    for name, shard in shard_of.items():
        if not isinstance(shard, str) or "/" in shard or not shard.endswith(_SHARD):
            raise ValueError(
                f"{index}: the index is wrong: tensor '{name}' is said to be in {shard!r}, which is"
                " no .safetensors file beside the index"
            )
    tensors: list[FileTensor] = []
    for shard in sorted(set(shard_of.values())):
        if not (index.parent / shard).exists():
            raise FileNotFoundError(f"{index} names {shard}, which is not there")
        tensors += _tensors(index.parent / shard)
    for tensor in tensors:
        if shard_of.get(tensor.name) != tensor.file.name:
            raise tensor.wrong(
                f"is in {shard_of.get(tensor.name, 'no file')} by the index: {index} is of another"
                " checkpoint, or damaged"
            )
    missing = shard_of.keys() - {tensor.name for tensor in tensors}
    if missing:
        name = min(missing)
        raise ValueError(f"{index}: tensor '{name}' is not in {shard_of[name]}, as it says")
    return tensors


def _tensors(file: Path) -> Iterator[FileTensor]:
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if size < 8:
            raise ValueError(f"{file}: it has {size} bytes, at least 8 are needed: it is cut short")
        mapped = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    (length,) = struct.unpack("<Q", mapped[:8])
    if length > _MOST_HEADER_BYTES:
        raise ValueError(
            f"{file}: the header claims {length} bytes, the format allows {_MOST_HEADER_BYTES}: it"
            " is no .safetensors file, or damaged"
        )
    if length > size - 8:
        raise ValueError(
            f"{file}: the header claims {length} bytes, the file has {size - 8} left: it is cut"
            " short, or no .safetensors file"
        )
    header = _parsed(bytes(mapped[8 : 8 + length]), file, "header")
    header.pop(_METADATA, None)
    data, end = mapped[8 + length :], 0
    placed = sorted(header.items(), key=lambda item: _place(file, *item))
    for name, entry in placed:
        begin, past = _place(file, name, entry)
        dtype, shape = entry.get("dtype"), entry.get("shape")
        tensor = FileTensor(name, file, str(dtype), tuple(shape), data[begin:past])
        if begin != end:
            raise tensor.wrong(f"begins at byte {begin}, the one before ends at {end}")
        if past > len(data):
            raise tensor.wrong(f"ends at byte {past} of {len(data)}: the file is cut short")
        if dtype in _SIZES and math.prod(shape) * _SIZES[dtype] != past - begin:
            raise tensor.wrong(
                f"of shape {list(shape)} and type {dtype} does not take the {past - begin} bytes of"
                " its data_offsets"
            )
        end = past
        yield tensor
    if end != len(data):
        raise ValueError(f"{file}: the tensors end at byte {end}, the file's data at {len(data)}")


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(one) is int and one >= 0 for one in numbers)


def _place(file: Path, name: str, entry: Any) -> tuple[int, int]:
    fields = entry if isinstance(entry, dict) else {}
    offsets: Any = fields.get("data_offsets")
    if not _whole(offsets) or len(offsets) != 2 or not _whole(fields.get("shape")):
        raise ValueError(
            f"{file}: the header is wrong at tensor '{name}': it lacks dtype, shape, or two"
            " data_offsets"
        )
    return offsets[0], offsets[1]
