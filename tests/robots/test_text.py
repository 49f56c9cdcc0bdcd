"""The text of a URDF: read back, it gives the records that it was made of."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from morph_vla import robots
from morph_vla.findings import errors
from morph_vla.robots.records import Urdf
from morph_vla.robots.side import Side, side_text
from morph_vla.robots.text import urdf_text
from morph_vla.robots.urdf import parse, read

NAMES = ["panda", "so101", "g1_dex1", "aloha", "inspire_hand"]


def without_lines(urdf: Urdf) -> str:
    """Links and joints; -0.0 is 0.0."""
    return re.sub(r"line=\d+|(?<![\d.e])-(?=0\.0\b)", "", repr((urdf.name, urdf.links, urdf.joints)))


def check(urdf: Urdf) -> None:
    again = parse(urdf_text(urdf).encode(), urdf.file)
    assert without_lines(again) == without_lines(urdf)
    assert urdf_text(again) == urdf_text(urdf)


@pytest.mark.parametrize("name", NAMES)
def test_a_robot_is_written_and_read_back_whole(name: str):
    check(robots.load(name).urdf)


@pytest.mark.slow
def test_every_public_robot_is_written_and_read_back_whole(shared: Path):
    files = sorted((shared / "urdf_zoo").glob("*.urdf"))
    usable = [urdf for urdf in map(read, files) if not errors(robots.judge(urdf))]
    assert len(usable) > 30
    for urdf in usable:
        check(urdf)


def test_names_that_xml_would_take_for_its_own():
    panda = robots.load("panda").urdf
    odd = replace(panda, name='a "b" <&\n>\'', joints=(), links=(replace(panda.links[0], name="<&>"),))
    assert parse(urdf_text(odd).encode()).name == odd.name
    check(odd)


@pytest.mark.parametrize("name", NAMES)
def test_a_side_file_is_written_and_read_back_whole(name: str, tmp_path: Path):
    from morph_vla.files import typed_yaml

    side = robots.load(name).side
    path = tmp_path / "robot.yaml"
    path.write_text(side_text(side), "utf-8")
    assert typed_yaml.read(path, Side) == side


@pytest.mark.parametrize("name", NAMES)
def test_a_robots_digest_is_of_what_its_side_file_says(name: str):
    robot = robots.load(name)
    elsewhere = replace(robot, side=replace(robot.side, source="a friend", licence="MIT"))
    assert elsewhere.side_sha256 == robot.side_sha256
    faster = replace(robot, side=replace(robot.side, control_rate=(robot.side.control_rate or 0.0) + 7))
    assert faster.side_sha256 != robot.side_sha256
    assert faster.urdf_sha256 == robot.urdf_sha256
