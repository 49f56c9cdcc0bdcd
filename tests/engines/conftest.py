"""One task with small frames, its robot, an engine of three worlds; a task of robosuite by its file."""

import pytest

from morph_vla import robots
from morph_vla.robots import Robot
from morph_vla.suites.environment import EnvironmentSuite, load_tasks
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


@pytest.fixture
def example(root):
    """A task of robosuite in `docs/examples`, without cameras."""

    def load(name: str, *overrides: str) -> EnvironmentSuite:
        (task,) = load_tasks(root / f"docs/examples/robosuite_{name}", ["images={}", *overrides])
        assert isinstance(task, EnvironmentSuite)
        return task

    return load
