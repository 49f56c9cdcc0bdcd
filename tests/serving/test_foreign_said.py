"""What the files of another's checkpoint say is followed, whatever a preset or a recipe has."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from foreign_folders import ENDS, given, read, write_assets, write_processor

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.serving import foreign, keys


def lerobots(folders: Path, folder: Path, cameras: tuple[str, ...], **settings) -> Path:
    """A policy of LeRobot that looks through cameras of these names, in this order."""
    shutil.copytree(folders / "lerobot", folder)
    known = json.loads((folder / "config.json").read_text())
    features = {f"observation.images.{name}": {} for name in cameras}
    (folder / "config.json").write_text(json.dumps({**known, "input_features": features, **settings}))
    return folder


@pytest.mark.parametrize(
    ("cameras", "taken"),
    [
        (("front", "wrist"), {"base_0_rgb": "front", "left_wrist_0_rgb": "wrist"}),
        (("wrist", "front"), {"base_0_rgb": "wrist", "left_wrist_0_rgb": "front"}),
        (("hand_wrist", "top"), {"base_0_rgb": "wrist", "left_wrist_0_rgb": "front"}),
        (("top",), {"base_0_rgb": "front"}),
        (("left_wrist_0_rgb",), {"left_wrist_0_rgb": "wrist"}),
        (("front", "empty_camera_0", "wrist"), {"base_0_rgb": "front", "left_wrist_0_rgb": "wrist"}),
    ],
)
def test_a_policy_of_lerobot_sees_its_cameras_in_its_own_order(folders, tmp_path, caplog, cameras, taken):
    """Whatever order a preset has: the first that LeRobot trained with is the first here."""
    folder = lerobots(folders, tmp_path / "policy", cameras)
    trained = read(folder, "panda", preset="so101").about["robots"]["panda"]
    assert trained["cameras"] == taken
    known = keys.of(trained["cameras"], "so101")
    assert known.images == {name: (f"images/{name}",) for name in taken.values()}
    there = [name for name in cameras if name != "empty_camera_0"]
    other = f"{folder}: the checkpoint looks through {', '.join(there)}, which are taken for "
    is_said = not {*cameras} & {"front", "left_wrist_0_rgb"} or "top" in cameras
    assert (other + ", ".join(taken.values()) in caplog.text) == is_said


def test_a_camera_that_nobody_offers_is_said(folders, tmp_path):
    folder = lerobots(folders, tmp_path / "policy", ("top", "side"))
    with pytest.raises(
        MorphVlaError,
        match=rf"^{folder}: the checkpoint looks through top, side, and there are only front, wrist; give "
        r"--recipe RECIPE whose data\.cameras have a name for each$",
    ):
        read(folder, "panda", preset="so101")
    third = lerobots(folders, tmp_path / "third", ("right_wrist_0_rgb",))
    words = (
        rf"^{third}: the checkpoint looks through right_wrist_0_rgb, and what is offered is for base_0_rgb, "
        r"left_wrist_0_rgb; give --recipe RECIPE whose data\.cameras have a name for one of them$"
    )
    with pytest.raises(MorphVlaError, match=words):
        read(third, "panda", preset="so101")


@pytest.mark.parametrize(
    ("recipe", "actions"), [("droid", "delta"), ("droid_velocity", "velocity"), ("", "delta")]
)
def test_openpis_pytorch_folder_says_nothing_of_its_actions(folders, tmp_path, caplog, recipe, actions):
    """Its `config.json` is its converter's, and there is no preprocessor: recipe or preset say it."""
    folder = tmp_path / "pytorch"
    shutil.copytree(folders / "lerobot", folder)
    (folder / "policy_preprocessor.json").unlink()
    write_assets(folder, "droid")
    settings = {"action_dim": 11, "action_horizon": 5, "precision": "float32"}
    for known in (settings, {}):
        (folder / "config.json").write_text(json.dumps(known))
        chosen = dataclasses.replace(given(folders, recipe or "droid", preset="droid"))
        chosen = chosen if recipe else dataclasses.replace(chosen, recipe="")
        loaded = foreign.read(folder, "", chosen, "bytes")
        assert loaded.about["robots"]["panda"]["actions"] == actions
        assert loaded.config.horizon == (5 if known else 7 if recipe else 16)
    assert ("answers are taken for deltas of joint positions, 5 of them" in caplog.text) == (not recipe)
    of_file = f"{folder}: config.json says horizon 5, and the recipe 7: the file is followed"
    assert (of_file in caplog.text) == bool(recipe)


def test_lerobots_files_are_followed_where_a_recipe_says_another_kind(folders, tmp_path, caplog):
    folder = tmp_path / "policy"
    shutil.copytree(folders / "lerobot", folder)
    write_processor(folder, "QUANTILES", "q01", "q99", enabled=False)
    loaded = foreign.read(folder, "", given(folders))
    assert loaded.about["robots"]["panda"]["actions"] == "absolute"
    recipe = folders / "droid.yaml"
    words = f"{folder}: its files say that actions are absolute, and recipe {recipe} has delta: the files are"
    assert words in caplog.text


@pytest.mark.parametrize("more", [(0.0, 0.0), (-1.0, 1.0), (3.0, 3.0), (-1.0, 2.0)])
def test_statistics_of_more_joints_than_the_robot_has_are_no_padding(folders, tmp_path, more):
    """Eight values of a Panda are not an SO101's six; values that never change may follow."""
    folder = tmp_path / "policy"
    shutil.copytree(folders / "openpi", folder)
    file = folder / "assets/droid/norm_stats.json"
    stats = json.loads(file.read_text())["norm_stats"]
    for table in stats.values():
        for key, value in zip(("q01", "q99", "mean", "std"), (*more, 0.0, 0.0), strict=True):
            table[key] += [value, *[0.0] * 3]
    file.write_text(json.dumps({"norm_stats": stats}))
    if more == (-1.0, 2.0):
        with pytest.raises(MorphVlaError) as error:
            foreign.read(folder, "", given(folders))
        start = (
            f"{file}: statistics of 9 values of the states, and robot 'panda' has 8 joints (panda_joint1, "
        )
        assert str(error.value).startswith(start)
        assert str(error.value).endswith("; give --robot the one that they are of")
    else:
        trained = foreign.read(folder, "", given(folders)).about["robots"]["panda"]
        assert trained["state_stats"]["q99"] == pytest.approx(ENDS["state"]["q99"])


def test_openpis_aloha_policies_may_live_in_a_space_of_their_own(caplog):
    """`aloha_policy.py`: shoulders and elbows mirrored, grippers as angles, unless it is told not to."""
    aloha = robots.load("aloha")
    middle, span = (aloha.upper + aloha.lower) / 2, aloha.upper - aloha.lower
    low, high = (aloha.to_dataset(middle + way * 0.45 * span) for way in (-1, 1))

    def stats(low: np.ndarray, high: np.ndarray) -> dict:
        return {"state_stats": {"q01": low.tolist(), "q99": high.tolist()}}

    foreign._warn_of_pi_space(Path("trossen"), aloha, stats(low, high))
    (record,) = caplog.records
    assert (
        "unless told adapt_to_pi=False; answers are taken for joint values as recorded" in record.getMessage()
    )
    mirror = np.ones(len(low))
    mirror[aloha.names.index("left_shoulder")] = -1
    both = np.sort(np.stack([mirror * low, mirror * high]), axis=0)
    words = (
        r"^trossen: openpi's configs for ALOHA .* \(adapt_to_pi\), and so it is here: 'left_shoulder' goes "
        r"from -?\d\.\d\d to -?\d\.\d\d, and its limits are .*; serve it with openpi, or train with "
        r"adapt_to_pi=False$"
    )
    with pytest.raises(MorphVlaError, match=words):
        foreign._warn_of_pi_space(Path("trossen"), aloha, stats(*both))
