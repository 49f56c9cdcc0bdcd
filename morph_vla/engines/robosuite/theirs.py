"""The door to robosuite 1.5.2: a task's compiled model with an arm, and what of robosuite is repaired.

What is used: its models, where objects are placed, and its verdict. Not used: `env.step`, its controllers,
its renderer and its gripper commands (`world` says why).
"""

import contextlib
import logging
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from morph_vla import installing
from morph_vla.engines.mujoco.scene import mujoco
from morph_vla.errors import MissingExtraError, MorphVlaError, nearest, require
from morph_vla.suites.environment import ROBOSUITE_ARMS

RobosuiteEnv = Any  # robosuite ships no types, and is imported when it is first used
TASKS = {"Lift": ("cube",), "Stack": ("cubeA", "cubeB"), "PickPlaceCan": ("Can",)}
"""Tasks, and their objects; the first one is carried"""
PLACES = {"PickPlaceCan": ("quarter",)}
"""What a task has beside objects: where one is to lie"""
ARMS = ROBOSUITE_ARMS
REPAIRS = (
    "multiccd off (since MuJoCo 3.8 the Robotiq's fingers jam); the contact of the Sawyer's base off (it "
    "locks joint 0); the XArm7's finger pads by their real names (robosuite never says that it grasps)"
)


def check(task: str, arm: str) -> None:
    """Raise MorphVlaError, with the nearest name, for an unknown task or arm."""
    for what, name, names in (("task", task, TASKS), ("arm", arm, ARMS)):
        if name not in names:
            known = ", ".join(names)
            raise MorphVlaError(f"no {what} is called '{name}'{nearest(name, names)}; there are {known}")


def environment(task: str, arm: str, seed: int) -> RobosuiteEnv:
    """Make robosuite's environment of a task, for its model, its placement and its verdict.

    Sizes of objects are drawn from `seed`, once. Raises as `check`, and with the remedy where robosuite is
    not installed.
    """
    check(task, arm)
    with _quiet():
        made = robosuite().make(
            task, robots=arm, seed=seed, hard_reset=False, ignore_done=True, control_freq=20,
            has_renderer=False, has_offscreen_renderer=False, use_camera_obs=False, use_object_obs=False,
        )  # fmt: skip
    _repair(made.sim.model._model, arm)
    return made


def reset(env: RobosuiteEnv, seed: int) -> None:
    """Place arm and objects as robosuite draws them from `seed`, whatever was drawn before.

    In place: the sampler of placements keeps the generator that it was made with.
    """
    env.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    with _quiet():
        env.reset()


def robosuite() -> ModuleType:
    """The module, repaired. Raises MissingExtraError, with the remedy, where it is not installed."""
    mujoco()  # with its settings for a machine without a screen
    try:
        with _quiet():
            module = require("robosuite", "robosuite")
    except MissingExtraError as error:
        itself = installing.command("--no-deps", "robosuite==1.5.2")
        raise MissingExtraError(
            f"robosuite is not installed: {installing.remedy('robosuite')}, and then {itself} (its own "
            "requirements hold numpy below 2)"
        ) from error
    if not hasattr(mujoco().MjData, "qM"):
        _speak_to_new_mujoco()
    return module


def _speak_to_new_mujoco() -> None:
    """Repair what MuJoCo 3.12 changed.

    A joint's type, a numpy integer, equals no member of the enum any more; `mj_fullM` takes the data where it
    took its `qM`, which is gone.
    """
    mj = mujoco()
    binding = require("robosuite.utils.binding_utils", "robosuite")
    controller = require("robosuite.controllers.parts.controller", "robosuite")
    members = {name: getattr(mj, name) for name in dir(mj) if not name.startswith("__")}
    kinds = SimpleNamespace(**{name: int(value) for name, value in mj.mjtJoint.__members__.items()})
    binding.__dict__["mujoco"] = SimpleNamespace(**{**members, "mjtJoint": kinds})
    binding.MjData.qM = property(lambda self: self._data)
    full = {"mj_fullM": lambda model, matrix, data: mj.mj_fullM(model, data, matrix)}
    controller.__dict__["mujoco"] = SimpleNamespace(**{**members, **full})


def _repair(model: Any, arm: str) -> None:
    """See `REPAIRS`."""
    mj = mujoco()
    if hasattr(mj.mjtDisableBit, "mjDSBL_MULTICCD"):
        model.opt.disableflags |= int(mj.mjtDisableBit.mjDSBL_MULTICCD)
    # What diverges is to be said, not put back where it began.
    model.opt.disableflags |= int(mj.mjtDisableBit.mjDSBL_AUTORESET)
    if arm == "Sawyer":
        base = model.geom("robot0_base_col").id
        model.geom_contype[base] = model.geom_conaffinity[base] = 0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without robosuite's warnings about a private file of macros and about controllers that nobody uses."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
