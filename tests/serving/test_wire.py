"""openpi's wire format: what is encoded comes back; what a stranger makes up costs one sentence."""

import contextlib
import re
import struct
import tracemalloc

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from morph_vla.serving import wire
from morph_vla.serving.wire import REQUEST, Limits, WireError

DTYPES = ["|b1", "|u1", "<i2", ">i4", "<u8", "<f2", "<f4", ">f8"]
texts = st.text(st.characters(codec="utf-8"), max_size=9)
scalars = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
)
pictures = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(
        np.dtype(dtype),
        arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
        elements={"allow_nan": False, "allow_infinity": False} if "f" in dtype else None,
    )
)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | texts | st.binary(max_size=9) | scalars | pictures
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def same(one, other) -> bool:
    if isinstance(one, np.ndarray):
        alike = isinstance(other, np.ndarray) and one.dtype == other.dtype
        return alike and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    # msgpack has no float64 of NumPy's: it is a float, and goes as one.
    kinds = {type(one), type(other)}
    return one == other and (len(kinds) == 1 or kinds == {float, np.float64})


@pytest.mark.slow
@hypothesis.given(values)
@hypothesis.settings(max_examples=150)
def test_what_is_encoded_comes_back(value):
    assert same(value, wire.decode(wire.encode(value), Limits(depth=32)))


def test_a_frame_is_what_openpis_client_writes():
    """Written down from openpi-client 0.1.2; `test_openpi_client.py` compares with the client itself."""
    frame = wire.encode({"state": np.array([1, -2], np.float32), "n": np.int8(3)})
    assert frame == (
        b"\x82\xa5state\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x08\x00\x00\x80?\x00\x00\x00\xc0"
        b"\xc4\x05dtype\xa3<f4\xc4\x05shape\x91\x02"
        b"\xa1n\x83\xc4\x0d__npgeneric__\xc3\xc4\x04data\x03\xc4\x05dtype\xa3|i1"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([object()]), "an array of dtype 'object' cannot be sent; numbers and truth values can"),
        (np.zeros(2, complex), "an array of dtype 'complex128' cannot be sent; numbers and truth values can"),
        (np.array("up"), "an array of dtype '<U2' cannot be sent; numbers and truth values can"),
        ({"a": {1}}, "a value of type 'set' cannot be sent"),
        ([object()], "a value of type 'object' cannot be sent"),
        (2**64, "a value of type 'int' cannot be sent"),
    ],
)
def test_what_has_no_place_in_a_frame_is_not_sent(value, words):
    with pytest.raises(WireError, match=f"^{re.escape(words)}$"):
        wire.encode(value)


def array(data: object = b"\x00" * 8, dtype: object = "<f4", shape: object = (2,)) -> bytes:
    named = {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}
    return wire.msgpack.packb({"state": named})


FAULTS = {
    "nothing": (b"", "the frame is empty"),
    "half a value": (b"\x92\x01", "the frame ends in the middle of a value"),
    "half a length": (b"\xc5\x01", "the frame ends in the middle of a value"),
    "more behind it": (b"\x80\x80\x80", "the message ends after 1 of the frame's 3 bytes"),
    "no type": (b"\xc1", "a value begins with byte 0xc1, which is no type of openpi's protocol"),
    "an extension": (
        b"\xc7\x01\x05x",
        "a value begins with byte 0xc7, which is no type of openpi's protocol",
    ),
    "four thousand million values": (b"\xdd\xff\xff\xff\xff", "the frame has more than 20000 values"),
    "a list in a list in a list": (b"\x91" * 99 + b"\xc0", "lists and maps are nested more than 8 deep"),
    "a long text": (b"\xda\x60\x00" + b"x" * 0x6000, "a text has 24576 bytes; at most 20000 are read"),
    "a number as a key": (
        b"\x81\x01\x02",
        "the frame is not msgpack: int is not allowed for map key when strict_map_key=True",
    ),
    "no Unicode": (
        b"\xa1\xff",
        "the frame is not msgpack: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    ),
    "an array of objects": (array(dtype="|O"), "state: the dtype is '|O'; numbers and truth values are read"),
    "a number as dtype": (
        array(dtype=4),
        "state: the dtype is a value of type 'int'; numbers and truth values are read",
    ),
    "a truth value of 8 bytes": (
        array(dtype="<b8"),
        "state: the dtype is '<b8'; numbers and truth values are read",
    ),
    "data that are a text": (
        array(data="x"),
        "state: an array has bytes as its data and a list as its shape",
    ),
    "another size": (array(shape=(3,)), "state: shape [3] of dtype 'float32' takes 12 bytes, not 8"),
    "a negative axis": (array(shape=(-2,)), "state: a shape is at most 8 whole numbers from 0 on"),
    "nine axes": (array(shape=(1,) * 9), "state: a shape is at most 8 whole numbers from 0 on"),
    "an axis like no other": (
        array(data=b"", shape=(0, 2**62)),
        f"state: shape [0, {2**62}] of dtype 'float32' takes 0 bytes, not 0",
    ),
    "a scalar that is none": (
        wire.msgpack.packb({"x": {b"__npgeneric__": True, b"data": "1", b"dtype": "<f4"}}),
        "x: expected a number, not a value of type 'str'",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_one_sentence(kind):
    frame, words = FAULTS[kind]
    with pytest.raises(WireError, match=f"^{re.escape(words)}$"):
        wire.decode(frame)


def test_a_frame_too_large_is_refused_by_its_length():
    with pytest.raises(WireError, match=r"^the frame has 9 bytes; at most 8 are read$"):
        wire.decode(b"\xc4\x07" + b"x" * 7, Limits(frame_bytes=8))


@pytest.mark.parametrize("read", [wire.REQUEST, wire.ANSWER])
def test_a_frame_may_hold_what_is_not_finite(read):
    """Whoever reads a value decides: a depth picture that nobody asked for has holes."""
    frame = wire.encode({"limits": [float("inf"), np.float32("nan")], "depth": np.full(3, np.nan)})
    assert wire.decode(frame, read)["limits"][0] == float("inf")


def test_values_are_counted_over_all_that_is_nested():
    inner = b"\xdc" + struct.pack(">H", 9_999) + b"\xc0" * 9_999  # each within the bound alone
    with pytest.raises(WireError, match=r"the frame has more than 20000 values"):
        wire.decode(b"\x93" + inner * 3)


def test_a_few_bytes_cannot_take_much_memory():
    """Lists within lists, each of which claims as many values as it may."""
    nested = b"".join(b"\xdc" + struct.pack(">H", 60_000) for _ in range(7))
    bombs = [
        b"\xdd\xff\xff\xff\xff" * 9,
        nested,
        b"\xc6\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        nested * 99,
    ]
    tracemalloc.start()
    for frame in bombs:
        with pytest.raises(WireError):
            wire.decode(frame)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@hypothesis.given(st.binary(max_size=64))
@hypothesis.settings(max_examples=300)
def test_any_bytes_are_a_value_or_a_sentence(frame):
    with contextlib.suppress(WireError):
        assert wire.encode(wire.decode(frame, REQUEST))


def test_the_page_shows_these_bytes(root):
    page = (root / "docs/serving.md").read_text(encoding="utf-8")
    (dump,) = re.findall(r"^```hexdump\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = bytes.fromhex("".join(line[10:58] for line in dump.splitlines()))
    assert shown == wire.encode({"state": np.array([1, -2], np.float32)})
    assert f"is these {len(shown)} bytes:" in page
    words = "the frame has more than 20000 values"
    assert f"`{words}`" in page
    assert words in {sentence for _, sentence in FAULTS.values()}


def test_as_deep_as_may_be_is_read_and_no_deeper():
    assert wire.decode(b"\x91" * 8 + b"\xc0") == [[[[[[[[None]]]]]]]]
    with pytest.raises(WireError, match=r"nested more than 8 deep$"):
        wire.decode(b"\x91" * 9 + b"\xc0")
