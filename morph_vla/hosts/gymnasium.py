"""Our suites as Gymnasium's environments: importing this module registers every task of every suite.

    env = gymnasium.make("morph_vla/droid_panda.can_in_mug")           a dot: Gymnasium reads `module:id`
    envs = gymnasium.make_vec("morph_vla/droid_panda", num_envs=3)     its three tasks in turn
    observation, info = env.reset(options={"row": 17})                 what `morph-vla eval` plays as 17

An observation has `images/CAMERA`, uint8 [h, w, 3], and `state`, float32 [joints]: measured joint values, the
dataset's units; of a suite without cameras `environment_state`, poses of its objects. An action is float32
[joints]: absolute joint positions in the same order and units, a step's target, within the robot's limits;
with `normalized=True` from -1 to 1 across them. `info` has the rest that a policy is shown
(`policy.infer({**observation, **info})`), `is_success`, and at the end `trial`, a record's verdict. Reward is
1 for success, else 0. Success, a lost object and physics that diverges end an episode; its time truncates it.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import ENVIRONMENT, Observation, environment_names
from morph_vla.errors import MorphVlaError, nearest, reason, require
from morph_vla.evaluation.stepper import Stepper
from morph_vla.files import dropin
from morph_vla.suites import environment
from morph_vla.suites.suite import Suite, load_tasks

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = require("gymnasium", "gymnasium")

LOG = logging.getLogger(__name__)
NAMESPACE, ANY = "morph_vla", "morph_vla/suite"  # of every id; the id for a suite's file by keyword
DRAWN, ROWS = "gymnasium", 2**31  # the table that resets without a row draw from, and its rows
DRAWS = 5
"""States that a reset without a row draws at most until one settles"""


class SuiteEnv(gymnasium.Env[dict[str, Any], np.ndarray]):
    """One task of a suite; see the module for spaces and info."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

    def __init__(
        self,
        suite: str | Path | Suite,
        overrides: Sequence[str] = (),
        engine: str = engines.DEFAULT,
        normalized: bool = False,
        render_mode: str | None = None,
        place: tuple[Stepper, int] | None = None,
    ):
        """`suite` is a name, a file or `FILE:TASK`, changed by `overrides`; `place` says in whose worlds.

        Raises MorphVlaError for several tasks and what the engine lacks, ConfigError for a wrong suite.
        """
        self.suite = suite if isinstance(suite, Suite) else _only(load_tasks(suite, overrides))
        self._stepper, self._index = place or (Stepper(self.suite, 1, engine), 0)
        self._normalized, self.render_mode = normalized, render_mode
        self.metadata = {**self.metadata, "render_fps": round(self.suite.control_rate)}
        low, high = self._stepper.limits
        self._low, self._range = low, high - low
        self._seen: Observation = {}
        frames = {
            f"images/{name}": gymnasium.spaces.Box(0, 255, (camera.height, camera.width, 3), np.uint8)
            for name, camera in self.suite.cameras.items()
        }
        numbers = {"state": _box(low - self._range, high + self._range)}  # joints may be pushed beyond
        if not frames:
            poses = np.full(len(environment_names(self.suite.success)), 10.0)  # [m], and of a quaternion 1
            numbers[ENVIRONMENT] = _box(-poses, poses)
        self._spaces = {**frames, **numbers}
        self.observation_space = gymnasium.spaces.Dict(self._spaces)
        self.action_space = _box(0 * low - 1, 0 * high + 1) if normalized else _box(low, high)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode: `options={"row": 17}` of the suite's table, or one that it has not, by the seed.

        Raises MorphVlaError for other options, for a row that is no integer from 0, and where the physics
        does not settle; a state that is drawn is drawn again, DRAWS times in all.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        row = options.pop("row", None)
        for name in options:
            raise MorphVlaError(f"reset has no option '{name}'{nearest(name, ['row'])} (it has row)")
        if row is None:
            for _ in range(DRAWS):
                self._stepper.reset({self._index: int(self.np_random.integers(ROWS))}, stream=DRAWN)
                if self._stepper.status(self._index).error is None:
                    break
        elif isinstance(row, int | np.integer):
            self._stepper.reset({self._index: int(row)})
        else:
            raise MorphVlaError(f"reset: row expects an integer, not {row!r}")
        if error := self._stepper.status(self._index).error:
            raise MorphVlaError(f"reset: {error}")
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """One control step; raises MorphVlaError for an action that does not fit the joints."""
        if self._normalized:
            shares = np.asarray(action)
            if shares.shape != self._low.shape:
                raise MorphVlaError(f"the action has the shape {shares.shape}, expected {self._low.shape}")
            action = self._low + (shares + 1) / 2 * self._range
        self._stepper.step({self._index: action})
        ended = self._stepper.status(self._index).ended
        done = ended is not None and ended != "time"
        return self._observation(), float(ended == "success"), done, ended == "time", self._info()

    def _observation(self) -> dict[str, np.ndarray]:
        """What is seen now; what was seen before the step in which the physics diverged."""
        if self._stepper.status(self._index).error is None:
            self._seen = self._stepper.observe(self._index)
        return {name: np.array(self._seen[name]) for name in self._spaces}

    def _info(self) -> dict[str, Any]:
        """What a policy is shown beside the observation, and the verdict once there is one."""
        info = {name: value for name, value in self._seen.items() if name not in self._spaces}
        info |= {"step": self._stepper.status(self._index).steps, "is_success": False}
        trial = self._stepper.trial(self._index)
        return {**info, "is_success": trial.success, "trial": trial} if trial else info

    def render(self) -> np.ndarray | None:
        """The scene as a person would look at it, uint8 [h, w, 3]; no policy sees this."""
        return self._stepper.film(self._index) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Give renderers and memory back."""
        self._stepper.close()


class SuiteVectorEnv(gymnasium.vector.SyncVectorEnv):
    """A suite's tasks in turn: environment i plays task i modulo their number, each task in one engine."""

    def __init__(
        self,
        num_envs: int,
        suite: str | Path,
        overrides: Sequence[str] = (),
        engine: str = engines.DEFAULT,
        autoreset_mode: str | gymnasium.vector.AutoresetMode = gymnasium.vector.AutoresetMode.NEXT_STEP,
        **options: Any,
    ):
        """`options` are those of `SuiteEnv`; raises as it does, and where worlds can only move together."""
        if num_envs > 1 and engines.lockstep(engine):
            raise MorphVlaError(
                f"engine {engine}: its worlds move together, and Gymnasium resets environments one by one; "
                "use num_envs=1, or morph_vla.evaluation.stepper.Stepper"
            )
        tasks = load_tasks(suite, overrides)
        played = [tasks[number % len(tasks)] for number in range(num_envs)]
        steppers = {task.label: Stepper(task, played.count(task), engine) for task in played[: len(tasks)]}
        places = [(steppers[task.label], number // len(tasks)) for number, task in enumerate(played)]
        super().__init__(
            [partial(SuiteEnv, place[0].suite, place=place, **options) for place in places],
            autoreset_mode=autoreset_mode,
        )


def register_suites(folders: Sequence[str | Path] = ()) -> tuple[str, ...]:
    """Register every suite of ours in `folders` and where suites are searched; the ids that are new.

    Importing this module calls it. A file that cannot be read is left out, with a warning.
    """
    known = set(gymnasium.registry)
    _register(ANY)
    for path in dropin.available("suites", folders).values():
        try:
            for task in environment.load_tasks(path):
                if isinstance(task, Suite):
                    _register(id_of(task.name), suite=str(path))
                    _register(id_of(task.label), suite=f"{path}:{task.task_name}".removesuffix(":"))
        except (MorphVlaError, gymnasium.error.Error) as error:
            LOG.warning("%s is not registered: %s", path.name, reason(error))
    return tuple(name for name in gymnasium.registry if name not in known)


def _register(name: str, **options: str) -> None:
    """Register an id, unless it is there."""
    if name not in gymnasium.registry:
        single, vector = f"{__name__}:SuiteEnv", f"{__name__}:SuiteVectorEnv"
        gymnasium.register(name, single, vector_entry_point=vector, kwargs=options)


def id_of(label: str) -> str:
    """Gymnasium's id of a task: `morph_vla/droid_panda.can_in_mug` of `droid_panda:can_in_mug`."""
    return f"{NAMESPACE}/{label.replace(':', '.')}"


def _only(tasks: Sequence[Suite]) -> Suite:
    if len(tasks) > 1:
        ids = ", ".join(id_of(task.label) for task in tasks)
        raise MorphVlaError(
            f"suite '{tasks[0].name}' has {len(tasks)} tasks, and an environment plays one: {ids}; "
            "gymnasium.make_vec plays all of them, in one process"
        )
    return tasks[0]


def _box(low: np.ndarray, high: np.ndarray) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))


register_suites()
