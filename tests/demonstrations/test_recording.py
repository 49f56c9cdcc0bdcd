"""Recording demonstrations: what lerobot reads back, what is dropped, and what an interruption leaves."""

import concurrent.futures
import dataclasses
import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.demonstrations import attempts as attempting
from morph_vla.demonstrations import beginnings, recording
from morph_vla.engines.engine import Diverged
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import Suite, load, load_tasks

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp", "lerobot", "av")):
    pytest.skip("recording needs the extras 'sim' and 'lerobot'", allow_module_level=True)

from morph_vla.demonstrations.experts import PickAndPlace
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites.suite import initial_state

ATTEMPTS, PART = 3, 2  # two parts, the second shorter
TINY = [
    "expert.begin={rest: 1}",
    "cameras.exterior.width=34",
    "cameras.exterior.height=22",
    "cameras.wrist.width=26",
]
TINY += ["cameras.wrist.height=38"]

# lerobot, torch and pyarrow warn of their own and each other's future; nothing here can be done about it.
pytestmark = [
    pytest.mark.gl,
    pytest.mark.filterwarnings("ignore:::(lerobot|torch|torchcodec|torchvision|datasets)"),
]


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load("droid_panda:cube_in_bowl", TINY)


@pytest.fixture(scope="module")
def whole(suite, tmp_path_factory) -> tuple[Path, recording.Recording, list[tuple[int, int]]]:
    """A recording by two worker processes: its folder, its summary and what progress was told."""
    folder, told = tmp_path_factory.mktemp("whole") / "demos", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "PART", PART)
        done = recording.record(suite, folder, ATTEMPTS, workers=2, progress=lambda *now: told.append(now))
    return folder, done, told


class OneThread(concurrent.futures.ThreadPoolExecutor):
    """Parts are recorded in this process: lerobot is not imported again, and monkeypatches hold."""

    def __init__(self, workers, mp_context, initializer, initargs):
        del workers, mp_context, initializer  # it would ignore Ctrl-C, which only a main thread may
        recording._COUNTER, recording._STOP = initargs
        super().__init__(1)


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", OneThread)
    monkeypatch.setattr(recording, "PART", PART)
    monkeypatch.setattr(recording, "_COUNTER", None)
    monkeypatch.setattr(recording, "_STOP", None)


def table(folder: Path, *columns: str) -> list[np.ndarray]:
    """Columns of a dataset's parquet files, in order."""
    import pyarrow.parquet as parquet

    files = sorted((folder / "data").rglob("*.parquet"))
    found = []
    for column in columns:
        rows = [np.asarray(parquet.read_table(file)[column].to_pylist()) for file in files]
        found.append(np.concatenate(rows))
    return found


# ----------------------------------------------------------------------------------------------- the dataset


@pytest.mark.slow
def test_the_summary_counts_what_is_there(whole, suite):
    folder, done, told = whole
    assert done.attempted == ATTEMPTS
    assert done.episodes + sum(done.failed_clauses.values()) == ATTEMPTS
    assert done.dropped == ATTEMPTS - done.episodes
    assert done.episodes >= 2
    assert (done.suite, done.fps) == (suite.name, 15.0)
    assert told[0] == (0, ATTEMPTS)
    assert told[-1] == (ATTEMPTS, ATTEMPTS)
    assert recording.completed(folder) == done
    for name in ("data", "meta/episodes", "videos/observation.images.wrist"):
        (folder / name).rename(folder / "away")
        with pytest.raises(
            MorphVlaError,
            match=rf"^{folder}/recording\.json says that it is finished, and {folder}/{name} holds nothing: ",
        ):
            recording._check_whole(folder)
        (folder / "away").rename(folder / name)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["demos"]  # no parts left over


def test_lerobot_reads_what_was_recorded(whole, suite):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder, done, _ = whole
    dataset = LeRobotDataset(f"local/{suite.name}", root=folder, video_backend="pyav")
    info = json.loads((folder / "meta" / "info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    assert info["robot_type"] == "panda"
    assert (len(dataset), dataset.num_episodes, dataset.fps) == (done.frames, done.episodes, 15)
    joints = [joint.name for joint in robots.load("panda").joints]
    for key in ("observation.state", "action"):
        assert dataset.features[key]["names"] == joints
        assert tuple(dataset.features[key]["shape"]) == (8,)
    frame: Any = dataset[done.frames - 1]
    assert frame["task"] == "put the cube in the bowl"
    assert int(frame["episode_index"]) == done.episodes - 1
    for name, camera in suite.cameras.items():
        picture = frame[f"observation.images.{name}"]
        assert tuple(picture.shape) == (3, camera.height, camera.width)
        assert 0.0 <= float(picture.min()) < float(picture.max()) <= 1.0


def test_the_recorded_frames_are_those_that_were_rendered(whole, suite):
    """The compressed video, decoded again, is near the frames of a repeated attempt, and in their order."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder, done, _ = whole
    if done.failed_clauses:
        pytest.skip("an attempt failed; episodes and attempts are not the same numbers")
    dataset = LeRobotDataset(f"local/{suite.name}", root=folder, video_backend="pyav")
    engine = MujocoEngine(robots.load("panda"), suite)
    frames = recording.demonstrate(engine, 0).frames
    engine.close()
    picked = (0, 23, 41)
    for index in picked:
        row: Any = dataset[index]
        stored = {key: np.asarray(value) for key, value in row.items() if key.startswith("obs")}
        assert stored["observation.state"] == pytest.approx(frames[index]["observation.state"])
        for key in (f"observation.images.{name}" for name in suite.cameras):
            decoded = stored[key].transpose(1, 2, 0) * 255
            apart = {other: np.abs(decoded - frames[other][key]).mean() for other in picked}
            assert apart[index] < 15  # of 255; colours are stored at half resolution, and frames are tiny
            assert min(apart, key=lambda other: apart[other]) == index


def test_the_actions_are_the_clean_plan(whole, suite):
    """What was executed was disturbed; what is to be learned is not."""
    folder, done, _ = whole
    if done.failed_clauses:
        pytest.skip("an attempt failed; episodes and attempts are not the same numbers")
    actions, states, episodes = table(folder, "action", "observation.state", "episode_index")
    engine = MujocoEngine(robots.load("panda"), suite)
    for number in range(ATTEMPTS):
        engine.reset({0: initial_state(suite, number, 8, stream="demonstration")})
        planned = PickAndPlace(engine).plan(0).actions.astype(np.float32)
        recorded = actions[episodes == number]
        assert np.array_equal(recorded[: len(planned)], planned[: len(recorded)])
        assert np.all(recorded[len(planned) :] == planned[-1])  # held until the dwell is over
        assert states[episodes == number][0] == pytest.approx(engine.state(0))


def test_the_statistics_of_pixels_are_in_the_dataset(whole):
    folder, done, _ = whole
    stats = json.loads((folder / "meta" / "stats.json").read_text())
    red = np.ravel(stats["observation.images.exterior"]["mean"])
    assert red.shape == (3,)
    assert np.all((red > 0.05) & (red < 0.95))
    assert np.ravel(stats["action"]["count"])[0] == done.frames
    assert {"q01", "q99"} <= set(stats["action"])


# -------------------------------------------------------------------------- interruptions and foreign folders


@pytest.mark.slow
def test_an_interrupted_recording_goes_on_to_the_same_result(whole, suite, tmp_path, here):
    """A finished part is kept, a half one thrown away; and one worker records what two did."""
    folder, done, _ = whole
    disk, neighbour = tmp_path / "disk", tmp_path / "disk" / "demos.merging"
    again, parts = tmp_path / "demos", disk / "demos.parts"
    parts.mkdir(parents=True)
    neighbour.mkdir()
    (neighbour / "notes.txt").write_text("ours")
    (disk / "demos").mkdir()
    again.symlink_to(disk / "demos")  # a folder on a larger disk
    (parts / "identity").write_text(recording._identity([suite], ATTEMPTS))
    recording.record_part(suite, parts / "0000", range(PART))
    first = parts / "0000" / recording.SUMMARY
    kept = first.stat().st_mtime_ns
    (parts / "0001.unfinished").mkdir()
    (parts / "0001.unfinished" / "half.mp4").write_bytes(b"half")
    told, seen = [], []

    def progress(now: int, total: int) -> None:
        told.append((now, total))
        seen.append(first.stat().st_mtime_ns if first.exists() else None)

    resumed = recording.record(suite, again, ATTEMPTS, workers=1, progress=progress)
    assert told[0] == (PART, ATTEMPTS)
    assert set(seen) == {kept}
    assert resumed == done
    assert not list(again.rglob("half.mp4"))
    assert again.is_symlink()
    assert sorted(path.name for path in disk.iterdir()) == ["demos", "demos.merging"]
    assert (neighbour / "notes.txt").read_text() == "ours"
    columns = ("action", "observation.state", "episode_index", "timestamp")
    for one, two in zip(table(folder, *columns), table(again, *columns), strict=True):
        assert np.array_equal(one, two)


def test_a_complete_recording_is_left_as_it_is(whole, suite, monkeypatch):
    folder, done, _ = whole
    monkeypatch.setattr(recording, "_record_parts", lambda *_: pytest.fail("recorded again"))
    assert recording.record(suite, folder, ATTEMPTS) == done
    elsewhere = dataclasses.replace(suite, path=Path("elsewhere.yaml"), episodes=7)
    assert recording.record(elsewhere, folder, ATTEMPTS) == done  # neither changes a frame


@pytest.mark.parametrize("change", [{"seed": 7}, {"control_rate": 10.0}, {"task": "another"}], ids=str)
def test_another_recording_in_the_folder_is_kept(whole, suite, change):
    folder, _, _ = whole
    with pytest.raises(
        MorphVlaError,
        match=re.escape(
            f"{folder} holds another recording (suite 'droid_panda', 3 attempts); "
            "give another folder or remove it"
        ),
    ):
        recording.record(dataclasses.replace(suite, **change), folder, ATTEMPTS)


def test_more_attempts_are_another_recording(whole, suite):
    with pytest.raises(MorphVlaError, match=r"holds another recording \(suite 'droid_panda', 3 attempts"):
        recording.record(suite, whole[0], ATTEMPTS + 2)


def test_a_corrected_side_file_is_another_recording_and_a_comment_is_not(whole, suite, tmp_path, monkeypatch):
    folder, done, _ = whole
    monkeypatch.setenv("MORPH_VLA_PATH", str(tmp_path))
    monkeypatch.setattr(recording, "_record_parts", lambda *_: pytest.fail("recorded again"))
    (tmp_path / "urdf_descriptors").mkdir()
    urdf, side = (shutil.copy(file, tmp_path / "urdf_descriptors") for file in robots.load("panda").files)
    written = Path(side).read_text()
    Path(side).write_text(f"# ours\n{written}")
    assert robots.load("panda").urdf_path == Path(urdf)
    assert recording.record(suite, folder, ATTEMPTS) == done
    Path(side).write_text(written.replace("control_rate: 15", "control_rate: 16"))
    words = r"another recording \(suite 'droid_panda', 3 attempts, of other robot files\); give another"
    with pytest.raises(MorphVlaError, match=words):
        recording.record(suite, folder, ATTEMPTS)
    older = json.dumps(json.loads(done.fingerprint)[:2])  # from before a robot's files were part of it
    monkeypatch.setattr(recording, "completed", lambda _: dataclasses.replace(done, fingerprint=older))
    assert recording.record(suite, folder, ATTEMPTS).fingerprint == older


def test_the_order_of_objects_decides_where_they_lie_and_is_another_recording(whole, suite):
    swapped = dataclasses.replace(suite, placement=dict(reversed(suite.placement.items())))
    before, now = (initial_state(each, 0, 8, stream="demonstration") for each in (suite, swapped))
    assert before.poses != now.poses
    with pytest.raises(MorphVlaError, match=r"holds another recording \(suite 'droid_panda', 3 attempts\)"):
        recording.record(swapped, whole[0], ATTEMPTS)
    identities = [recording._identity([each], ATTEMPTS) for each in (suite, swapped)]
    earlier = json.dumps(json.loads(identities[0])[:3])  # from before the order was part of it
    assert [recording._agree(earlier, identity) for identity in identities] == [True, True]


def test_an_attempt_that_diverges_before_the_expert_begins_has_failed(suite, monkeypatch):
    def diverged(*_, **__):
        raise Diverged("the physics diverged: a joint or object moves faster than 1000 per second")

    monkeypatch.setattr(beginnings, "lead_in", lambda *_: [np.zeros(8)])
    monkeypatch.setattr(attempting, "step_one", diverged)
    engine = MujocoEngine(robots.load("panda"), suite)
    attempt = recording.demonstrate(engine, 0)
    assert (attempt.frames, attempt.failed_clause, attempt.kind) == ([], "error", "rest")
    engine.close()


@pytest.mark.parametrize(
    ("fingerprint", "words"),
    [
        (5, "not what a recording says of itself (its fingerprint is no text); move or remove"),
        (None, "not what a recording says of itself (its fingerprint is no text); move or remove"),
        ("[]", "holds another recording (suite '"),
    ],
)
def test_a_summary_of_nothing_we_know_is_said(suite, whole, tmp_path, fingerprint, words):
    (tmp_path / "demos").mkdir()
    known = json.loads((whole[0] / "recording.json").read_text()) | {"fingerprint": fingerprint}
    (tmp_path / "demos" / "recording.json").write_text(json.dumps(known))
    with pytest.raises(MorphVlaError, match=re.escape(words)):
        recording.record(suite, tmp_path / "demos", ATTEMPTS)


# ---------------------------------------------------------------------------------------- dropped, and quiet


def attempts(outcomes: dict[int, str | None], suite: Suite):
    """Stands in for `demonstrate`: two frames per attempt, with the clause that failed."""

    def demonstrate(engine, number):
        del engine
        frame: dict[str, np.ndarray | str] = {
            f"observation.images.{name}": np.full((camera.height, camera.width, 3), 10 * number, np.uint8)
            for name, camera in suite.cameras.items()
        }
        vector = np.full(8, number, np.float32)
        frame |= {"observation.state": vector, "action": vector, "task": suite.task}
        return recording.Demonstration([dict(frame), dict(frame)], outcomes[number], "rest")

    return demonstrate


def test_failed_attempts_are_dropped_and_counted(suite, tmp_path, monkeypatch, here):
    outcomes = {0: "grasped", 1: "inside", 2: None, 3: "grasped", 4: None}
    monkeypatch.setattr(recording, "demonstrate", attempts(outcomes, suite))
    done = recording.record(suite, tmp_path / "demos", 5)
    assert (done.attempted, done.episodes, done.dropped, done.frames) == (5, 2, 3, 4)
    assert done.failed_clauses == {"grasped": 2, "inside": 1}
    actions, episodes = table(tmp_path / "demos", "action", "episode_index")
    assert actions[:, 0].tolist() == [2, 2, 4, 4]
    assert episodes.tolist() == [0, 0, 1, 1]


def test_an_attempt_whose_physics_diverges_has_failed_and_has_no_frames(suite, monkeypatch):
    def diverges(worlds, number, kind, see):
        see(np.zeros(8))
        return SimpleNamespace(error="the physics diverged")

    monkeypatch.setattr(recording, "demonstration", diverges)
    engine = MujocoEngine(robots.load("panda"), dataclasses.replace(suite, cameras={}))
    shown = recording.demonstrate(engine, 0)
    engine.close()
    assert (shown.frames, shown.failed_clause) == ([], "error")


def test_nothing_kept_is_said(suite, tmp_path, monkeypatch, here):
    monkeypatch.setattr(recording, "demonstrate", attempts(dict.fromkeys(range(3), "lifted"), suite))
    with pytest.raises(
        MorphVlaError,
        match=r"^the expert of suite 'droid_panda:cube_in_bowl' failed in all 3 attempts, most at 'lifted': "
        r"nothing to keep$",
    ):
        recording.record(suite, tmp_path / "demos", 3)
    assert not (tmp_path / "demos").exists()


def test_an_attempt_that_misses_the_criterion_names_its_clause(suite):
    strict = dataclasses.replace(suite, success=dataclasses.replace(suite.success, max_speed=0.0))
    engine = MujocoEngine(robots.load("panda"), strict)
    shown = recording.demonstrate(engine, 0)
    engine.close()
    assert shown.failed_clause == "at_rest"
    assert len(shown.frames) <= suite.max_steps


def test_ffmpeg_and_lerobot_are_quiet(suite, tmp_path, monkeypatch, here, capfd):
    monkeypatch.setattr(recording, "demonstrate", attempts(dict.fromkeys(range(3)), suite))
    recording.record(suite, tmp_path / "demos", 3)
    out, err = capfd.readouterr()
    assert "libx264" not in err
    assert err.strip() == ""
    assert out.strip() == ""


# ---------------------------------------------------------------------------------------------- several tasks


@pytest.mark.parametrize(
    ("weights", "attempts", "size"),
    [
        ((1.0,), 7, 3),
        ((1.0, 1.0, 1.0), 11, 2),
        ((2.0, 2.0), 5, 50),
        ((1.0, 1.0, 1.0), 3, 1),
        ((1.0, 2.0, 1.0), 751, 50),
        ((0.01, 5.0), 13, 3),
    ],
)
def test_tasks_share_the_attempts_by_weight(weights, attempts, size):
    parts = recording.shares(weights, attempts, size)
    numbers = [[n for task, part in parts if task == index for n in part] for index in range(len(weights))]
    assert all(row == list(range(len(row))) for row in numbers)
    assert sum(map(len, numbers)) == attempts
    for row, weight in zip(numbers, weights, strict=True):
        assert len(row) >= 1
        assert abs(len(row) - weight / sum(weights) * attempts) < 2
    assert all(1 <= len(part) <= size for _, part in parts)


@pytest.mark.slow
def test_two_tasks_become_one_dataset(here, tmp_path):
    tasks = load_tasks("droid_panda", TINY)[:2]
    done = recording.record(tasks, tmp_path / "both", 3)
    assert (done.suite, done.attempted, done.episodes) == ("droid_panda", 3, 3)
    texts = (tmp_path / "both" / "meta" / "tasks.parquet").read_bytes()
    assert all(task.task.encode() in texts for task in tasks)
    [index] = table(tmp_path / "both", "task_index")
    assert set(index) == {0, 1}
    assert recording.record(tasks, tmp_path / "both", 3) == done
    with pytest.raises(MorphVlaError, match=r"holds another recording \(suite 'droid_panda', 3 attempts\)"):
        recording.record(tasks[0], tmp_path / "both", 3)


def test_what_goes_into_no_single_dataset_is_said(suite, tmp_path):
    other = dataclasses.replace(suite, task_name="other", control_rate=10.0)
    words = "droid_panda:cube_in_bowl and droid_panda:other differ in 'control_rate': record them into two"
    with pytest.raises(MorphVlaError, match=words):
        recording.record([suite, other], tmp_path / "both", 3)
    blind = dataclasses.replace(suite, cameras={})
    more = dataclasses.replace(blind.success, also={"ball": "bin"})
    two = dataclasses.replace(blind, task_name="two", success=more)
    with pytest.raises(MorphVlaError, match="and droid_panda:two differ in the poses that are shown: record"):
        recording.record([blind, two], tmp_path / "both", 3)
    with pytest.raises(MorphVlaError, match="1 attempts cannot be shared by 2 tasks"):
        recording.record([suite, suite], tmp_path / "both", 1)
