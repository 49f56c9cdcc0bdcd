"""The doors to others' environments: a vector environment, and what a record says of it.

All give a `VectorEnv`, also for a single episode, so that one stage plays them all.
"""

import contextlib
import copy
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from morph_vla.engines.engine import Frame
from morph_vla.engines.gymnasium.reading import IMAGES, Leaves, array, leaves, pixels
from morph_vla.engines.robosuite import theirs
from morph_vla.engines.robosuite.vector import VIEWS, ArmAtTable, Scene
from morph_vla.errors import MorphVlaError, nearest, reason, require
from morph_vla.suites.environment import EnvironmentSuite

# Whose release may change what an environment does, beside the package that the environment is from.
SIMULATORS = ("mujoco", "pymunk", "pybullet", "robosuite", "sapien", "mani-skill", "dm-control")


@runtime_checkable
class VectorEnv(Protocol):
    """What we use of `gymnasium.vector.VectorEnv`; observations, rewards and infos are batched."""

    num_envs: int
    render_mode: str | None
    metadata: Mapping[str, object]
    single_action_space: object

    def reset(self, *, seed: list[int]) -> tuple[object, Mapping[str, object]]:
        """Begin all of them, a seed each: observation and info."""
        ...

    def step(self, actions: np.ndarray) -> tuple[object, object, object, object, Mapping[str, object]]:
        """One step of all of them: observation, reward, terminated, truncated, info."""
        ...

    def render(self) -> Sequence[object]:
        """A picture of each."""
        ...

    def get_attr(self, name: str) -> object:
        """The attribute's value in each environment."""
        ...

    def set_attr(self, name: str, values: list[int]) -> None:
        """Set the attribute, a value for each environment."""

    def close(self) -> None:
        """Give all of them back."""


@dataclass(frozen=True)
class Made:
    """A vector environment, and how its observation is read as arrays by dotted keys."""

    vector: VectorEnv
    read: Callable[[object], Leaves]
    views: Mapping[str, Callable[[], Frame]] = field(default_factory=dict)
    """Images by key that are rendered when they are looked at, of an environment of a single episode."""
    processed: Callable[[np.ndarray], np.ndarray] | None = None
    """What it takes of a batch of actions, of LeRobot's environments that have a processor of their own"""


def make(suite: EnvironmentSuite, count: int) -> Made:
    """`count` episodes' environment. Raises MorphVlaError, one sentence, where it cannot be made."""
    with _told_as(suite, "cannot be made"):
        match suite.kind:
            case "lerobot":
                return _of_lerobot(suite, count)
            case "robosuite":
                return _of_robosuite(suite)
            case "gymnasium":
                return _of_gymnasium(suite, count)


def facts(suite: EnvironmentSuite) -> dict[str, str]:
    """What a record says of the simulator: versions of all that its numbers may depend on.

    Raises MorphVlaError, one sentence, for an unknown environment and where its package is not installed.
    """
    with _told_as(suite, "is unknown"):
        module = _module(suite)
    packages = _distributions(module)
    simulators = {name: version for name in SIMULATORS if (version := _version(name))}
    repairs = {"repairs": theirs.REPAIRS} if suite.kind == "robosuite" else {}
    version = _version(suite.kind) or ""
    known = {"name": suite.kind, "version": version, "environment": suite.id}
    return {**known, **packages, **simulators, **repairs}


def _module(suite: EnvironmentSuite) -> str:
    """The module that the environment is from."""
    match suite.kind:
        case "lerobot":
            return _config(suite).package_name
        case "robosuite":
            return theirs.robosuite().__name__
        case "gymnasium":
            return _registered(suite.id)


@contextlib.contextmanager
def _told_as(suite: EnvironmentSuite, what: str) -> Iterator[None]:
    """Errors of other libraries in a sentence that names the suite; what they print goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except MorphVlaError:
        raise
    except Exception as error:  # whatever an environment raises
        raise MorphVlaError(
            f"{suite.label}: the {suite.kind} environment '{suite.id}' {what}: {reason(error)}"
        ) from error


def _registered(name: str) -> str:
    """The module of a registered environment. `module:ID` imports the module first, which registers it."""
    gym = require("gymnasium", "gymnasium")
    module, colon, bare = name.rpartition(":")
    if colon:
        importlib.import_module(module)
    if bare not in gym.registry:
        with contextlib.suppress(gym.error.Error):  # a version may be left out
            bare = gym.spec(bare).id
    if bare not in gym.registry:
        hint = "" if colon else "; where a module registers it, write MODULE:ID"
        raise MorphVlaError(f"no environment is registered as '{bare}'{nearest(bare, gym.registry)}{hint}")
    entry = gym.registry[bare].entry_point or gym.registry[bare].vector_entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


def _of_gymnasium(suite: EnvironmentSuite, count: int) -> Made:
    _registered(suite.id)
    make_vec = require("gymnasium", "gymnasium").make_vec
    if suite.vectorized:
        return _read(make_vec(suite.id, num_envs=count, **_own(suite)))
    # The passive checker warns at every start of what the check of a suite says in a sentence.
    kwargs = {"disable_env_checker": True, **_own(suite)}
    return _read(make_vec(suite.id, num_envs=count, vectorization_mode="sync", **kwargs))


def _read(vector: VectorEnv) -> Made:
    """With what it shows as its space says."""
    return Made(vector, partial(leaves, space=getattr(vector, "single_observation_space", None)))


def _config(suite: EnvironmentSuite) -> Any:
    """LeRobot's configuration of a type; `module:TYPE` imports the module first, which registers it."""
    module, _, kind = suite.id.rpartition(":")
    if module:
        importlib.import_module(module)
    return require("lerobot.envs", "lerobot").make_env_config(kind, **_own(suite))


def _own(suite: EnvironmentSuite) -> dict[str, Any]:
    """What an environment is made with: a copy, for some take out of it what they have read."""
    return copy.deepcopy(suite.kwargs)


def _of_lerobot(suite: EnvironmentSuite, count: int) -> Made:
    """The environment as `lerobot-eval` makes it, its observations after LeRobot's own processors."""
    envs, config = require("lerobot.envs", "lerobot"), _config(suite)
    made = {
        f"{group}/{number}": vector
        for group, vectors in envs.make_env(config, n_envs=count).items()
        for number, vector in vectors.items()
    }
    if len(made) != 1:
        for vector in made.values():
            vector.close()
        raise MorphVlaError(
            f"{suite.label}: LeRobot makes {len(made)} tasks of '{suite.id}' ({', '.join(made)}); give each "
            "a name under `tasks:`, with the `kwargs` that choose it, such as task_ids: [0]"
        )
    before, after = config.get_env_processors()
    (vector,) = made.values()
    read = partial(_as_lerobot, envs.preprocess_observation, before)
    has_steps = bool(getattr(after, "steps", True))
    return Made(vector, read, processed=partial(_to_lerobot, after, suite, vector) if has_steps else None)


def _as_lerobot(
    convert: Callable[[Any], dict[str, Any]], processor: Callable[[Any], Any], observation: object
) -> Leaves:
    """LeRobot's names and values (`observation.state`, `observation.images.top`), images uint8 [n h w 3]."""
    batch = processor(convert(observation))  # a whole transition, of which only this was seen
    arrays = leaves({key: value for key, value in batch.items() if key.startswith("observation")})
    images = {key: pixels(value, key) for key, value in arrays.items() if key.startswith(IMAGES)}
    return {**arrays, **images}


def _to_lerobot(
    processor: Callable[[dict[str, object]], Mapping[str, object]],
    suite: EnvironmentSuite,
    vector: VectorEnv,
    actions: np.ndarray,
) -> np.ndarray:
    """What LeRobot's rollout hands its environment: actions [n, values] after the environment's processor.

    Clipped to the environment's bounds, where the suite clips: before the processor these mean nothing.
    """
    tensor = require("lerobot.processor.converters", "lerobot").to_tensor(actions.copy(), dtype=None)
    taken, space = array(processor({"action": tensor})["action"]), cast("Any", vector.single_action_space)
    return np.clip(taken, space.low, space.high) if suite.actions.clip else taken


def _of_robosuite(suite: EnvironmentSuite) -> Made:
    table = ArmAtTable(suite.id, Scene.of(suite.kwargs))
    return Made(table, leaves, {name: partial(table.view, name) for name in VIEWS})


def _distributions(module: str) -> dict[str, str]:
    """The installed packages that a module is from, with their versions."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    return {name: importlib.metadata.version(name) for name in sorted(set(names))}


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None
