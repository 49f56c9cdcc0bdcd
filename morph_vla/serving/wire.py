"""openpi's wire format: msgpack, in which a NumPy array is a map of bytes, dtype and shape. No pickle.

    array    {b"__ndarray__": true, b"data": bytes, b"dtype": "<f4", b"shape": [8]}
    scalar   {b"__npgeneric__": true, b"data": 1.5, b"dtype": "<f4"}

What a stranger sends is surveyed byte by byte before anything is made of it, so that a frame of a few bytes
cannot ask for gigabytes. Every fault is a `WireError` of one sentence. Arrays are read without a copy, and
cannot be written to. This module needs NumPy and msgpack alone, as the client does; so its signatures carry
no jaxtyping.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError, reason, require
from morph_vla.findings import visible

msgpack = require("msgpack", "serve")

ARRAY, SCALAR = b"__ndarray__", b"__npgeneric__"
DTYPES = re.compile(r"[<>|=]?([biu][1248]|f[248])")
"""Truth values, integers and floating point numbers: `|b1`, `<u2`, `>f8`."""
MAX_AXES = 8
RESET = "reset successful"  # RoboArena's answer to `endpoint: reset`, as text

# The first byte of a value -> how many bytes follow it, for values of a fixed size.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8} | dict(
    zip([*range(0xCC, 0xD0), *range(0xD0, 0xD4)], [1, 2, 4, 8] * 2, strict=True)
)
# The first byte -> the bytes of its length, and what it begins.
_SIZED = {
    0xC4: (1, "bytes"), 0xC5: (2, "bytes"), 0xC6: (4, "bytes"),
    0xD9: (1, "text"), 0xDA: (2, "text"), 0xDB: (4, "text"),
    0xDC: (2, "list"), 0xDD: (4, "list"), 0xDE: (2, "map"), 0xDF: (4, "map"),
}  # fmt: skip


class WireError(MorphVlaError):
    """A frame that cannot be read or written; its text is one sentence."""


class UnsendableError(WireError):
    """A value that has no place in a frame: nothing was sent."""


@dataclass(frozen=True)
class Limits:
    """How large a frame may be, and what is in it."""

    frame_bytes: int = 64 * 2**20
    values: int = 20_000
    """Keys, numbers, texts, lists, maps and arrays together; an array counts nine and one for each axis"""
    depth: int = 8
    """Of lists and maps within each other, an array being a map"""
    text_bytes: int = 20_000
    """Of one text"""


REQUEST = Limits()
"""What a server reads of strangers."""
ANSWER = Limits(256 * 2**20, 1_000_000, 32, 2**20)
"""What a client reads of the server that it chose."""


def encode(value: Any) -> bytes:
    """A frame of nested dicts, lists, texts, numbers and NumPy arrays, bit for bit as openpi's client.

    Raises UnsendableError for what has no place in it, such as an array of objects.
    """
    try:
        return msgpack.packb(value, default=_plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsendableError(f"this cannot be sent: {reason(error)}") from None


def decode(frame: bytes, limits: Limits = REQUEST) -> Any:
    """What `encode` made a frame of. Raises WireError for any other bytes, and for what exceeds `limits`."""
    survey(frame, limits)
    try:
        value = msgpack.unpackb(frame)
    except (ValueError, msgpack.UnpackException) as error:
        raise WireError(f"the frame is not msgpack: {reason(error)}") from None
    return _read(value, "", limits)


def survey(frame: bytes, limits: Limits) -> None:
    """Walk a frame without making anything of it. Raises WireError as `decode`."""
    if len(frame) > limits.frame_bytes:
        raise WireError(f"the frame has {len(frame)} bytes; at most {limits.frame_bytes} are read")
    place, values, due = 0, 0, 1
    waiting = [1]  # at each depth, the values that are still to come; together they are `due`
    while waiting:
        if waiting[-1] == 0:
            waiting.pop()
            continue
        waiting[-1] -= 1
        values, due = values + 1, due - 1
        kind, size, place = _head(frame, place)
        if kind in ("list", "map"):
            inside = size * (2 if kind == "map" else 1)
            if len(waiting) > limits.depth:
                raise WireError(f"lists and maps are nested more than {limits.depth} deep")
            due += inside
            if values + due > limits.values:
                raise WireError(f"the frame has more than {limits.values} values")
            waiting.append(inside)
            size = inside  # each takes a byte at least
        elif kind == "text" and size > limits.text_bytes:
            raise WireError(f"a text has {size} bytes; at most {limits.text_bytes} are read")
        if place + size > len(frame):
            raise WireError("the frame ends in the middle of a value")
        place += 0 if kind in ("list", "map") else size
    if place != len(frame):
        raise WireError(f"the message ends after {place} of the frame's {len(frame)} bytes")


def _head(frame: bytes, place: int) -> tuple[str, int, int]:
    """(kind, size in bytes or values, where it begins) of the value at `place`."""
    if place >= len(frame):
        raise WireError("the frame ends in the middle of a value" if frame else "the frame is empty")
    first, place = frame[place], place + 1
    if first < 0x80 or first >= 0xE0:
        return "number", 0, place
    if first < 0xC0:
        kind = "map" if first < 0x90 else "list" if first < 0xA0 else "text"
        return kind, first & (0x1F if kind == "text" else 0x0F), place
    if first in _FIXED:
        return "number", _FIXED[first], place
    if first not in _SIZED:
        raise WireError(f"a value begins with byte 0x{first:02x}, which is no type of openpi's protocol")
    width, kind = _SIZED[first]
    return kind, int.from_bytes(frame[place : place + width], "big"), place + width


def _plain(value: Any) -> Any:
    """A NumPy array or scalar as the map that stands for it."""
    if not isinstance(value, np.ndarray | np.generic):
        raise UnsendableError(f"a value of type '{_type(value)}' cannot be sent")
    dtype = value.dtype.str
    if not DTYPES.fullmatch(dtype):
        raise UnsendableError(
            f"an array of dtype '{value.dtype}' cannot be sent; numbers and truth values can"
        )
    if isinstance(value, np.ndarray):
        return {ARRAY: True, b"data": value.tobytes(), b"dtype": dtype, b"shape": value.shape}
    return {SCALAR: True, b"data": value.item(), b"dtype": dtype}


def _read(value: Any, where: str, limits: Limits) -> Any:
    """A value with arrays in the place of their maps; `where` are the keys that lead to it."""
    if isinstance(value, dict):
        if ARRAY in value:
            return _array(value, where, limits)
        if SCALAR in value:
            return _scalar(value, where)
        return {key: _read(item, f"{where}/{_name(key)}".lstrip("/"), limits) for key, item in value.items()}
    if isinstance(value, list):
        return [_read(item, f"{where}[{index}]", limits) for index, item in enumerate(value)]
    return value


def _array(value: dict[Any, Any], where: str, limits: Limits) -> np.ndarray:
    data, shape, dtype = value.get(b"data"), value.get(b"shape"), _dtype(value, where)
    if not isinstance(data, bytes) or not isinstance(shape, list):
        raise WireError(f"{where or 'the array'}: an array has bytes as its data and a list as its shape")
    axes = [axis for axis in shape if type(axis) is int and axis >= 0]
    if len(axes) != len(shape) or len(shape) > MAX_AXES:
        raise WireError(f"{where or 'the array'}: a shape is at most {MAX_AXES} whole numbers from 0 on")
    wanted = math.prod(axes) * dtype.itemsize
    if wanted != len(data) or math.prod(axis or 1 for axis in axes) > limits.frame_bytes:
        raise WireError(
            f"{where or 'the array'}: shape {axes} of dtype '{dtype}' takes {wanted} bytes, not {len(data)}"
        )
    return np.ndarray(axes, dtype, data)


def _scalar(value: dict[Any, Any], where: str) -> np.generic:
    data, dtype = value.get(b"data"), _dtype(value, where)
    if not isinstance(data, bool | int | float):
        raise WireError(f"{where or 'the scalar'}: expected a number, not a value of type '{_type(data)}'")
    try:
        with np.errstate(over="ignore"):
            return dtype.type(data)
    except (OverflowError, ValueError):
        raise WireError(f"{where or 'the scalar'}: {data} is no {dtype}") from None


def _dtype(value: dict[Any, Any], where: str) -> np.dtype:
    name = value.get(b"dtype")
    if isinstance(name, str) and DTYPES.fullmatch(name) and name.lstrip("<>|=") not in ("b2", "b4", "b8"):
        return np.dtype(name)
    given = f"'{visible(name, 20)}'" if isinstance(name, str) else f"a value of type '{_type(name)}'"
    raise WireError(f"{where or 'the array'}: the dtype is {given}; numbers and truth values are read")


def _type(value: Any) -> str:
    return type(value).__name__


def _name(key: str | bytes) -> str:
    return visible(key if isinstance(key, str) else repr(key), 60)
