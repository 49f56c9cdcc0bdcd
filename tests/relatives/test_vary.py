"""Relatives of a robot: drawn by a seed, named, checked, and never too far from what was asked."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.findings import errors
from morph_vla.relatives import draft, vary
from morph_vla.relatives.draft import Changes
from morph_vla.robots.examine import examine

EVERYTHING = Changes(
    links=((0.8, 1.25),), limits=((0.7, 1.0),), remove=1, add=1, twist=1, mirror=True, hand=True
)


@pytest.fixture(scope="module")
def panda() -> robots.Robot:
    return robots.load("panda")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["panda", "so101", "aloha"])
@pytest.mark.parametrize("label", vary.SETS)
def test_every_relative_passes_the_check_as_written(name: str, label: str, tmp_path: Path):
    drawn = vary.draw(robots.load(name), vary.SETS[label], 5, 3, label)
    vary.write(drawn, tmp_path)
    for item in drawn:
        examination = examine(tmp_path / f"{item.robot.name}.urdf")
        assert not errors(examination.findings)
        robot = examination.loaded()
        assert robot.names == item.robot.names
        assert robot.urdf.name == robot.name == item.robot.name
        assert item.reach > 0
        assert item.tool in {link.name for link in robot.urdf.links}
        assert robot.side.source.startswith(f"a relative of {name}, drawn by morph-vla robots vary: ")
    listed = json.loads((tmp_path / "relatives.json").read_text())
    assert [item["digest"] for item in listed] == [item.digest for item in drawn]
    assert len({item["digest"] for item in listed}) == len({item["name"] for item in listed}) == 3


def test_a_wheel_stays_one(panda):
    """It has no range of which a share could remain, and moves no tool."""
    base = panda.urdf.joints[0].parent
    wheel = replace(
        panda.urdf.by_name[panda.names[0]],
        name="wheel",
        type="continuous",
        parent=base,
        child="tyre",
        limit=None,
    )
    tyre = replace(panda.urdf.links[1], name="tyre", visuals=(), collisions=())
    urdf = replace(panda.urdf, joints=(*panda.urdf.joints, wheel), links=(*panda.urdf.links, tyre))
    side = replace(panda.side, joints=("wheel", *panda.names), rest=(0.0, *panda.rest.tolist()), names=())
    rolling = robots.build(urdf, side, Path("rolling.urdf"))
    (drawn,) = vary.draw(rolling, Changes(limits=((0.7, 0.9),)), 3)
    assert drawn.robot.urdf.by_name["wheel"].type == "continuous"
    first = drawn.robot.urdf.by_name[panda.names[0]].limit
    assert first is not None
    assert first.upper < panda.urdf.by_name[panda.names[0]].limit.upper
    (shares,) = drawn.changes
    assert len(shares.split()) == 1 + 7  # "limits", and the arm's joints


def test_a_list_keeps_what_was_drawn_before(panda, tmp_path):
    drawn = [vary.draw(panda, EVERYTHING, seed, 2)[0] for seed in (3, 4)]
    for item in (*drawn, drawn[0]):
        vary.write([item], tmp_path)
    listed = {item["name"]: item["digest"] for item in json.loads((tmp_path / "relatives.json").read_text())}
    assert listed == {item.robot.name: item.digest for item in drawn}
    for text in ("7", "[7]", "{", '[{"digest": "ab"}]'):
        (tmp_path / "relatives.json").write_text(text)
        with pytest.raises(
            MorphVlaError, match=r"relatives\.json is no list of relatives; move it, or choose"
        ):
            vary.write(drawn, tmp_path)


@pytest.mark.slow
def test_a_seed_gives_the_same_bytes_whatever_else_is_drawn_and_in_any_order(panda):
    first, second, third = vary.draw(panda, EVERYTHING, 3, 3)
    assert (first.text, first.side) != (second.text, second.side)
    assert vary.draw(panda, EVERYTHING, 3)[0].digest == first.digest
    assert vary.draw(panda, EVERYTHING, 4)[0].digest != first.digest
    urdf = replace(panda.urdf, joints=panda.urdf.joints[::-1], links=panda.urdf.links[::-1])
    side = replace(panda.side, zeros=dict(reversed(panda.side.zeros.items())))
    shuffled = robots.build(urdf, side, panda.urdf_path)
    for there, here in zip(vary.draw(shuffled, EVERYTHING, 3, 3), (first, second, third), strict=True):
        assert there.changes == here.changes
        assert sorted(there.text.splitlines()) == sorted(here.text.splitlines())
        assert there.side == here.side


def test_the_digest_changes_when_anything_does(panda):
    item = vary.draw(panda, EVERYTHING, 3)[0]
    other = [replace(item, text=item.text + b" "), replace(item, side=item.side + b" ")]
    assert len({item.digest, *(changed.digest for changed in other)}) == 3


def test_what_is_asked_for_is_done(panda):
    def one(**changes) -> draft.Relative:
        return vary.draw(panda, Changes(**changes), 0)[0]

    names = panda.names
    removed, added = one(remove=2), one(add=2)
    assert len(removed.robot.names) == len(names) - 2
    assert [name for name in names if name in removed.robot.names] == [*removed.robot.names]
    assert [name for name in added.robot.names if name in names] == [*names]
    assert len(added.robot.names) == len(names) + 2
    twisted = one(twist=1)
    moved = [j.name for j in panda.urdf.joints if twisted.robot.urdf.by_name[j.name].axis != j.axis]
    assert len(moved) == 2
    assert one(mirror=True).changes == ("mirrored",)
    assert one().changes == ()
    handed = one(hand=True)
    assert handed.robot.names == (*names[:-1], "jaw_left_joint")
    assert handed.tool == "jaw_tool"
    gripper = handed.robot.joints[-1]
    assert (gripper.is_gripper, gripper.closed, gripper.opened) == (True, 0, gripper.upper)
    assert handed.robot.rest[-1] == gripper.opened
    assert "panda_hand" not in {link.name for link in handed.robot.urdf.links}
    kept = {link.contact and replace(link.contact, line=0) for link in panda.urdf.links}
    assert {link.contact and replace(link.contact, line=0) for link in handed.robot.urdf.links} == kept


@pytest.mark.slow
def test_numbers_lie_in_the_ranges(panda):
    sets = {
        "extrapolation": lambda f: 0.7 <= f <= 0.85 or 1.18 <= f <= 1.4,
        "interpolation": lambda f: 0.85 <= f <= 1.18,
    }
    for label, inside in sets.items():
        for item in vary.draw(panda, replace(vary.SETS[label], structure=(0, 0)), 1, 3, label):
            links, shares = ([float(word) for word in change.split()[1:]] for change in item.changes)
            assert len(links) == len(shares) == 7
            assert all(map(inside, links[1:]))
            assert inside(links[0]) or (label, links[0]) == ("extrapolation", 1.0), "its base grows no taller"
            scale = item.robot.urdf.by_name["panda_joint3"].origin.xyz[1] / -0.316
            assert scale == pytest.approx(links[2])
            for joint, share in zip(item.robot.joints, shares, strict=False):
                parent = panda.joints[panda.names.index(joint.name)]
                assert parent.lower <= joint.lower < joint.upper <= parent.upper
                assert joint.upper - joint.lower == pytest.approx(share * (parent.upper - parent.lower))


@pytest.mark.slow
def test_a_composition_has_two_changes_of_structure_and_an_interpolation_at_most_one(panda):
    def structures(label: str) -> set[int]:
        return {len(item.changes) - 2 for item in vary.draw(panda, vary.SETS[label], 0, 7, label)}

    assert structures("composition") == {2}
    assert structures("interpolation") == structures("extrapolation") == {0, 1}


def test_the_reach_is_that_of_the_links(panda):
    (same,) = vary.draw(panda, Changes(), 0)
    elbow = math.hypot(0.0825, 0.0) + math.hypot(0.0825, 0.384)
    assert same.tool == "panda_grasptarget"
    assert same.reach == pytest.approx(0.316 + elbow + 0.088 + 0.107 + 0.105)
    (larger,) = vary.draw(panda, Changes(links=((1.25, 1.25),)), 0)
    hand = 0.107 + 0.105
    assert larger.reach == pytest.approx(1.25 * (same.reach - hand) + hand), "the hand keeps its size"


@pytest.mark.parametrize("place", [0, 2, 6])
def test_actions_in_any_order_are_of_the_same_arm(panda, place):
    """A side file may list joints by the alphabet: the hand then still hangs on the last link."""
    (usual,) = vary.draw(panda, Changes(hand=True), 3)
    names = [*panda.names]
    names.insert(place, names.pop(3))
    (other,) = vary.draw(robots.load("panda", (), names[::-1]), Changes(hand=True), 3)
    assert (other.reach, other.tool, other.changes) == (usual.reach, usual.tool, usual.changes)
    assert other.robot.urdf.by_name["jaw_mount"].parent == "panda_link8"
    assert sorted(other.robot.names) == sorted(usual.robot.names)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_hand_of_one_arm_of_two_hangs_on_that_arm(side):
    aloha = robots.load("aloha")
    one = robots.load("aloha", (), [n for n in aloha.names if "_finger" not in n or n.startswith(side)])
    (drawn,) = vary.draw(one, Changes(hand=True), 3)
    assert drawn.robot.urdf.by_name["jaw_mount"].parent == f"{side}_gripper_link"
    assert drawn.tool == "jaw_tool"
    assert {f"{other}_wrist_rotate" for other in ("left", "right")} <= {*drawn.robot.names}


def test_more_changes_than_can_be_made_are_refused(panda, monkeypatch):
    monkeypatch.setattr(draft.Draft, "_places", lambda self: [])
    monkeypatch.setattr(draft.Draft, "_pairs", lambda self: [])
    asked = Changes(structure=(4, 4))
    words = r"^4 changes of its structure are asked for, and of panda 3 can be made \(remove, mirror, hand\)$"
    with pytest.raises(MorphVlaError, match=words):
        vary.draw(panda, asked, 0)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "panda",
            {"remove": 5},
            "--remove 5: panda's arm has 7 joints and keeps 3 at least; 4 can be removed",
        ),
        ("so101", {"hand": True}, "--hand: so101's hand is one with its arm and cannot be taken off"),
        (
            "aloha",
            {"hand": True},
            "--hand: aloha's hands are 2, and another hand takes the place of the only one",
        ),
        ("panda", {"limits": ((0.7, 1.1),)}, r"--limits 0\.7:1\.1: expected LEAST:MOST within 0\.05 and 1"),
        ("panda", {"links": ((1.2, 0.8),)}, r"--links 1\.2:0\.8: expected LEAST:MOST within 0\.1 and 10"),
        ("panda", {"twist": -1}, "--twist must be at least 0, not -1"),
    ],
)
def test_what_cannot_be_is_one_sentence(name: str, changes: dict, words: str):
    with pytest.raises(MorphVlaError, match=f"^{words}$"):
        vary.draw(robots.load(name), Changes(**changes), 0)


def test_robots_without_an_arm(tmp_path: Path):
    joints = "".join(
        f'<joint name="j{i}" type="revolute"><parent link="l{i}"/><child link="l{i + 1}"/><axis xyz="0 0 1"/>'
        '<origin xyz="0.1 0 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
        for i in range(3)
    )
    links = "".join(f'<link name="l{i}"/>' for i in range(4))
    path = tmp_path / "flat.urdf"
    path.write_text(f'<robot name="flat">{links}{joints}</robot>')
    flat = robots.load(path)
    with pytest.raises(
        MorphVlaError, match=r"^--twist: flat has no two neighbouring joints that can be exch"
    ):
        vary.draw(flat, Changes(twist=1), 0)
    assert vary.draw(flat, Changes(links=((1.25, 1.25),)), 0)[0].reach == pytest.approx(0.25), "as its parent"
    with pytest.raises(MorphVlaError, match=r"^flat has 2 joints beside its gripper; expected at least 3$"):
        vary.draw(robots.load(path, (), ["j0", "j1"]), Changes(mirror=True), 0)


def test_an_arm_whose_joints_are_not_in_a_row_any_more_gets_none_added(monkeypatch):
    """Where joints were removed first: here of an arm that has none in a row left."""
    monkeypatch.setattr(vary, "TRIES", 3)
    monkeypatch.setattr(draft.Draft, "_places", lambda self: [] if "remov" in str(self.notes) else ["elbow"])
    words = r"\(the last: no joints in a row\); ask for less$"
    with pytest.raises(MorphVlaError, match=words):
        vary.draw(robots.load("panda"), Changes(remove=1, add=1), 0)


def test_what_no_try_gives_is_one_sentence(panda, monkeypatch):
    sound = draft.Draft.unsound
    monkeypatch.setattr(vary, "TRIES", 3)
    monkeypatch.setattr(draft, "LEAST_SPREAD", 10.0)  # more than any arm has, but the parent passed
    monkeypatch.setattr(
        draft.Draft, "unsound", lambda self, robot: "" if robot is panda else sound(self, robot)
    )
    words = "the last: its tool cannot be moved in three directions"
    with pytest.raises(
        MorphVlaError, match=rf"^no relative of panda passes the check in 3 tries \({words}\); ask for less$"
    ):
        vary.draw(panda, Changes(mirror=True), 0)


def test_files_of_others_are_never_replaced(panda, tmp_path: Path):
    drawn = vary.draw(panda, Changes(remove=1), 0, 2)
    vary.write(drawn, tmp_path)
    vary.write(drawn[:1], tmp_path)
    with pytest.raises(MorphVlaError, match="exists and is another file; choose another seed or folder"):
        vary.write(vary.draw(panda, Changes(add=1), 0, 2), tmp_path)
    assert (tmp_path / "panda_vary0_000.urdf").read_bytes() == drawn[0].text


@pytest.mark.slow
def test_the_command(run, folder):
    status, out, err = run(
        "robots vary panda --seed 3 --links 0.8:1.25 --limits 0.7:1 --remove 1 --twist --count 2"
    )
    assert (status, err) == (0, "")
    assert "panda_vary3_000  " in out
    assert "joint" in out.splitlines()[0]
    assert "wrote panda_relatives; panda_relatives/sheet.png" in out
    names = sorted(path.name for path in Path("panda_relatives").iterdir())
    assert names == [
        "panda_vary3_000.urdf", "panda_vary3_000.yaml", "panda_vary3_001.urdf", "panda_vary3_001.yaml",
        "relatives.json", "sheet.png",
    ]  # fmt: skip
    assert yaml.safe_load(Path("panda_relatives/panda_vary3_000.yaml").read_text())["licence"] == "Apache-2.0"
    assert run("robots check panda_relatives/panda_vary3_000.urdf")[0] == 0
    picture = Path("panda_relatives/sheet.png").read_bytes()
    status, out, _ = run("robots vary panda --seed 3 --set composition -o other --json")
    assert (status, json.loads(out)[0]["name"]) == (0, "panda_composition3_000")
    assert Path("other/sheet.png").read_bytes() != picture


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "nothing to change; give --set, --links"),
        ("--set compositon", "no set 'compositon'; did you mean 'composition'? (interpolation, "),
        ("--set composition --twist", "--set composition says what is changed; give it or the changes"),
        ("--links 0.8", "'0.8' is no range; expected LEAST:MOST, such as 0.8:1.25"),
        ("--links 0.8:x", "'0.8:x' is no range; expected"),
        ("--count 0 --twist", "--count must be at least 1, not 0"),
    ],
)
def test_options_that_do_not_fit(run, folder, options: str, words: str):
    status, _, err = run(f"robots vary panda {options}")
    assert (status, words in err) == (2, True), err
    assert not [*folder.iterdir()]
