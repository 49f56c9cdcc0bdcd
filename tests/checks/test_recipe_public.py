"""Recipes held against public datasets."""

from pathlib import Path

import pytest
from recipe_checks import (
    BYTES,
)

from morph_vla.checks import recipe as check
from morph_vla.recipes import recipe as config

FINGERS = ("pinky", "ring", "middle", "index", "thumb_bend", "thumb_rotation")


@pytest.fixture
def g1_inspire(shared, tmp_path, monkeypatch) -> str:
    """A drop-in robot: the public two arms of the G1, with a hinge for each driven finger."""
    hands = [f"{side}_hand_{finger}" for side in ("left", "right") for finger in FINGERS]
    text = (shared / "robots/g1_dual_arm.urdf").read_text(encoding="utf-8")
    more = "".join(
        f'<link name="{hand}_link"/><joint name="{hand}" type="revolute">'
        f'<parent link="{hand.partition("_")[0]}_wrist_yaw_link"/><child link="{hand}_link"/>'
        '<axis xyz="0 1 0"/>'
        '<limit lower="0" upper="1.5" effort="1" velocity="20"/></joint>'
        for hand in hands
    )
    folder = tmp_path / "urdf_descriptors"
    folder.mkdir()
    whole = text.replace("</robot>", f"{more}</robot>")
    (folder / "g1_inspire.urdf").write_text(whole, encoding="utf-8")
    words = (
        "shoulder_pitch",
        "shoulder_roll",
        "shoulder_yaw",
        "elbow",
        "wrist_roll",
        "wrist_pitch",
        "wrist_yaw",
    )
    arms = [f"{side}_{word}_joint" for side in ("left", "right") for word in words]
    ends = [f"{{joint: {hand}, open: 0, closed: 1.5, dataset_open: 1, dataset_closed: 0}}" for hand in hands]
    side = f"joints: [{', '.join([*arms, *hands])}]\ngripper: [{', '.join(ends)}]\ncontrol_rate: 30\n"
    (folder / "g1_inspire.yaml").write_text(side, encoding="utf-8")
    monkeypatch.setenv("MORPH_VLA_PATH", str(tmp_path))
    return "g1_inspire"


def public(shared: Path, name: str, robot: str, cameras: str, *more: str) -> list[str]:
    given = [
        f"data.dataset={shared / 'lerobot_data' / name}",
        f"data.robot={robot}",
        f"data.cameras={{{cameras}}}",
    ]
    wide = ["model.max_tokens=100", "model.action_dim=32", "model.morphology.max_joints=32"]
    report = check.check(config.load("panda_demo", [*given, *BYTES, *wide, *more]))
    return [str(p) for p in report.problems if p.severity == "error"]


@pytest.mark.parametrize("name", ["so101_record_test_v30", "so101_lift_v30", "so101_stack_v30"])
def test_a_public_so101_set_has_all_but_its_videos(shared, name):
    assert not public(shared, name, "so101", "")
    (line,) = public(shared, name, "so101", "base_0_rgb: front")
    assert (
        "episodes lack their video (videos/observation.images.front/chunk-000/file-000.mp4 is missing)"
        in line
    )


def test_a_public_g1_has_two_of_its_videos(shared, g1_inspire):
    (line,) = public(shared, "g1_inspire_v21", g1_inspire, "base_0_rgb: cam_high")
    assert "episode 0: camera 'cam_high': 98 of 100 episodes lack their video" in line
    chosen = "data.episodes=[1, 2]", "data.held_out=0"
    assert not public(shared, "g1_inspire_v21", g1_inspire, "base_0_rgb: cam_high", *chosen)


def test_public_sets_of_other_robots_are_refused(shared):
    lines = public(shared, "gr1_sim_picknplace_v20", "g1_dex1", "base_0_rgb: egoview")
    assert any(
        "actions have 44 values, robot 'g1_dex1' has 16 joints (left_shoulder_" in text for text in lines
    )
    assert any("camera 'egoview': 5 of 5 episodes lack their video" in text for text in lines)
    assert sum("more tasks are too long" in text for text in lines) == 1
    lines = public(shared, "piper_act_v30", "so101", "", "data.actions=delta")
    assert any("a state has 7 values, robot 'so101' has 6 joints; name keys" in text for text in lines)
    lines = public(shared, "piper_act_v30", "panda", "")
    assert len(lines) == 2
    assert any("a state has 7 values, robot 'panda' has 8 joints; name keys" in text for text in lines)
    assert any("actions have 6 values, robot 'panda' has 8 joints (panda_joint1, " in text for text in lines)
