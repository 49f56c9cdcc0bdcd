"""The picture of a played episode: written, the same every time, its paths where the end effectors were."""

from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.checks import playback
from morph_vla.errors import MorphVlaError

pytest.importorskip("matplotlib")
draw_path = pytest.importorskip("morph_vla.checks.draw_path")


@pytest.fixture(scope="module")
def played() -> list[playback.Played]:
    """Two features of 53 frames on a robot of two arms."""
    body = robots.load("g1_dex1")
    t = np.linspace(0, 1, 53)[:, None]
    native = body.rest + 0.3 * np.sin(3 * t + np.arange(16)) * (np.arange(16) < 14)
    results = []
    for feature in ("action", "observation.state"):
        piece, _ = playback.play(body, feature, body.to_dataset(native), (), 30.0)
        assert piece is not None
        results.append(piece)
    return results


@pytest.mark.slow
def test_two_drawings_are_the_same_bytes(played, tmp_path: Path):
    first, second = (draw_path.write(played, tmp_path / "new" / name) for name in ("one.png", "two.png"))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"\x89PNG")


def test_each_view_shows_the_paths_coloured_by_time_with_their_ends(played):
    drawn = draw_path.figure(played)
    views = drawn.axes[:4]
    assert [axes.get_title(loc="left").split("   ")[0] for axes in views] == [
        "action, from above", "action, from the side",
        "observation.state, from above", "observation.state, from the side",
    ]  # fmt: skip
    for axes, up in zip(views[:2], (1, 2), strict=True):
        _, *paths = axes.collections
        assert len(paths) == len(played[0].traces) == 2
        for path, trace in zip(paths, played[0].traces, strict=True):
            np.testing.assert_allclose(path.get_segments()[0][0], trace.points[0, [0, up]])
            np.testing.assert_allclose(path.get_segments()[-1][-1], trace.points[-1, [0, up]])
            np.testing.assert_allclose(path.get_array(), np.arange(52) / 30)
        marks = [line for line in axes.lines if line.get_marker() in "os"]
        assert len(marks) == 4


def test_the_skeleton_is_the_rest_pose():
    body = robots.load("panda")
    poses = body.forward_kinematics(body.rest)
    bones = pytest.importorskip("morph_vla.robots.draw").skeleton(body)
    assert bones.shape == (len(body.urdf.joints), 2, 3)
    np.testing.assert_allclose(bones[-1, 1], poses[body.urdf.joints[-1].child][:3, 3])


def test_a_single_frame_is_a_point(tmp_path: Path):
    body = robots.load("panda")
    piece, _ = playback.play(body, "action", body.to_dataset(body.rest[None]), (), 15.0)
    assert piece is not None
    assert draw_path.write([piece], tmp_path / "point.png").stat().st_size > 1000


def test_a_picture_that_cannot_be_written_is_a_sentence(played, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MorphVlaError, match=r"path\.png: the picture cannot be written: "):
        draw_path.write(played, tmp_path / "file" / "path.png")
    with pytest.raises(MorphVlaError, match=r"path\.odd: the picture cannot be written: "):
        draw_path.write(played, tmp_path / "path.odd")
