"""A suite for any arm: table, objects, cameras, servos and rest pose from the kinematics of its URDF."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files import typed_yaml, yaml_text
from morph_vla.robots import ActionJoint, Robot, bodies, inertia, reach
from morph_vla.robots.geometry import Transform
from morph_vla.robots.grasp import at, grasp
from morph_vla.robots.parallel_jaw import FINGER, PALM, PANDA_OPENING, TCP, TCP_AHEAD
from morph_vla.robots.template import attached
from morph_vla.suites import mounts, workspace
from morph_vla.suites.begin import BeginShares
from morph_vla.suites.mounts import CameraSide
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.suite import Actuator, Actuators
from morph_vla.suites.templates import DISTRACTING, GROUPS, TEMPLATES, Template

SPINNING = 6  # joints of an arm that can also turn its tool about the approach
PANDA = 0.86  # [m] length of the arm that the templates are for
STRAIGHT = 0.8  # of the lengths along the links: how far an arm reaches over a table
RATE, PHYSICS_RATE = 15.0, 240.0  # [Hz] control, where the side file does not say; physics, at least
SPEED, FASTEST = 0.4, 1.2  # of the expert's tool [m/s] at a scale of 1; of its joints then, about [rad/s]
STIFFNESS = 25.0  # [rad/s] natural frequency of a joint's servo with all that it carries
WEAKEST = 6.0  # [rad/s] below which a servo follows nothing
ARMATURE = 0.1  # [kg m^2] of a Panda's joint, [kg] of its fingers
EFFORT = 0.7  # share of a joint's effort that one control step of the target may ask for
GRIP, SLOW = 20.0, 0.06  # of each finger at a scale of 1: holding force [N], time constant [s]
SAFETY = 4.0  # times the weight that two fingers must hold at a friction of 1
SMALLER = (1.0, 0.7, 0.5)  # factors to try where a short arm does not reach high enough
LOW, HIGH = 0.01, 0.27  # [m] of the tool over the table at a scale of 1: grasping, carrying
ROOM = 0.17  # [m] from a field's middle to its side that a scale of 1 needs
TABLES = 3  # of other heights, the widest of which is taken
SMALLEST = 0.15  # a cube of 6 mm
BEGIN = BeginShares(
    rest=0.26, near=0.18, low=0.14, target=0.06, anywhere=0.06, miss=0.06, slip=0.04, carry=0.2
)
BEGIN_PUSH = BeginShares(rest=0.4, near=0.2, low=0.15, target=0.1, anywhere=0.15)
BEYOND = 2.0  # of a field's half: how far from its middle distractors lie


@dataclass(frozen=True, eq=False)
class Tool:
    """The frame that is driven: z towards the object, y the way the fingers close."""

    link: str
    link_from_frame: Transform
    palm: str
    """The link that a camera is put on"""
    palm_from_frame: Transform
    opening: float
    """[m] between the fingers"""
    gripper: str
    """The action joint that closes it"""


@dataclass(frozen=True, eq=False)
class Plan:
    """How an arm does its tasks: everything of a suite but the tasks themselves."""

    robot: Robot
    tool: Tool
    """As it is driven: turned about its approach where the arm would rather have it so"""
    names: tuple[str, ...]
    """The arm's joints, base to tip"""
    size: float
    """[m] how far the arm reaches"""
    field: workspace.Field
    scale: float
    """The factor of all lengths of a template"""
    servos: Actuators
    grip: float
    """[N] of each finger on an object"""
    camera_side: CameraSide = "ahead"  # of the hand

    @property
    def spins(self) -> bool:
        """Whether the arm can turn its tool about the approach."""
        return len(self.names) >= SPINNING

    @property
    def rate(self) -> float:
        """Control steps per second [Hz]."""
        return self.robot.control_rate or RATE


def plan(
    robot: Robot, table: float | None = None, *, level: bool = False, camera_side: CameraSide = "ahead"
) -> Plan:
    """Where and how a robot's arm picks and places, over a table whose top is so high above its root [m].

    Without a height the table stands at the root's; where the arm works over none there, as on a torso or a
    ceiling, at the height that gives it most room, unless it is to be `level` with the root's. On
    `camera_side` of the hand is its camera. Raises MorphVlaError with the one reason why it cannot.
    """
    tool = tool_of(robot)
    names = _arm(robot, tool.link)
    turned = tool.link_from_frame @ np.diag([-1.0, -1.0, 1.0, 1.0])
    chains = tuple(reach.chain(robot, names, tool.link, frame) for frame in (tool.link_from_frame, turned))
    size, spin = STRAIGHT * chains[0].reach, len(names) >= SPINNING
    try:
        field, scale = _field(
            chains, size, spin, min(tool.opening / PANDA_OPENING, size / PANDA), table, level
        )
    except MorphVlaError as error:
        raise MorphVlaError(f"{robot.name}: no place to work on a table: {error}") from error
    if scale < SMALLEST:
        raise MorphVlaError(
            f"{robot.name}: its gripper is too narrow: it opens by {1000 * tool.opening:.0f} mm, and the"
            f" smallest objects need {1000 * SMALLEST * PANDA_OPENING:.0f} mm"
        )
    if field.flipped:
        tool = Tool(**{**vars(tool), "link_from_frame": turned})
    effort = _joint(robot, tool.gripper).effort or 0.0
    grip = min(GRIP * scale**2, 0.9 * effort) if effort > 0 else GRIP * scale**2
    servos = _servos(robot, chains[0], field, tool, scale, grip)
    return Plan(robot, tool, names, size, field, scale, servos, grip, camera_side)


def check_tasks(tasks: Sequence[str]) -> None:
    """Raise MorphVlaError, naming the nearest, for a task that is neither a template nor a group of them."""
    known = (*GROUPS, *TEMPLATES)
    for task in tasks:
        if task not in known:
            raise MorphVlaError(f"no task '{task}'{nearest(task, known)} ({', '.join(known)})")


def chosen(tasks: Sequence[str], made: Plan) -> tuple[str, ...]:
    """The names of templates that `tasks` mean; of a group those that the arm can do.

    Raises MorphVlaError for a task that is not there, or that the arm cannot do.
    """
    names: dict[str, None] = {}
    check_tasks(tasks)
    for task in tasks:
        able = [name for name in GROUPS.get(task, (task,)) if made.spins or TEMPLATES[name].round]
        if not able:
            others = ", ".join(name for name, template in TEMPLATES.items() if template.round)
            raise MorphVlaError(
                f"{made.robot.name}: task '{task}' needs {SPINNING} joints, to turn the gripper to the"
                f" object; an arm of {len(made.names)} can do {others}"
            )
        names.update(dict.fromkeys(able))
    return tuple(names)


def text(name: str, made: Plan, tasks: Sequence[str]) -> str:
    """The YAML of the suite `name` with these templates; a single one is not put under `tasks`."""
    parts = {task: _task(TEMPLATES[task], made) for task in tasks}
    common = _common(made)
    if len(parts) == 1:
        (part,) = parts.values()
        typed_yaml.merge(common, part)
        parts = {}
    head = [
        f"# Suite: tasks for {made.robot.name}, from its URDF by `morph-vla suites new`.",
        "# Units: metres, seconds, kilograms, radians; positions in the robot's base frame, z up.",
        "#",
        f"#   morph-vla suites check {name}",
        *mounts.HEADER[made.camera_side],
        "",
    ]
    body = [*yaml_text.lines(common)]
    for index, (task, part) in enumerate(parts.items()):
        body += ["", *(["tasks:", ""] if index == 0 else []), f"  {task}:", *yaml_text.lines(part, "    ")]
    return "\n".join([*head, *body]) + "\n"


def tool_of(robot: Robot) -> Tool:
    """A robot's first gripper, as a tool.

    Raises MorphVlaError where it has none, and where a finger turns.
    """
    names = [joint.name for joint in robot.joints if joint.is_gripper]
    if not names:
        ours = attached(robot) or "gripper: {attach: parallel_jaw, link: ...}"
        raise MorphVlaError(
            f"{robot.name}: no gripper: say in its side file which joint closes, or attach one of ours"
            f" (`{ours}`); without a side file `suites new` proposes one"
        )
    if FINGER in names:
        ends = robot.side.grippers[FINGER]
        opening, ahead = 2 * abs(ends.closed - ends.open), np.eye(4)
        ahead[2, 3] = TCP_AHEAD * opening
        return Tool(TCP, np.eye(4), PALM, ahead, opening, FINGER)
    hold = grasp(robot, names[0])
    if hold is None:
        raise MorphVlaError(
            f"{robot.name}: the gripper's joint '{names[0]}' turns, and a URDF does not say where it takes"
            f" hold; copy {robot.urdf_path.name} alone, without its side file, under another name, and "
            "`morph-vla suites new NAME --robot COPY` gives the copy a gripper of ours; or write a suite "
            "(docs/suites.md): `morph-vla suites show so101_pick_orange` prints one"
        )
    palm = robot.urdf.by_name[names[0]].parent
    root_from_palm = robot.forward_kinematics(at(robot, names[0], "closed"))[palm]
    frame = np.linalg.inv(root_from_palm) @ hold.pose
    return Tool(palm, frame, palm, frame, hold.opening, names[0])


def _joint(robot: Robot, name: str) -> ActionJoint:
    """A robot's action joint of this name."""
    return robot.joints[robot.names.index(name)]


def _arm(robot: Robot, link: str) -> tuple[str, ...]:
    """The turning action joints that carry a link, without grippers, base to tip; what slides stands."""
    names = tuple(joint.name for joint in _carrying(robot, link) if joint.type != "prismatic")
    if len(names) < workspace.FEWEST:
        raise MorphVlaError(
            f"{robot.name}: {len(names)} joints that turn carry its gripper; "
            f"expected at least {workspace.FEWEST}"
        )
    return names


def _carrying(robot: Robot, link: str) -> list[ActionJoint]:
    """The action joints that carry a link, without grippers, base to tip; a lift or a driving base slides."""
    names = [joint.name for joint in reach.way(robot.urdf, link) if joint.name in robot.names]
    joints = [_joint(robot, name) for name in names]
    return [joint for joint in joints if not joint.is_gripper]


def _field(
    chains: tuple[reach.Chain, ...],
    size: float,
    spin: bool,
    scale: float,
    table: float | None,
    level: bool,
) -> tuple[workspace.Field, float]:
    """Where the arm works, and the factor of all lengths: smaller where it does not reach high enough.

    Raises MorphVlaError with what stands in the way, without the robot's name.
    """
    origin = workspace.ROOT if table is None else workspace.below(chains[0], size, table)
    problem: MorphVlaError | None = None
    tries = [(smaller, (LOW * smaller * scale, HIGH * smaller * scale)) for smaller in SMALLER]
    for smaller, heights in tries:
        try:
            field = workspace.find(chains, size, spin, heights, origin)
        except MorphVlaError as error:
            problem = error
        else:
            return field, min(smaller * scale, field.width / ROOM)
    assert problem is not None
    for smaller, heights in tries if table is None and not level else ():
        fields = []
        for origin in workspace.raised(chains[0], size, heights):
            with contextlib.suppress(MorphVlaError):
                fields.append(workspace.find(chains, size, spin, heights, origin))
            if len(fields) == TABLES:
                break
        if fields:
            field = max(fields, key=workspace.rank)
            return field, min(smaller * scale, field.width / ROOM)
    raise problem


def _servos(
    robot: Robot, chain: reach.Chain, field: workspace.Field, tool: Tool, scale: float, grip: float
) -> Actuators:
    """Critically damped servos, as stiff as what each joint carries and its effort limit allow.

    One control step of the target, at `FASTEST`, must not ask for more than a share of the effort: a servo
    at its limit oscillates (docs/suites.md). Raises MorphVlaError where a joint is too weak.
    """
    values = _begun(robot, chain.names, field)
    carried = inertia.carried(bodies.filled(robot), robot.positions(values))
    armature = ARMATURE * (STRAIGHT * chain.reach / PANDA) ** 2
    servos = {}
    for name in chain.names:
        moved, effort = carried[name] + armature, _joint(robot, name).effort or 0.0
        stiffness = STIFFNESS**2 * moved
        if effort > 0:
            stiffness = min(stiffness, EFFORT * effort * (robot.control_rate or RATE) / FASTEST)
        if stiffness < WEAKEST**2 * moved:
            raise MorphVlaError(
                f"{robot.name}: joint '{name}' is too weak: {effort:g} N m for {moved:.2g} kg m^2"
            )
        servos[name] = Actuator(stiffness, 2 * math.sqrt(stiffness * moved), armature)
    for joint in _carrying(robot, tool.link):
        if joint.type == "prismatic":  # it holds what it carries where it is
            moved = carried[joint.name]
            servos[joint.name] = Actuator(STIFFNESS**2 * moved, 2 * STIFFNESS * moved, 0.0)
    finger = _joint(robot, tool.gripper)
    travel = abs((finger.closed or 0.0) - (finger.opened or 0.0))
    stiffness = grip / (0.5 * travel)  # the templates' objects are half as wide as the opening
    gripper = Actuator(stiffness, SLOW * stiffness, ARMATURE * scale)
    return Actuators(servos[chain.names[0]], gripper, servos)


def _begun(robot: Robot, names: tuple[str, ...], field: workspace.Field) -> Float[np.ndarray, "j"]:
    """All action joints where the arm begins [rad | m]."""
    values = robot.rest.copy()
    for name, value in zip(names, field.rest, strict=True):
        values[robot.names.index(name)] = value
    return values


def _common(made: Plan) -> dict[str, object]:
    """What all tasks of a suite share."""
    robot, tool, field = made.robot, made.tool, made.field
    start = dict(zip(made.names, field.rest.tolist(), strict=True))
    gripper = robot.side.grippers[tool.gripper].open
    (x, _), (y, _) = field.ranges((0.0, 0.0), (0.0, 0.0))
    return {
        "version": 1,
        "robot": robot.name,
        "control_rate": made.rate,
        "physics_rate": made.rate * math.ceil(PHYSICS_RATE / made.rate),
        "episode_seconds": 20,
        "episodes": 300,
        "seed": 20260,
        "start": _within({**start, tool.gripper: gripper}, robot),
        "start_noise": 0.02,
        "table": _table(made, x, y),
        "success": {"dwell_seconds": 0.5, "max_speed": 0.02, "min_opening": 0.6, "min_upright": 0.9},
        "cameras": _cameras(made, x, y),
        "actuators": made.servos,
        "expert": _expert(made),
    }


def _table(made: Plan, x: float, y: float) -> dict[str, object]:
    """Around an arm that stands on it; before one that does not, beginning where things may lie."""
    size, field, height = made.size, made.field, float(made.field.origin[2])
    if not height:
        return {"center": (x, y), "size": (2.2 * size, 2.2 * size, 0.1 * size)}
    near, far = (share + rim * size / field.depth for share, rim in ((-BEYOND, -0.05), (BEYOND, 0.3)))
    sides = 0.9 * size / field.width
    (left, right), (front, back) = field.ranges((near, far), (-sides, sides))
    middle = ((left + right) / 2, (front + back) / 2)
    return {"height": height, "center": middle, "size": (right - left, back - front, 0.1 * size)}


def _within(start: dict[str, float], robot: Robot) -> dict[str, float]:
    """Where joints begin, to the digits that are written, inside their limits."""
    ends = zip(robot.names, *(stop.tolist() for stop in robot.stops), strict=True)
    limits = {name: (low, high) for name, low, high in ends}
    written = {}
    for name, value in start.items():
        low, high = limits[name]
        value = float(f"{value:.{yaml_text.DIGITS}g}")
        last = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - yaml_text.DIGITS) if value else 0.0
        written[name] = value - last if value > high else value + last if value < low else value
    return written


def _cameras(made: Plan, x: float, y: float) -> dict[str, object]:
    """One that looks back at the middle of the field from beyond it, and one beside the gripper."""
    tool, field = made.tool, made.field
    root_from_palm = made.robot.forward_kinematics(_begun(made.robot, made.names, field))[tool.palm]
    frame = mounts.facing(tool.palm_from_frame, root_from_palm, field.heading, made.camera_side)
    return {
        "exterior": mounts.exterior(x, y, float(field.origin[2]), field.heading, made.size),
        "wrist": mounts.wrist(tool.palm, frame, tool.opening / PANDA_OPENING),
    }


def _expert(made: Plan) -> dict[str, object]:
    """How the scripted expert moves the tool, as fast as the slowest joint of the arm lets it."""
    frame = made.tool.link_from_frame
    velocities = [_joint(made.robot, name).velocity for name in made.names]
    quick = min([1.0, *(velocity / FASTEST for velocity in velocities if velocity)])
    return {
        "kind": "pick_and_place",
        "tool": made.tool.link,
        "offset": frame[:3, 3],
        "approach": frame[:3, 2],
        "grip": frame[:3, 1],
        "speed": SPEED * quick * made.scale,
        "noise": 0.02,
        "turn_seconds": 0.4,
        **({"heading": made.field.heading} if made.field.heading else {}),
        **({} if made.spins else {"free_spin": True, "orientation_cost": 0.1}),
        "begin": _begin(BEGIN),
    }


def _begin(shares: BeginShares) -> dict[str, object]:
    """How often demonstrations begin in which way."""
    return {key: share for key, share in asdict(shares).items() if key != "shut"}


def _task(template: Template, made: Plan) -> dict[str, object]:
    """One task: lengths times the plan's scale, masses by its cube, at most what the fingers hold."""
    scale, (held, held_spec), (target, target_spec) = made.scale, template.object, template.target
    here, there = made.field.ranges(*template.begins), made.field.ranges(*template.ends)
    yaw, heading = template.yaw if made.spins else 0.0, made.field.heading  # all is turned with the table
    lengths = ("hover", "release_height", "carry", "retreat", "clearance")
    pushed, pushing = {}, {}
    besides = _besides(template, scale)
    if template.kind == "push":
        lengths, pushed = (*lengths, "behind"), {"min_opening": 0.0}
        pushing = {"kind": "push", "begin": _begin(BEGIN_PUSH)}
    return {
        "task": template.text,
        "objects": {
            held: _scaled(held_spec, scale, 2 * made.grip / (SAFETY * 9.81)),
            target: _scaled(target_spec, scale, math.inf),
        },
        "placement": {
            held: {"x": here[0], "y": here[1], "yaw": (heading - yaw, heading + yaw)},
            target: {"x": there[0], "y": there[1], **({"yaw": (heading, heading)} if heading else {})},
            **{name: _anywhere(made.field) for name in besides},
        },
        "distractors": besides,
        "min_distance": scale * template.min_distance,
        "success": {
            "object": held,
            "target": target,
            "low": [scale * value for value in template.low],
            "high": [scale * value for value in template.high],
            "max_spin": template.max_spin,
            **pushed,
        },
        "expert": {**pushing, **{key: scale * getattr(template, key) for key in lengths}},
    }


def _besides(template: Template, scale: float) -> dict[str, object]:
    """What `variation.distractors` may put on the table: things that other tasks move, of other shapes."""
    shapes = {template.object[1].shape, template.target[1].shape}
    others = (TEMPLATES[name].object for name in DISTRACTING)
    return {name: _scaled(spec, scale, math.inf) for name, spec in others if spec.shape not in shapes}


def _anywhere(field: workspace.Field) -> dict[str, object]:
    """All of a field and a little beyond, turned in any way."""
    x, y = field.ranges((-BEYOND, BEYOND), (-BEYOND, BEYOND))
    return {"x": x, "y": y, "yaw": (-3.14, 3.14)}


def _scaled(spec: ObjectSpec, scale: float, heaviest: float) -> dict[str, object]:
    """An object that is `scale` times as large, at most so heavy [kg]."""
    plain: dict[str, object] = {
        "shape": spec.shape,
        "size": [scale * value for value in spec.size],
        "mass": min(spec.mass * scale**3, heaviest),
        "color": spec.color,
        "rolling_friction": scale * spec.rolling_friction,
    }
    return plain | ({"wall": scale * spec.wall} if spec.shape == "open_box" else {})
