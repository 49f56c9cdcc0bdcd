"""A checkpoint's robot is the one that it was trained on, or it is refused."""

import shutil

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.training import checkpoint


def test_the_robot_is_the_one_it_was_trained_on(made):
    robot = checkpoint.robot(made.last, "panda", {})
    assert robot.upper[0] == 2.5
    assert checkpoint.robot(made.last.parent / "5", "panda", {}).upper[0] == 2.9671  # which does not have it


def test_a_body_that_it_was_not_trained_on_is_refused(made, tmp_path):
    """A file of it edited, one lost, or both: parameters and statistics are still another body's."""
    robot = checkpoint.robot(made.last, "panda", {})
    trained = {"urdf_sha256": robot.urdf_sha256, "side_sha256": robot.side_sha256}
    folder = tmp_path / "copied"
    shutil.copytree(made.last / "about", folder / "about")
    assert checkpoint.robot(folder, "panda", trained).upper[0] == 2.5
    side, urdf = (folder / "about" / "robots" / f"panda{suffix}" for suffix in (".yaml", ".urdf"))
    kept = urdf.read_text()
    urdf.write_text(kept.replace("0.316", "0.516"))
    words = "is missing or not the one it was trained with; copy the whole checkpoint again"
    with pytest.raises(MorphVlaError, match=rf"copied: about/robots/panda\.urdf {words}"):
        checkpoint.robot(folder, "panda", trained)
    urdf.write_text(kept)
    side.unlink()
    with pytest.raises(MorphVlaError, match=rf"copied: about/robots/panda\.yaml {words}"):
        checkpoint.robot(folder, "panda", trained)
    urdf.unlink()
    words = r"about/robots/panda\.urdf is missing, and .*panda\.urdf is another robot than it was trained on"
    with pytest.raises(MorphVlaError, match=words):
        checkpoint.robot(folder, "panda", trained)
