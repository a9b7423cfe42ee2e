"""What of a checkpoint becomes a buffer, under which name and in which form, and what a load tells:
for the sync and the asyncio `session.load` alike. docs/weights.md has the rules.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np

from gemmd import dtypes, words
from gemmd._layers.linear_step import Quantize as Quantize
from gemmd._layers.linear_step import Weights, are_by_row
from gemmd.checkpoint import SERVED, FileTensor

Progress = Callable[[int, int], None]
Form = Literal["plain", "with-scales", "with-row-scales", "fp8-block", "fp8-row"]
BufferT = TypeVar("BufferT")

MOST_NAME_BYTES = 128
_MOST_RANK = 3
_SCALE_ENDINGS = ("_scale_inv", "_scale")  # what checkpoints call the scales of "x.weight"
_FLOATS = ("F64", "F32", "BF16", "F16")
_HASHED_NAMES = {
    "F64": "f64", "F32": "f32", "BF16": "bf16", "F16": "f16", "F8_E4M3": "e4m3",
    "F8_E5M2": "e5m2", "I8": "i8",
}  # fmt: skip


@dataclass(frozen=True)
class Weight:
    """One buffer that a load makes: `values` as its form has it, `scales` behind them."""

    name: str  # to publish it under
    values: FileTensor
    scales: FileTensor | None
    form: Form
    shape: tuple[int, ...]

    @property
    def file_dtype(self) -> np.dtype[Any]:
        return SERVED[self.values.dtype_name]

    @property
    def source_dtype(self) -> np.dtype[Any]:
        """What is moved: the file's type; F64 becomes F32."""
        return dtypes.float32 if self.values.dtype_name == "F64" else self.file_dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        """The buffer's."""
        return dtypes.float8_e4m3fn if self.to_quantize else self.source_dtype

    @property
    def to_quantize(self) -> bool:
        """On the device."""
        return self.form in get_args(Quantize)

    @property
    def source_bytes(self) -> int:
        return self.values.data.nbytes + (0 if self.scales is None else self.scales.data.nbytes)

    @property
    def layout(self) -> Weights | None:
        """Of a matrix that `Linear` can use; None for others."""
        floats = self.values.dtype_name in _FLOATS
        if len(self.shape) != 2 or not (floats or self.scales is not None):
            return None
        by_row = self.form in ("with-row-scales", "fp8-row")
        return Weights(*self.shape, self.dtype, has_bias=False, by_row=by_row)

    @property
    def size_bytes(self) -> int:
        if self.form != "plain" and self.layout is not None:
            return self.layout.size_bytes
        return math.prod(self.shape) * self.dtype.itemsize

    def source(self) -> memoryview:
        """The bytes to move."""
        if self.values.dtype_name != "F64":
            return self.values.data
        wide = np.frombuffer(self.values.data, np.float64)
        return wide.astype(np.float32).view(np.uint8).data

    def scales_behind(self) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        """One a block or a row; a single one of the file's again and again."""
        if self.scales is None or self.layout is None:
            return None
        return self.layout.scales_of(
            np.frombuffer(self.scales.data, SERVED[self.scales.dtype_name])
        )

    def content_hash(self) -> bytes:
        """SHA-256 of a line that tells form, type and shape, of the values as the file has them,
        and of their scales in F32; 32 bytes, and the same as gemmctl's.
        """
        dtype = _HASHED_NAMES[self.values.dtype_name]
        shape = "x".join(str(extent) for extent in self.shape)
        found = hashlib.sha256(f"gemmd-weight/1 {self.form} {dtype} {shape}\n".encode())
        found.update(self.values.data)
        scales = self.scales_behind()
        if scales is not None:
            found.update(scales.tobytes())
        return found.digest()


@dataclass(frozen=True)
class Wanted:
    """Which tensors, under which names, in which form."""

    prefix: str = ""
    quantize: Quantize | None = None
    only: str = ""
    skip: str = ""


@dataclass(frozen=True)
class Options:
    """How they travel and how long they stay."""

    ttl_s: float | None = None
    jobs: int = 4
    progress: Progress | None = None


def weights_of(tensors: list[FileTensor], asked: Wanted) -> list[Weight]:
    """In the checkpoint's order.

    Raises
    ------
    ValueError
        A tensor that cannot be published, with the remedy.
    """
    if asked.quantize is not None:
        words.check("quantize", asked.quantize, get_args(Quantize))
    wanted: dict[str, FileTensor] = {}
    for tensor in tensors:
        if asked.only and not fnmatch.fnmatchcase(tensor.name, asked.only):
            continue
        if asked.skip and fnmatch.fnmatchcase(tensor.name, asked.skip):
            continue
        wanted[tensor.name] = tensor
    if not tensors:
        raise ValueError("the checkpoint holds no tensor")
    if not wanted:
        raise ValueError(
            f"none of the {len(tensors)} tensors is left by only={asked.only!r} and"
            f" skip={asked.skip!r}"
        )
    scales = {one.name: found for one in wanted.values() if (found := _scales_of(one, wanted))}
    taken = {one.name for one in scales.values()}
    by_name: dict[str, Weight] = {}
    for tensor in wanted.values():
        if tensor.name in taken:
            continue
        weight = _weight_of(tensor, scales.get(tensor.name), asked)
        if weight.name in by_name:
            other = by_name[weight.name].values.name
            raise tensor.wrong(
                f"and '{other}' would both be published as {weight.name}; leave one out with skip="
            )
        by_name[weight.name] = weight
    return list(by_name.values())


def published_name(prefix: str, name: str) -> str:
    """PREFIX/NAME, with "-" for what no published name has."""
    folder = prefix if not prefix or prefix.endswith("/") else prefix + "/"
    return folder + re.sub(rb"[^A-Za-z0-9._/-]", b"-", name.encode()).decode()


def _scales_of(values: FileTensor, wanted: Mapping[str, FileTensor]) -> FileTensor | None:
    """One for each block of 128x128 or for each row, or one for all."""
    if values.dtype_name != "F8_E4M3" or len(values.shape) != 2:
        return None
    for ending in _SCALE_ENDINGS:
        found = wanted.get(values.name + ending)
        if found is None or found.dtype_name not in _FLOATS:
            continue
        with contextlib.suppress(ValueError):  # of other scales
            are_by_row(found.shape, values.shape)
            return found
    return None


def _weight_of(tensor: FileTensor, scales: FileTensor | None, asked: Wanted) -> Weight:
    name = published_name(asked.prefix, tensor.name)
    if not tensor.name:
        raise tensor.wrong('has no name to be published by; only="?*" leaves it out')
    if len(name) > MOST_NAME_BYTES:
        raise tensor.wrong(
            f"would be published as a name of {len(name)} bytes, limit {MOST_NAME_BYTES}; take a"
            " shorter prefix, or leave it out with skip="
        )
    if tensor.dtype_name not in SERVED:
        raise tensor.wrong(
            f"is {tensor.dtype_name}, which is not served; {', '.join(SERVED)} are: leave it out"
            " with skip="
        )
    shape = tensor.shape or (1,)  # a scalar
    if len(shape) > _MOST_RANK or 0 in shape:
        raise tensor.wrong(
            f"has shape {list(shape)}; 1 to {_MOST_RANK} extents of at least 1 are served: leave it"
            " out with skip="
        )
    form: Form = "plain"
    if scales is not None:
        form = "with-row-scales" if are_by_row(scales.shape, shape) else "with-scales"
    elif asked.quantize and len(shape) == 2 and tensor.dtype_name in _FLOATS:
        form = asked.quantize
    return Weight(name, tensor, scales, form, shape)


class Loaded(Mapping[str, BufferT], Generic[BufferT]):
    """The buffers of a load by the names of the checkpoint's tensors, each published and read-only.
    They are the session's: delete them to let go.

    Attributes
    ----------
    moved, found : int
        Weights that were moved, and that were published already with the same content.
    moved_bytes, found_bytes : int
        Of the files.
    seconds : float
    """

    def __init__(self) -> None:
        self._buffers: dict[str, BufferT] = {}
        self.moved = self.found = self.moved_bytes = self.found_bytes = 0
        self.seconds = 0.0

    def keep(self, weight: Weight, buffer: BufferT, moved: bool) -> None:
        """Counts a weight that is published."""
        self._buffers[weight.values.name] = buffer
        if moved:
            self.moved += 1
            self.moved_bytes += weight.source_bytes
        else:
            self.found += 1
            self.found_bytes += weight.source_bytes

    def order(self, names: list[str]) -> None:
        """As the checkpoint has them."""
        self._buffers = {name: self._buffers[name] for name in names}

    def __getitem__(self, name: str) -> BufferT:
        return self._buffers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)

    def __repr__(self) -> str:
        return (
            f"Loaded({len(self)} weights: {self.moved} moved ({self.moved_bytes} bytes),"
            f" {self.found} were there ({self.found_bytes} bytes), {self.seconds:.2f} s)"
        )


class Work(Generic[BufferT]):
    """The weights of one load, taken by several workers; iterating takes the next. Thread-safe.

    Attributes
    ----------
    failure : BaseException or None
        The first one.
    loaded : Loaded
        So far.
    """

    def __init__(self, weights: list[Weight], progress: Progress | None) -> None:
        self._weights = iter(weights)
        self._count = len(weights)
        self._total_bytes = sum(one.source_bytes for one in weights)
        self._progress = progress
        self._lock = threading.Lock()
        self.failure: BaseException | None = None
        self.loaded = Loaded[BufferT]()

    def __iter__(self) -> Work[BufferT]:
        return self

    def __next__(self) -> Weight:
        with self._lock:
            if self.failure is not None:
                raise StopIteration
            return next(self._weights)

    def done(self, weight: Weight, buffer: BufferT, moved: bool) -> None:
        """A weight is published; tells how far it all is."""
        with self._lock:
            self.loaded.keep(weight, buffer, moved)
            if self._progress is not None:
                done = self.loaded.moved_bytes + self.loaded.found_bytes
                self._progress(done, self._total_bytes)

    @contextlib.contextmanager
    def stopping_on_failure(self) -> Iterator[None]:
        """The first failure ends the work: nobody gets another weight."""
        try:
            yield
        except BaseException as error:
            with self._lock:
                self.failure = self.failure or error
            raise

    def explain(self) -> None:
        """Adds to the failure what stays."""
        if self.failure is not None and len(self.loaded):
            self.failure.add_note(
                f"{len(self.loaded)} of {self._count} weights are published and stay, the rest left"
                " nothing behind: the same call goes on from there"
            )
