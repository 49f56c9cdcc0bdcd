"""A suite's robot as one of LeRobot's: `lerobot-rollout` drives it as it would the arm on the desk.

Joint values have the names and units of a recorded dataset (`JOINT.pos`), pictures the names of the suite's
cameras. Each action is a control step of the simulation, however late it comes: `--fps` is the suite's rate.
"""

import logging
from typing import Any

import numpy as np
from lerobot.robots import Robot

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.hosts.lerobot.config_robot import SuiteRobotConfig
from morph_vla.hosts.lerobot.environment import Seen, SuiteEnv
from morph_vla.suites import suite as suites
from morph_vla.wording import count

LOG = logging.getLogger(__name__)


class SuiteRobot(Robot):
    """One episode of a suite at a time; when it has ended, the simulation stands still."""

    config_class: Any = SuiteRobotConfig
    name = "morph_vla"

    def __init__(self, config: SuiteRobotConfig):
        """Raises MorphVlaError for an unknown suite, and for one of several tasks.

        LeRobot's own `__init__` would make a folder for calibrations, of which there are none.
        """
        first, *others = tasks = suites.load_tasks(config.suite, config.overrides)
        if others:
            labels = ", ".join(task.label for task in tasks)
            raise MorphVlaError(f"robot.suite: {config.suite} has {len(tasks)} tasks; name one: {labels}")
        self.robot_type, self.id, self.calibration = self.name, config.id, {}
        self.suite, self._row, self._engine = first, config.row, config.engine
        self._joints = [f"{name}.pos" for name in robots.load(self.suite.robot).names]
        self._env: SuiteEnv | None = None
        self._seen: Seen = {}
        self._steps, self._ended = 0, ""

    @property
    def observation_features(self) -> dict[str, Any]:
        """Joint values and pictures, as LeRobot names them."""
        cameras = self.suite.cameras.items()
        pictures = {name: (camera.height, camera.width, 3) for name, camera in cameras}
        return {**self.action_features, **pictures}

    @property
    def action_features(self) -> dict[str, Any]:
        """Joint targets."""
        return dict.fromkeys(self._joints, float)

    @property
    def is_connected(self) -> bool:
        """Whether an episode has begun."""
        return self._env is not None

    @property
    def is_calibrated(self) -> bool:
        """Always: a URDF has no motors to calibrate."""
        return True

    def connect(self, calibrate: bool = True) -> None:
        """Begin the next row of the suite's table. Raises MorphVlaError where it cannot begin."""
        env = SuiteEnv(self.suite, 1, self._engine)
        try:
            self._seen, _ = env.reset(seed=[self._row])
        except BaseException:
            env.close()
            raise
        self._env = env
        self._steps, self._ended = 0, ""
        LOG.info("%s, row %d: '%s'", self.suite.label, self._row, self.suite.task)

    def calibrate(self) -> None:
        """Nothing to do."""

    def configure(self) -> None:
        """Nothing to do."""

    def get_observation(self) -> dict[str, Any]:
        """Joint values in the dataset's units, and each camera's picture [h w 3]."""
        self._connected()
        values = zip(self._joints, self._seen["agent_pos"][0].tolist(), strict=True)
        return {**dict(values), **{name: frames[0] for name, frames in self._seen["pixels"].items()}}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """One control step towards joint targets. Raises MorphVlaError where one is missing or not finite."""
        env = self._connected()
        if missing := [name for name in self._joints if name not in action]:
            raise MorphVlaError(f"the action lacks {', '.join(missing)}; it has {', '.join(action)}")
        targets = np.array([[float(action[name]) for name in self._joints]], np.float32)
        self._seen, rewards, terminated, truncated, _ = env.step(targets)
        if not self._ended:
            self._steps += 1
            if terminated[0] or truncated[0]:
                self._ended = "success" if rewards[0] else "time is over" if truncated[0] else "failed"
                LOG.info("%s, row %d: %s", self.suite.label, self._row, self._result())
        return action

    def disconnect(self) -> None:
        """End the episode, and say what came of it."""
        self._connected().close()
        LOG.info("%s, row %d: %s", self.suite.label, self._row, self._result())
        self._env, self._row = None, self._row + 1

    def _connected(self) -> SuiteEnv:
        if self._env is None:
            raise MorphVlaError(f"{self.suite.label}: not connected; `connect` begins an episode")
        return self._env

    def _result(self) -> str:
        seconds = self._steps / self.suite.control_rate
        return f"{self._ended or 'not ended'} after {seconds:.1f} s, {count(self._steps, 'action')}"
