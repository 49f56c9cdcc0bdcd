"""`morph-vla bench data`: what it measures, on what, in words and as JSON."""

import json

import numpy as np
import pytest

from benchmarks import data as bench_data
from benchmarks import lerobot_loader
from morph_vla.cli import main

pytest.importorskip("lerobot", reason="lerobot is not installed; it needs Python 3.12")
pytestmark = pytest.mark.filterwarnings("ignore")  # LeRobot's, torch's and FFmpeg's own

LOADERS = [
    "LeRobot's DataLoader, scaled as openpi does", "LeRobot's DataLoader, not scaled", "ours, video",
    "ours, memory-mapped frames",
]  # fmt: skip


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench") / "example"
    lerobot_loader.write_example(root, episodes=2, frames=13, height=24, width=32)
    return root


@pytest.mark.long
@pytest.mark.slow
def test_every_loader_is_measured_in_one_run(example, capsys):
    words = [
        "--batch",
        "5",
        "--horizon",
        "7",
        "--size",
        "17",
        "--workers",
        "1",
        "--rounds",
        "3",
        "--batches",
        "2",
        "--json",
    ]
    assert main(["bench", "data", str(example), *words]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert [row["loader"] for row in answer["rows"]] == LOADERS
    for row in answer["rows"]:
        assert len(row["turns"]) == 3
        assert row["samples_per_s"] == sorted(row["turns"])[1]
        assert row["ratio"] == pytest.approx(row["samples_per_s"] / answer["rows"][0]["samples_per_s"])
        assert row["processor_ms_per_sample"] >= 0
    assert (answer["episodes"], answer["frames"], answer["cameras"]) == (2, 26, ["front", "wrist"])
    assert [answer[key] for key in ("batch", "horizon", "image_size", "workers")] == [5, 7, 17, 1]


@pytest.mark.slow
def test_both_sides_give_the_same_samples(example, tmp_path):
    from morph_vla.data import frames, lerobot, transforms

    recordings = lerobot.read(example)
    theirs = lerobot_loader.Resized(lerobot_loader.dataset(recordings.root, 7), 17)
    assert len(theirs) == recordings.frames
    kept = {c: frames.cached(lerobot.footage(recordings, c), 17, tmp_path) for c in recordings.cameras}
    for row in (0, 12, 13, 25):
        item = theirs[row]
        np.testing.assert_array_equal(item["action"], transforms.chunks(recordings, np.array([row]), 7)[0])
        for camera in recordings.cameras:
            picture = item[f"observation.images.{camera}"].numpy()
            if lerobot_loader.backend() == "pyav":  # the same decoder
                np.testing.assert_array_equal(picture, kept[camera][row])
            else:
                assert np.abs(picture.astype(int) - kept[camera][row]).mean() < 3


def test_without_a_dataset_it_writes_one(monkeypatch, capsys):
    seen = []

    class Sides:
        def __init__(self, root, folder, *sizes):
            seen.append((root, sizes))

        def measure(self, rounds, batches):
            row = {
                "loader": "ours",
                "samples_per_s": 20.0,
                "ratio": 2.0,
                "processor_ms_per_sample": 0.5,
            }
            return {"dataset": "example", "rounds": rounds, "rows": [row]}

    monkeypatch.setattr(bench_data, "Sides", Sides)
    monkeypatch.setattr(lerobot_loader, "write_example", lambda root, **_: seen.append(str(root)))
    assert main(["bench", "data", "--workers", "3"]) == 0
    assert seen[1] == (seen[0], (32, 16, 224, 3))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "dataset example, rounds 3"
    assert lines[2].split() == ["loader", "samples/s", "of", "LeRobot's", "processor", "ms", "a", "sample"]
    assert lines[3].split() == ["ours", "20.0", "2.00", "0.50"]


def test_a_recipe_gives_its_datasets_and_sizes(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(bench_data, "Sides", lambda *asked: seen.append(asked) or Measured())
    assert main(["bench", "data", "panda_demo", "data.dataset=runs/there", "training.batch=7", "--json"]) == 0
    assert (seen[0][0], seen[0][2]) == ("runs/there", 7)


class Measured:
    def measure(self, *_):
        return {"rows": []}
