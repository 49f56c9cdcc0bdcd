"""Which picture of a shared video is which row's, where seconds times the rate are no whole number."""

from pathlib import Path

import numpy as np
import pytest

from morph_vla.data import lerobot, video_times
from morph_vla.data.layout import Entry, Video

LONG = 123  # int(123 / 30 * 30) is 122


@pytest.mark.parametrize("fps", [15.0, 25.0, 30.0, 50.0, 60.0])
@pytest.mark.parametrize("first", [29, 57, 58, 123, 245, 246])
def test_an_episode_begins_at_its_frame_whatever_rounding_does(fps: float, first: int):
    rows = first + LONG
    entries = tuple(
        Entry(index, count, (), Path(), {"front": Video(Path("v.mp4"), begin / fps, (begin + count) / fps)})
        for index, (begin, count) in enumerate([(0, first), (first, LONG)])
    )
    nothing = np.zeros((rows, 1), np.float32)
    recordings = lerobot.Recordings(
        Path(), "v3.0", fps, "", nothing, nothing, np.array([0, first]), np.array([first, rows]),
        np.zeros(rows, int), ("x",), ("front",), entries,
    )  # fmt: skip
    assert lerobot.footage(recordings, "front").number.tolist() == list(range(rows))
    assert [entry.videos["front"].frames(fps) for entry in entries] == [first, LONG]


@pytest.mark.parametrize("fps", [15.0, 25.0, 30.0, 50.0, 60.0])
@pytest.mark.parametrize("first", [29, 57, 58, 123, 245, 246])
def test_episodes_one_behind_the_other_are_clear_whatever_rounding_does(fps: float, first: int):
    videos = {
        0: Video(Path("v.mp4"), 0.0, first / fps),
        1: Video(Path("v.mp4"), first / fps, (first + LONG) / fps),
    }
    assert video_times.unclear(videos, {0: first, 1: LONG}, fps) is None
    index, _ = video_times.unclear(videos, {0: first + 1, 1: LONG}, fps) or (None, "")
    assert index == 1  # one frame more, and the first frame of the second is of both


def test_the_same_pictures_beside_other_actions_are_other_content():
    """Decoded frames are kept by this name; a dataset relabelled in place is read anew."""
    entries = (Entry(0, 5, (), Path(), {"front": Video(Path("v.mp4"), 0.0, 1.0)}),)
    state = np.zeros((5, 1), np.float32)
    keys = {
        lerobot.footage(
            lerobot.Recordings(
                Path(), "v3.0", 5.0, "", states, actions, np.array([0]), np.array([5]),
                np.zeros(5, int), ("x",), ("front",), entries,
            ),
            "front",
        ).content
        for states in (state, state + 1)
        for actions in (state, state + 1)
    }  # fmt: skip
    assert len(keys) == 4
