"""`morph-vla robots list | show | draw | check | add`."""

import argparse
from pathlib import Path
from typing import Any

from morph_vla import robots
from morph_vla.cli import robots_add, robots_check
from morph_vla.cli.common import add_folders, add_json, add_verbs, print_json, print_table
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots`."""
    verbs = add_verbs(
        parser,
        {
            "list": ("every robot found, with its number of action joints", run_list),
            "show": ("what the policy is told about a robot: order, units, neighbours, features", run_show),
            "draw": ("a robot's rest pose beside its joint graph and the steps between its joints", run_draw),
            "check": (
                "every finding on a robot's file; with --episode, on a recording played on it",
                robots_check.run_check,
            ),
            "add": (
                "check a URDF, copy it into your folder, and print a side file to fill in",
                robots_add.run,
            ),
        },
    )
    for name in ("list", "show", "draw", "check"):
        add_folders(verbs[name])
    for name in ("list", "show", "add"):
        add_json(verbs[name])
    for name in ("show", "draw"):
        verbs[name].add_argument("robot", metavar="ROBOT", help="a robot's name, or the path to a URDF file")
    for name in ("show", "draw", "check", "add"):
        add_joints(verbs[name])
    verbs["draw"].add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: ROBOT_joint_graph.png"
    )
    robots_check.add_arguments(verbs["check"])
    robots_add.configure(verbs["add"])


def add_joints(parser: argparse.ArgumentParser) -> None:
    """`--joints`: which joints an action drives, in place of the side file's."""
    parser.add_argument(
        "--joints",
        type=lambda text: [part for part in text.replace(",", " ").split() if part],
        default=[],
        metavar="NAMES",
        help="the action's joints in order, separated by commas; names, or patterns such as 'left_arm_*'",
    )


def run_list(arguments: argparse.Namespace) -> int:
    """A file that cannot be read is listed with its reason, and the status is 1."""
    rows = []
    for name, path in robots.available(folders=arguments.folders).items():
        try:
            joints, problem = len(robots.load(name, folders=arguments.folders).joints), None
        except MorphVlaError as error:
            joints, problem = None, str(error)
        rows.append({"name": name, "joints": joints, "path": str(path), "problem": problem})
    if arguments.json:
        print_json(rows)
    else:
        shown = [
            (row["name"], row["joints"] if row["joints"] is not None else "?", row["path"]) for row in rows
        ]
        print_table(("robot", "joints", "file"), shown)
        for row in rows:
            if row["problem"]:
                print(f"\n{row['name']}: {row['problem']}")
    return 1 if any(row["problem"] for row in rows) else 0


def run_show(arguments: argparse.Namespace) -> None:
    """Joints with type, axis, limits, units and neighbours; the 12 features; what was assumed."""
    robot = robots.load(arguments.robot, arguments.folders, arguments.joints)
    if arguments.json:
        print_json(as_plain(robot))
        return
    rate = "" if robot.control_rate is None else f", {robot.control_rate:g} Hz"
    print(f"{robot.name}: {len(robot.joints)} action joints{rate}, from {robot.urdf_path}\n")
    header = ("#", "joint", "type", "axis", "lower", "upper", "rest", "dataset unit", "zero", "scale", "near")
    print_table(header, [_row(robot, index) for index in range(len(robot.joints))])
    print(
        "\nlimits, rest and zero in rad (revolute) or m (prismatic); dataset value = (value - zero) * scale;"
    )
    print("near: the joints that hang on the same rigid body\n")
    features = [(index, *row) for index, row in enumerate(robot.descriptors.tolist())]
    print_table(("#", *robots.NAMES), features)
    _print_more(robot)


def _print_more(robot: Robot) -> None:
    """Joints that follow, what was assumed, and what to do about more joints than a model takes."""
    followers = [
        f"{name} = {slope:g} * {robot.names[index]} + {start:g}"
        for name, index, slope, start in robot.drives()
        if name not in robot.names
    ]
    if followers:
        print("\nfollowing:", "; ".join(followers))
    warnings = [finding for finding in robot.findings if finding.severity == "warning"]
    if warnings:
        print(f"\n{len(warnings)} warnings (robots check prints every finding); the first:\n  {warnings[0]}")
    for extra in (choose.too_many(robot.urdf, robot.names),):
        if extra:
            print(f"\n{extra}")


def _row(robot: Robot, index: int) -> tuple[object, ...]:
    joint = robot.joints[index]
    axis = " ".join(f"{component:g}" for component in joint.axis)
    neighbours = [str(other) for other, near in enumerate(robot.adjacency[index]) if near and other != index]
    kind = f"{joint.type}, gripper" if joint.is_gripper else joint.type
    return (
        *(index, joint.name, kind, axis, float(joint.lower), float(joint.upper), float(robot.rest[index])),
        *(joint.unit, float(joint.zero), float(joint.scale), " ".join(neighbours)),
    )


def as_plain(robot: Robot) -> dict[str, Any]:
    """A Robot as plain values: its joints in action order, its graph, its side file, what was found."""
    return {
        **robot.as_dict(),
        "urdf": str(robot.urdf_path),
        "descriptors": to_plain(robot.descriptors),
        "side": to_plain(robot.side),
        "findings": to_plain(robot.findings),
    }


def run_draw(arguments: argparse.Namespace) -> None:
    """Write the picture and print its path."""
    from morph_vla.robots import draw

    robot = robots.load(arguments.robot, arguments.folders, arguments.joints)
    output = arguments.output or Path(f"{robot.name}_joint_graph.png")
    draw.write(robot, output)
    print(output)
