"""Making films changes no episode, and a success and a failure have one."""

import av
import numpy as np
import pytest
from policies import Wave

from morph_vla.evaluation import rollout
from morph_vla.evaluation.rollout import Settings
from morph_vla.evaluation.video import VideoWriter, write_picture
from morph_vla.results import films


def evaluate(suite, policy, settings, folder) -> dict:
    """The record as it is written."""
    return rollout.evaluate(suite, policy, settings, folder=folder).to_json()


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.slow
@pytest.mark.gl
def test_filming_changes_no_episode_and_leaves_a_poster(tiny_suite, tmp_path, monkeypatch):
    plain = evaluate(tiny_suite, Wave(), Settings(3, parallel=3, workers=1, videos=0), folder=tmp_path / "a")
    assert not (tmp_path / "a/videos").exists()
    monkeypatch.setattr(films, "worth_filming", lambda trials: [2])
    settings = Settings(3, parallel=3, workers=1, videos=1)
    filmed = evaluate(tiny_suite, Wave(), settings, folder=tmp_path / "b")
    assert [trial.pop("video") for trial in filmed["trials"]] == ["videos/000.mp4", None, "videos/002.mp4"]
    assert [trial.pop("video") for trial in plain["trials"]] == [None] * 3
    assert filmed["trials"] == plain["trials"]
    names = sorted(path.name for path in (tmp_path / "b/videos").iterdir())
    assert names == ["000.jpg", "000.mp4", "002.jpg", "002.mp4"]
    with av.open(str(tmp_path / "b/videos/002.mp4")) as container:
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(shown) == tiny_suite.max_steps + 1
    with av.open(str(tmp_path / "b/videos/002.jpg")) as picture:
        (poster,) = (frame.to_ndarray(format="rgb24") for frame in picture.decode(video=0))
    assert np.abs(poster.astype(int) - shown[-1]).mean() < 6 < np.abs(poster.astype(int) - 255).mean()


def test_a_video_that_is_discarded_leaves_nothing(tmp_path):
    writer = VideoWriter(tmp_path / "clip.mp4", 15.0)
    writer.add(noise(18, 22))
    writer.discard()
    empty = VideoWriter(tmp_path / "none.mp4", 15.0)
    empty.finish()
    empty.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_that_of_the_frame_cut_to_even(tmp_path):
    frame = np.zeros((25, 31, 3), np.uint8)
    frame[:, 16:] = (200, 120, 40)
    write_picture(tmp_path / "still.jpg", frame)
    with av.open(str(tmp_path / "still.jpg")) as container:
        (seen,) = (one.to_ndarray(format="rgb24") for one in container.decode(video=0))
    assert seen.shape == (24, 30, 3)
    assert np.abs(seen.astype(int) - frame[:24, :30]).mean() < 5
