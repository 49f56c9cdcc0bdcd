"""One task with small frames, its robot, and an engine of three worlds."""

import pytest

from morph_vla import robots
from morph_vla.robots import Robot
from morph_vla.suites.suite import Suite, load

SMALL = [
    "cameras.exterior.width=34", "cameras.exterior.height=22", "cameras.wrist.width=26",
    "cameras.wrist.height=38",
]  # fmt: skip


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load("droid_panda:cube_in_bowl", SMALL)


@pytest.fixture(scope="module")
def panda() -> Robot:
    return robots.load("panda")


@pytest.fixture(scope="module")
def trio(panda, suite):
    """An engine of three worlds; tests reset what they use."""
    from morph_vla.engines.mujoco.engine import MujocoEngine

    engine = MujocoEngine(panda, suite, count=3)
    yield engine
    engine.close()
