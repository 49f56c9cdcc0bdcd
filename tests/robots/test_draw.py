"""The picture: it is written, it is the same every time, and its graph is laid out as the distances say."""

from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.robots import draw, graph
from morph_vla.robots.geometry import transform
from morph_vla.robots.records import Geometry, Pose, Shape

pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib")


def test_two_drawings_of_a_robot_are_the_same_bytes(tmp_path: Path):
    panda = robots.load("panda")
    first, second = (draw.write(panda, tmp_path / name) for name in ("one.png", "two.png"))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"\x89PNG")
    assert len(first.read_bytes()) > 50_000


def test_two_dollar_signs_in_a_name_are_no_formula(tmp_path: Path):
    """What a xacro that nobody expanded leaves: matplotlib reads what stands between as mathematics."""
    path = tmp_path / "${arm}_${\\side}.urdf"
    path.write_text(Path(robots.load("so101").urdf_path).read_text())
    assert draw.write(robots.load(path), tmp_path / "one.png").is_file()


def test_a_chain_is_a_straight_line_from_the_bottom_up():
    steps = np.abs(np.subtract.outer(np.arange(7), np.arange(7)))
    spots = draw.layout(steps)
    np.testing.assert_allclose(spots[:, 0], 0, atol=0.02)
    np.testing.assert_allclose(np.diff(spots[:, 1]), 1 / 3, atol=0.02)


def test_a_single_joint_and_parts_that_nothing_joins_can_be_laid_out():
    np.testing.assert_array_equal(draw.layout(np.zeros((1, 1), dtype=np.int64)), [[0, 0]])
    apart = np.array([[0, 1, graph.UNREACHABLE], [1, 0, graph.UNREACHABLE], [graph.UNREACHABLE] * 2 + [0]])
    spots = draw.layout(apart)
    assert np.isfinite(spots).all()
    assert np.linalg.norm(spots[0] - spots[2]) > np.linalg.norm(spots[0] - spots[1])


@pytest.mark.parametrize(
    ("geometry", "volume"),
    [
        (Geometry("box", (0.2, 0.3, 0.5)), 0.03),
        (Geometry("cylinder", (0.5, 2.0)), np.pi / 2),
        (Geometry("sphere", (0.5,)), np.pi / 6),
        (Geometry("capsule", (0.5, 2.0)), np.pi / 2 + np.pi / 6),
    ],
)
def test_polygons_enclose_the_shape_and_face_outwards(geometry: Geometry, volume: float):
    origin = Pose((0.3, -0.2, 0.1), (0.4, 0.5, 0.6))
    faces = draw.polygons(Shape(geometry, origin, None, 1))
    centre = transform(origin)[:3, 3]
    # The divergence theorem, fan by fan: positive when every face is anticlockwise from outside.
    total = sum(
        np.dot(face[0] - centre, np.cross(face[i] - centre, face[i + 1] - centre)) / 6
        for face in faces
        for i in range(1, len(face) - 1)
    )
    assert total == pytest.approx(volume, rel=0.05)


def test_a_mesh_is_not_opened():
    assert draw.polygons(Shape(Geometry("mesh", (1.0, 1.0, 1.0), "/etc/passwd"), Pose(), None, 1)) == []
