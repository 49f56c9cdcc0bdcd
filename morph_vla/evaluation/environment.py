"""A task of another simulator, as a `Benchmark`: gymnasium's environments and LeRobot's."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float

from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import ENVIRONMENT, Policy
from morph_vla.engines.gymnasium import making, reading
from morph_vla.engines.gymnasium.probe import Probe, probe
from morph_vla.engines.gymnasium.stage import Environments, Standing
from morph_vla.engines.pool import LocalPool, Pool, Verdict
from morph_vla.engines.workers import WorkerPool
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.evaluation import fit
from morph_vla.findings import Finding, Source
from morph_vla.results import identity
from morph_vla.results.record import EngineFacts, SuiteFacts, TaskFacts, engine_from_json
from morph_vla.results.trial import Trial
from morph_vla.suites.environment import EnvironmentSuite, resolved
from morph_vla.suites.suite import InitialState


class Environment:
    """See `benchmark.Benchmark`."""

    def __init__(self, suite: EnvironmentSuite, engine: str = engines.DEFAULT, is_blind: bool = False):
        """`is_blind`: episodes show the suite's `poses`, if it has any, and no images.

        Raises MorphVlaError where another engine is asked for: the environment is its own.
        """
        if engine != engines.DEFAULT:
            raise MorphVlaError(
                f"suite '{suite.label}' brings its own simulator: leave out --engine {engine}"
            )
        self.suite = suite
        self._shown = dataclasses.replace(suite, images={}) if is_blind and suite.poses else suite
        self.label, self.name, self.task_key = suite.label, suite.name, suite.task_key
        self.episodes, self.control_rate = suite.episodes, suite.control_rate
        given = suite.actions
        self.maps_actions = bool(given.columns or given.scale or given.offset)

    @cached_property
    def _probe(self) -> Probe:
        return probe(self._shown)

    def findings(self, policy: Policy) -> Sequence[Finding]:
        """What the check of the suite says, and what a trained policy misses."""
        unfit = list(_unfit(policy, self._shown, self._probe)) if isinstance(policy, fit.Trained) else []
        if isinstance(policy, fit.Reads):
            unfit += fit.unshown(policy, self.label, _shown_by(self._probe))
        return [*(finding for finding in self._probe.findings if finding.severity != "note"), *unfit]

    def check(self) -> None:
        """Raise MorphVlaError where the environment cannot be made."""
        making.facts(self.suite)

    def engine(self) -> EngineFacts | None:
        """What simulates, as the environment says it; None where it does not."""
        return engine_from_json(making.facts(self.suite))

    def states(self, count: int) -> tuple[InitialState, ...]:
        """Rows; the environment makes the state of each."""
        return tuple(InitialState(row, {}, ()) for row in range(count))

    def facts(self, states: Sequence[InitialState] = ()) -> SuiteFacts:
        """What a record says of it; the digest of its table is that of the rows' seeds."""
        suite, whole = self.suite, resolved(self.suite)
        table = [suite.kind, suite.id, suite.kwargs, suite.row_attribute]
        seeds = [suite.seed + state.episode for state in states]
        task = TaskFacts(
            task=suite.task or None,
            episode_seconds=suite.episode_seconds,
            initial_states_sha256=identity.digest([*table, seeds]),
            resolved=whole,
            resolved_sha256=identity.digest(whole),
        )
        return SuiteFacts(
            name=suite.name,
            version=suite.version,
            seed=suite.seed,
            robot=suite.robot or None,
            control_rate=suite.control_rate,
            tasks={suite.task_key: task},
        )

    def pool(self, slots: int, workers: int) -> Pool:
        """Environments in worker processes; a vectorized one's in this process."""
        if self.suite.vectorized:
            return LocalPool(Environments(self._shown, slots))
        return WorkerPool(partial(Environments, self._shown), slots, workers)

    def actions(self, answer: object) -> Float[np.ndarray, "h a"]:
        """A policy's answer as what the environment takes, within its bounds."""
        return reading.actions(answer, self.suite.actions, self._probe.low, self._probe.high)

    def arm(self, targets: Float[np.ndarray, "n a"]) -> None:
        """Nothing: which of its actions are joints' targets is not known, so that jumps are not counted."""
        return

    def trial(self, state: InitialState, verdict: Verdict | None, error: str | None) -> Trial:
        """What became of an episode, in seconds of the environment's control rate."""
        standing = verdict if isinstance(verdict, Standing) else Standing()
        success, rate = error is None and standing.ended == "success", self.control_rate
        return Trial(
            task=self.task_key,
            episode=state.episode,
            success=success,
            time_s=standing.steps / rate if success else None,
            ended="error" if error else standing.ended or "time",
            error=error,
            steps=standing.steps,
            failed_clause=None if success or error else _clause(standing),
            clauses={"success_s": standing.longest / rate}
            | {f"{key}_s": steps / rate for key, steps in standing.noted.items()},
            touched=_ever(standing, "touched"),
            lifted=_ever(standing, "lifted"),
            least=standing.least,
            reward=standing.reward,
            initial={},
            first_seen=standing.first_seen,
        )


def _clause(standing: Standing) -> str:
    """Why an episode that ended without an error is no success."""
    if standing.longest:
        return "not_held"
    return "ended_without_success" if standing.ended == "terminated" else "never_successful"


def _ever(standing: Standing, name: str) -> bool | None:
    """Whether a signal that decides nothing ever held; None where the suite names none of that name."""
    return standing.noted[name] > 0 if name in standing.noted else None


def _shown_by(probe: Probe) -> dict[str, int]:
    """The keys of an observation, with how many numbers each has; 0 of an image."""
    numbers = {"state": probe.states, ENVIRONMENT: probe.environment}
    return {f"images/{name}": 0 for name in probe.cameras} | {k: n for k, n in numbers.items() if n}


def _unfit(policy: fit.Trained, suite: EnvironmentSuite, seen: Probe) -> Iterator[Finding]:
    """What of the suite a policy was not trained with: all that an environment says of itself."""

    def finding(code: str, found: str, expected: str) -> Finding:
        """An error on the suite as a whole."""
        return Finding(code, "error", Source(suite.label), (), found, expected, "")

    if suite.robot and suite.robot != policy.robot_name:
        yield finding(
            "robot", f"robot: the suite has '{suite.robot}'", f"the policy drives '{policy.robot_name}'"
        )
    rate, joints = policy.trained["control_rate"], len(policy.trained["joints"])
    if rate != suite.control_rate:
        has = f"control rate: the suite runs at {suite.control_rate:g} Hz"
        yield finding("control-rate", has, f"the policy was trained at {rate:g} Hz")
    if seen.low.size and joints != seen.states:
        has = f"state: the suite shows {seen.states} values"
        yield finding("joints", has, f"the policy was trained with {joints}")
    known, shown = policy.trained.get("environment") or [], suite.pose_names
    if known and list(known) != list(shown):
        has = f"environment state: the suite shows {', '.join(shown) or 'none (`poses`)'}"
        yield finding("environment", has, f"the policy was trained with {', '.join(map(str, known))}")
    for name in policy.cameras.values():
        if name not in seen.cameras:
            has = f"camera: the suite shows {', '.join(seen.cameras) or 'none'}"
            yield finding("camera", has, f"the policy needs '{name}'{nearest(name, seen.cameras)}")
        elif name in seen.sizes:
            height, width = seen.sizes[name]
            for code, subject, *words in fit.frames(policy, name, width, height):
                yield Finding(code, fit.severity(code), Source(suite.label), (subject,), *words)
