"""A suite of another kind: an environment of another simulator, and how its parts are named.

A YAML file in `eval/` with `kind: gymnasium`, `lerobot` or `robosuite`. The environment brings its own robot,
scene, initial states and verdict; the file says which it is, where a policy's observation comes from, what
its actions mean and which of the environment's signals counts as success. Nothing in it is code.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from morph_vla import robots
from morph_vla.errors import ConfigError
from morph_vla.files import typed_yaml
from morph_vla.files.plain import infinite, to_plain
from morph_vla.robots.geometry import POSE
from morph_vla.suites import on_robot, suite, tasks
from morph_vla.suites.suite import Suite
from morph_vla.suites.tasks import KIND, Named

LEFT_OUT = ("path", "episodes", "noted", "measured")  # of a file: what no episode depends on
RENDER = "render"  # as a camera's key: what the environment's `render` shows
ROBOSUITE_RATE = 20.0  # [Hz] of each of its worlds
ROBOSUITE_ARMS = {"Panda": 7, "Sawyer": 7, "IIWA": 7, "Kinova3": 7, "UR5e": 6, "XArm7": 7, "Jaco": 7}
"""robosuite's arms -> their joints"""


@dataclasses.dataclass(frozen=True)
class Signal:
    """What counts as success: exactly one of an info's key, a reward, and the episode's own end."""

    info: str = ""
    """A key of the environment's `info` whose value is 1 or true, such as `is_success`."""
    reward: float | None = None
    """A reward of at least this much in one control step."""
    terminated: bool = False
    """That the environment ends the episode (`terminated`; its time limit is `truncated`)."""
    hold_seconds: float = 0.0
    """For how long it must hold without a break; 0: one control step is enough."""


@dataclasses.dataclass(frozen=True)
class ActionMap:
    """From a row of the policy's answer to the environment's action: column * scale + offset, clipped."""

    columns: tuple[int, ...] = ()
    """Of the answer, in the environment's order; none: all of them, as many as the environment takes."""
    scale: tuple[float, ...] = ()
    """One factor for each of the environment's values; none: 1."""
    offset: tuple[float, ...] = ()
    clip: bool = True
    """Whether actions are clipped to the bounds that the environment states."""


@dataclasses.dataclass(frozen=True)
class EnvironmentFile:
    """Every key of such a file. Those that a `Suite` has too mean the same."""

    kind: Literal["gymnasium", "lerobot", "robosuite"]
    version: int
    id: str
    """A registered id, `module:ID` where a module registers it; of LeRobot a type such as `pusht`; of
    robosuite a task such as `Lift`."""
    control_rate: float
    episode_seconds: float
    episodes: int
    seed: int
    """Row r of the table is the state that the environment draws from seed + r."""
    success: Signal
    task: str = ""
    """The prompt; none: the environment's `task_description`, if it has one."""
    kwargs: dict[str, object] = dataclasses.field(default_factory=dict)
    """What the environment is made with, such as `render_mode: rgb_array`; of robosuite, `arm` and `size`."""
    state: tuple[str, ...] = ()
    """Dotted keys of its observation that are put together to the policy's `state`."""
    images: dict[str, str] = dataclasses.field(default_factory=dict)
    """The policy's camera -> dotted key of an image; `render`: what `render()` shows."""
    poses: dict[str, str] = dataclasses.field(default_factory=dict)
    """Object -> dotted key of its pose, seven values: position [m], quaternion (w, x, y, z), in the frame of
    the robot's base. A policy without cameras is shown them, as `environment_state`, and no images."""
    noted: tuple[str, ...] = ()
    """Keys of `info`, 1 or true, that decide nothing: a trial says for how long each held."""
    measured: tuple[str, ...] = ()
    """Keys of numbers in `info`: a trial has the least of each, such as the nearest approach."""
    actions: ActionMap = ActionMap()
    robot: str = ""
    """The robot that the policy is told about, where it asks."""
    row_attribute: str = ""
    """An attribute that is set to the row before a reset, where initial states are numbered, not drawn."""
    vectorized: bool = False
    """Whether one vector environment holds all episodes (on a GPU), instead of one each, in processes."""


@dataclasses.dataclass(frozen=True)
class EnvironmentSuite(Named, EnvironmentFile):
    """One task, with its file's name and path, and its own name among several."""

    @property
    def max_steps(self) -> int:
        """Control steps of an episode, unless the environment ends it sooner."""
        return round(self.episode_seconds * self.control_rate)

    @property
    def pose_names(self) -> tuple[str, ...]:
        """What the values of `environment_state` are called, `cube x` .. `cube qz` for each of `poses`."""
        return tuple(f"{name} {value}" for name in self.poses for value in POSE)


def load_tasks(
    name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()
) -> tuple[Suite, ...] | tuple[EnvironmentSuite, ...]:
    """Every task of a suite of any kind, in the file's order; of `name:task` that one alone.

    Raises as `suite.load_tasks` does.
    """
    path, names = tasks.named(name, folders)
    if typed_yaml.top(path, KIND) is None:
        return suite.load_tasks(name, overrides, folders)
    return tuple(_read(path, task, overrides) for task in names)


def load_recordable(
    name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()
) -> tuple[Suite, ...] | tuple[EnvironmentSuite, ...]:
    """As `load_tasks`, of suites that have a scripted expert: ours, and robosuite's."""
    path, _ = tasks.named(name, folders)
    robosuite = typed_yaml.top(path, KIND) == "robosuite"
    return (load_tasks if robosuite else suite.load_tasks)(name, overrides, folders)


def load_file(name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()) -> object:
    """What a file of any kind holds: its one task, or each of several by name.

    Raises as `load_tasks`, as `robots.load`, and ConfigError for links and joints that a robot does not have.
    """
    loaded = load_tasks(name, overrides, folders)
    ours = [task for task in loaded if isinstance(task, Suite)]
    lines = [
        f"{task.path}: {problem}"
        for task in ours
        for problem in on_robot.problems(task, robots.load(task.robot, folders))
    ]
    if lines:
        raise ConfigError("\n".join(dict.fromkeys(lines)))
    return {task.task_name: task for task in loaded} if loaded[0].task_name else loaded[0]


def resolved(environment: EnvironmentSuite) -> dict[str, object]:
    """Everything of a task that an episode can depend on, as plain values."""
    plain = to_plain(environment)
    left_out = LEFT_OUT if environment.poses else (*LEFT_OUT, "poses")  # as before there were any
    return {key: value for key, value in plain.items() if key not in left_out}


def _read(path: Path, task: str, overrides: Sequence[str]) -> EnvironmentSuite:
    read = tasks.read(path, task, overrides, EnvironmentFile, _problems)
    return EnvironmentSuite(**vars(read), name=path.stem, path=path, task_name=task)


def _problems(read: EnvironmentFile) -> Iterator[str]:
    """What is wrong with a file's values, one sentence each."""
    yield from (f"{key}: must be a finite number, not {value}" for key, value in infinite(to_plain(read)))
    for key in ("episodes", "episode_seconds", "control_rate"):
        if not 0 < getattr(read, key) < float("inf"):
            yield f"{key}: must be above 0, not {getattr(read, key):g}"
    yield from tasks.too_short(read.episode_seconds, read.control_rate)
    signal = read.success
    given = [signal.info != "", signal.reward is not None, signal.terminated]
    if sum(given) != 1:
        yield f"success: expected exactly one of info, reward and terminated, got {sum(given)}"
    if not 0 <= signal.hold_seconds < read.episode_seconds:
        limits = "at least 0 and below episode_seconds"
        yield f"success.hold_seconds: must be {limits}, not {signal.hold_seconds:g}"
    if read.kind == "lerobot" and read.poses:
        yield "poses: LeRobot's environments are seen through cameras; gymnasium's and robosuite's have poses"
    if read.kind != "lerobot" and not (read.state or read.images):
        yield "state, images: a policy would see nothing; name keys of the environment's observation"
    if any(column < 0 for column in read.actions.columns):
        yield f"actions.columns: counted from 0, not {min(read.actions.columns)}"
    lengths = {len(row) for row in vars(read.actions).values() if isinstance(row, tuple) and row}
    if len(lengths) > 1:
        yield f"actions: columns, scale and offset have {sorted(lengths)} values, expected as many in each"
    if read.kind == "robosuite":
        yield from _of_robosuite(read)
    if read.vectorized and read.row_attribute:
        yield "row_attribute: a vector environment (vectorized) sets no attribute in each of its episodes"


def _of_robosuite(read: EnvironmentFile) -> Iterator[str]:
    """What a file of robosuite's cannot have: its rate is fixed, its arms have bodies of their own."""
    for key in ("vectorized", "row_attribute"):
        if getattr(read, key):
            yield f"{key}: each of robosuite's worlds has one episode, begun from its seed; leave it out"
    if read.control_rate != ROBOSUITE_RATE:
        yield f"control_rate: robosuite's worlds run at {ROBOSUITE_RATE:g} Hz, not {read.control_rate:g}"
    arm = str(read.kwargs.get("arm", "Panda"))
    bodies = [f"robosuite_{arm.lower()}", *(["panda"] if arm == "Panda" else [])]
    is_known = read.robot == "panda" or read.robot.startswith("robosuite_")
    if is_known and arm in ROBOSUITE_ARMS and read.robot not in bodies:
        yield f"robot: '{read.robot}' is not the arm of kwargs.arm ({arm}); expected {' or '.join(bodies)}"
