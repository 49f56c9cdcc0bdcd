"""vla-eval (allenai/vla-evaluation-harness): a checkpoint as its model server, our suites as its benchmark.

    python -m morph_vla.hosts.vla_eval --args.checkpoint=runs/first/checkpoints/1400 --host=127.0.0.1
    vla-eval run --config suite.yaml        benchmark: morph_vla.hosts.vla_eval:SuiteBenchmark

Episode i of a task is row i of its table, for both sides: the benchmark begins it there, and the server takes
its random numbers from there. With the same `batch` and `chunk_size` as `morph-vla eval` (the defaults) its
trials are the same; frames cross as PNG, which loses nothing.

vla-eval compares what both sides declare and warns where they differ. Of joints we declare names, order and
units, and of frames the cameras' names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from morph_vla import robots
from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import Observation
from morph_vla.errors import MorphVlaError, nearest, require
from morph_vla.evaluation.rollout import open_loop_at
from morph_vla.evaluation.sampler import Sampler
from morph_vla.evaluation.stepper import Stepper
from morph_vla.robots import Robot
from morph_vla.suites.suite import load_tasks

if TYPE_CHECKING:
    import vla_eval.benchmarks.base as benchmarks
    import vla_eval.model_servers.base as sessions
    import vla_eval.model_servers.predict as servers
    import vla_eval.specs as specs
else:
    specs = require("vla_eval.specs", "vla-eval")
    benchmarks = require("vla_eval.benchmarks.base", "vla-eval")
    sessions = require("vla_eval.model_servers.base", "vla-eval")
    servers = require("vla_eval.model_servers.predict", "vla-eval")


def joint_spec(robot: Robot) -> specs.DimSpec:
    """Joint positions as vla-eval compares them: which joints, in which order and units."""
    names = ", ".join(f"{joint.name} [{joint.unit}]" for joint in robot.joints)
    return specs.DimSpec("joints", len(robot.joints), f"absolute joint positions: {names}")


def observation_spec(robot: Robot, cameras: Sequence[str]) -> dict[str, specs.DimSpec]:
    """What a benchmark shows and a server needs."""
    frames = {f"images/{name}": specs.IMAGE_RGB for name in cameras}
    return {**frames, "state": joint_spec(robot), "language": specs.LANGUAGE}


class CheckpointServer(servers.PredictModelServer):
    """A checkpoint of ours; `predict_batch` answers with chunks, of which vla-eval executes `chunk_size`."""

    def __init__(
        self,
        checkpoint: str,
        robot: str = "",
        batch: int | None = None,
        chunk_size: int | None = None,
        cameras: dict[str, str] | None = None,
        steps: int = Sampler.steps,
        noise: float = Sampler.noise,
        max_wait_time: float = 0.01,
    ):
        """Load and compile. `cameras`: a benchmark's name of a camera -> the one it was trained with.

        `batch` observations are computed at once and `chunk_size` actions of an answer are executed, as many
        as in an evaluation unless they are given. Raises as `serving.policy.CheckpointPolicy`.
        """
        from morph_vla.serving import policy as policies

        batch = batch or policies.EVALUATION_BATCH
        self.policy = policies.load(checkpoint, robot=robot, batch=batch, steps=steps, noise=noise)
        if self.policy.trained.get("environment"):
            raise MorphVlaError(
                f"{checkpoint} acts on poses of objects, which no benchmark of vla-eval shows"
            )
        rate, size = self.policy.trained["control_rate"], self.policy.image_size
        super().__init__(
            chunk_size=chunk_size or open_loop_at(rate), max_batch_size=batch, max_wait_time=max_wait_time
        )
        self._cameras, self._episodes = dict(cameras or {}), dict[str, int]()
        frames = {
            f"images/{name}": np.zeros((size, size, 3), np.uint8) for name in self.policy.cameras.values()
        }
        state = np.zeros(len(self.policy.robot.joints), np.float32)
        self.policy.infer({**frames, "state": state, "prompt": "warm up"})

    async def on_episode_start(self, config: dict[str, Any], ctx: sessions.SessionContext) -> None:
        """Note which row of the table this session's episode is."""
        await super().on_episode_start(config, ctx)
        self._episodes[ctx.session_id] = int(config.get("task", {}).get("episode_idx", 0))

    def predict_batch(
        self, obs_batch: list[dict[str, Any]], ctx_batch: list[sessions.SessionContext]
    ) -> list[dict[str, Any]]:
        """Actions [horizon, joints] for each observation."""
        rows = [
            {**self._read(row), **self._moment(ctx)} for row, ctx in zip(obs_batch, ctx_batch, strict=True)
        ]
        return [{"actions": answer["actions"]} for answer in self.policy.infer_batch(rows)]

    def _moment(self, ctx: sessions.SessionContext) -> Observation:
        """Of which episode a question is; two sessions may play the same row of different tasks."""
        episode = self._episodes.get(ctx.session_id, 0)
        return {"episode": episode, "step": ctx.step, "connection": ctx.session_id}

    def _read(self, row: Mapping[str, Any]) -> Observation:
        """An observation of vla-eval's as ours; its benchmarks say `state` or `states`."""
        images = {f"images/{self._cameras.get(name, name)}": frame for name, frame in row["images"].items()}
        state = np.asarray(row["state"] if "state" in row else row["states"], np.float32)
        return {**images, "state": state, "prompt": row["task_description"]}

    def get_action_spec(self) -> dict[str, specs.DimSpec]:
        """The policy's joints."""
        return {"joints": joint_spec(self.policy.robot)}

    def get_observation_spec(self) -> dict[str, specs.DimSpec]:
        """The cameras by the benchmark's names, the joints, the prompt."""
        theirs = {ours: name for name, ours in self._cameras.items()}
        names = [theirs.get(name, name) for name in self.policy.cameras.values()]
        return observation_spec(self.policy.robot, names)


class SuiteBenchmark(benchmarks.StepBenchmark):
    """The tasks of a suite; its metrics are the verdict as a record has it."""

    def __init__(self, suite: str, overrides: Sequence[str] = (), engine: str = engines.DEFAULT):
        """`suite` is a name, a file or `NAME:TASK`. Raises ConfigError for a wrong one."""
        super().__init__()
        self.tasks = {task.task_key: task for task in load_tasks(suite, overrides)}
        self._first = next(iter(self.tasks.values()))
        self._robot = robots.load(self._first.robot)
        self._engine, self._stepper = engine, None

    def get_tasks(self) -> list[dict[str, Any]]:
        """A descriptor of each task, which `reset` takes."""
        return [{"name": name, "suite": task.name} for name, task in self.tasks.items()]

    def reset(self, task: dict[str, Any]) -> Observation:
        """Begin row `episode_idx` of a task's table; raises MorphVlaError for an unknown task."""
        suite = self.tasks.get(task["name"])
        if suite is None:
            known = ", ".join(self.tasks)
            raise MorphVlaError(f"no task '{task['name']}'{nearest(task['name'], self.tasks)} ({known})")
        if self._stepper is None or self._stepper.suite is not suite:
            self.cleanup()
            self._stepper = Stepper(suite, 1, self._engine)
        self._stepper.reset({0: int(task["episode_idx"])})
        if error := self._stepper.status(0).error:
            raise MorphVlaError(f"{suite.label}, row {task['episode_idx']}: {error}")
        return self._stepper.observe(0)

    def step(self, action: dict[str, Any]) -> benchmarks.StepResult:
        """One control step; raises MorphVlaError for an action that does not fit the joints."""
        assert self._stepper is not None
        status = self._stepper.step({0: np.asarray(action["actions"])})[0]
        seen = {} if status.ended else self._stepper.observe(0)
        return benchmarks.StepResult(seen, float(status.ended == "success"), status.ended is not None, {})

    def make_obs(self, raw_obs: Observation, task: dict[str, Any]) -> dict[str, Any]:
        """vla-eval's names for what is seen."""
        images = {key.removeprefix("images/"): v for key, v in raw_obs.items() if key.startswith("images/")}
        return {"images": images, "state": raw_obs["state"], "task_description": raw_obs["prompt"]}

    def get_step_result(self, step_result: benchmarks.StepResult) -> dict[str, Any]:
        """The trial, as a record has it."""
        trial = self._stepper.trial(0) if self._stepper is not None else None
        return {"success": False} if trial is None else trial.to_json(Path())

    def get_metadata(self) -> dict[str, Any]:
        """Episodes end by themselves."""
        return {"max_steps": max(task.max_steps for task in self.tasks.values())}

    def get_action_spec(self) -> dict[str, specs.DimSpec]:
        """The robot's joints."""
        return {"joints": joint_spec(self._robot)}

    def get_observation_spec(self) -> dict[str, specs.DimSpec]:
        """The suite's cameras, the joints, the prompt."""
        return observation_spec(self._robot, list(self._first.cameras))

    def cleanup(self) -> None:
        """Give renderers and memory back."""
        if self._stepper is not None:
            self._stepper.close()
        self._stepper = None


if __name__ == "__main__":
    from vla_eval.model_servers.serve import run_server

    run_server(CheckpointServer)
