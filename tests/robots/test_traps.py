"""The traps met in public files, one small file of ours for each, and files meant to do harm.

`traps/expected.yaml` holds for every file of that folder the whole of what is said of it and what it becomes.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding, Line, errors
from morph_vla.robots.judgement import MAX_FINDINGS, judge
from morph_vla.robots.markup import MAX_BYTES
from morph_vla.robots.urdf import parse, read

FOLDER = Path(__file__).with_name("traps")
EXPECTED = yaml.safe_load((FOLDER / "expected.yaml").read_text(encoding="utf-8"))
# Of processor time for a hostile file, in millions of additions by this Python: seconds blame a slow machine.
# Forty-four are the most today; what grows with the square of a file takes thousands.
TOO_LONG = 100.0


def test_every_file_is_expected_to_become_something():
    assert {path.stem for path in FOLDER.glob("*.urdf")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_each_trap_is_named_with_its_line_and_what_follows(name: str):
    path = FOLDER / f"{name}.urdf"
    urdf = read(path)
    findings = [finding for finding in judge(urdf) if "no <inertial>" not in finding.found]
    lines = [" ".join(str(finding).split()) for finding in findings]
    assert lines == [f"{path.name}:{sentence}" for sentence in EXPECTED[name]["says"]]
    assert all(finding.found and finding.expected and finding.consequence for finding in findings)
    becomes = EXPECTED[name]["becomes"]
    if becomes == "stops":
        with pytest.raises(MorphVlaError) as raised:
            robots.load(path)
        assert str(raised.value) == "\n".join(map(str, errors(findings)))
    else:
        assert not errors(findings)
        assert len(robots.load(path).joints) == becomes["action"]
        assert len(urdf.mimicking) == becomes["mimic"]


# -------------------------------------------------------------------------------------------- what is assumed


def test_what_is_said_to_be_assumed_is_what_is_done():
    def joint(name: str) -> robots.ActionJoint:
        return robots.load(FOLDER / f"{name}.urdf").joints[0]

    for name in ("boundless_limits", "lower_above_upper", "revolute_without_limit", "continuous_with_limits"):
        assert (joint(name).lower, joint(name).upper) == pytest.approx((-3.14159265, 3.14159265)), name
    assert joint("no_axis").axis == (1.0, 0.0, 0.0)
    assert joint("long_axis").axis == (0.0, 0.0, 1.0)
    assert joint("limits_in_degrees").upper == 90
    assert joint("non_ascii_names").name == "Schulter_größe"
    chain = robots.load(FOLDER / "mimic_chain.urdf")
    assert chain.drives()[2] == ("wrist", 0, -1.0, 0.1)
    parts = robots.load(FOLDER / "several_roots.urdf")
    assert parts.distances[0, -1] == robots.UNREACHABLE
    rotation = read(FOLDER / "four_numbers_in_rpy.urdf").joints[0].origin.rpy
    assert rotation == (0.0, 0.0, 1.57)


@pytest.mark.parametrize("axis", ["1e-200 0 0", "1e29 1e29 0", "0 0 5e-324"])
def test_an_axis_of_any_length_has_a_direction(axis: str):
    text = (FOLDER / "no_trap.urdf").read_text().replace('xyz="0 0 1"', f'xyz="{axis}"', 1)
    used = parse(text.encode()).joints[0].unit_axis
    assert sum(value * value for value in used) == pytest.approx(1.0)


# ------------------------------------------------------------------------------------------------- to do harm

GOOD = (FOLDER / "no_trap.urdf").read_text().removeprefix('<?xml version="1.0"?>\n')


def declared(encoding: str, codec: str, text: str = GOOD) -> bytes:
    return f'<?xml version="1.0" encoding="{encoding}"?>\n{text}'.encode(codec)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),
        b"\xef\xbb\xbf\n<?xml version='1.0'?>" + GOOD.encode(),
        b"\n\xef\xbb\xbf<?xml version='1.0'?>" + GOOD.encode(),
        declared("UTF-16", "utf-16"),
        GOOD.encode("utf-16-le"),
        GOOD.encode("utf-16-be"),
        declared("ISO-8859-1", "latin-1", GOOD.replace("elbow", "große")),
        declared("windows-1252", "cp1252", GOOD.replace("elbow", "große")),
        GOOD.replace("\n", "\r\n").encode(),
    ],
    ids=["bom", "bom_space", "space_bom", "utf16", "utf16le", "utf16be", "latin1", "cp1252", "crlf"],
)
def test_encodings_that_xml_has_are_read(data: bytes):
    urdf = parse(data, "odd.urdf")
    assert not errors(judge(urdf))
    assert len(urdf.actuated) == 2
    assert urdf.joints[1].name in ("elbow", "große")


def joints(count: int, more: str = "") -> str:
    return "".join(
        f'<joint name="j{i}" type="continuous"><parent link="l{i}"/><child link="l{i + 1}"/>'
        f"{more.format(i + 1)}</joint>"
        for i in range(count)
    )


def robot(inside: str) -> bytes:
    return f'<robot name="r">{inside}</robot>'.encode()


def entities() -> bytes:
    each = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 30))
    return f'<!DOCTYPE r [<!ENTITY a0 "ha">{each}]><robot name="&a29;"/>'.encode()


def hostile() -> Iterator[tuple[str, bytes, str]]:
    """(what it does, the file, words of what is said); made when used, for some are large."""
    refused = "a document type or entity declaration; expected plain XML"
    many = "joints; expected at most 1000; the file cannot be used"
    yield "a billion laughs", entities(), refused
    yield (
        "a file named",
        b"<!DOCTYPE r [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><robot name='&x;'/>",
        refused,
    )
    yield "a server named", b"<!DOCTYPE r SYSTEM 'http://localhost/r.dtd'><robot/>", refused
    yield "a parameter", b"<!DOCTYPE r [<!ENTITY % p SYSTEM 'file:///x'> %p;]><robot/>", refused
    yield "an entity of no one", b"<robot name='&foo;'/>", "undefined entity"
    yield "too large", robot("x" * MAX_BYTES), "more than 16 MiB"
    yield "nearly too large", robot("x" * (MAX_BYTES - 100)), "no <link> and no <joint>"
    yield "deep", b"<robot>" + b"<a>" * 5000, "nested more than 64 deep"
    yield "many elements", robot("<a/>" * 60_000), "more than 50000 elements"
    yield "many joints", robot(joints(12_000)), many
    yield "a chain of mimics", robot(joints(9_000, '<mimic joint="j{}"/>')), many
    yield "joints without anything", robot("<joint/>\n" * 49_000), many
    yield "nameless links", robot("<link/>\n" * 49_000), f"{49_000 - MAX_FINDINGS} more findings; expected"
    yield "namespaces", robot('<x xmlns:p="u"/>' + "".join(f'<x xmlns:p{i}="u"/>' for i in range(40_000))), ""
    yield (
        "prefixes",
        robot('<link name="a"/>' + "".join(f"<p{i}:x/>" for i in range(49_000))),
        "is bound to no",
    )
    yield "a long number", robot(joints(1, f'<axis xyz="{"1" * 100_000}x 0 0"/>')), "expected 3 numbers"
    yield "a longer number", robot(joints(1, f'<axis xyz="{"1" * (5 << 20)} 0 0"/>')), "of at most 1e+30"
    yield "a long name", robot(f'<link name="{"a" * (5 << 20)}"/>' * 2), "a second link 'aaaaa"
    yield "an open comment", b"<!--" + b"x" * (15 << 20), "unclosed token"
    yield "many commented joints", robot('<link name="a"/>' + "<!-- <joint -->" * 400_000), "inside comments"
    yield "an encoding that is a program", declared("zlib_codec", "ascii"), "is not a text encoding"
    yield "several bytes a letter", declared("shift_jis", "ascii"), "expected UTF-8; the file is not read"
    yield (
        "the wrong encoding",
        declared("UTF-16", "ascii"),
        "encoding specified in XML declaration is incorrect",
    )
    yield "four bytes a letter", GOOD.encode("utf-32"), "text that is not XML"
    yield "a surrogate", b"<robot name='&#xD800;'/>", "invalid character"
    yield "no text", bytes(range(256)), "text that is not XML"


CHILD = """
import json, pathlib, sys, time, timeit
from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.robots.judgement import judge
from morph_vla.robots.urdf import read
million = timeit.timeit("total += 1", "total = 0", timer=time.process_time, number=1_000_000)
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.urdf")):
    began = time.process_time()
    found = [str(finding) for finding in judge(read(path))]
    took = (time.process_time() - began) / million
    try:
        robots.load(path)
        stopped = ""
    except MorphVlaError as error:
        stopped = str(error)
    print(json.dumps([path.stem, took, found, stopped]))
"""


@pytest.mark.slow
def test_hostile_files_end_in_words_and_soon(tmp_path: Path):
    """In a process without this one's type checks, which take many times longer than the reading."""
    words = {}
    for what, data, lines in hostile():
        (tmp_path / f"{what}.urdf").write_bytes(data)
        words[what] = lines
    command = [sys.executable, "-W", "error", "-c", CHILD, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {name for name, *_ in answers} == words.keys()
    for what, took, result, stopped in answers:
        assert words[what] in "\n".join(result), what
        assert stopped, f"{what}: loaded"
        assert len(result) <= MAX_FINDINGS + 1, what
        assert len(stopped) < 1_000_000, what
        assert took < TOO_LONG, what


def test_a_name_cannot_forge_a_line_or_steer_a_terminal():
    place = "odd-name", "error", Line("a.urdf", 3), ()
    finding = Finding(*place, "link 'x\n\x9b2Jy\u202e'", "expected words", "it stops")
    assert str(finding) == "a.urdf:3: error: link 'x\\n\\x9b2Jy\\u202e'; expected words; it stops"
    long = Finding(*place, "x" * 10_000, "expected words", "it stops")
    assert len(str(long)) < 400
