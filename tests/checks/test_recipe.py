"""Recipes held against their data: each problem by its words, all of them at once, and none for a good "
"one."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from morph_vla.checks import recipe as check
from morph_vla.recipes import recipe as config

NAMES = [
    f"{name}.pos" for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
]
NAMES.append("gripper.pos")
LENGTHS = (11, 13, 7, 17, 5)
BOTH = ("action", "observation.state")


def episodes(scale: float = 1.0) -> list[dict]:
    """A SO101 that swings through some 40 degrees and opens and closes its gripper."""
    found = []
    for number, count in enumerate(LENGTHS):
        phase = 0.1 * np.arange(count)[:, None] + np.arange(6) + number
        state = 20 * np.sin(phase)
        state[:, 5] = 50 + 49 * np.cos(phase[:, 5])
        action = state + 0.8 * np.cos(phase)
        action[:, 5] = np.clip(action[:, 5], 0, 100)
        found.append({"observation.state": scale * state, "action": scale * action})
    return found


@pytest.fixture
def write(write_dataset):
    """A dataset without a fault (v3.0 unless told), whose episodes may be given."""

    def call(version="v3.0", given=None, names=NAMES, **more) -> Path:
        of_both = dict.fromkeys(BOTH, names)
        return write_dataset(version, given or episodes(), names=of_both, cameras=("front", "wrist"), **more)

    return call


BYTES = ["tokenizer=bytes", "model.vocab=520", "data.phases={}"]


def recipe_of(root: Path | str, *overrides: str) -> config.Recipe:
    cameras = "data.cameras={base_0_rgb: front, left_wrist_0_rgb: wrist}"
    given = [f"data.dataset={root}", "data.robot=so101", cameras, "model.max_tokens=61", "data.held_out=0.4"]
    return config.load("panda_demo", [*given, *BYTES, *overrides])


def said(root: Path | str, *overrides: str, notes: bool = False) -> list[str]:
    report = check.check(recipe_of(root, *overrides))
    return [str(p) for p in report.problems if notes or p.severity != "note"]


def one(found: list[str], pattern: str) -> None:
    """Exactly one of the sentences is this, whole."""
    assert sum(re.fullmatch(pattern, text) is not None for text in found) == 1, found


def edit_info(root: Path, **changes) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_table(path: Path, change) -> None:
    from pyarrow import parquet

    parquet.write_table(change(parquet.read_table(path)), path)


def replaced(table, name: str, values):
    import pyarrow as pa

    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values, table.schema.field(name).type))


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_a_good_dataset_has_no_problem(write, version):
    root = write(version)
    report = check.check(recipe_of(root))
    assert [str(p) for p in report.problems if p.severity != "note"] == []
    (facts,) = report.datasets
    assert (facts.version, facts.episodes, facts.frames, facts.fps) == (version, 5, sum(LENGTHS), 30)
    assert 0 < facts.held_out < 5
    converted = (
        f"note: {root}: LeRobot {version}; training converts it to v3.0 once, with LeRobot's converter"
    )
    assert any(str(p).startswith(converted) for p in report.problems) == (version != "v3.0")


def test_everything_is_said_at_once_and_errors_first(write, tmp_path):
    given = episodes()
    given[3]["action"][4, 2] = np.nan
    root = write("v2.1", given)
    next(root.rglob("observation.images.front/episode_000001.mp4")).unlink()
    report = check.check(recipe_of(root, "data.robot=so100", "data.held_out=0.0", f"weights={tmp_path}"))
    found = [str(p) for p in report.problems]
    for word in (
        "not finite",
        "lack their video",
        "no robot 'so100'; did you mean 'so101'?",
        "is no checkpoint",
    ):
        assert sum(word in text for text in found) == 1, (word, found)
    severities = [p.severity for p in report.problems]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert report.count("error") == 4


def test_values_that_are_not_finite(write):
    given = episodes()
    given[3]["action"][4, 2] = np.nan
    given[4]["action"][1, 0] = np.inf
    root = write(given=given)
    one(
        said(root),
        rf"error: {root}: episode 3, frame 4: 'action' has 2 values not finite in 2 episodes, the first "
        rf"is value 2 "
        r"\('elbow_flex\.pos'\); training refuses it: repair the frames, or leave them out with "
        r"`episodes`",
    )
    assert not said(root, "data.episodes=[0, 1, 2]", "data.held_out=0.0")


def test_no_dataset(tmp_path):
    one(
        said(tmp_path / "no"),
        rf"error: data\.dataset: {tmp_path}/no: no such folder \(a dataset of the Hub is called "
        rf"USER/NAME\); name a "
        r"LeRobot dataset's folder; `morph-vla stats USER/NAME` fetches one",
    )
    (found,) = said("somebody/nothing")
    assert "no copy of the Hub's dataset is on this machine" in found


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_table_that_was_cut_or_is_missing(write, version):
    root = write(version)
    first, second = sorted((root / "data").rglob("*.parquet"))[:2]
    first.write_bytes(first.read_bytes()[:-99])
    second.unlink()
    found = said(root)
    lost = r"0, 1, 2" if version == "v3.0" else "0"
    one(
        found,
        rf"error: {root}: episode 0: {first}: cannot be read as parquet: .*; restore it, or leave out "
        rf"what it holds "
        rf"\(episode {lost}\)",
    )
    one(found, rf"error: {root}: episode \d: {second}: the file is missing; restore it, or leave out .*")


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_videos_that_are_missing_empty_cut_or_too_short(write, write_video, version):
    root = write(version)
    front, wrist = (sorted((root / "videos").rglob(f"*{name}*/**/*.mp4")) for name in ("front", "wrist"))
    front[0].write_bytes(b"")
    front[1].unlink()
    whole = wrist[0].read_bytes()
    wrist[0].write_bytes(whole[: len(whole) // 2])  # the box with the index stands at the end
    write_video(wrist[1], 3)
    found = said(root)
    count = 3 if version == "v3.0" else 1
    remedy = r"fetch the videos, or leave out the episodes \(`episodes`\) or the camera"
    place = front[0].relative_to(root)
    one(
        found,
        rf"error: {root}: episode 0: camera 'front': {count} of 5 episodes lack their video \({place} is "
        rf"empty\); {remedy}",
    )
    one(found, rf"error: {root}: episode \d: camera 'front': \d of 5 episodes lack .* is missing\); {remedy}")
    place = wrist[0].relative_to(root)
    one(
        found,
        rf"error: {root}: episode 0: camera 'wrist': {place} cannot be opened \(.*\); an interrupted "
        rf"recording has no "
        "index at its end: fetch or record it again",
    )
    place = wrist[1].relative_to(root)
    one(
        found,
        rf"error: {root}: episode \d: camera 'wrist': {place} has 3 frames and this episode's are 0 to "
        rf"\d+; the video "
        "is shorter than the table: leave the episode out with `episodes`",
    )


def test_a_video_whose_index_stands_first_and_whose_pictures_are_cut(write):
    import av

    root = write("v2.1")
    path = sorted((root / "videos").rglob("*front*/**/*.mp4"))[3]
    moved = path.with_name("moved.mp4")
    with av.open(str(path)) as old, av.open(str(moved), "w", options={"movflags": "faststart"}) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    whole = moved.read_bytes()
    moved.unlink()
    path.write_bytes(whole[: whole.index(b"mdat") + (len(whole) - whole.index(b"mdat")) // 2])
    place = path.relative_to(root)
    one(
        said(root),
        rf"error: {root}: episode 3: camera 'front': {place} is cut: its header speaks of 0\.57 s, and "
        rf"the file ends "
        r"after 0\.\d\d s; fetch it again",
    )


def test_rates_that_do_not_agree(write):
    root = write()
    edit_info(root, fps=20)
    found = said(root)
    one(
        found,
        rf"error: {root}: info\.json says 20 Hz, and the time stamps are 30 Hz apart; correct fps in "
        rf"meta/info\.json, "
        "or the time stamps",
    )
    one(
        found,
        rf"error: {root}: episode 0: camera 'front': videos/\S+ runs at 30 Hz, and info\.json says 20 Hz "
        rf"\(and 1 more "
        r"videos like it\); pictures and values drift apart: correct fps, or make the videos anew",
    )
    one(
        found,
        rf"warning: {root}: recorded at 20 Hz, expected control_rate 30 Hz; a policy trained on it acts "
        rf"at .*",
    )


def test_a_feature_that_is_not_there_and_one_of_another_width(write):
    root = write()
    one(
        said(root, "data.action=[actoin]"),
        rf"error: {root}: no feature 'actoin'; did you mean 'action'\?; name the dataset's keys with "
        rf"`state` and "
        "`action`",
    )
    features = json.loads((root / "meta/info.json").read_text())["features"]
    edit_info(root, features={**features, "action": {**features["action"], "shape": [5]}})
    one(
        said(root),
        rf"error: {root}: episode 0: 'action' has 6 values, and info\.json says 5; correct the shape in "
        r"meta/info\.json, or record the episode again",
    )
    one(
        said(root, "data.robot=panda"),
        rf"error: {root}: actions have 6 values, robot 'panda' has 8 joints \(panda_joint1, .*\); choose "
        rf"the robot "
        "that was recorded, or name its joints in a side file",
    )


def test_names_in_another_order(write):
    root = write(names=[NAMES[1], NAMES[0], *NAMES[2:]])
    found = said(root)
    assert found[0].startswith(
        f"error: {root}: episode 0: action, observation.state: the names are in another order"
    )
    assert "write joints: [shoulder_lift, shoulder_pan, " in found[0]


def test_a_camera_whose_pictures_should_be_in_the_table(write):
    root = write()
    features = json.loads((root / "meta/info.json").read_text())["features"]
    key = "observation.images.front"
    edit_info(root, features={**features, key: {**features[key], "dtype": "image"}})
    one(
        said(root),
        rf"error: {root}: camera 'front' in 2 files: {root}/data/chunk-000/file-000\.parquet: no column "
        rf"'{key}'; did you mean 'observation\.state'\?; write the dataset anew, or leave the camera out",
    )


def test_cameras_that_are_not_there(write):
    root = write()
    found = said(root, "data.cameras={base_0_rgb: fromt}")
    one(
        found,
        rf"error: {root}: no camera 'fromt'; did you mean 'front'\?; name the dataset's camera with "
        rf"`cameras`",
    )
    one(
        said(root, "data.cameras={}"),
        r"warning: data\.cameras: no camera of the dataset is used \(it has front, wrist\); name them "
        r"with `cameras`; "
        "without one the policy is blind",
    )


def test_episodes_without_frames_or_of_another_length(write):
    root = write("v2.1")
    lines = [{"episode_index": i, "tasks": ["wave"], "length": n} for i, n in enumerate(LENGTHS)]
    lines[1]["length"] = 99
    (root / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    edit_table(next(root.rglob("episode_000004.parquet")), lambda table: table[:0])
    found = said(root)
    one(found, rf"error: {root}: episode 4: 1 episode without a frame \(4\); remove them from the dataset")
    one(
        found,
        rf"error: {root}: episode 1: the table holds 13 frames, and the meta files say 99; repair the "
        rf"meta files, or "
        "leave the episode out with `episodes`",
    )
    one(
        said(root, "data.episodes=[0, 9]"),
        rf"error: {root}: there is no episode 9; leave it out of `episodes`",
    )
    one(
        said(root, "data.share=0.01"),
        rf"error: data\.share: {root}: a share of 0\.01 of \d episodes is none; raise `share` or name "
        r"`episodes`; or record more",
    )


def test_frames_and_time_stamps_that_do_not_follow(write):
    root = write("v2.1")
    second, third = (next(root.rglob(f"episode_00000{index}.parquet")) for index in (1, 2))
    times = (np.arange(13) / 30).tolist()
    edit_table(second, lambda t: replaced(t, "timestamp", [*times[:6], times[5], *times[7:]]))
    edit_table(third, lambda t: replaced(t, "frame_index", [0, 1, 2, 4, 5, 6, 7]))
    found = said(root)
    one(
        found,
        rf"error: {root}: episode 1, frame 6: the time stamps do not increase \(0\.16\d* s, then 0\.16\d* "
        rf"s\); write the "
        "time stamps anew",
    )
    one(
        found,
        rf"error: {root}: episode 2, frame 3: frame_index is 4 where 3 is expected \(4 rows\); frames were "
        rf"lost or doubled: "
        "look at the recording, or leave the episode out with `episodes`",
    )
    gap = [*times[:6], *(t + 0.2 for t in times[6:])]
    edit_table(second, lambda t: replaced(t, "timestamp", gap))
    one(
        said(root),
        rf"warning: {root}: episode 1, frame 6: 1 gap between time stamps, the first of 0\.2333 s; a "
        rf"frame is expected "
        r"every 0\.03333 s: frames were lost, and a policy learns the jumps",
    )


def test_tasks_that_are_missing(write):
    root = write("v2.1")
    edit_table(next(root.rglob("episode_000002.parquet")), lambda t: replaced(t, "task_index", [3] * 7))
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": " "}))
    found = said(root)
    one(
        found,
        rf"error: {root}: episode 2, frame 0: its task is 3, which the 1 task of meta do not have; add it "
        rf"to the tasks "
        "in meta",
    )
    one(
        found,
        rf"warning: {root}: episode 0: task 0 is empty; a policy is prompted with it: write what is to be "
        rf"done",
    )


def test_units_that_are_not_the_robots(write):
    found = said(write(given=episodes(np.pi / 180)))
    assert any("radians" in text and text.startswith("warning: ") for text in found), found


def test_values_that_hardly_move(write):
    given = episodes()
    for episode in given:
        for name in BOTH:
            episode[name][:, 4] = 3.0
    root = write(given=given)
    one(
        said(root),
        rf"warning: {root}: action: 'wrist_roll\.pos' hardly moves; q99 - q01 is below 0\.01 and is "
        rf"widened to that "
        r"\(data\.degenerate\)",
    )


def test_values_that_hardly_move_are_refused_where_the_recipe_says_so(write):
    given = episodes()
    for episode in given:
        episode["action"][:, 4] = 3.0
    (found,) = [text for text in said(write(given=given), "data.degenerate=refuse") if "degenerate" in text]
    assert found.startswith("error: ")
    assert "hardly moves; q99 - q01 is below 0.01, and data.degenerate is refuse" in found


def test_statistics_that_are_not_there(write, tmp_path):
    root = write()
    one(
        said(root, f"data.statistics={tmp_path}/no"),
        rf"error: data\.statistics: {tmp_path}/no is no checkpoint of ours and no file of .*",
    )
    one(
        said(root, "data.statistics=dataset", "data.actions=delta"),
        r"error: data\.statistics: a dataset's own statistics are of absolute values, and delta ones .*",
    )


@pytest.mark.parametrize(
    ("kind", "severity"), [("absolute", "warning"), ("delta", "error"), ("velocity", "error")]
)
@pytest.mark.parametrize(("scale", "called"), [(1, "differences from the state"), (30, "velocities")])
def test_recorded_differences_and_velocities(write, kind, severity, scale, called):
    given = episodes()
    for episode in given:
        state = episode["observation.state"]
        episode["action"][:-1, :5] = scale * np.diff(state, axis=0)[:, :5]
        episode["action"][-1, :5] = 0
    root = write(given=given)
    one(
        said(root, f"data.actions={kind}"),
        rf"{severity}: {root}: the recorded actions look like {called}, and {kind} ones are learnt from "
        rf"absolute "
        "targets; .*",
    )


def test_differences_need_a_state_like_the_action(write):
    root = write()
    one(
        said(root, "data.actions=delta", "data.state=[observation.state, action]"),
        r"error: data\.actions: delta actions are differences from the state, which has 12 values where "
        r"an action "
        r"has 6; learn absolute ones, or name other keys with `state`",
    )


def test_a_prompt_that_does_not_fit(write):
    root = write()
    one(
        said(root, "model.max_tokens=13"),
        rf"error: {root}: episode \d, frame \d+: the prompt of task 'wave' takes 14 tokens, the model 13; "
        rf"the state at "
        r"its end would be cut: raise model\.max_tokens or shorten the task",
    )


def test_rows_before_a_grasp_of_a_set_that_grasps(write):
    closing = episodes()
    for episode in closing:
        episode["action"][:, 5] = np.linspace(90, 10, len(episode["action"]))
    assert not [text for text in said(write(given=closing), "data.phases={grasp: 0.5}") if "phases" in text]


def test_rows_before_a_grasp_where_nothing_is_grasped(write):
    still = episodes()
    for episode in still:
        episode["action"][:, 5] = 90  # open
    found = said(write(given=still), "data.phases={grasp: 0.5}")
    one(found, r"error: data\.phases: .*: no row lies before a grasp; leave it out")


def test_a_held_out_share_that_leaves_nothing(write):
    root = write()
    one(
        said(root, "data.held_out=0.999"),
        r"error: data\.held_out: data: 0\.999 of 5 episodes is 5; no episode is left to train on: lower "
        r"it, or record "
        "more",
    )
    one(
        said(root, "data.held_out=0.001"),
        r"warning: data\.held_out: data: 0\.001 of 5 episodes is 0; this dataset will have no held-out "
        r"loss: raise it "
        "to have one",
    )


def test_more_joints_than_the_model_has_room_for(write):
    found = said(write(), "model.action_dim=5", "model.morphology.max_joints=5")
    one(found, r"error: model\.action_dim: actions have 6 values, the model 5; raise it")
    one(
        found,
        r"error: model\.morphology\.max_joints: robot 'so101' has 6 joints, the model room for 5; raise it",
    )


def test_weights_and_tokenizer_that_are_not_there(write, tmp_path, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    root = write()
    found = said(root, f"weights={tmp_path}/no", f"tokenizer=paligemma:{tmp_path}/no.model")
    one(
        found,
        rf"error: weights: {tmp_path}/no: there is no such file or folder .*; name a checkpoint, or leave "
        rf"weights "
        "empty to train anew",
    )
    one(
        found, r"error: tokenizer: tokenizer: no tokenizer at .*; name its file, or 'bytes' for a small model"
    )
    found = said(root, "weights=pi05-base", "tokenizer=paligemma", notes=True)
    one(found, r"note: weights: gs://openpi-assets/\S+ is not on this machine; training fetches it first")
    one(
        found,
        r"note: tokenizer: paligemma is not on this machine; training fetches it first; the length of .*",
    )


def test_two_rates_of_one_robot(write):
    fast, slow = write(), write(fps=20, folder="slow")
    entry = "robot: so101, cameras: {base_0_rgb: front}"
    data = f"data={{held_out: 0.4, datasets: [{{dataset: {fast}, {entry}}}, {{dataset: {slow}, {entry}}}]}}"
    report = check.check(config.load("panda_demo", [data, "model.max_tokens=61"]))
    one(
        [str(p) for p in report.problems],
        rf"error: {slow}: recorded at 20 Hz, and {fast} of the same robot at 30 Hz; a robot's actions "
        rf"have one pace: "
        "resample one of them, or leave it out",
    )
    assert [facts.key for facts in report.datasets] == ["data.datasets.0", "data.datasets.1"]


def test_the_command(run, write):
    root = write()
    more = f"data.robot=so101 'data.cameras={{base_0_rgb: front}}' data.held_out=0.4 {' '.join(BYTES)}"
    line = f"recipes check panda_demo data.dataset={root} {more}"
    status, out, _ = run(f"{line} model.max_tokens=61")
    assert status == 0
    assert out.startswith(f"data: {root}: LeRobot v3.0, 5 episodes (")
    assert ", 53 frames at 30 Hz, recorded on 'tiny'; robot so101\n" in out
    assert "0 errors, 0 warnings, " in out.splitlines()[-1]
    status, out, _ = run(f"{line} model.max_tokens=13 --json")
    assert status == 1
    plain = json.loads(out)
    assert plain["errors"] == 1
    assert plain["problems"][0]["severity"] == "error"
    assert plain["datasets"][0]["episodes"] == 5


def test_nothing_is_written(write, tmp_path, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    said(write("v2.0"))
    assert not (tmp_path / "cache").exists()


def test_a_dataset_without_the_table_of_its_episodes(write):
    root = write()
    shutil.rmtree(root / "meta/episodes")
    (found,) = said(root)
    assert "v3.0 without the table of its episodes (meta/episodes is missing)" in found


# --------------------------------------------------------------------------------------- public datasets


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
    (found,) = public(shared, name, "so101", "base_0_rgb: front")
    assert (
        "episodes lack their video (videos/observation.images.front/chunk-000/file-000.mp4 is missing)"
        in found
    )


def test_a_public_g1_has_two_of_its_videos(shared, g1_inspire):
    (found,) = public(shared, "g1_inspire_v21", g1_inspire, "base_0_rgb: cam_high")
    assert "episode 0: camera 'cam_high': 98 of 100 episodes lack their video" in found
    chosen = "data.episodes=[1, 2]", "data.held_out=0"
    assert not public(shared, "g1_inspire_v21", g1_inspire, "base_0_rgb: cam_high", *chosen)


def test_public_sets_of_other_robots_are_refused(shared):
    found = public(shared, "gr1_sim_picknplace_v20", "g1_dex1", "base_0_rgb: egoview")
    assert any(
        "actions have 44 values, robot 'g1_dex1' has 16 joints (left_shoulder_" in text for text in found
    )
    assert any("camera 'egoview': 5 of 5 episodes lack their video" in text for text in found)
    assert sum("more tasks are too long" in text for text in found) == 1
    found = public(shared, "piper_act_v30", "so101", "", "data.actions=delta")
    assert any(
        "differences from the state, which has 7 values where an action has 6" in text for text in found
    )
    found = public(shared, "piper_act_v30", "panda", "")
    assert len(found) == 1
    assert any("actions have 6 values, robot 'panda' has 8 joints (panda_joint1, " in text for text in found)
