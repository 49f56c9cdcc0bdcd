"""`Benchmark`: a task that a policy can be evaluated on, ours or another simulator's."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import Policy
from morph_vla.engines.pool import Pool, Verdict
from morph_vla.evaluation.environment import Environment
from morph_vla.evaluation.simulated import Simulated
from morph_vla.findings import Finding
from morph_vla.results.record import EngineFacts, SuiteFacts
from morph_vla.results.trial import Trial
from morph_vla.suites.environment import EnvironmentSuite
from morph_vla.suites.suite import InitialState, Suite


@runtime_checkable
class Benchmark(Protocol):
    """A task: which states its rows are, a pool to play them in, the verdict, and what a record says of it.

    It stands one level above `engines.engine.Worlds`. In worlds *we* place the objects, measure them and
    judge; another simulator does all three itself and says only how it went. What both have is a table of
    rows, slots that are reset to a row, observed and stepped (`engines.pool`), and a verdict in the end.
    Everything after that (journal, intervals, pairing, page) knows records alone.
    """

    label: str
    """What the command line calls it: `droid_panda:can_in_mug`."""
    name: str
    """Of its suite."""
    task_key: str
    """What a record calls it."""
    episodes: int
    """Rows that are evaluated unless others are asked for."""
    control_rate: float
    """[Hz]"""
    maps_actions: bool
    """Whether what its slots take is something else than what policies answer: `actions` of its suite."""

    def findings(self, policy: Policy) -> Sequence[Finding]:
        """What keeps this policy from being evaluated (errors), and what is worth knowing before."""
        ...

    def check(self) -> None:
        """Raise MorphVlaError where it cannot run here."""

    def engine(self) -> EngineFacts | None:
        """The simulator with its versions; raises as `check` does."""
        ...

    def states(self, count: int) -> tuple[InitialState, ...]:
        """The first `count` rows of its table; each is a pure function of the task and its number."""
        ...

    def facts(self, states: Sequence[InitialState] = ()) -> SuiteFacts:
        """What a record says of it: everything that an episode can depend on, and the digest of its table."""
        ...

    def pool(self, slots: int, workers: int) -> Pool:
        """Slots to play its rows in."""
        ...

    def actions(self, answer: object) -> Float[np.ndarray, "h a"]:
        """The actions in a policy's answer, as its slots take them; raises MorphVlaError for any other."""
        ...

    def arm(self, targets: Float[np.ndarray, "n a"]) -> Float[np.ndarray, "n j"] | None:
        """Targets of the joints that carry the hand [rad | m]; None for actions that may be anything else."""
        ...

    def trial(self, state: InitialState, verdict: Verdict | None, error: str | None) -> Trial:
        """What a record says of an episode that has ended; no verdict: it never began."""
        ...


Task = Suite | EnvironmentSuite | Benchmark


@runtime_checkable
class Looking(Protocol):
    """A policy that says through which cameras it looks; through none: it is shown poses."""

    cameras: dict[str, str]


@runtime_checkable
class Sized(Looking, Protocol):
    """A policy that says how large the frames of its cameras are to be, whatever the suite says."""

    frames: dict[str, tuple[int, int]]
    """Camera -> height, width; no other camera is rendered"""


def of(task: Task, engine: str = engines.DEFAULT, policy: Policy | None = None) -> Benchmark:
    """A task as a benchmark: one of our suites in the engine of that name, or another simulator's.

    For a `policy` that looks through no camera nothing is rendered and it is shown the poses of objects; of
    another simulator's suite where it names any. One that is `Sized` is shown its own cameras alone.
    """
    if isinstance(task, Suite):
        return Simulated(task, engine, _frames(policy))
    if isinstance(task, EnvironmentSuite):
        return Environment(task, engine, _is_blind(policy))
    return task


def shown_to(policy: Policy, suite: Suite) -> Suite:
    """One of our suites as `of` has a policy shown it."""
    return Simulated(suite, frames=_frames(policy)).shown


def _frames(policy: Policy | None) -> Mapping[str, tuple[int, int]] | None:
    """What a policy is shown of our suites' cameras, as `Simulated` takes it: {} for one that sees none."""
    if _is_blind(policy):
        return {}
    return policy.frames if isinstance(policy, Sized) else None


def _is_blind(policy: Policy | None) -> bool:
    return isinstance(policy, Looking) and not policy.cameras
