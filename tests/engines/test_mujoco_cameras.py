"""The embedded engine's cameras: frames, a machine that cannot render, and where a camera looks."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from three_worlds import state_of, wave

from morph_vla.engines.engine import step_one
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import Camera

if importlib.util.find_spec("mujoco") is None:  # not importorskip: mujoco reads MUJOCO_GL when it is imported
    pytest.skip("the embedded engine needs the extra 'sim'", allow_module_level=True)

from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.engines.mujoco.scene import EGL_REMEDY, build_spec, look_at


@pytest.mark.gl
def test_frames_are_rgb_of_the_size_that_was_asked(trio, suite):
    trio.reset({0: state_of(trio, 2)})
    seen = trio.observe(0)
    assert sorted(seen) == ["images/exterior", "images/wrist", "prompt", "robot", "state"]
    assert seen["prompt"] == "put the cube in the bowl"
    assert seen["robot"] == "panda"
    assert np.array_equal(seen["state"], trio.state(0))
    for name, camera in suite.cameras.items():
        frame = seen[f"images/{name}"]
        assert frame.dtype == np.uint8
        assert frame.shape == (camera.height, camera.width, 3)
        assert frame.std() > 10
    # The cube is red, the bowl blue: channels in this order.
    exterior = seen["images/exterior"].astype(int)
    assert ((exterior[..., 0] > 120) & (exterior[..., 1] < 60)).any()
    assert ((exterior[..., 2] > 120) & (exterior[..., 0] < 80)).any()


@pytest.mark.gl
def test_worlds_and_repeats_render_what_is_there(trio):
    trio.reset({0: state_of(trio, 2)})
    trio.reset({1: state_of(trio, 2)})
    trio.reset({2: state_of(trio, 5)})
    frames = [trio.render(index, "exterior") for index in (0, 1, 2, 0)]
    assert np.array_equal(frames[0], frames[1])
    assert np.array_equal(frames[0], frames[3])
    assert not np.array_equal(frames[0], frames[2])


@pytest.mark.gl
def test_the_wrist_camera_rides_on_the_hand(trio):
    trio.reset({0: state_of(trio, 2)})
    data = trio.data(0)

    def in_the_hand() -> np.ndarray:
        trio._mj.mj_forward(trio.model, data)
        hand, camera = data.body("panda_hand"), data.camera("wrist")
        return hand.xmat.reshape(3, 3).T @ (camera.xpos - hand.xpos)

    before, seen = in_the_hand(), trio.render(0, "wrist")
    place, still = data.camera("wrist").xpos.copy(), data.camera("exterior").xpos.copy()
    assert before == pytest.approx(trio.suite.cameras["wrist"].position)
    for _ in range(11):
        step_one(trio, 0, wave(3))
    assert in_the_hand() == pytest.approx(before)
    assert np.linalg.norm(data.camera("wrist").xpos - place) > 0.03
    assert data.camera("exterior").xpos == pytest.approx(still)
    assert not np.array_equal(trio.render(0, "wrist"), seen)


@pytest.mark.gl
def test_a_camera_larger_than_mujocos_buffer_renders(panda, suite):
    wide = dataclasses.replace(
        suite, cameras={"wide": Camera((1.0, 0.0, 0.6), (0.4, 0.0, 0.0), 42.0, 743, 499)}
    )
    engine = MujocoEngine(panda, wide)
    assert engine.render(0, "wide").shape == (499, 743, 3)
    engine.close()


def test_a_camera_on_an_unknown_link_is_refused(panda, suite):
    wrist = dataclasses.replace(suite.cameras["wrist"], link="panda_hnad")
    with pytest.raises(
        MorphVlaError,
        match=r"^camera 'wrist': the robot has no link 'panda_hnad'; did you mean 'panda_hand'\?$",
    ):
        build_spec(panda, dataclasses.replace(suite, cameras={"wrist": wrist}))


@pytest.mark.parametrize("kind", [RuntimeError, ImportError, AttributeError, OSError])
def test_a_machine_without_egl_is_told_what_to_install(panda, suite, monkeypatch, kind):
    engine = MujocoEngine(panda, suite)

    def no_renderer(*_):
        raise kind("no display")

    monkeypatch.setattr(engine._mj, "Renderer", no_renderer)
    with pytest.raises(MorphVlaError) as caught:
        engine.render(0, "exterior")
    assert str(caught.value) == f"{EGL_REMEDY} (no display)"
    assert "apt-get install libegl1 libgl1-mesa-dri" in EGL_REMEDY


WITHOUT_LIBEGL = """
import ctypes
load = ctypes.CDLL.__init__
def refuse(self, name, *rest, **named):
    if name and "EGL" in str(name):
        raise OSError(f"{name}: cannot open shared object file")
    return load(self, name, *rest, **named)
ctypes.CDLL.__init__ = refuse
from morph_vla.engines.success import Reading
from morph_vla.errors import MorphVlaError
from morph_vla.engines.mujoco.scene import look_at
try:
    look_at((1.0, 0.0, 1.0), (0.0, 0.0, 0.0))
except MorphVlaError as error:
    print(error)
"""

NOT_CLOSED = """
from morph_vla import robots
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites.suite import load
engine = MujocoEngine(robots.load("panda"), load("droid_panda:cube_in_bowl"))
print(engine.render(0, "wrist").shape)
"""


def in_a_new_process(code: str) -> subprocess.CompletedProcess:
    root = Path(__file__).resolve().parents[2]
    return subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="EGL is Linux's")
def test_so_is_one_where_mujoco_cannot_even_be_imported():
    assert in_a_new_process(WITHOUT_LIBEGL).stdout.startswith(EGL_REMEDY)


@pytest.mark.gl
def test_an_engine_that_was_not_closed_ends_quietly():
    ended = in_a_new_process(NOT_CLOSED)
    assert ended.stdout == "(96, 96, 3)\n"
    assert ended.stderr == ""


@pytest.mark.gl
def test_a_closed_engine_renders_again_when_asked(panda, suite):
    engine = MujocoEngine(panda, suite)
    first = engine.render(0, "exterior")
    engine.close()
    engine.close()
    assert np.array_equal(engine.render(0, "exterior"), first)
    engine.close()


# --------------------------------------------------------------------------------------------------- look_at

POINT = st.tuples(*[st.floats(-2, 2)] * 3)


def axes(quaternion: list[float]) -> np.ndarray:
    """Columns: x (right), y (up), z (back) of the camera in its frame."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


@given(eye=POINT, target=POINT)
def test_a_camera_looks_at_its_target_and_stands_level(eye, target):
    back = np.subtract(eye, target)
    if np.linalg.norm(back) < 1e-3:
        return
    back = back / np.linalg.norm(back)
    quaternion = look_at(eye, target)
    assert np.linalg.norm(quaternion) == pytest.approx(1.0)
    right, up, behind = axes(quaternion).T
    assert behind == pytest.approx(back, abs=1e-6)
    if abs(back[2]) < 0.999:
        assert right[2] == pytest.approx(0.0, abs=1e-6)
        assert up[2] > 0.0
    else:
        assert right[0] == pytest.approx(0.0, abs=1e-6)


def test_a_camera_that_looks_straight_down_has_x_at_the_top():
    assert axes(look_at((0.4, 0.0, 1.0), (0.4, 0.0, 0.0)))[:, 1] == pytest.approx([1.0, 0.0, 0.0])


def test_a_camera_that_looks_at_itself_is_refused():
    with pytest.raises(
        MorphVlaError, match=r"a camera at \(1\.0, 2\.0, 3\.0\) cannot look at its own position"
    ):
        look_at((1.0, 2.0, 3.0), (1.0, 2.0, 3.0))
