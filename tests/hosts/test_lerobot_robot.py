"""A suite in the place of a robot, for LeRobot's programs that drive one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")
pytest.importorskip("mujoco", reason="needs the extra 'sim'")

from lerobot.robots.utils import make_robot_from_config

from morph_vla.errors import MorphVlaError
from morph_vla.hosts.lerobot import export
from morph_vla.hosts.lerobot.config_robot import SuiteRobotConfig
from morph_vla.hosts.lerobot.robot import SuiteRobot

pytestmark = pytest.mark.gl
NAME = "droid_panda:cube_in_bowl"
SMALL = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]
# The cube is "in the bowl" where it lies on one side of it: some rows succeed at once, others never.
LOOSE = [
    *SMALL, "episode_seconds=1.2", "settle_seconds=0.1", "success.dwell_seconds=0.3", "success.min_opening=0",
    "success.low=[0.0, -2, -2]", "success.high=[2, 2, 2]",
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """LeRobot's, where it would keep calibrations."""
    monkeypatch.setattr("lerobot.robots.robot.HF_LEROBOT_CALIBRATION", tmp_path / "calibration")
    return tmp_path


@pytest.fixture
def robot():
    made = make_robot_from_config(SuiteRobotConfig(suite=NAME, row=5, overrides=LOOSE))
    yield made
    if made.is_connected:
        made.disconnect()


def test_lerobot_makes_it_from_its_config_and_reads_what_it_has(robot, home):
    assert isinstance(robot, SuiteRobot)
    joints = [f"panda_joint{number}.pos" for number in range(1, 8)] + ["panda_finger_joint1.pos"]
    assert robot.action_features == dict.fromkeys(joints, float)
    assert list(robot.observation_features) == [*joints, "exterior", "wrist"]
    assert robot.observation_features["wrist"] == (24, 24, 3)
    assert (robot.is_connected, robot.is_calibrated) == (False, True)
    assert not (home / "calibration").exists()


def test_an_observation_has_what_the_features_say(robot):
    robot.connect()
    seen = robot.get_observation()
    assert list(seen) == list(robot.observation_features)
    assert all(isinstance(seen[name], float) for name in robot.action_features)
    assert (seen["exterior"].shape, seen["exterior"].dtype) == ((24, 24, 3), np.uint8)


def test_an_arm_goes_where_it_is_sent_and_the_end_is_said(robot, caplog):
    caplog.set_level("INFO")
    robot.connect()
    before = robot.get_observation()["panda_joint1.pos"]
    targets = {name: robot.get_observation()[name] for name in robot.action_features}
    targets["panda_joint1.pos"] += 0.2
    for _ in range(18):  # 1.2 s
        assert robot.send_action(targets) == targets
    moved = robot.get_observation()["panda_joint1.pos"] - before
    assert moved == pytest.approx(0.2, abs=0.02)
    stood = robot.get_observation()
    robot.send_action({**targets, "panda_joint1.pos": before})  # the episode is over: nothing moves
    assert robot.get_observation()["panda_joint1.pos"] == stood["panda_joint1.pos"]
    robot.disconnect()
    said = [record.message for record in caplog.records if "row 5" in record.message]
    assert said[0] == f"{NAME}, row 5: 'put the cube in the bowl'"
    assert len(said) == 3
    assert said[1] == said[2]
    assert said[1].split(": ", 1)[1].startswith(("success after", "time is over after 1.2 s, 18 actions"))
    robot.connect()
    assert any(record.message.startswith(f"{NAME}, row 6: ") for record in caplog.records)


def test_what_cannot_be_driven_is_one_sentence(robot):
    with pytest.raises(MorphVlaError, match="has 3 tasks; name one: droid_panda:cube_in_bowl, droid_panda:"):
        SuiteRobot(SuiteRobotConfig(suite="droid_panda"))
    with pytest.raises(MorphVlaError, match=r"^droid_panda:cube_in_bowl: not connected; `connect` begins an"):
        robot.get_observation()
    robot.connect()
    with pytest.raises(MorphVlaError, match=r"^the action lacks panda_joint1\.pos, .*; it has gripper\.pos$"):
        robot.send_action({"gripper.pos": 0.0})


@pytest.mark.slow
def test_lerobot_rollout_drives_it_by_a_checkpoint_of_ours(tiny_run, tmp_path):
    export.write(str(tiny_run.checkpoint), tmp_path / "plugin")
    program = str(Path(sys.executable).with_name("lerobot-rollout"))
    options = {
        "strategy.type": "base", "policy.path": str(tmp_path / "plugin"), "policy.batch": "1", "fps": "15",
        "robot.discover_packages_path": "morph_vla.hosts.lerobot", "robot.type": "morph_vla",
        "robot.suite": NAME, "robot.overrides": json.dumps(SMALL), "task": "put the cube in the bowl",
        "duration": "1.5", "return_to_initial_position": "false",
    }  # fmt: skip
    words = [program, *(f"--{key}={value}" for key, value in options.items())]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    ended = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr[-2000:]
    log = ended.stdout + ended.stderr
    assert f"{NAME}, row 0: not ended after" in log
    assert "Rollout finished" in log
