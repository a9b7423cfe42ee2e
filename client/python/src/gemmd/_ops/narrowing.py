"""One rule for arrays of element types that no device multiplies: float64 is narrowed to float32,
with one warning a call; integers, booleans and complex numbers are refused, because float32 has no
value for many of them.

gemmctl has the same rule for files.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmd import dtypes
from gemmd._memory import interop


class PrecisionWarning(UserWarning):
    """float64 data was narrowed to float32."""


_WIDE = ("float64", "longdouble", "float128", "float96")
_WHOLE = (dtypes.int8, dtypes.int32)
_TAKEN = (
    "float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8 are, and float64 is narrowed to"
    " float32"
)


def sent_as(name: str, value: Any) -> np.dtype[Any]:
    """The element type in which an array or torch tensor is sent.

    Raises
    ------
    TypeError
        It has a type that is not multiplied. Names it, what is taken, and the remedy.
    """
    given = str(value.dtype).removeprefix("torch.")
    if given in _WIDE:
        return dtypes.float32
    found = interop.element_type(value)
    if found is None:
        raise TypeError(
            f"{name} has dtype {given}, which is not an element type of gemmd: {_TAKEN}; convert it"
            f" first, {_conversion(name, value)} if float32 has its numbers (whole ones to 2**24)"
        )
    return found


def multiplied_as(name: str, value: Any) -> np.dtype[Any]:
    """The same of an operand, which int32 is not: that is for counts and row numbers.

    Raises
    ------
    TypeError
        As `sent_as`.
    """
    found = sent_as(name, value)
    if found == dtypes.int32:
        raise TypeError(
            f"{name} has dtype int32, which is not multiplied: {_TAKEN}; convert it first,"
            f" {_conversion(name, value)} if float32 has its numbers (whole ones to 2**24)"
        )
    return found


def activations_as(dtype: Any) -> np.dtype[Any]:
    """The element type in which activations of torch's or numpy's `dtype` are sent, before the
    weight has a say.

    Raises
    ------
    TypeError
        They are integers, or of another type that is not multiplied.
    """
    if str(dtype).removeprefix("torch.") in _WIDE:
        return dtypes.float32
    found = interop.element_type_of(dtype)
    if found is None or found in _WHOLE:
        raise TypeError(not_taken(dtype))
    return found


def not_taken(dtype: Any) -> str:
    """Why activations of torch's or numpy's `dtype` are refused."""
    given = str(dtype).removeprefix("torch.")
    return (
        f"x has dtype {given}; a layer takes float32, float16, bfloat16, float8_e4m3fn,"
        " float8_e5m2 and float64, which is narrowed to float32: convert it first"
    )


def check(name: str, value: Any, dtype: np.dtype[Any]) -> None:
    """That `value`, sent as `dtype`, keeps its numbers within rounding.

    Raises
    ------
    TypeError
        It is of integers and `dtype` is not, or the reverse.
    """
    own = multiplied_as(name, value)
    if (own == dtypes.int8) != (dtype == dtypes.int8):
        which = f"{name} first, {_conversion(name, value)}"
        if own != dtypes.int8:
            which = "the other side first, .astype('float32')"
        raise TypeError(
            f"{name} has dtype {own}, the other side {dtype}; int8 multiplies int8 alone: convert"
            f" {which}"
        )


def fitted(name: str, data: Any, dtype: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """`data` as an array of `dtype`, that of the memory it goes to, if it has one. Floats are
    rounded to it, with a warning if an array has float64; whole numbers must be kept.

    Raises
    ------
    TypeError
        They are floats or complex and `dtype` is of integers, or whole numbers that `dtype` lacks.
    """
    given = interop.as_numpy(data)
    if dtype is None or given.dtype == dtype:
        return given
    kind = given.dtype.kind if interop.element_type(given) is None else "fi"[given.dtype in _WHOLE]
    # Kind "V": other types of ml_dtypes, whose numbers may be whole or not.
    if given.size and (kind == "c" or (kind == "f" and dtype in _WHOLE)):
        raise TypeError(
            f"{name} has dtype {given.dtype}, which would be cut to {dtype}: round it yourself,"
            f" {name}.round().astype('{dtype.name}')"
        )
    if hasattr(data, "dtype"):
        warn_of(**{name: given})
    with np.errstate(all="ignore"):
        cast = given.astype(dtype)
        whole = kind in "iu" or (kind == "V" and dtype in _WHOLE)
        kept = not whole or _same_numbers(cast, given)
    if not kept:
        raise TypeError(
            f"{name} has dtype {given.dtype} and numbers that {dtype} lacks; convert it first, by"
            f" {name}.astype('{dtype.name}') if they may change"
        )
    return cast


def _same_numbers(cast: npt.NDArray[Any], given: npt.NDArray[Any]) -> bool:
    """Whether a cast of whole numbers has kept them. The way back alone does not tell: 200 of uint8
    is -56 in int8, and that is 200 again.
    """
    back = cast.astype(given.dtype)
    return bool(np.array_equal(back, given) and np.array_equal(cast < 0, given < 0))


def warn_of(**values: Any) -> None:
    """One warning for all of these that are float64, at the line that called gemmd. Arrays, tensors
    or dtypes; anything else is none.
    """
    wide = [
        name
        for name, value in values.items()
        if str(getattr(value, "dtype", value)).removeprefix("torch.") in _WIDE
    ]
    if wide:
        warnings.warn(
            f"{', '.join(wide)}: float64 is narrowed to float32, or to what the other side has;"
            " convert it first to do without this warning",
            PrecisionWarning,
            stacklevel=_outside(),
        )


def _conversion(name: str, value: Any) -> str:
    torch = interop.torch_of(value) is not None
    return f"{name}.float()" if torch else f"{name}.astype('float32')"


def _outside() -> int:
    """The `stacklevel`, for a function that was called by the caller of this one, of the first
    frame that is not gemmd's.
    """
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gemmd."):
        frame = frame.f_back
        level += 1
    return level
