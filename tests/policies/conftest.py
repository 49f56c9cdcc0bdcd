"""Demonstrations without a camera: joint values and the poses of object and target."""

import pytest

from morph_vla import robots
from morph_vla.demonstrations import recording
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites import suite
from morph_vla.suites.suite import initial_state


def rendered(worlds, index, camera):
    raise AssertionError(f"camera '{camera}' was rendered")


@pytest.fixture(scope="module")
def blind_suite():
    return suite.load("droid_panda:cube_in_bowl", ["cameras={}", "settle_seconds=0.1"])


@pytest.fixture(scope="module")
def dataset(blind_suite, shared_folder):
    def fill(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MujocoEngine, "render", rendered)
            for number in (0, 1):  # in this process, where nothing can render
                recording.record_part(blind_suite, folder / f"{number}", range(3 * number, 3 * number + 3))

    return shared_folder("poses", fill) / "0"


@pytest.fixture
def seen(blind_suite):
    """What is shown before the first step of an episode."""
    engine = MujocoEngine(robots.load("panda"), blind_suite)
    engine.reset({0: initial_state(blind_suite, 3, 8)})
    return engine.observe(0)
