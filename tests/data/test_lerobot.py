"""Datasets written by LeRobot itself, read back: values, frames, and what is said when something is wrong."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from morph_vla.data import frames, stats, transforms
from morph_vla.data import lerobot as door
from morph_vla.errors import MorphVlaError
from morph_vla.pi05.tokenizer import BytesTokenizer, tokenize

pytest.importorskip("lerobot", reason="lerobot is not installed; it needs Python 3.12")
pytestmark = pytest.mark.filterwarnings("ignore")  # LeRobot's and FFmpeg's own

LENGTHS, SIZE, FPS = (7, 5), 16, 10
TASKS = ("put the cube in the bowl", "stack the cubes")
CAMERAS = ("front", "wrist")


def picture(frame: int, camera: int) -> np.ndarray:
    """One colour per frame and camera, far enough apart to survive compression."""
    colour = (20 + 18 * frame, 230 - 18 * frame, 60 + 120 * camera)
    return np.broadcast_to(np.array(colour, np.uint8), (SIZE, SIZE, 3)).copy()


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """Two episodes of 7 and 5 frames, two cameras whose episodes share one video file each."""
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root = tmp_path_factory.mktemp("lerobot") / "tiny"
    vector = {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]}
    video = {"dtype": "video", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]}
    features = {"observation.state": vector, "action": vector}
    features |= {f"observation.images.{name}": video for name in CAMERAS}
    encoder = RGBEncoderConfig(vcodec="h264", crf=18, g=2, preset="veryfast")
    data = LeRobotDataset.create(
        "local/tiny", FPS, features, root=root, robot_type="panda", rgb_encoder=encoder
    )
    number = 0
    for length, task in zip(LENGTHS, TASKS, strict=True):
        for _ in range(length):
            frame = {f"observation.images.{name}": picture(number, i) for i, name in enumerate(CAMERAS)}
            value = np.array([number, -number, 0.5 * number], np.float32)
            data.add_frame({**frame, "observation.state": value, "action": value + 1, "task": task})
            number += 1
        data.save_episode()
    data.finalize()
    return root


@pytest.fixture
def copy(written, tmp_path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(written, tmp_path / "tiny"))


@pytest.fixture(scope="module")
def recordings(written) -> door.Recordings:
    return door.read(written)


def test_values_are_read(recordings):
    n = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(recordings.state, np.stack([n, -n, 0.5 * n], axis=1))
    np.testing.assert_array_equal(recordings.action, recordings.state + 1)
    np.testing.assert_array_equal(recordings.starts, [0, 7])
    np.testing.assert_array_equal(recordings.ends, [7, 12])
    np.testing.assert_array_equal(recordings.episode_of(), [0] * 7 + [1] * 5)
    assert [recordings.tasks[i] for i in recordings.task_of] == [TASKS[0]] * 7 + [TASKS[1]] * 5
    assert (recordings.frames, recordings.fps, recordings.robot_type) == (12, FPS, "panda")
    assert recordings.cameras == CAMERAS
    assert recordings.version == "v3.0"


def test_frames_are_those_of_their_row_across_episodes_that_share_a_file(recordings, tmp_path):
    files = list((recordings.root / "videos" / "observation.images.front").rglob("*.mp4"))
    assert len(files) == 1
    for i, camera in enumerate(CAMERAS):
        images = frames.cached(door.footage(recordings, camera), SIZE, tmp_path)
        assert images.shape == (12, SIZE, SIZE, 3)
        for row in range(12):
            assert np.abs(images[row].astype(int) - picture(row, i)).mean() < 8, (camera, row)


def test_frames_are_scaled_and_read_only(recordings, tmp_path):
    images = frames.cached(door.footage(recordings, "front"), 11, tmp_path)
    assert images.shape == (12, 11, 11, 3)
    assert not images.flags.writeable


def test_the_cache_is_used_again_and_an_unfinished_one_is_not(recordings, tmp_path, monkeypatch):
    first = frames.cached(door.footage(recordings, "front"), SIZE, tmp_path)
    (kept,) = tmp_path.glob("*.npy")
    unfinished = kept.with_suffix(".unfinished")
    kept.rename(unfinished)
    unfinished.write_bytes(unfinished.read_bytes()[:997])
    again = frames.cached(door.footage(recordings, "front"), SIZE, tmp_path)
    np.testing.assert_array_equal(again, first)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]
    monkeypatch.setattr(frames, "_fill", lambda *_: pytest.fail("decoded although cached"))
    np.testing.assert_array_equal(frames.cached(door.footage(recordings, "front"), SIZE, tmp_path), first)


def test_another_recording_of_the_same_motion_has_frames_of_its_own(recordings, copy, tmp_path):
    cache = tmp_path / "cache"
    frames.cached(door.footage(recordings, "front"), SIZE, cache)
    for path in (copy / "videos" / "observation.images.front").rglob("*.mp4"):
        other = next((copy / "videos" / "observation.images.wrist").rglob("*.mp4"))
        path.write_bytes(other.read_bytes())
    images = frames.cached(door.footage(door.read(copy), "front"), SIZE, cache)
    assert np.abs(images[3].astype(int) - picture(3, 1)).mean() < 8


def test_progress_is_told(recordings, tmp_path):
    reports = []
    frames.cached(door.footage(recordings, "front"), SIZE, tmp_path, progress=lambda *at: reports.append(at))
    assert reports == [(0, 12), (12, 12)]


def test_no_dataset(tmp_path):
    with pytest.raises(
        MorphVlaError, match=rf"^{tmp_path}: no LeRobot dataset here \(meta/info\.json is missing\)$"
    ):
        door.read(tmp_path)


@pytest.mark.parametrize(("version", "said"), [("v4.0", r"v4\.0"), (None, "without codebase_version")])
def test_another_version(copy, version, said):
    path = copy / "meta" / "info.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps({**info, "codebase_version": version} if version else {"fps": 10}))
    with pytest.raises(
        MorphVlaError, match=rf"^{copy}: a LeRobot dataset {said}; expected v2\.0, v2\.1 or v3\.0$"
    ):
        door.read(copy)


def test_info_that_is_not_json(copy):
    (copy / "meta" / "info.json").write_text("{")
    with pytest.raises(MorphVlaError, match=rf"^{copy}/meta/info\.json: not JSON: Expecting .* line 1"):
        door.read(copy)


def test_a_feature_that_is_not_there(written):
    with pytest.raises(
        MorphVlaError,
        match=rf"^{written}: no feature 'observation\.stat'; did you mean 'observation\.state'\?$",
    ):
        door.read(written, state=("observation.stat",))


def test_a_dataset_without_the_poses_that_a_model_reads(written):
    words = (
        rf"^{written} has no observation\.environment_state, the poses of objects that this model reads; rec"
    )
    with pytest.raises(
        MorphVlaError, match=words + r"ord them with `morph-vla record SUITE 'cameras=\{\}'`, or"
    ):
        door.read(written, environment=True)


def test_a_camera_that_is_not_there(recordings, tmp_path):
    with pytest.raises(
        MorphVlaError, match=rf"^{recordings.root}: no camera 'fromt'; did you mean 'front'\?$"
    ):
        frames.cached(door.footage(recordings, "fromt"), SIZE, tmp_path)


def test_values_that_are_not_finite(copy):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (path,) = (copy / "data").rglob("*.parquet")
    table = pq.read_table(path)
    values = np.array(table.column("action").to_pylist(), np.float32)
    values[9, 2] = np.nan
    values[11, 0] = np.inf
    at = table.schema.get_field_index("action")
    column = pa.array(values.tolist(), table.schema.field("action").type)
    pq.write_table(table.set_column(at, table.schema.field("action"), column), path)
    with pytest.raises(
        MorphVlaError,
        match=rf"^{copy}: 'action' holds 2 values that are not finite, the first in episode 1, frame 2, "
        r"value 2 \('c'\)$",
    ):
        door.read(copy)


def test_an_episode_without_a_frame_is_said_where_it_is_chosen(write_dataset):
    episodes = [{key: np.ones((n, 2)) for key in ("observation.state", "action")} for n in (3, 0, 3)]
    root = write_dataset("v3.0", episodes)
    assert len(door.read(root).state) == 6
    with pytest.raises(MorphVlaError, match=rf"^{root}: the episodes that are chosen hold no frame$"):
        door.read(root, episodes=(1,))


def test_files_of_other_episodes_are_not_read(write_dataset):
    episodes = [{key: np.full((3, 2), float(n)) for key in ("observation.state", "action")} for n in range(4)]
    root = write_dataset("v3.0", episodes)
    broken = root / "data/chunk-000/file-001.parquet"
    content = broken.read_bytes()
    broken.write_bytes(b"garbage")
    with pytest.raises(MorphVlaError, match=r"file-001\.parquet: cannot be read as parquet"):
        door.read(root)
    assert door.read(root, episodes=[1]).state.tolist() == [[1, 1]] * 3
    (root / "data/chunk-000/file-000.parquet").write_bytes(
        content
    )  # episodes 2 and 3 in the place of 0 and 1
    broken.write_bytes(content)
    assert door.read(root, episodes=[3]).state.tolist() == [[3, 3]] * 3
    words = r"episode 0 has no row in data/chunk-000/file-000\.parquet, where it is said to be$"
    with pytest.raises(MorphVlaError, match=words):
        door.read(root, episodes=[0, 3])


NUMBERS = {
    "frame_index": "frame_index is 2 where 0 is expected",
    "rows": "has 2 rows, and its meta files say 3",
}


@pytest.mark.parametrize("spoil", [*NUMBERS, "episode"])
def test_rows_out_of_order_or_lost_are_never_trained_on(write_dataset, spoil):
    import pyarrow.parquet as pq

    values = {key: np.ones((3, 2)) for key in ("observation.state", "action")}
    root = write_dataset("v3.0", [values] * 4)
    path = root / "data/chunk-000/file-001.parquet"  # of episodes 2 and 3
    table = pq.read_table(path).to_pandas()
    if spoil == "frame_index":
        table.loc[3:, "frame_index"] = [2, 1, 0]
    table.drop(index={"frame_index": [], "rows": [5], "episode": [3, 4, 5]}[spoil]).to_parquet(path)
    words = NUMBERS.get(spoil, r"has no row in data/chunk-000/file-001\.parquet, where it is said to be")
    with pytest.raises(MorphVlaError, match=rf"^{root}: episode 3:? {words}"):
        door.read(root)
    assert door.read(root, episodes=[0, 2]).frames == 6


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("frame_index", "frame_index is 2 in row 0, where 0 is expected"),
        ("episode_index", "episode_index is 0 in row 0, where 1 is expected"),
    ],
)
def test_a_file_of_an_episode_whose_numbers_are_others_is_not_converted(write_dataset, spoil, words):
    """In the copy they would be written anew, and rows that run backwards would look right."""
    import pyarrow.parquet as pq

    values = {key: np.ones((3, 2)) for key in ("observation.state", "action")}
    root = write_dataset("v2.1", [values] * 3)
    path = sorted((root / "data").rglob("*.parquet"))[1]
    table = pq.read_table(path).to_pandas()
    table[spoil] = [2, 1, 0] if spoil == "frame_index" else 0
    table.to_parquet(path)
    for chosen in ((), (1, 2)):
        with pytest.raises(MorphVlaError, match=rf"^{path}: {words}; leave the episode out with `episodes`"):
            door.read(root, episodes=chosen)
    assert door.read(root, episodes=(0, 2)).frames == 6


def test_episodes_that_share_a_video_must_say_where_they_begin(copy):
    import pyarrow.parquet as pq

    (path,) = (copy / "meta/episodes").rglob("*.parquet")
    table = pq.read_table(path).to_pandas()
    front = "videos/observation.images.front"
    table[f"{front}/chunk_index"] = table[f"{front}/chunk_index"].astype(float)  # as pandas may write it
    table.to_parquet(path)
    assert door.footage(door.read(copy), "front").number.tolist() == list(range(12))
    table.drop(columns=f"{front}/from_timestamp").to_parquet(path)
    words = (
        r"camera 'front' shows several episodes in one file, and meta/episodes does not say where episode 0"
    )
    with pytest.raises(MorphVlaError, match=words):
        door.footage(door.read(copy), "front")
    assert door.footage(door.read(copy, episodes=[0]), "front").number.tolist() == list(range(7))


def test_a_value_beyond_those_that_info_json_names_has_no_name(write_dataset):
    values = {"observation.state": np.ones((3, 3)), "action": np.ones((3, 3))}
    values["action"][1, 2] = np.inf
    root = write_dataset("v3.0", [values])
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"]["action"] |= {"shape": [2], "names": ["a", "b"]}
    path.write_text(json.dumps(info))
    with pytest.raises(MorphVlaError, match=r"the first in episode 0, frame 1, value 2$"):
        door.read(root)


def test_frames_that_are_said_to_begin_elsewhere_are_other_content(write_dataset):
    import pyarrow.parquet as pq

    values = {key: np.ones((3, 2)) for key in ("observation.state", "action")}
    root = write_dataset("v3.0", [values, values], cameras=["front"])
    before = door.footage(door.read(root, episodes=[0]), "front")
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path).to_pandas()
    table["videos/observation.images.front/from_timestamp"] += 1 / 30
    table["videos/observation.images.front/to_timestamp"] += 1 / 30
    table.to_parquet(path)
    after = door.footage(door.read(root, episodes=[0]), "front")
    assert (before.number.tolist(), after.number.tolist()) == ([0, 1, 2], [1, 2, 3])
    assert before.content != after.content


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_an_episode_is_named_by_its_number_in_the_users_dataset(write_dataset, version):
    """Where some are chosen, a converted copy numbers them anew, and nobody knows that copy."""
    episodes = [{key: np.ones((3, 2)) for key in ("observation.state", "action")} for _ in range(5)]
    episodes[3]["action"][1, 0] = np.nan
    root = write_dataset(version, episodes)
    words = rf"^{root}: 'action' holds 1 values that are not finite, the first in episode 3, frame 1, value 0"
    with pytest.raises(MorphVlaError, match=words):
        door.read(root, episodes=[1, 3])
    kept = door.read(root, episodes=[2, 4])
    assert [entry.index for entry in kept.entries] == [2, 4]


@pytest.mark.parametrize("spoil", ["no column", "no tasks"])
def test_a_dataset_that_cannot_be_converted_is_one_sentence(write_dataset, spoil):
    import pyarrow.parquet as pq

    episodes = [{key: np.ones((3, 2)) for key in ("observation.state", "action")} for _ in range(2)]
    root = write_dataset("v2.1", episodes)
    if spoil == "no column":
        path = sorted((root / "data").rglob("*.parquet"))[1]
        pq.write_table(pq.read_table(path).drop_columns(["action"]), path)
    else:
        (root / "meta" / "tasks.jsonl").write_text("")
    words = "meta/tasks.jsonl names no task" if spoil == "no tasks" else "LeRobot's converter from v2.1"
    with pytest.raises(MorphVlaError, match=rf"^{root}: {words}"):
        door.read(root)


def test_a_video_that_ends_early(copy, tmp_path):
    import av

    (path,) = (copy / "videos" / "observation.images.front").rglob("*.mp4")
    short = tmp_path / "short.mp4"
    with av.open(str(short), "w") as out:
        stream = out.add_stream("libx264", rate=FPS)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for number in range(10):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture(number, 0), format="rgb24")))
        out.mux(stream.encode(None))
    short.replace(path)
    cache = tmp_path / "cache"
    with pytest.raises(
        MorphVlaError,
        match=rf"^{path}: the video ends before episode 1 does \(2 frames are missing\); "
        r"the file is truncated$",
    ):
        frames.cached(door.footage(door.read(copy), "front"), SIZE, cache)
    assert not list(cache.glob("*.npy"))


def test_a_video_file_cut_in_the_middle(copy, tmp_path):
    (path,) = (copy / "videos" / "observation.images.front").rglob("*.mp4")
    path.write_bytes(path.read_bytes()[:499])
    with pytest.raises(MorphVlaError, match=rf"^{path}: the video cannot be decoded: \S"):
        frames.cached(door.footage(door.read(copy), "front"), SIZE, tmp_path / "cache")


def test_a_table_of_rows_for_the_model(recordings):
    state = stats.widened(stats.measure(recordings.state))
    states = state.normalise(recordings.state[[9]])
    (tokens,), (filled,) = transforms.tokens(recordings, np.array([9]), states, BytesTokenizer(), 53)
    ids, mask = tokenize(BytesTokenizer(), TASKS[1], state.normalise(recordings.state)[9], 53)
    np.testing.assert_array_equal(tokens, ids)
    np.testing.assert_array_equal(filled, mask)
    np.testing.assert_array_equal(recordings.last_of(np.arange(12)), [6] * 7 + [11] * 5)
    chunk = transforms.chunks(recordings, np.array([0, 5, 11]), 4)
    wanted = [[0, 1, 2, 3], [5, 6, 6, 6], [11, 11, 11, 11]]
    np.testing.assert_array_equal(chunk, recordings.action[np.array(wanted)])


def test_several_keys_are_joined_in_their_order(written):
    dataset = door.read(written, state=("action", "observation.state"), action=("action",))
    alone = door.read(written)
    np.testing.assert_array_equal(dataset.state, np.concatenate([alone.action, alone.state], axis=1))
    np.testing.assert_array_equal(dataset.action, alone.action)


def test_some_episodes_are_read_alone(written, tmp_path):
    alone = door.read(written, episodes=(1,))
    np.testing.assert_array_equal(alone.state, door.read(written).state[7:])
    assert (alone.starts.tolist(), alone.ends.tolist()) == ([0], [5])
    images = frames.cached(door.footage(alone, "front"), SIZE, tmp_path)
    assert np.abs(images[2].astype(int) - picture(9, 0)).mean() < 8
    with pytest.raises(MorphVlaError, match=rf"^{written}: no episode 2; its episodes are 0 to 1$"):
        door.read(written, episodes=(0, 2))


def test_a_share_of_the_episodes_is_read(written):
    """The numbers' hashes are 0.37 and 0.48."""
    dataset = door.read(written, share=0.4)
    assert [entry.index for entry in dataset.entries] == [0]
    np.testing.assert_array_equal(dataset.state, door.read(written, episodes=(0,)).state)
    assert door.read(written, share=0.5).frames == door.read(written, share=1.0).frames == 12
    sentence = rf"^{written}: a share of 0.1 of 2 episodes selects none; raise `share` or name `episodes`$"
    with pytest.raises(MorphVlaError, match=sentence):
        door.read(written, share=0.1)
    with pytest.raises(MorphVlaError, match=r"no episode -1; its episodes are 0 to 1"):
        door.read(written, episodes=(-1, 0), share=0.4)
    with pytest.raises(MorphVlaError, match=r"a share of 0\.4 of 1 episodes selects none"):
        door.read(written, episodes=(1,), share=0.4)


def test_version_and_size_are_logged(written, caplog):
    with caplog.at_level("INFO", "morph_vla"):
        door.read(written)
    assert caplog.messages == [f"{written}: LeRobot v3.0, 2 episodes at 10 Hz"]


def test_reading_opens_no_connection(copy, monkeypatch):
    """Without its videos LeRobot's own reader asks the Hub for them."""
    import socket

    shutil.rmtree(copy / "videos")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert door.read(copy).frames == 12
