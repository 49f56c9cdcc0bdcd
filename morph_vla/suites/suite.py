"""A suite: what is simulated, how often, and what counts as success.

A suite is a YAML file in `eval/`. It is read into the frozen records below; nothing in it is code. A file
with `tasks:` holds several: what a task says is laid over the rest of the file, and `droid_panda:can_in_mug`
names one.
The table episode -> initial state is a pure function of the task's name, the version and the seed, so that
every engine, every order and every number of parallel environments meets the same states.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from morph_vla.errors import ConfigError, nearest
from morph_vla.files.plain import infinite, numbers, to_plain
from morph_vla.suites import objects, tasks
from morph_vla.suites.begin import BeginShares
from morph_vla.suites.criterion import Success, Vector3
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.tasks import Named
from morph_vla.suites.variation import (
    CameraShift,
    Light,
    Mark,
    Paint,
    Variation,
    draw_cameras,
    draw_light,
    draw_marks,
    draw_paint,
)

FARTHEST = 1000.0  # [m | rad] of a placement
LARGEST = 1e6  # of any number in these sections, whatever its unit: beyond it nothing can be reckoned
OF_THE_SCENE = ("table", "objects", "distractors", "expert", "cameras")
LARGEST_SIDE = 4096  # pixels of a camera
Range = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Table:
    """The table in the robot's base frame [m]: the height of its top, its middle, its full size."""

    height: float = 0.0
    center: Range = (0.4, 0.0)
    size: Vector3 = (1.8, 2.4, 0.1)
    color: Vector3 = (0.62, 0.55, 0.46)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Uniform ranges of an object's pose on the table: x, y [m], yaw [rad]."""

    x: Range
    y: Range
    yaw: Range = (0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Camera:
    """A camera that looks from `position` at `look_at` [m], in the base frame or in that of `link`."""

    position: Vector3
    look_at: Vector3
    fovy: float  # [deg] vertical field of view
    width: int
    height: int
    link: str | None = None


@dataclasses.dataclass(frozen=True)
class Actuator:
    """A joint-position servo: torque = stiffness * (target - q) - damping * qdot."""

    stiffness: float  # [N m/rad | N/m]
    damping: float
    armature: float = 0.1


@dataclasses.dataclass(frozen=True)
class Actuators:
    """The servos of the arm's joints and of the gripper's, and of single joints by name."""

    arm: Actuator
    gripper: Actuator
    joints: dict[str, Actuator] = dataclasses.field(default_factory=dict)

    def of(self, joint: str, is_gripper: bool) -> Actuator:
        """The servo of an action joint."""
        return self.joints.get(joint, self.gripper if is_gripper else self.arm)


@dataclasses.dataclass(frozen=True)
class ExpertSpec:
    """Settings of the scripted expert; see `demonstrations.experts` and `demonstrations.push`.

    The tool is a frame in link `tool`: at `offset`, pointing along `approach`, with fingers that close along
    `grip`. It points straight down, or leans by `tilt` towards `heading`, +x of the base frame by default.
    `free_spin` leaves the turn about its approach to the arm: for round objects and for arms of five joints.
    """

    kind: Literal["pick_and_place", "push"]
    tool: str
    hover: float  # [m]
    release_height: float  # [m]
    speed: float  # [m/s]
    noise: float = 0.0  # [rad]
    offset: Vector3 = (0.0, 0.0, 0.0)  # [m]
    approach: Vector3 = (0.0, 0.0, 1.0)
    grip: Vector3 = (0.0, 1.0, 0.0)
    tilt: float = 0.0  # [rad]
    heading: float = 0.0  # [rad] about z, from the base to the table: the tool's turns are counted from it
    free_spin: bool = False
    orientation_cost: float = 0.3  # of a radian, where a metre of position costs 1
    turn_seconds: float = 0.0  # over which the tool turns from its first orientation to the working one
    opened: float = 0.0  # the gripper's command to let go, as a share of its range: 0 open, 1 closed
    closed: float = 1.0  # and to hold
    clearance: float = 0.006  # [m] the tool grasps above the object's centre
    carry: float = 0.04  # [m] above the height of release, on the way there
    retreat: float = 0.08  # [m] above it afterwards
    behind: float = 0.0  # [m] from the object's centre, where the tool comes down to push it
    grasp_seconds: float = 0.4  # for the fingers to close on the object, and to let go of it
    grip_seconds: float = 0.0  # of these, over which the command goes from one end to the other; 0: at once
    begin: BeginShares = dataclasses.field(default_factory=BeginShares)
    share: float = 1.0  # of a recording's attempts, relative to the suite's other tasks

    @property
    def drives_the_link(self) -> bool:
        """Whether the driven frame is that of the link itself."""
        frame = (self.offset, self.approach, self.grip)
        return frame == ((0.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0))

    def problems(self) -> Iterator[str]:
        """What is wrong with the settings, one sentence each."""
        if not 0 <= self.opened < self.closed <= 1:
            shares = "shares of the gripper's range, 0 <= opened < closed <= 1"
            yield f"expert: opened and closed: {shares}, not {self.opened} and {self.closed}"
        for key in ("orientation_cost", "turn_seconds", "grasp_seconds", "grip_seconds", "hover", "noise"):
            if not getattr(self, key) >= 0:
                yield f"expert.{key}: must be at least 0, not {getattr(self, key):g}"
        if not self.share > 0:
            yield f"expert.share: must be above 0, not {self.share:g}"
        if self.kind == "push":
            if not self.behind > 0:
                yield f"expert.behind: must be above 0 for a push, not {self.behind:g}"
            for grasped in ("miss", "slip", "carry"):
                if share := getattr(self.begin, grasped):
                    yield f"expert.begin.{grasped}: must be 0 for a push, which grasps nothing, not {share:g}"
        yield from self.begin.problems()


@dataclasses.dataclass(frozen=True)
class SuiteFile:
    """Every key of a suite's YAML file."""

    version: int
    robot: str
    task: str
    control_rate: float
    physics_rate: float
    episode_seconds: float
    episodes: int
    seed: int
    objects: dict[str, ObjectSpec]
    placement: dict[str, Placement]
    success: Success
    cameras: dict[str, Camera]
    actuators: Actuators
    expert: ExpertSpec
    min_distance: float = 0.0
    start: dict[str, float] = dataclasses.field(default_factory=dict)
    start_noise: float = 0.0
    settle_seconds: float = 0.3
    table: Table = Table()
    distractors: dict[str, ObjectSpec] = dataclasses.field(default_factory=dict)
    variation: Variation = dataclasses.field(default_factory=Variation)


@dataclasses.dataclass(frozen=True)
class Suite(Named, SuiteFile):
    """One task, ready to be simulated, with its file's name and path, and its own name among several.

    `objects` are all that lie on the table: the file's, and those of its `distractors` that `variation` asks
    for; `placement` speaks of the other distractors as well.
    """

    @property
    def contact_seconds(self) -> float:
        """Time constant of a contact [s] (MuJoCo's `solref`): as stiff as the physics rate can follow.

        A held object creeps: MuJoCo's friction is a damper of 2.1 / `contact_seconds` [1/s] that leaves out
        how the contact's direction turns, so an object carried round the base at v [m/s], r [m] away from it,
        slides outwards through the fingers at v^2 / r * `contact_seconds` / 2.1.
        """
        return min(0.02, 2.5 / self.physics_rate)

    @property
    def physics_steps(self) -> int:
        """Physics steps per control step."""
        return round(self.physics_rate / self.control_rate)

    @property
    def max_steps(self) -> int:
        """Control steps of an episode."""
        return round(self.episode_seconds * self.control_rate)


@dataclasses.dataclass(frozen=True)
class InitialState:
    """Where an episode begins: object name -> (x, y, yaw) [m, m, rad]; arm offset [rad] per action joint.

    An engine places every object of `poses` (distractors are objects like the others) and starts the arm
    where `hands.first_posture` says: at the suite's `start`, plus `arm`. Before it renders this world it
    multiplies the scene's lights by `light.color` and turns their direction by `light.turn`
    (`variation.turned`), and moves and turns each camera of `cameras` in the frame it stands in:
    position + move, `variation.product(quaternion, rotation(turn))`; it paints everything as `paint` says,
    and lays `marks` flat on the table, which nothing touches. With None and empty ones it leaves all of it
    exactly as it is.
    """

    episode: int
    poses: dict[str, tuple[float, float, float]]
    arm: tuple[float, ...]
    light: Light | None = None
    cameras: dict[str, CameraShift] = dataclasses.field(default_factory=dict)
    paint: Paint | None = None
    marks: tuple[Mark, ...] = ()


def load(name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()) -> Suite:
    """Read and check one task: the suite called `name`, `name:task` where a file holds several, or a path.

    Raises ConfigError with every problem found, one line each, and where `name` holds several tasks.
    """
    first, *others = load_tasks(name, overrides, folders)
    if others:
        names = ", ".join(task.label for task in (first, *others))
        raise ConfigError(f"suite '{name}' has {1 + len(others)} tasks; say which: {names}")
    return first


def load_tasks(
    name: str | Path, overrides: Sequence[str] = (), folders: Sequence[Path | str] = ()
) -> tuple[Suite, ...]:
    """Every task of a suite, in the file's order; of `name:task` that one alone.

    `overrides` change every task. Raises ConfigError with every problem found, one line each.
    """
    path, names = tasks.named(name, folders)
    tasks.refuse_other_kinds(path)
    return tuple(_read(path, task, overrides) for task in names)


def _read(path: Path, task: str, overrides: Sequence[str]) -> Suite:
    read = tasks.read(path, task, overrides, SuiteFile, _problems)
    fields = {**vars(read), "objects": {**read.objects, **_on_the_table(read)}}
    return Suite(**fields, name=path.stem, path=path, task_name=task)


def _problems(suite: SuiteFile) -> Iterator[str]:
    """What is wrong with a suite's values, one sentence each."""
    no_numbers = [*infinite(to_plain(suite))]
    yield from (f"{key}: must be a finite number, not {value}" for key, value in no_numbers)
    if no_numbers:  # no rate or table can be reckoned from it
        return
    for key, value in numbers(to_plain(suite)):
        if key.partition(".")[0] in OF_THE_SCENE and abs(value) > LARGEST:
            yield f"{key}: must lie within {LARGEST:g}, not {value:g}"
    ratio = suite.physics_rate / suite.control_rate if suite.control_rate > 0 else 0
    if ratio < 1 or abs(ratio - round(ratio)) > 1e-9:
        yield f"physics_rate: {suite.physics_rate} is not a multiple of control_rate {suite.control_rate}"
    yield from suite.success.unknown(suite.objects)
    known = {**suite.objects, **suite.distractors}
    for name in suite.placement:
        if name not in known:
            yield f"placement.{name}: no object is called '{name}'{nearest(name, known)}"
    for name in (*suite.objects, *_on_the_table(suite)):
        if name not in suite.placement:
            yield f"placement: object '{name}' has no placement"
    yield from suite.variation.problems(tuple(suite.distractors))
    for name in suite.distractors:
        if name in suite.objects:
            yield f"distractors.{name}: an object has that name"
    for name, place in suite.placement.items():
        for axis in ("x", "y", "yaw"):
            low, high = getattr(place, axis)
            if not max(abs(low), abs(high)) <= FARTHEST:
                yield f"placement.{name}.{axis}: must lie within {FARTHEST:g}, not {low:g} to {high:g}"
            if low > high:
                yield f"placement.{name}.{axis}: lower end {low} is above upper end {high}"
    yield from suite.success.problems()
    for key in ("episodes", "episode_seconds", "control_rate"):
        if getattr(suite, key) <= 0:
            yield f"{key}: must be above 0, not {getattr(suite, key)}"
    yield from tasks.too_short(suite.episode_seconds, suite.control_rate)
    if suite.success.dwell_seconds >= suite.episode_seconds:
        yield "success.dwell_seconds: must be shorter than episode_seconds"
    yield from suite.expert.problems()
    yield from _of_the_model(suite)
    if suite.success.also and (kind := suite.expert.kind) != "push":
        yield f"expert.kind: '{kind}' moves one object alone; with success.also it must be 'push'"
    for key, things in (("objects", suite.objects), ("distractors", suite.distractors)):
        for name, thing in things.items():
            yield from objects.problems(f"{key}.{name}", name, thing)


def _of_the_model(suite: SuiteFile) -> Iterator[str]:
    """What no simulator builds: cameras without pixels, negative servos and frictions."""
    for name, camera in suite.cameras.items():
        if not name or "/" in name:
            yield f"cameras.{name}: expected a name without '/', which a dataset's features have"
        sides = camera.width, camera.height
        if not 0 < camera.fovy < 180 or not 0 < min(sides) <= max(sides) <= LARGEST_SIDE:
            yield f"cameras.{name}: fovy must lie in (0, 180) degrees, a side have 1 to {LARGEST_SIDE} pixels"
        if camera.position == camera.look_at:
            yield f"cameras.{name}: it looks at the place where it is; look_at must be another than position"
    if not min(suite.table.size) > 0:
        yield f"table.size: must be above 0, not {', '.join(f'{side:g}' for side in suite.table.size)}"
    servos = {"arm": suite.actuators.arm, "gripper": suite.actuators.gripper}
    servos |= {f"joints.{name}": actuator for name, actuator in suite.actuators.joints.items()}
    for name, actuator in servos.items():
        for key, value in vars(actuator).items():
            if value < 0:
                yield f"actuators.{name}.{key}: must be at least 0, not {value:g}"
    if suite.seed < 0:
        yield f"seed: must be at least 0, not {suite.seed}"
    if suite.settle_seconds < 0:
        yield f"settle_seconds: must be at least 0, not {suite.settle_seconds:g}"
    if not suite.expert.speed > 0:
        yield f"expert.speed: must be above 0, not {suite.expert.speed:g}"


def _on_the_table(suite: SuiteFile) -> dict[str, ObjectSpec]:
    """The distractors that lie on the table: the first so many."""
    return dict(list(suite.distractors.items())[: max(0, suite.variation.distractors)])


def initial_state(suite: Suite, episode: int, joints: int, *, stream: str = "evaluation") -> InitialState:
    """The state in which `episode` begins: a pure function of (task's label, version, seed, stream, episode).

    `stream` separates demonstrations from evaluation: an evaluated state is never one that was recorded.
    Objects are drawn uniformly until their centres are `min_distance` apart. What `variation` asks for is
    drawn from a generator of its own: objects and arm begin where they begin without it.
    """
    label = f"{suite.label}/{suite.version}/{suite.seed}/{stream}/{episode}"
    rng, other = _generator(label), _generator(f"{label}/variation")
    places = {name: place for name, place in suite.placement.items() if name not in suite.distractors}
    poses = _scattered(suite, rng, places, {})
    arm = tuple(float(v) for v in rng.normal(0.0, 1.0, joints) * suite.start_noise)
    light = draw_light(other, suite.variation.light)
    cameras = draw_cameras(other, suite.variation, suite.cameras)
    paint = draw_paint(_generator(f"{label}/colors"), suite.variation.colors, suite.objects)
    marks = draw_marks(_generator(f"{label}/marks"), suite.variation.marks, field(places.values()))
    beside = {name: suite.placement[name] for name in suite.distractors if name in suite.objects}
    poses = _scattered(suite, other, beside, poses)
    return InitialState(episode, poses, arm, light, cameras, paint, marks)


def field(places: Iterable[Placement]) -> tuple[Range, Range]:
    """The ranges of x and y [m] in which all things lie."""
    ranges = [(place.x, place.y) for place in places]
    (x, y), (right, far) = np.min(ranges, axis=(0, 2)), np.max(ranges, axis=(0, 2))
    return (float(x), float(right)), (float(y), float(far))


def _generator(label: str) -> np.random.Generator:
    return np.random.default_rng(np.frombuffer(hashlib.sha256(label.encode()).digest(), dtype=np.uint32))


def _scattered(
    suite: Suite,
    rng: np.random.Generator,
    places: Mapping[str, Placement],
    there: Mapping[str, tuple[float, float, float]],
) -> dict[str, tuple[float, float, float]]:
    """What is `there`, and poses for `places` clear of it and of each other by the suite's `min_distance`."""
    for _ in range(10_000):
        poses = {**there, **{name: _draw(rng, place) for name, place in places.items()}}
        if _spread([pose[:2] for pose in poses.values()]) >= suite.min_distance:
            return poses
    raise ConfigError(
        f"{suite.path}: min_distance {suite.min_distance} leaves no room: 10,000 draws in the ranges of "
        "`placement` all put two objects closer together"
    )


def _draw(rng: np.random.Generator, place: Placement) -> tuple[float, float, float]:
    """A pose (x, y, yaw) [m, m, rad], uniform in the ranges."""
    x, y, yaw = (float(rng.uniform(low, high)) for low, high in (place.x, place.y, place.yaw))
    return x, y, yaw


def initial_states(
    suite: Suite, episodes: int, joints: int, *, stream: str = "evaluation"
) -> tuple[InitialState, ...]:
    """The first `episodes` rows of the table episode -> initial state."""
    return tuple(initial_state(suite, i, joints, stream=stream) for i in range(episodes))


def fingerprint(states: Sequence[InitialState]) -> str:
    """SHA-256 of a table of initial states: two records with the same one met the same states."""
    rows = [[s.episode, sorted(s.poses.items()), list(s.arm), *_varied(s)] for s in states]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _varied(state: InitialState) -> list[object]:
    """What an episode's looks add to the table's digest: nothing where they do not differ."""
    plain, looks = dataclasses.asdict(state), []
    if state.light is not None or state.cameras:
        looks = [plain["light"], sorted(plain["cameras"].items())]
    painted = {key: plain[key] for key in ("paint", "marks") if plain[key]}
    return [*looks, painted] if painted else looks


def _spread(points: Sequence[Sequence[float]]) -> float:
    """The smallest distance between any two of the points [m]; infinite for fewer than two."""
    gaps = [float(np.hypot(a[0] - b[0], a[1] - b[1])) for i, a in enumerate(points) for b in points[i + 1 :]]
    return min(gaps, default=float("inf"))


def resolved(suite: Suite) -> dict[str, object]:
    """Everything of a task that an episode can depend on, as plain values.

    Left out are where its file lies, how many rows are evaluated, how the scripted expert moves (but for its
    tool, which says whose gripper counts) and distractors that are not on the table.
    """
    plain = to_plain(suite)
    for key in ("path", "episodes"):
        plain.pop(key)
    if not suite.start:
        plain.pop("start")  # records of suites without it keep their digest
    if not suite.success.also:
        plain["success"].pop("also")  # likewise
    for key in ("colors", "marks"):
        if not plain["variation"][key]:
            plain["variation"].pop(key)
    placed = {name: place for name, place in plain["placement"].items() if name in suite.objects}
    beside = [name for name in suite.distractors if name in suite.objects]
    tool = {"tool": suite.expert.tool}
    return {**plain, "expert": tool, "distractors": beside, "placement": placed}
