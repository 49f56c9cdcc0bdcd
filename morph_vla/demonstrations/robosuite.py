"""The scripted expert of robosuite's tasks: one for all arms, in absolute joint targets.

From where the objects lie once all is at rest it plans the whole episode: over the cube, down, close, up; for
a stack then over the other one, down, open, away. The hand points down, turned so that the fingers meet the
nearest faces. A can is taken across the direction from the base and turned as the arm turns; the hand
leans outward, or a short arm would not reach the far quarter of the bin. `Expert` demonstrates for
recordings; as a policy (`infer`) it plans in a world of its own, begun in the row that is asked about.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from morph_vla import robots
from morph_vla.demonstrations.attempts import Demonstration
from morph_vla.demonstrations.experts import Plan, Waypoint, disturb, walk
from morph_vla.demonstrations.lerobot_writer import Layout
from morph_vla.demonstrations.reach import Reach
from morph_vla.engines.engine import ENVIRONMENT, Diverged, Observation
from morph_vla.engines.episode import UNSETTLED
from morph_vla.engines.gymnasium.stage import Environments
from morph_vla.engines.robosuite import theirs
from morph_vla.engines.robosuite.vector import VIEWS, ArmAtTable, Scene
from morph_vla.engines.robosuite.world import RATE, World
from morph_vla.errors import MorphVlaError
from morph_vla.robots.geometry import rotation
from morph_vla.suites.environment import ActionMap, EnvironmentSuite
from morph_vla.suites.suite import InitialState

SPEED = 0.25  # [m/s] along a segment, in the mean
OVER, LIFTED, ABOVE = 0.10, 0.15, 0.08  # [m] over an object; of a cube over where it lay; over the other
STACKED = 0.048  # [m] from the lower cube's centre to the upper one's, before it is let go
NEAR = 0.12  # [m] between cubes of which one may be in the way of a finger
CARRIED = 0.11  # [m] of a can over where it lay: over the bins' walls
NEARER = np.array([-0.0375, -0.0525, 0.0])  # [m] from the middle of a can's quarter to where it is put
DROP = 0.015  # [m] over where it stands
LEANS = math.radians(15), math.radians(30)  # of the hand, over the can and over its quarter
AJAR = 0.15  # of the hand when it lets a can go: opened wide, long fingers are caught between the walls
SETTLE, OPEN = 4, 14  # control steps: until the arm has followed; until the fingers have opened
NOISE, SMOOTH = 0.03, 11  # of what is executed: [rad]; control steps over which it is smoothed
DEMONSTRATIONS = 1_000_000  # the row at which the demonstrations' table begins; no evaluation gets there
UP = np.array([0.0, 0.0, 1.0])
STATE = ("joints", "gripper")  # what a recording's state is: measured, where its actions are targets


class Grip(NamedTuple):
    """How a hand takes hold of an object."""

    close: int = 16
    """Control steps until its fingers have stopped"""
    higher: float = 0.0
    """[m] over the object's centre"""


GRIPS = {"Jaco": Grip(26, 0.01)}  # three fingers, the lowest of which would push a cube away


def layout(suite: EnvironmentSuite) -> Layout:
    """What a dataset of the task holds; where no robot is named, joints are numbered.

    Raises MorphVlaError as `Scene.of` and `theirs.check`, for a state or an image that is not recorded, for
    actions that are mapped, and for a robot of other joints.
    """
    scene = Scene.of(suite.kwargs)
    theirs.check(suite.id, scene.arm)
    if suite.state != STATE:
        raise MorphVlaError(
            f"{suite.label}: state: a recording has one value for each action, [{', '.join(STATE)}],"
            f" not [{', '.join(suite.state)}]"
        )
    if _maps(suite.actions, theirs.ARMS[scene.arm] + 1):
        raise MorphVlaError(
            f"{suite.label}: actions: a recording has the expert's rows as the arm takes them, and what is"
            " mapped when it is evaluated would be others; leave the key out"
        )
    for camera, view in suite.images.items():
        if view not in VIEWS:
            raise MorphVlaError(
                f"{suite.label}: images.{camera}: '{view}' cannot be recorded (expected one of"
                f" {', '.join(VIEWS)})"
            )
    names = [*(f"joint{number + 1}" for number in range(theirs.ARMS[scene.arm])), "gripper"]
    if suite.robot:
        robot = _robot(suite.robot, scene.arm)
        if len(robot.names) != len(names):
            raise MorphVlaError(
                f"{suite.label}: robot: '{suite.robot}' has {len(robot.names)} joints, and robosuite's"
                f" {scene.arm} {len(names)}, its gripper included"
            )
        names = robot.side.names or robot.names
    cameras = dict.fromkeys(suite.images, (scene.size, scene.size))
    kind = suite.robot or scene.arm.lower()
    # With cameras none: LeRobot's own policies would take them as input.
    poses = () if cameras else suite.pose_names
    return Layout(suite.name, kind, tuple(names), cameras, suite.control_rate, suite.max_steps, poses)


def _maps(actions: ActionMap, width: int) -> bool:
    """Whether an answer's row becomes another one, of so many values."""
    moved = actions.columns not in ((), tuple(range(width)))
    return moved or any(factor != 1 for factor in actions.scale) or any(actions.offset)


def _robot(name: str, arm: str) -> robots.Robot:
    """The robot that a suite names. Raises as `robots.load`, of robosuite's arms with what makes them."""
    try:
        return robots.load(name)
    except MorphVlaError as error:
        if name != f"robosuite_{arm.lower()}":
            raise
        raise MorphVlaError(f"{error}; `morph-vla robots add robosuite:{arm}` makes it") from error


def plan(world: World) -> Plan:
    """What the expert does from here, one row of targets per control step; the last one is to be held."""
    start, axes = world.hand()
    down = _pointing_down(axes)
    closing = down @ axes.T @ world.closing_axis()
    grip = GRIPS.get(world.arm, Grip())
    heading_rad, place = math.atan2(closing[1], closing[0]), world.position(0) + grip.higher * UP
    turn_rad, goal = _quarter(world.yaw(0) - heading_rad), place
    if world.task == "Stack":
        other = world.position(1) + grip.higher * UP
        if _in_the_way(other - place, heading_rad + turn_rad):
            turn_rad -= math.copysign(math.pi / 2, turn_rad)
        way = [*_lift(place, turn_rad, grip)[:-1], *_put(place, other, turn_rad)]
    elif world.task == "PickPlaceCan":
        goal = world.position(1) + NEARER
        goal[2] = place[2] + DROP
        way = _carry(place, goal, heading_rad, grip)
    else:
        way = _lift(place, turn_rad, grip)
    reach, rows, free = Reach(world), [], []
    for position, yaw_rad, gripper, moving in walk(start, 0.0, way, SPEED, RATE):
        upright = rotation((0.0, 0.0, 1.0), yaw_rad) @ down
        target = reach.to(position, _leaning(position, place, goal) @ upright)
        rows.append(np.append(target, gripper))
        free.append(float(moving))
    return Plan(np.asarray(rows), np.asarray(free))


def _lift(place: Float[np.ndarray, "3"], turn_rad: float, grip: Grip) -> list[Waypoint]:
    """Over the cube at `place`, down, close, up; then it holds for as long as the task asks, and a little."""
    return [
        Waypoint(place + OVER * UP, turn_rad, 0.0, free=True),
        Waypoint(place + 0.03 * UP, turn_rad, 0.0, free=True, speed=0.8),
        Waypoint(place, turn_rad, 0.0, hold=SETTLE, speed=0.5),
        Waypoint(place, turn_rad, 1.0, hold=grip.close),
        Waypoint(place + LIFTED * UP, turn_rad, 1.0, hold=SETTLE),
    ]


def _put(place: Float[np.ndarray, "3"], other: Float[np.ndarray, "3"], turn_rad: float) -> list[Waypoint]:
    """From the closed hand at `place`: up, over the `other` cube, down, open, away."""
    goal = other + STACKED * UP
    return [
        Waypoint(place + OVER * UP, turn_rad, 1.0),
        Waypoint(goal + ABOVE * UP, turn_rad, 1.0, hold=SETTLE),
        Waypoint(goal, turn_rad, 1.0, hold=SETTLE, speed=0.4),
        Waypoint(goal, turn_rad, 0.0, hold=OPEN),
        Waypoint(goal + OVER * UP, turn_rad, 0.0, hold=SETTLE, speed=0.8),
    ]


def _carry(
    place: Float[np.ndarray, "3"], goal: Float[np.ndarray, "3"], heading_rad: float, grip: Grip
) -> list[Waypoint]:
    """Take a can at `place` across the direction from the base, and put it at `goal`, turned as the arm is.

    Down in one go: 3 cm over a can's centre, where a cube's way has a stop, fingers are beside its top.
    """
    azimuth_rad, other_rad = (math.atan2(spot[1], spot[0]) for spot in (place, goal))
    turn_rad = _half(azimuth_rad + math.pi / 2 - heading_rad)
    put_rad = turn_rad + other_rad - azimuth_rad
    return [
        Waypoint(place + OVER * UP, turn_rad, 0.0, free=True),
        Waypoint(place, turn_rad, 0.0, hold=SETTLE, speed=0.5),
        Waypoint(place, turn_rad, 1.0, hold=grip.close),
        Waypoint(place + CARRIED * UP, turn_rad, 1.0),
        Waypoint(goal + CARRIED * UP, put_rad, 1.0, hold=SETTLE),
        Waypoint(goal, put_rad, 1.0, hold=SETTLE, speed=0.5),
        Waypoint(goal, put_rad, AJAR, hold=OPEN),
        Waypoint(goal + CARRIED * UP, put_rad, AJAR, hold=SETTLE, speed=0.8),
    ]


def _leaning(
    position: Float[np.ndarray, "3"], place: Float[np.ndarray, "3"], goal: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "3 3"]:
    """How the hand leans outward, by how far it is from a can's `place` on the way to `goal`.

    Straight where both are one: a cube's task has no such way.
    """
    whole = float(np.linalg.norm((goal - place)[:2]))
    if whole == 0:
        return np.eye(3)
    share = min(float(np.linalg.norm((position - place)[:2])) / whole, 1.0)
    azimuth_rad = math.atan2(position[1], position[0])
    across = (-math.sin(azimuth_rad), math.cos(azimuth_rad), 0.0)
    return rotation(across, -(LEANS[0] + share * (LEANS[1] - LEANS[0])))


def _pointing_down(axes: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3 3"]:
    """The rotation nearest to `axes` whose z axis points straight down: the yaw stays."""
    x = axes[:, 0] - UP * axes[2, 0]
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(-UP, x), -UP], axis=1)


def _quarter(angle_rad: float) -> float:
    """The least turn [rad] that is the same for a cube: -45 to 45 degrees."""
    return (angle_rad + math.pi / 4) % (math.pi / 2) - math.pi / 4


def _half(angle_rad: float) -> float:
    """The least turn [rad] that is the same for two fingers: -90 to 90 degrees."""
    return (angle_rad + math.pi / 2) % math.pi - math.pi / 2


def _in_the_way(apart: Float[np.ndarray, "3"], heading_rad: float) -> bool:
    """Whether a cube, so far `apart`, is where a finger would come down: near, and more along the fingers."""
    along = abs(math.cos(math.atan2(apart[1], apart[0]) - heading_rad))
    return math.hypot(apart[0], apart[1]) < NEAR and along > math.cos(math.pi / 4)


class Expert:
    """Plays one task of robosuite. Raises MorphVlaError for another simulator's task."""

    name = "expert"

    def __init__(self, suite: EnvironmentSuite):
        if suite.kind != "robosuite":
            raise MorphVlaError(
                f"{suite.label}: of other simulators only robosuite has an expert, not '{suite.kind}'"
            )
        self.suite = suite
        self._stage = Environments(suite, 1)
        self._plans: dict[int, Float[np.ndarray, "t a"]] = {}

    def _begin(self, row: int) -> Plan:
        """Reset to a row and plan. Raises MorphVlaError where it cannot be reset, Diverged among them."""
        self._stage.reset({0: InitialState(row, {}, ())})
        if error := self._stage.status[0].error:
            raise (Diverged if UNSETTLED in error else MorphVlaError)(error)
        table = self._stage.vector
        assert isinstance(table, ArmAtTable)
        return plan(table.world)

    def demonstrate(self, number: int) -> Demonstration:
        """Attempt `number`, disturbed where the hand moves freely; one whose physics diverges has failed.

        Raises MorphVlaError as `_begin`.
        """
        try:
            clean = self._begin(DEMONSTRATIONS + number)
        except Diverged:
            return Demonstration([], "error", "rest")
        arm = np.append(np.ones(clean.actions.shape[1] - 1), 0.0)
        rng = np.random.default_rng([self.suite.seed, number])
        executed = disturb(clean, rng, NOISE, arm, SMOOTH)
        frames: list[dict[str, np.ndarray | str]] = []
        hold = round(self.suite.success.hold_seconds * RATE) + SETTLE
        for step in range(min(len(executed) + hold, self.suite.max_steps)):
            row = min(step, len(executed) - 1)
            frames.append(_frame(self._stage.observe(0), clean.actions[row], self.suite.task))
            standing = self._stage.step({0: executed[row]})[0]
            if standing.error:  # its physics diverged: dropped and counted as any attempt that failed
                return Demonstration([], "error", "rest")
            if standing.ended:
                break
        success = self._stage.status[0].ended == "success"
        return Demonstration(frames, None if success else "success", "rest")

    def infer(self, observation: Observation) -> dict[str, object]:
        """The rest of the plan for the episode's row: all of it in the first answer."""
        row, step = int(observation["episode"]), int(observation["step"])
        if row not in self._plans:
            self._plans[row] = self._begin(row).actions
        rows = self._plans[row]
        return {"actions": rows[min(step, len(rows) - 1) :].astype(np.float32)}

    def close(self) -> None:
        """Give the world back."""
        self._stage.close()


def _frame(seen: Observation, action: Float[np.ndarray, "a"], task: str) -> dict[str, np.ndarray | str]:
    """A frame of a dataset, by LeRobot's names."""
    images = {
        f"observation.{key.replace('/', '.')}": np.asarray(value)
        for key, value in seen.items()
        if key.startswith("images/")
    }
    state = np.asarray(seen["state"], np.float32)
    poses = {f"observation.{ENVIRONMENT}": np.asarray(seen[ENVIRONMENT])} if ENVIRONMENT in seen else {}
    return {**images, **poses, "observation.state": state, "action": action.astype(np.float32), "task": task}
