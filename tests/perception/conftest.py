"""An estimator with random parameters, a suite with its camera, and a policy that is told poses."""

import math

import pytest
from told_policy import Told

from morph_vla.engines.engine import environment_names
from morph_vla.perception import estimator as estimators
from morph_vla.perception import network
from morph_vla.perception.estimator import About, Estimator
from morph_vla.perception.view import Optics
from morph_vla.suites.suite import Suite, load_tasks

SIZE = 48
THINGS, TARGETS = {"cube": "box", "can": "cylinder"}, {"bowl": "bowl", "mug": "mug"}
# As `suites new` has it: 60 hundredths of the arm's length beyond the middle and 67 above it.
OVERRIDES = [
    "cameras.exterior={position: [1.1, 0.0, 0.7], look_at: [0.5, 0.0, 0.03], fovy: 45, width: 34, height: 34}"
]
RISE = math.atan2(0.67, 0.6)


@pytest.fixture(scope="session")
def about() -> About:
    return About(
        Optics(SIZE, 45.0, RISE),
        objects=THINGS,
        targets=TARGETS,
        above=1 / 30,
        robots=("panda",),
        pictures=7,
        steps=3,
    )


@pytest.fixture(scope="session")
def estimator(about, tmp_path_factory) -> Estimator:
    folder = tmp_path_factory.mktemp("poses") / "random"
    estimators.save(folder, network.init_params(5), about)
    return estimators.load(folder)


@pytest.fixture(scope="session")
def tasks() -> tuple[Suite, ...]:
    return tuple(
        task
        for task in load_tasks("droid_panda", OVERRIDES)
        if task.task_key in ("cube_in_bowl", "can_in_mug")
    )


@pytest.fixture
def policy(tasks) -> Told:
    return Told(environment_names(tasks[0].success))
