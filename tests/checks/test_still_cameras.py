"""Cameras that show the same while the robot moves."""

import json

import av
import numpy as np
import pytest
from recipe_checks import check_sentences, edit_info, episodes, once

from morph_vla.checks import still_cameras

REMEDY = "frozen, or it does not see the robot: look at the episode, or leave the camera out \\(`cameras`\\)"


def encode(path, pictures, fps: int = 30) -> None:
    """A video of these pictures in the place of another."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=fps, options={"g": "250", "crf": "23"})
        (stream.height, stream.width), stream.pix_fmt = pictures[0].shape[:2], "yuv420p"
        for picture in pictures:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))


def room(count: int, sees_robot: bool = True, size: int = 64) -> list[np.ndarray]:
    """Pictures of a room, a little noise, and a dark arm that moves through it."""
    random = np.random.default_rng(3)
    still = np.kron(random.integers(60, 200, (8, 8, 3)), np.ones((8, 8, 1)))[:size, :size]
    pictures = []
    for number in range(count):
        picture = still + random.normal(0, 2, still.shape)
        if sees_robot:
            picture[:, 3 * number : 3 * number + 9] = 20
        pictures.append(np.clip(picture, 0, 255).astype(np.uint8))
    return pictures


def videos(root, camera: str, size: int = 64) -> list:
    """The camera's files, which info.json then says are of `size` by `size` pixels."""
    features = json.loads((root / "meta/info.json").read_text())["features"]
    features[f"observation.images.{camera}"]["shape"] = [size, size, 3]
    edit_info(root, features=features)
    return sorted((root / "videos").rglob(f"*{camera}*/**/*.mp4"))


def of_still(lines: list[str]) -> list[str]:
    return [line for line in lines if "show the same" in line or "one colour" in line]


def test_a_dataset_without_a_fault_says_nothing_of_its_cameras(write):
    root = write("v2.1")
    for path, count in zip(videos(root, "front"), (11, 13, 7, 17, 5), strict=True):
        encode(path, room(count))
    assert of_still(check_sentences(root)) == []


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_camera_that_froze(write, version):
    root = write(version)
    for path in videos(root, "front"):
        with av.open(str(path)) as film:
            count = sum(1 for _ in film.decode(video=0))
        encode(path, room(count, sees_robot=False))
    lines = check_sentences(root)
    assert once(
        lines,
        rf"warning: {root}: episode 0: camera 'front': frames 0 and \d+ show the same, and the robot moved "
        rf"between them \(so in 5 of 5 episodes looked at\); {REMEDY}",
    )
    assert len(of_still(lines)) == 1


def test_one_frozen_episode_is_named(write):
    root = write("v2.1")
    for path, count in zip(videos(root, "front"), (11, 13, 7, 17, 5), strict=True):
        encode(path, room(count, sees_robot="000003" not in path.name))
    (line,) = of_still(check_sentences(root))
    assert "episode 3: camera 'front': frames 0 and" in line
    assert "(so in 1 of 5 episodes looked at)" in line


def test_a_covered_camera_is_one_colour(write):
    root = write("v2.1")
    random = np.random.default_rng(5)
    for path, count in zip(videos(root, "wrist"), (11, 13, 7, 17, 5), strict=True):
        encode(path, [random.integers(8, 14, (64, 64, 3)).astype(np.uint8) for _ in range(count)])
    assert once(
        check_sentences(root),
        rf"warning: {root}: episode 0: camera 'wrist': one colour, and no more, in 5 of 5 episodes looked "
        r"at; covered, or not plugged in\? leave the camera out \(`cameras`\) or record anew",
    )


def test_where_nothing_moves_a_picture_may_stay(write):
    standing = [
        {name: np.repeat(values[:1], len(values), axis=0) for name, values in episode.items()}
        for episode in episodes()
    ]
    root = write("v2.1", standing)
    for path, count in zip(videos(root, "front"), (11, 13, 7, 17, 5), strict=True):
        encode(path, room(count, sees_robot=False))
    assert of_still(check_sentences(root)) == []


def test_a_video_that_cannot_be_decoded_is_left_to_the_other_rules(write):
    root = write("v2.1")
    for path in videos(root, "front"):
        path.write_bytes(b"no video")
    lines = check_sentences(root)
    assert of_still(lines) == []
    assert any("cannot be opened" in line for line in lines)


def test_the_farthest_row_is_counted_in_the_range_of_each_value():
    states = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.05], [np.nan, 9.0]])
    assert still_cameras.farthest(states, np.array([100.0, 0.1])) == 2  # half of its range; the other 1%
    assert still_cameras.farthest(states, np.array([5.0, 50.0])) == 1
    assert still_cameras.farthest(states, np.array([100.0, 100.0])) is None
    assert still_cameras.farthest(states, np.array([0.0, 0.0])) is None  # the same in the whole dataset
    assert still_cameras.farthest(states[3:], np.array([1.0, 1.0])) is None
    assert still_cameras.farthest(states[:0], np.array([1.0, 1.0])) is None


@pytest.mark.parametrize(("height", "width"), [(17, 61), (3, 5), (16, 16), (480, 641)])
def test_means_keep_the_mean_of_every_part(height, width):
    picture = np.random.default_rng(1).integers(0, 256, (height, width, 3)).astype(np.uint8)
    shown = still_cameras.means(picture)
    rows, columns = shown.shape[:2]
    assert (rows, columns) == (min(height, 16), min(width, 16))
    ends = np.linspace(0, height, rows + 1).astype(int), np.linspace(0, width, columns + 1).astype(int)
    part = picture[ends[0][1] : ends[0][2], ends[1][2] : ends[1][3]]
    np.testing.assert_allclose(shown[1, 2], part.mean(axis=(0, 1)))
