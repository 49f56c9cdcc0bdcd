"""Statistics of what is trained on: exact, cached by content, of whom, and compared."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.data import layout, stats
from morph_vla.data.actions import to_learn
from morph_vla.data.lerobot import Recordings
from morph_vla.errors import MorphVlaError
from morph_vla.recipes import recipe as config
from morph_vla.robots.screws import screws
from morph_vla.training import datasets, statistics
from morph_vla.training.statistics import Recorded, of_robot

JOINTS = ("lift", "elbow", "grip")
RELATIVE = np.array([True, True, False])
FPS, HORIZON = 15.0, 7


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "statistics"


def recorded(
    kind: Any = "absolute", seed: int = 0, root: Path = Path("nowhere"), scale: float = 1.0
) -> Recorded:
    random = np.random.default_rng(seed)
    values = (scale * random.normal(size=(2, 101, 3)) + [1, -2, 40]).astype(np.float32)
    bounds = np.array([0, 53]), np.array([53, 101])
    recordings = Recordings(
        root, "v3.0", FPS, "arm", values[0], values[1], *bounds, np.zeros(101, np.int64), ("go",), ()
    )
    return Recorded(f"set{seed}", recordings, kind, RELATIVE)


def learnt(part: Recorded) -> np.ndarray:
    """Every value of every chunk, one after another: what training will see."""
    result, rows = part.recordings, np.arange(101)
    wanted = np.minimum(rows[:, None] + np.arange(HORIZON), result.last_of(rows)[:, None])
    chunk = result.action[wanted]
    if part.kind == "absolute":
        return result.action
    return to_learn(part.kind, chunk, result.state, RELATIVE, FPS).reshape(-1, 3)


@pytest.mark.parametrize("kind", ["absolute", "delta", "velocity"])
def test_they_are_exact_and_of_what_is_trained_on(kind, monkeypatch):
    monkeypatch.setattr(statistics, "ROWS", 37)  # chunks are taken apart so many rows at a time
    parts = [recorded(kind), recorded(kind, seed=1)]
    measured = of_robot("arm", JOINTS, parts, HORIZON)
    exact = np.concatenate([learnt(part) for part in parts]).astype(np.float64)
    np.testing.assert_allclose(measured.action.q01, np.quantile(exact, 0.01, axis=0), rtol=1e-12)
    np.testing.assert_allclose(measured.action.q99, np.quantile(exact, 0.99, axis=0), rtol=1e-12)
    np.testing.assert_allclose(measured.action.mean, exact.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(measured.action.std, exact.std(axis=0), rtol=1e-9)
    states = np.concatenate([part.recordings.state for part in parts]).astype(np.float64)
    np.testing.assert_allclose(measured.state.q99, np.quantile(states, 0.99, axis=0), rtol=1e-12)
    assert (measured.frames, measured.source) == (202, "own")


def test_they_are_measured_once_and_anew_for_other_values(cache, monkeypatch):
    first = of_robot("arm", JOINTS, [recorded()], HORIZON)
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(stats, "measure", lambda *_: pytest.fail("measured twice"))
        assert of_robot("arm", JOINTS, [recorded()], HORIZON) == first
        assert of_robot("arm", JOINTS, [recorded()], HORIZON + 1) == first  # absolute: no matter
    for other in (recorded("delta"), recorded(seed=1)):
        of_robot("arm", JOINTS, [other], HORIZON)
    of_robot("arm", JOINTS, [recorded("delta")], HORIZON + 1)
    assert len(list(cache.iterdir())) == 4
    kept.write_text("{")  # not whole: measured anew
    assert of_robot("arm", JOINTS, [recorded()], HORIZON) == first


def test_a_cache_that_cannot_be_written_ends_nothing(monkeypatch, tmp_path, caplog):
    """They are measured by then; a home folder may not be writable, as in a container."""
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "home"))
    first = of_robot("arm", JOINTS, [recorded()], HORIZON)
    assert first == of_robot("arm", JOINTS, [recorded()], HORIZON)
    text = f"statistics are not kept: {tmp_path}/home/statistics: "
    assert [text in line for line in caplog.messages] == [True, True]
    assert caplog.messages[0].endswith(" (MORPH_VLA_CACHE names another folder)")


def test_a_degenerate_dimension_is_widened_or_refused_and_named(caplog):
    part = recorded()
    part.recordings.action[:, 1] = 3.0
    measured = of_robot("arm", JOINTS, [part], HORIZON)
    assert caplog.messages == ["elbow (q01 3, q99 3) hardly moves: its range is widened to 0.01"]
    assert (measured.action.q01[1], measured.action.q99[1]) == (2.995, 3.005)
    with pytest.raises(
        MorphVlaError,
        match=r"^arm: action: 'elbow' hardly moves \(q99 - q01 is below 0\.01\): data\.degenerate: ",
    ):
        of_robot("arm", JOINTS, [part], HORIZON, degenerate="refuse")


def own_stats(root: Path, shift: float = 0.0, without: tuple[str, ...] = ()) -> None:
    part, known = recorded(root=root), {}
    for key, values in (("observation.state", part.recordings.state), ("action", part.recordings.action)):
        measured = stats.measure(values)
        plain = {**vars(measured), "q01": np.add(measured.q01, shift)}
        known[key] = {name: list(value) for name, value in plain.items() if name not in without}
    (root / "meta").mkdir(exist_ok=True)
    (root / "meta/stats.json").write_text(json.dumps(known))


def test_differences_are_of_chunks_as_long_as_those_that_are_learnt(tmp_path):
    """Over longer ones they are larger: of twice as many actions the policy would be told half of each."""
    first = of_robot("arm", JOINTS, [recorded("delta")], HORIZON)
    file, folder = tmp_path / "stats.json", tmp_path / "checkpoint"
    (folder / "about").mkdir(parents=True)
    plain = statistics.plain({"arm": (JOINTS, "delta", first)}, HORIZON)
    file.write_text(json.dumps(plain))
    del plain["robots"]["arm"]["horizon"]  # a checkpoint's recipe says it
    (folder / "about/policy.json").write_text(json.dumps(plain))
    (folder / "about/recipe.json").write_text(json.dumps({"model": {"horizon": HORIZON}}))
    for path in (file, folder):
        assert statistics.of_file(path, "arm", "delta", JOINTS, HORIZON) == (first.state, first.action)
        words = (
            rf"is of differences over chunks of {HORIZON} actions, and chunks of 17 are learnt \(model\.hor"
        )
        with pytest.raises(MorphVlaError, match=words):
            of_robot("arm", JOINTS, [recorded("delta")], 17, statistics=str(path))
    plain["robots"]["arm"] |= {"horizon": HORIZON, "source": "robot"}  # of the body: they have no horizon
    file.write_text(json.dumps(plain))
    assert statistics.of_file(file, "arm", "delta", JOINTS, 17) == (first.state, first.action)
    trained = {"model": {"horizon": HORIZON}, "data": {"statistics": "robot"}}
    (folder / "about/recipe.json").write_text(json.dumps(trained))
    assert statistics.of_file(folder, "arm", "delta", JOINTS, 17) == (first.state, first.action)
    del plain["robots"]["arm"]["horizon"], plain["robots"]["arm"]["source"]
    file.write_text(json.dumps(plain))  # of an earlier version
    assert statistics.of_file(file, "arm", "delta", JOINTS, 17) == (first.state, first.action)


def test_the_datasets_own_only_when_asked(tmp_path):
    own_stats(tmp_path, shift=0.001)
    part = recorded(root=tmp_path)
    measured = of_robot("arm", JOINTS, [part], HORIZON)
    taken = of_robot("arm", JOINTS, [part], HORIZON, statistics="dataset")
    np.testing.assert_allclose(np.subtract(taken.action.q01, measured.action.q01), 0.001)
    lines = [line for used in (measured, taken) for line in statistics.sentences("arm", used)]
    assert lines == [
        "statistics of 'arm': measured on 101 frames",
        "statistics of 'arm': set0: its own meta/stats.json",
    ]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            [recorded(), recorded(seed=1)],
            "robot 'arm' has 2 datasets, and their own statistics cannot be merged",
        ),
        ([recorded("delta")], "delta actions are learnt from set0; its own statistics are of other values"),
        ([recorded()], "set0 has no q01 and q99 in its meta/stats.json; choose `own`"),
    ],
)
def test_when_the_datasets_own_cannot_be(parts, sentence):
    with pytest.raises(MorphVlaError, match=f"^data.statistics: {sentence}"):
        of_robot("arm", JOINTS, parts, HORIZON, statistics="dataset")


def test_large_differences_to_the_datasets_own_are_named(tmp_path):
    own_stats(tmp_path, shift=1.4)  # of a range of some 4.6
    part = recorded(root=tmp_path)
    measured = of_robot("arm", JOINTS, [part], HORIZON)
    assert len(measured.remarks) == 6
    assert measured.remarks[3].startswith("arm: action 'lift' is normalised by ")
    assert "; set0: its meta/stats.json: " in measured.remarks[3]
    own_stats(tmp_path, shift=0.8)
    assert not of_robot("arm", JOINTS, [part], HORIZON).remarks
    own_stats(tmp_path, without=("q99",))
    assert not of_robot("arm", JOINTS, [part], HORIZON).remarks


def test_merged_datasets_are_compared_with_each_alone():
    measured = of_robot("arm", JOINTS, [recorded(), recorded(seed=1, scale=5)], HORIZON)
    about = [remark for remark in measured.remarks if "set0 alone" in remark]
    assert len(about) == 6
    assert not [remark for remark in measured.remarks if "set1 alone" in remark]


def test_those_of_a_file_and_of_a_checkpoint(tmp_path, monkeypatch):
    first = of_robot("arm", JOINTS, [recorded()], HORIZON)
    kept = statistics.plain({"arm": (JOINTS, "absolute", first)}, 7)
    file, folder = tmp_path / "stats.json", tmp_path / "checkpoint"
    (folder / "about").mkdir(parents=True)
    for path in (file, folder / "about/policy.json"):
        path.write_text(json.dumps(kept))
    other = recorded(seed=1, scale=5)
    for path in (file, folder):
        measured = of_robot("arm", JOINTS, [other], HORIZON, statistics=str(path))
        assert (measured.state, measured.action, measured.source) == (first.state, first.action, str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MORPH_VLA_PI05_BASE", str(folder))
    for before in (str(folder), "~/checkpoint", "pi05-base"):
        compared = of_robot("arm", JOINTS, [other], HORIZON, before=before)
        assert len([remark for remark in compared.remarks if f"; {before}: " in remark]) == 6
    for name, joints, kind, sentence in (
        ("hand", JOINTS, "absolute", r" has no robot 'hand' \(arm\)"),
        (
            "arm",
            JOINTS[::-1],
            "absolute",
            r" is of absolute actions of lift, elbow, grip; absolute ones of grip, ",
        ),
        (
            "arm",
            JOINTS,
            "delta",
            r" is of absolute actions of lift, elbow, grip; delta ones of lift, elbow, grip",
        ),
    ):
        with pytest.raises(MorphVlaError, match=rf"^data\.statistics: {file}{sentence}"):
            of_robot(name, joints, [recorded(kind)], HORIZON, statistics=str(file))
    file.write_text("[]")
    for path in (file, tmp_path / "no"):
        with pytest.raises(
            MorphVlaError,
            match=rf"^data\.statistics: {path} is neither a checkpoint of ours nor a file of statistics$",
        ):
            of_robot("arm", JOINTS, [recorded()], HORIZON, statistics=str(path))


# ------------------------------------------------------------------------------------------ recipe, command


def test_a_recipes_robots_have_theirs(so101_dataset):
    recipe = config.load(
        "panda_demo",
        [f"data.dataset={so101_dataset}", "data.robot=so101", "data.cameras={}", "data.actions=delta"],
    )
    parts = datasets.read_parts(recipe)
    measured = datasets.robot_stats(recipe, "so101", parts)
    rows = layout.all_rows(layout.read(so101_dataset), ("observation.state",))
    exact = np.quantile(rows.values["observation.state"], 0.99, axis=0)
    np.testing.assert_allclose(measured.state.q99, exact, rtol=1e-6)


def test_the_command_on_a_dataset(run, write_dataset, tmp_path):
    values = [{"observation.state": [[1.0, 2.0]] * 5, "action": [[float(i), 2.0] for i in range(5)]}]
    root = write_dataset("v2.1", values, names={"action": ["a", "b"]})
    status, out, _ = run(f"stats {root}")
    assert status == 0
    assert out.startswith(f"{root}: LeRobot v2.1, 1 episodes, 5 frames, 30 Hz\n")
    assert (
        "action 'b' hardly moves: training widens its range to 0.01, or refuses it (data.degenerate)" in out
    )
    assert json.loads(run(f"stats {root} --json")[1])["action"]["mean"] == [2.0, 2.0]
    assert not (tmp_path / "cache").exists()  # nothing was converted
    status, _, err = run(f"stats {root} seed=1")
    assert (status, err) == (2, "error: seed=1: KEY=VALUE needs a recipe, and this is a dataset\n")
    status, _, err = run(f"stats {root} --output {tmp_path}/out.json")
    assert status == 2, "what `data.statistics` would refuse is not written"
    assert err == (
        "error: --output needs a recipe, which says what each robot learns, and this is a dataset; run "
        f"`morph-vla stats RECIPE data.dataset={root} --output {tmp_path}/out.json`\n"
    )
    assert not (tmp_path / "out.json").exists()


def test_values_that_are_not_finite_are_counted_and_left_out(run, write_dataset):
    values = [
        {"observation.state": [[1.0, 2.0]] * 5, "action": [[float(i), 2.0] for i in range(5)]}
        for _ in range(2)
    ]
    values[1]["action"][3][1] = math.nan
    values[1]["action"][4] = [math.inf, math.nan]
    root = write_dataset("v2.1", values, names={"action": ["a", "b"]})
    status, out, _ = run(f"stats {root}")
    assert status == 0
    words = "action: 3 values not finite; the first is 'b' in episode 1, frame 3: such frames are left out"
    assert f"{words} here, and training refuses the dataset\n" in out
    assert "state: " not in out
    assert json.loads(run(f"stats {root} --json")[1])["action"]["mean"] == [13 / 8, 2.0]
    values[0]["action"] = values[1]["action"] = [[math.nan, 2.0]] * 5
    status, _, err = run(f"stats {write_dataset('v2.1', values, folder='none')}")
    assert (status, err.strip()) == (2, f"error: {root.parent / 'none'}: no frame of 'action' is finite")


def test_the_command_on_a_recipe(run, so101_dataset, tmp_path):
    line = f"stats panda_demo data.dataset={so101_dataset} data.robot=so101 data.cameras={{}}"
    status, out, _ = run(f"{line} --output {tmp_path}/out.json")
    assert status == 0
    assert "statistics of 'so101': measured on 110 frames" in out
    assert "shoulder_pan" in out
    status, out, _ = run(f"{line} data.statistics={tmp_path}/out.json --json")
    assert json.loads(out)["robots"]["so101"]["source"] == f"{tmp_path}/out.json"


def test_the_command_on_a_variant_of_a_recipes_file(run, so101_dataset, tmp_path, root):
    given = tmp_path / "my.yaml"
    given.write_bytes((root / "configs/panda_demo.yaml").read_bytes())
    line = f"stats {given}@tabl1.tokens data.dataset={so101_dataset} data.robot=so101 data.cameras={{}}"
    status, _, err = run(line)
    assert status == 2
    assert "no variant 'tabl1.tokens'" in err
    line = line.replace("@tabl1", "@table1")
    assert "statistics of 'so101': measured on 110 frames" in run(line)[1]


def test_public_sets(shared, run):
    for name, frames in (("g1_inspire_v21", 35965), ("gr1_sim_picknplace_v20", 2096)):
        status, out, _ = run(f"stats {shared}/lerobot_data/{name}")
        assert status == 0
        assert f"{frames} frames" in out


@pytest.mark.parametrize("name", ["panda", "so101", "aloha"])
def test_those_of_a_body_need_no_recording(name):
    robot = robots.load(name)
    grippers = np.array([joint.is_gripper for joint in robot.joints])
    sliding = np.array([joint.type == "prismatic" for joint in robot.joints])
    of_limits = statistics.of_body(robot, "absolute")
    ends = robot.to_dataset(np.stack([robot.lower, robot.upper]))
    np.testing.assert_allclose(np.sort(of_limits.state.normalise(ends), axis=0)[0], -1, atol=1e-3)
    np.testing.assert_allclose(np.sort(of_limits.state.normalise(ends), axis=0)[1], 1, atol=1e-3)
    assert of_limits.action == of_limits.state
    moves = statistics.of_body(robot, "delta")
    assert (moves.state, moves.source) == (of_limits.state, "robot")
    half = np.where(sliding, statistics.TURN * screws(robot).reach, statistics.TURN)
    moved = robot.to_dataset(robot.rest + half) - robot.to_dataset(robot.rest)
    np.testing.assert_allclose(np.abs(moves.action.normalise(moved))[~grippers], 1, atol=1e-3)
    np.testing.assert_allclose(np.asarray(moves.action.q01)[grippers], np.asarray(moves.state.q01)[grippers])
    with pytest.raises(MorphVlaError, match=r"^data\.statistics: robot knows no range of velocities \('"):
        statistics.of_body(robot, "velocity")


def test_a_joint_that_its_limits_hardly_let_move_is_degenerate_like_any_other():
    known = robots.load("panda")
    joint = known.urdf.by_name["panda_joint3"]
    assert joint.limit is not None
    narrow = dataclasses.replace(joint.limit, lower=0.0, upper=0.0)
    joints = tuple(
        dataclasses.replace(other, limit=narrow) if other is joint else other for other in known.urdf.joints
    )
    robot = robots.build(dataclasses.replace(known.urdf, joints=joints), known.side, known.urdf_path)
    given = statistics.of_body(robot, "absolute").state
    assert given.q99[2] - given.q01[2] == pytest.approx(0.01)
    assert given.q01[:2] == statistics.of_body(known, "absolute").state.q01[:2]
    words = (
        r"^panda: state: 'panda_joint3' hardly moves \(q99 - q01 is below 0\.01\): data\.degenerate: widen"
    )
    with pytest.raises(MorphVlaError, match=words):
        statistics.of_body(robot, "absolute", degenerate="refuse")


@pytest.mark.parametrize("space", ["joints", "tool"])
@pytest.mark.parametrize("beyond", [0.0, 0.25, 3.7])
def test_a_gripper_is_counted_from_open_to_closed_whatever_its_limits(space, beyond):
    """Robosuite's XArm7 could turn its fingers by pi, and has closed them after 0.8."""
    known = robots.load("panda")
    joint = known.urdf.by_name["panda_finger_joint1"]
    assert joint.limit is not None
    wide = dataclasses.replace(joint.limit, lower=-0.04 * beyond, upper=0.04 * (1 + beyond))
    joints = tuple(
        dataclasses.replace(other, limit=wide) if other is joint else other for other in known.urdf.joints
    )
    robot = robots.build(dataclasses.replace(known.urdf, joints=joints), known.side, known.urdf_path)
    for kind in ("absolute", "delta"):
        given = statistics.of_body(robot, kind, space)
        for values in (given.state, given.action):
            np.testing.assert_allclose((values.q01[-1], values.q99[-1]), (0.0, 1.0), atol=1e-6)


@pytest.mark.parametrize(("space", "metres"), [("tool", 1.0), ("hand", 0.5)])
def test_places_of_a_tool_have_one_range_on_all_robots(space, metres):
    """Counted from the root a hand is up to an arm's length away, from where it stands never far."""
    state = statistics.of_body(robots.load("panda"), "absolute", space).state
    assert state.q99[:9] == (*(metres,) * 3, *(1.0,) * 6)
    assert state.q01[:9] == (*(-metres,) * 3, *(-1.0,) * 6)
