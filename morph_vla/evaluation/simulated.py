"""A task of one of our suites, in one of our engines, as a `Benchmark`."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from morph_vla import robots
from morph_vla.doctor import require_gl
from morph_vla.engines import by_name as engines
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import ENVIRONMENT, Policy, actions_of, environment_names
from morph_vla.engines.episode import Status
from morph_vla.engines.hands import grippers
from morph_vla.engines.pool import Pool, Verdict
from morph_vla.evaluation import fit
from morph_vla.files.plain import to_plain
from morph_vla.findings import Finding
from morph_vla.results import identity
from morph_vla.results.record import EngineFacts, SuiteFacts, Target, TaskFacts, engine_from_json
from morph_vla.results.trial import Trial
from morph_vla.results.values import Real
from morph_vla.suites import on_robot
from morph_vla.suites.suite import Camera, InitialState, Suite, fingerprint, initial_states, resolved


class Simulated:
    """See `benchmark.Benchmark`."""

    def __init__(
        self,
        suite: Suite,
        engine: str = engines.DEFAULT,
        frames: Mapping[str, tuple[int, int]] | None = None,
    ):
        """`frames`: the cameras that episodes show, with height and width; without any they show the objects'
        poses, and with None the suite's cameras as they are.
        """
        self.suite, self._engine = suite, engine
        self.shown = suite if frames is None else dataclasses.replace(suite, cameras=_sized(suite, frames))
        """The suite as its episodes show it"""
        self.label, self.name, self.task_key = suite.label, suite.name, suite.task_key
        self.episodes, self.control_rate, self.maps_actions = suite.episodes, suite.control_rate, False
        self._robot = robots.load(suite.robot)
        self._joints = len(self._robot.joints)

    def findings(self, policy: Policy) -> Sequence[Finding]:
        """What of the task the policy was not trained with, where it says what it was trained with."""
        if isinstance(policy, fit.Reads):
            return tuple(fit.unshown(policy, self.label, self._numbers()))
        return fit.check(policy, self.shown) if isinstance(policy, fit.Trained) else ()

    def _numbers(self) -> dict[str, int]:
        """The keys of an observation, with how many numbers each has; 0 of an image."""
        images = {f"images/{name}": 0 for name in self.shown.cameras}
        poses = len(environment_names(self.shown.success))
        return {"state": self._joints, **images, **({} if images else {ENVIRONMENT: poses})}

    def check(self) -> None:
        """Raise MorphVlaError where robot, simulator or graphics cannot play the task."""
        on_robot.check(self.suite, self._robot)
        engines.check(self._engine)
        if engines.split(self._engine)[0] == "mujoco":
            require_gl()

    def engine(self) -> EngineFacts | None:
        """The simulator and its settings, as a record has them."""
        return engine_from_json(engines.facts(self._engine))

    def states(self, count: int) -> tuple[InitialState, ...]:
        """The first `count` rows of the suite's table."""
        return initial_states(self.suite, count, self._joints)

    def facts(self, states: Sequence[InitialState] = ()) -> SuiteFacts:
        """What a record says of the suite."""
        return suite_facts(self.suite, states)

    def pool(self, slots: int, workers: int) -> Pool:
        """Worlds for so many episodes at once, in so many processes."""
        return engines.pool(self.shown, slots, workers, self._engine)

    def actions(self, answer: object) -> Float[np.ndarray, "h j"]:
        """A policy's answer as targets; raises MorphVlaError for what is none."""
        return actions_of(answer, self._joints)

    def arm(self, targets: Float[np.ndarray, "n j"]) -> Float[np.ndarray, "n k"]:
        """The targets [rad | m] of all joints but grippers."""
        return self._robot.to_native(targets)[:, ~grippers(self._robot)]

    def trial(self, state: InitialState, verdict: Verdict | None, error: str | None) -> Trial:
        """What a record keeps of an episode."""
        suite = self.suite
        assert verdict is None or isinstance(verdict, Status)
        progress = verdict.progress if verdict else criterion.Progress()
        reading = verdict.reading if verdict else None
        seconds = progress.success_step / suite.control_rate if progress.success_step else None
        success = error is None and seconds is not None
        clause = None
        if reading is not None and error is None:
            clause = criterion.failed_clause(progress, reading, suite.success)
        return Trial(
            task=suite.task_key,
            episode=state.episode,
            success=success,
            time_s=seconds if success else None,
            ended=_ended(error, success, progress.lost),
            error=error,
            steps=progress.steps,
            failed_clause=clause,
            clauses=criterion.times(progress, suite.control_rate),
            touched=progress.reached,
            grasped=progress.grasped,
            lifted=progress.lifted,
            knocked=progress.knocked,
            dropped=progress.dropped,
            pushed_in=reading is not None and criterion.pushed_in(progress, reading, suite.success),
            dragged=None if reading is None else criterion.dragged(progress, reading),
            least={} if progress.nearest is None else {"approach": round(progress.nearest, 4)},
            initial={name: list(pose) for name, pose in state.poses.items()},
            final_object=[round(float(v), 4) for v in reading.object_position] if reading else None,
            final_target=_pose(reading) if reading else None,
            placed=criterion.placed(progress, suite.success),
        )


def _pose(reading: criterion.Reading) -> list[Real]:
    """The target's: position [m], quaternion (w, x, y, z)."""
    return [round(float(v), 4) for v in (*reading.target_position, *reading.target_quaternion)]


def _sized(suite: Suite, frames: Mapping[str, tuple[int, int]]) -> dict[str, Camera]:
    """Those of a suite's cameras, in frames of that height and width."""
    return {
        name: dataclasses.replace(camera, height=frames[name][0], width=frames[name][1])
        for name, camera in suite.cameras.items()
        if name in frames
    }


def suite_facts(suite: Suite, table: Sequence[InitialState]) -> SuiteFacts:
    """What a record says of a suite: what its tasks share, and its one task."""
    whole, success, robot = resolved(suite), suite.success, robots.load(suite.robot)
    task = TaskFacts(
        task=suite.task,
        episode_seconds=suite.episode_seconds,
        object=success.object,
        target=Target(success.target, list(success.low), list(success.high)),
        initial_states_sha256=fingerprint(table),
        resolved=whole,
        resolved_sha256=identity.digest(whole),
    )
    return SuiteFacts(
        name=suite.name,
        version=suite.version,
        seed=suite.seed,
        robot=suite.robot,
        urdf_sha256=robot.urdf_sha256,
        side_sha256=robot.side_sha256,
        control_rate=suite.control_rate,
        variation=to_plain(suite.variation),
        tasks={suite.task_key: task},
    )


def _ended(error: str | None, success: bool, lost: bool) -> str:
    """Why an episode ended, as a trial has it."""
    if error:
        return "error"
    if success:
        return "success"
    return "lost" if lost else "time"
