"""v2.0 and v2.1 datasets, converted by LeRobot into the cache; datasets of the Hub."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from morph_vla.data import frames, layout, lerobot, versions
from morph_vla.errors import MorphVlaError

pytest.importorskip("lerobot", reason="lerobot is not installed; it needs Python 3.12")
pytestmark = pytest.mark.filterwarnings("ignore")  # LeRobot's and FFmpeg's own

LENGTHS = (7, 5, 3)


def episodes(seed: int = 0) -> list[dict]:
    random = np.random.default_rng(seed)
    return [
        {"observation.state": random.normal(size=(n, 3)), "action": random.normal(size=(n, 2))}
        for n in LENGTHS
    ]


def joined(name: str) -> np.ndarray:
    return np.concatenate([one[name] for one in episodes()]).astype(np.float32)


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "datasets"


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_a_v2_dataset_is_read_as_it_was_written(write_dataset, cache, tmp_path, version, caplog):
    caplog.set_level("INFO", "morph_vla")
    root = write_dataset(version, episodes(), cameras=("front", "wrist"))
    before = tree(root)
    recordings = lerobot.read(root)
    np.testing.assert_array_equal(recordings.state, joined("observation.state"))
    np.testing.assert_array_equal(recordings.action, joined("action"))
    assert (recordings.starts.tolist(), recordings.ends.tolist()) == ([0, 7, 12], [7, 12, 15])
    assert (recordings.version, recordings.cameras, recordings.tasks) == (
        version,
        ("front", "wrist"),
        ("wave",),
    )
    assert recordings.root.parent == cache
    assert tree(root) == before
    assert kept(cache) == [recordings.root.name]
    assert caplog.messages == [
        f"{root}: LeRobot {version}, 3 episodes at 30 Hz",
        f"converting {root} from LeRobot {version} to v3.0 into {recordings.root}",
        f"{root}: no statistics per episode (v2.1 has them); computing them from the values",
    ]
    pictures = frames.cached(lerobot.footage(recordings, "wrist"), 16, tmp_path / "frames")
    wanted = [40 * episode + 7 * frame for episode, n in enumerate(LENGTHS) for frame in range(n)]
    np.testing.assert_allclose(pictures.mean(axis=(1, 2, 3)), wanted, atol=6)


def test_lerobots_own_loader_takes_the_copy(write_dataset, cache):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root = write_dataset("v2.0", episodes(), cameras=("front",))
    made = versions.ready(layout.read(root))
    data: Any = LeRobotDataset("local/copy", root=made.root)
    assert len(data) == 15
    np.testing.assert_allclose(data[8]["action"], joined("action")[8])
    np.testing.assert_allclose(data.meta.stats["action"]["mean"], joined("action").mean(0), rtol=1e-5)


def test_it_is_converted_once_and_anew_when_it_changes(write_dataset, cache, monkeypatch, caplog):
    root = write_dataset("v2.1", episodes())
    first = lerobot.read(root)
    with monkeypatch.context() as patch, caplog.at_level("INFO", "morph_vla"):
        patch.setattr(versions, "_convert", lambda *_: pytest.fail("converted twice"))
        again = lerobot.read(root)
    assert again.root == first.root
    assert caplog.messages[1] == f"{root}: LeRobot v2.1, converted before into {first.root}"
    shutil.rmtree(root)
    write_dataset("v2.1", episodes(seed=1))
    other = lerobot.read(root)
    assert other.root != first.root
    assert (other.action != first.action).any()


def test_it_appears_whole_or_not_at_all(write_dataset, cache, monkeypatch):
    from lerobot.scripts import convert_dataset_v21_to_v30 as converter

    def fails(*_):
        raise OSError("No space left on device")

    root = write_dataset("v2.1", episodes(), cameras=("front",))
    with monkeypatch.context() as patch:
        patch.setattr(converter, "convert_videos", fails)
        with pytest.raises(
            MorphVlaError,
            match=rf"^{root}: LeRobot's converter from v2\.1 to v3\.0 fails: No space left on device; "
            "`morph-vla recipes check` says what is wrong with a dataset$",
        ):
            lerobot.read(root)
    assert kept(cache) == []
    assert lerobot.read(root).frames == 15


def test_a_camera_without_its_videos_is_left_out(write_dataset, cache, tmp_path, caplog):
    root = write_dataset("v2.1", episodes(), cameras=("front",))
    next((root / "videos").rglob("episode_000001.mp4")).unlink()
    assert lerobot.read(root).cameras == ()
    lack = "1 of 3 videos are missing"
    assert caplog.messages == [f"{root}: camera 'front' is left out of the copy, for {lack}"]
    some = lerobot.read(root, episodes=(0, 2))
    assert some.cameras == ("front",)
    np.testing.assert_array_equal(some.state, np.delete(joined("observation.state"), range(7, 12), axis=0))
    pictures = frames.cached(lerobot.footage(some, "front"), 16, tmp_path / "frames")
    np.testing.assert_allclose(pictures[7:].mean(axis=(1, 2, 3)), [80, 87, 94], atol=6)


def test_a_rate_that_is_no_whole_number_survives(write_dataset, cache):
    root = write_dataset("v2.1", episodes(), info={"fps": 29.97})
    recordings = lerobot.read(root)
    assert recordings.fps == 29.97
    assert json.loads((recordings.root / "meta/info.json").read_text())["fps"] == 29.97


def test_statistics_of_v21_are_kept(write_dataset, cache):
    root = write_dataset("v2.1", episodes())
    own = {"min": [-9.0] * 2, "max": [9.0] * 2, "mean": [0.5] * 2, "std": [1.0] * 2}
    lines = [
        {"episode_index": index, "stats": {"action": {**own, "count": [length]}}}
        for index, length in enumerate(LENGTHS)
    ]
    path = root / "meta" / "episodes_stats.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    recordings = lerobot.read(root)
    assert json.loads((recordings.root / "meta/stats.json").read_text())["action"]["min"] == [-9.0, -9.0]


# ------------------------------------------------------------------------------------------------- the Hub


def test_a_pose_as_a_matrix_is_in_nobodys_way(write_dataset, cache):
    values = {key: np.ones((3, 2)) for key in ("observation.state", "action")}
    root = write_dataset("v2.0", [values, values])
    matrix = pa.array([np.eye(4).tolist()] * 3)
    for path in sorted((root / "data").rglob("*.parquet")):
        pq.write_table(pq.read_table(path).append_column("pose", matrix), path)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["pose"] = {"dtype": "float64", "shape": [4, 4], "names": None}
    (root / "meta/info.json").write_text(json.dumps(info))
    assert lerobot.read(root).frames == 6


def test_tasks_are_read_where_info_json_does_not_list_them(write_dataset, cache):
    values = {key: np.ones((3, 2)) for key in ("observation.state", "action")}
    root = write_dataset("v2.1", [values, values])
    info = json.loads((root / "meta/info.json").read_text())
    del info["features"]["task_index"]
    (root / "meta/info.json").write_text(json.dumps(info))
    assert lerobot.read(root).task_of.tolist() == [0] * 6


def test_a_hub_dataset_without_the_hub():
    with pytest.raises(
        MorphVlaError, match=r"^somebody/nothing: no such folder, and the Hub cannot be reached$"
    ):
        lerobot.read("somebody/nothing")
    with pytest.raises(
        MorphVlaError, match=r"^somebody/nothing: no such folder, and no copy of the Hub's dataset is on this"
    ):
        versions.located("somebody/nothing", fetch=False)
    for fetch in (True, False):  # a name that the Hub's client does not take
        with pytest.raises(MorphVlaError, match=r"^somebody/a\.\.b: no such folder, and .*a\.\.b"):
            versions.located("somebody/a..b", fetch=fetch)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(
        MorphVlaError, match=rf"^{tmp_path}/no: no such folder \(a dataset of the Hub is called USER/NAME\)$"
    ):
        lerobot.read(tmp_path / "no")


def test_a_hub_dataset_is_fetched_in_the_newest_version_it_has(write_dataset, cache, monkeypatch, caplog):
    import huggingface_hub
    import requests
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    root = write_dataset("v2.1", episodes())
    answer: Any = requests.Response()
    asked = []

    def hub(name, *, repo_type, revision, cache_dir, local_files_only):
        asked.append((name, repo_type, revision, local_files_only))
        if name == "somebody/gone":
            raise RepositoryNotFoundError("404", response=answer)
        if revision == "v3.0":
            raise RevisionNotFoundError("no such revision", response=answer)
        return str(root)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    with caplog.at_level("INFO", "morph_vla"):
        recordings = lerobot.read("somebody/recorded")
    assert asked == [("somebody/recorded", "dataset", revision, False) for revision in ("v3.0", "v2.1")]
    assert caplog.messages[0] == "fetching dataset somebody/recorded from the Hub"
    assert (recordings.version, recordings.frames) == ("v2.1", 15)
    with pytest.raises(
        MorphVlaError,
        match=r"^somebody/gone: no such folder, and the Hub has no dataset of this name \(or it is",
    ):
        lerobot.read("somebody/gone")


@pytest.mark.parametrize("fetch", [True, False], ids=["offline", "not asked"])
def test_a_hub_dataset_of_an_older_version_is_found_where_it_was_fetched_before(
    write_dataset, cache, monkeypatch, fetch
):
    """As the Hub's own client leaves it: a revision's name holds a commit, and the commit a snapshot."""
    from lerobot.utils import constants

    monkeypatch.setattr(constants, "HF_LEROBOT_HUB_CACHE", cache / "hub")
    kept = constants.HF_LEROBOT_HUB_CACHE / "datasets--somebody--recorded"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "v2.1").write_text(commit)
    shutil.copytree(write_dataset("v2.1", episodes()), kept / "snapshots" / commit)
    assert versions.located("somebody/recorded", fetch=fetch) == kept / "snapshots" / commit
    assert layout.read(versions.located("somebody/recorded", fetch=fetch)).version == "v2.1"


def test_public_sets_of_older_versions(shared, cache):
    sets = shared / "lerobot_data"
    g1 = lerobot.read(sets / "g1_inspire_v21", episodes=(1, 2))
    assert (g1.version, g1.cameras, len(g1.starts), g1.state.shape[1]) == ("v2.1", ("cam_high",), 2, 26)
    gr1 = lerobot.read(sets / "gr1_sim_picknplace_v20")
    assert (gr1.version, gr1.cameras, gr1.frames, gr1.fps) == ("v2.0", ("ego_view",), 2096, 20)
