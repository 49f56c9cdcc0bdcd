"""Our suites as LeRobot's environments: `--env.type=morph_vla --env.task=droid_panda:can_in_mug`.

A seed is a row of the suite's table, so that `--seed=0` plays the episodes of `morph-vla eval` from its first
on. Beside LeRobot's keys an observation says its `episode` and `step`, by which our policies answer the same
wherever they are asked, and whether the episode has `ended`: then they are not asked. A suite without cameras
(`--env.overrides='["cameras={}"]'`) shows poses of objects, LeRobot's `observation.environment_state`.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs import EnvConfig

from morph_vla import robots
from morph_vla.engines import by_name as engines
from morph_vla.engines import films
from morph_vla.engines.engine import ENVIRONMENT, Frame, Observation, actions_of, environment_names
from morph_vla.engines.pool import Answer, Begin, Execute, Message, Pool
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.rollout import default_workers
from morph_vla.suites import suite as suites
from morph_vla.suites.suite import Suite

LOG = logging.getLogger(__name__)
CAMERA = "observation.images."
LAST_SEED = 2**24 - 1  # an episode's number reaches the policy as float32: LeRobot makes all values floats
Seen = dict[str, Any]  # a batch of observations, as LeRobot's `preprocess_observation` reads it


@EnvConfig.register_subclass("morph_vla")
@dataclasses.dataclass
class MorphVlaEnv(EnvConfig):
    """`task` is a suite's name or file, of one of its tasks or of all."""

    task: str | None = "droid_panda"
    engine: str = engines.DEFAULT
    overrides: list[str] = dataclasses.field(default_factory=list)
    """Changes to the suite: `--env.overrides='["variation.distractors=2"]'`."""

    def __post_init__(self) -> None:
        """Raises MorphVlaError for an unknown suite, and ConfigError with what is wrong in its file."""
        first, *_ = self.tasks
        self.fps = round(first.control_rate)
        joints = (len(robots.load(first.robot).joints),)
        self.features = {
            "action": PolicyFeature(FeatureType.ACTION, joints),
            "agent_pos": PolicyFeature(FeatureType.STATE, joints),
        }
        for name, camera in first.cameras.items():
            frame = (camera.height, camera.width, 3)
            self.features[f"{CAMERA}{name}"] = PolicyFeature(FeatureType.VISUAL, frame)
        if not first.cameras:
            poses = (len(environment_names(first.success)),)
            self.features[ENVIRONMENT] = PolicyFeature(FeatureType.ENV, poses)
        theirs = {"agent_pos": "observation.state", ENVIRONMENT: f"observation.{ENVIRONMENT}"}
        self.features_map = {key: theirs.get(key, key) for key in self.features}

    @property
    def tasks(self) -> tuple[Suite, ...]:
        """The suite's tasks that are asked for."""
        return suites.load_tasks(self.task or "", self.overrides)

    @property
    def gym_kwargs(self) -> dict:
        """LeRobot's: of environments that gymnasium makes."""
        return {}

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, "SuiteEnv"]]:
        """`n_envs` episodes of each task; one that is not played yet holds nothing."""
        engines.check(self.engine)
        workers = default_workers() if use_async_envs else 1
        made = [SuiteEnv(task, n_envs, self.engine, workers) for task in self.tasks]
        return {self.tasks[0].name: dict(enumerate(made))}


class SuiteEnv:
    """`num_envs` episodes of a task side by side: what LeRobot uses of a gymnasium vector environment.

    Worlds live in worker processes. An episode that has ended stands still, with what it showed last, until
    all are reset: LeRobot leaves out what follows an end.
    """

    def __init__(self, suite: Suite, num_envs: int, engine: str = engines.DEFAULT, workers: int = 1):
        self.suite, self.num_envs = suite, num_envs
        self.metadata = {"render_fps": round(suite.control_rate)}
        self._joints = len(robots.load(suite.robot).joints)
        self._made = lambda: engines.pool(suite, num_envs, workers, engine)
        self._pool: Pool | None = None
        self._rows: list[int] = list(range(-num_envs, 0))
        self._answers: dict[int, Answer] = {}
        self._seen: dict[int, Observation] = {}

    @property
    def unwrapped(self) -> "SuiteEnv":
        """Itself."""
        return self

    def reset(
        self, *, seed: Sequence[int] | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin row `seed[i]` in place i; without seeds, the rows that follow the last ones.

        Raises MorphVlaError for a seed that is no row, and where a row cannot begin.
        """
        rows = [row + self.num_envs for row in self._rows] if seed is None else list(seed)
        for row in rows:
            if not 0 <= row <= LAST_SEED:
                problem = f"seed {row} is no row of the suite's table; expected 0 to {LAST_SEED}"
                raise MorphVlaError(f"{self.suite.label}: {problem}")
        self._pool, self._rows = self._pool or self._made(), rows
        states = [suites.initial_state(self.suite, row, self._joints) for row in self._rows]
        self._tell({slot: Begin(state) for slot, state in enumerate(states)})
        for row, answer in zip(self._rows, self._answers.values(), strict=True):
            if answer.status.error:
                raise MorphVlaError(f"{self.suite.label}, episode {row}: {answer.status.error}")
        return self._observation(), {}

    def step(
        self, actions: Float[np.ndarray, "n j"]
    ) -> tuple[Seen, Float[np.ndarray, "n"], Bool[np.ndarray, "n"], Bool[np.ndarray, "n"], dict[str, Any]]:
        """One control step towards joint targets; (observation, reward, terminated, truncated, info).

        The reward is 1 in the step of a success. Raises MorphVlaError for actions that are not finite or not
        as many as there are joints.
        """
        going = [slot for slot, answer in self._answers.items() if answer.status.ended is None]
        rows = {slot: actions_of({"actions": actions[slot][None]}, self._joints) for slot in going}
        self._tell({slot: Execute(row) for slot, row in rows.items()})
        ended = [self._answers[slot].status.ended for slot in range(self.num_envs)]
        success = np.array([how == "success" for how in ended])
        rewards = np.array([float(success[slot] and slot in going) for slot in range(self.num_envs)])
        truncated = np.array([how == "time" for how in ended])
        terminated = np.array([how is not None for how in ended]) & ~truncated
        return self._observation(), rewards, terminated, truncated, {"is_success": success}

    def _tell(self, messages: Mapping[int, Message]) -> None:
        """Send slots a message each, and take in what came of it."""
        assert self._pool is not None
        self._pool.send(messages)
        for slot, answer in sorted(self._pool.receive(messages).items()):
            if not isinstance(answer, Answer):
                raise MorphVlaError(f"{self.suite.label}: {answer.reason}")
            self._answers[slot] = answer
            if answer.status.error:
                LOG.warning("%s, episode %d: %s", self.suite.label, self._rows[slot], answer.status.error)
            if answer.observation is not None:
                moment = {"episode": self._rows[slot], "step": answer.status.steps}
                self._seen[slot] = {**answer.observation, **moment}

    def _observation(self) -> Seen:
        """What all episodes show now, or showed last."""
        seen = [self._seen[slot] for slot in range(self.num_envs)]
        moments = {key: np.array([[row[key]] for row in seen], np.float32) for key in ("episode", "step")}
        over = [[self._answers[slot].status.ended is not None] for slot in range(self.num_envs)]
        moments["ended"] = np.array(over, np.float32)
        images = {name: np.stack([row[f"images/{name}"] for row in seen]) for name in self.suite.cameras}
        keys = {"agent_pos": "state"} if images else {"agent_pos": "state", ENVIRONMENT: ENVIRONMENT}
        values = {theirs: np.stack([row[ours] for row in seen]) for theirs, ours in keys.items()}
        return {"pixels": images, **values, **moments}

    def render(self) -> list[Frame]:
        """What a policy sees of each episode, its cameras side by side; without cameras a dark picture."""
        if not self.suite.cameras:
            return [np.zeros((64, 64, 3), np.uint8)] * self.num_envs
        names = [f"images/{name}" for name in self.suite.cameras]
        seen = [self._seen[slot] for slot in range(self.num_envs)]
        return [films.in_a_row([np.asarray(row[name]) for name in names]) for row in seen]

    def call(self, name: str) -> list[Any]:
        """An attribute of each environment, or what a method of each returns. Raises AttributeError."""
        if name == "render":
            return self.render()
        task = self.suite.task
        known = {"task": task, "task_description": task, "_max_episode_steps": self.suite.max_steps}
        if name not in known:
            raise AttributeError(name)
        return [known[name]] * self.num_envs

    get_attr = call

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
