"""`morph-vla robots list | show | draw | check | add`."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from morph_vla import robots
from morph_vla.cli import robots_add, robots_check, words
from morph_vla.cli.common import add, add_folders, add_json, add_verbs
from morph_vla.cli.render import render, table
from morph_vla.errors import MorphVlaError
from morph_vla.robots import choose
from morph_vla.robots.robot import Robot

EXAMPLES = """
  morph-vla robots list
  morph-vla robots show panda
  morph-vla robots show ./my_humanoid.urdf --joints 'left_arm_*,right_arm_*' --json
  morph-vla robots draw panda -o panda.png
  morph-vla robots check ./my_arm.urdf --episode ~/datasets/lift:7
  morph-vla robots add ~/Downloads/my_arm.urdf
"""


@dataclass(frozen=True)
class Row:
    """A robot in the list; without `joints`, the `problem` says why."""

    name: str
    joints: int | None
    path: Path
    problem: str | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots`."""
    check = "check a robot's file; with --episode, also a recording that is played on the robot"
    verbs = add_verbs(
        parser,
        {
            "list": ("list every robot, with its number of action joints", run_list),
            "show": ("show what a policy is told about a robot: units, neighbours, features", run_show),
            "draw": ("draw a robot's rest pose and its joint graph", run_draw),
            "check": (check, robots_check.run),
            "add": ("check a URDF, copy it to your folder, and print a side file to fill in", robots_add.run),
        },
    )  # fmt: skip
    for name in ("list", "show", "draw", "check"):
        add_folders(verbs[name])
    for name in ("list", "show", "add"):
        add_json(verbs[name])
    for name in ("show", "draw"):
        add(verbs[name], "robot", "a robot's name, or the path to a URDF file", "ROBOT")
    about = "the action's joints in order, separated by commas: names, or patterns such as 'left_arm_*'"
    for name in ("show", "draw", "check", "add"):
        add(verbs[name], "--joints", about, "NAMES", type=lambda t: t.replace(",", " ").split(), default=[])
    add(verbs["draw"], "-o --output", "default: ROBOT_joint_graph.png", "FILE", type=Path)
    robots_check.add_arguments(verbs["check"])
    robots_add.add_arguments(verbs["add"])


def run_list(arguments: argparse.Namespace) -> int:
    """A file that cannot be read is listed with its reason, and the status is 1."""
    rows = []
    for name, path in robots.available(folders=arguments.folders).items():
        try:
            rows.append(Row(name, len(robots.load(name, arguments.folders).joints), path, None))
        except MorphVlaError as error:
            rows.append(Row(name, None, path, str(error)))

    def lines(rows: list[Row]) -> Iterator[str]:
        cells = [(row.name, "?" if row.joints is None else row.joints, row.path) for row in rows]
        yield from table(("robot", "joints", "file"), cells)
        yield from (f"\n{row.name}: {row.problem}" for row in rows if row.problem)

    render(rows, arguments.json, lines)
    return int(any(row.problem for row in rows))


def run_show(arguments: argparse.Namespace) -> None:
    """Joints with type, axis, limits, units and neighbours; the 12 features; what was assumed."""
    robot = robots.load(arguments.robot, arguments.folders, arguments.joints)
    more = {name: getattr(robot, name) for name in ("descriptors", "side", "findings")}
    render(robot.as_dict() | {"urdf": robot.urdf_path} | more, arguments.json, partial(_lines, robot))


def _lines(robot: Robot, _: object) -> Iterator[str]:
    rate = "" if robot.control_rate is None else f", {robot.control_rate:g} Hz"
    yield f"{robot.name}: {len(robot.joints)} action joints{rate}, from {robot.urdf_path}\n"
    header = ("#", "joint", "type", "axis", "lower", "upper", "rest", "dataset unit", "zero", "scale", "near")
    yield from table(header, [_row(robot, index) for index in range(len(robot.joints))])
    yield "\nlimits, rest and zero in rad (revolute) or m (prismatic); dataset value = (value - zero) * scale"
    yield "near: the joints on the same rigid body\n"
    features = [(index, *row) for index, row in enumerate(robot.descriptors.tolist())]
    yield from table(("#", *robots.NAMES), features)
    followers = [
        f"{name} = {slope:g} * {robot.names[index]} + {start:g}"
        for name, index, slope, start in robot.drives()
        if name not in robot.names
    ]
    if followers:
        yield f"\njoints that follow others: {'; '.join(followers)}"
    warnings = [finding for finding in robot.findings if finding.severity == "warning"]
    if warnings:
        number = words.count(len(warnings), "warning")
        yield f"\n{number} (`morph-vla robots check` prints every finding); the first:\n  {warnings[0]}"
    if more := choose.too_many(robot.urdf, robot.names):
        yield f"\n{more}"


def _row(robot: Robot, index: int) -> tuple[object, ...]:
    joint = robot.joints[index]
    axis = " ".join(f"{component:g}" for component in joint.axis)
    near = " ".join(str(j) for j, edge in enumerate(robot.adjacency[index]) if edge and j != index)
    kind = f"{joint.type}, gripper" if joint.is_gripper else joint.type
    lower, upper, rest = float(joint.lower), float(joint.upper), float(robot.rest[index])
    unit = joint.unit, float(joint.zero), float(joint.scale)
    return index, joint.name, kind, axis, lower, upper, rest, *unit, near


def run_draw(arguments: argparse.Namespace) -> None:
    """Write the picture and print its path."""
    from morph_vla.robots import draw

    robot = robots.load(arguments.robot, arguments.folders, arguments.joints)
    output = arguments.output or Path(f"{robot.name}_joint_graph.png")
    draw.write(robot, output)
    print(output)
