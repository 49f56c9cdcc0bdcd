"""`morph-vla robots list | show | draw`."""

import argparse
from pathlib import Path
from typing import Any

from morph_vla import robots
from morph_vla.cli.common import add_folders, add_json, add_verbs, print_json, print_table
from morph_vla.cli.robots_check import add_arguments, run_check
from morph_vla.errors import MorphVlaError
from morph_vla.robots.dropin import to_plain

EXAMPLES = """
  morph-vla robots list
  morph-vla robots show panda
  morph-vla robots show ./my_arm.urdf --json
  morph-vla robots draw panda --output panda.png
  morph-vla robots check ./my_arm.urdf --episode ~/datasets/lift:7
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla robots`."""
    verbs = add_verbs(
        parser,
        {
            "list": ("every robot found, with its number of action joints", run_list),
            "show": ("the joints of a robot in action order, and which are neighbours", run_show),
            "draw": ("a picture of a robot's joint graph", run_draw),
            "check": (
                "every finding on a robot's file; with --episode, on a recording played on it",
                run_check,
            ),
        },
    )
    add_arguments(verbs["check"])
    for name, verb in verbs.items():
        add_folders(verb)
        if name == "check":
            continue
        if name != "list":
            verb.add_argument("robot", metavar="ROBOT", help="a robot's name, or the path to a URDF file")
        if name != "draw":
            add_json(verb)
    verbs["draw"].add_argument("--output", type=Path, metavar="FILE", help="default: ROBOT_joint_graph.png")


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
    """Joints with type, axis, limits, units and neighbours."""
    robot = robots.load(arguments.robot, folders=arguments.folders)
    if arguments.json:
        print_json(as_plain(robot))
        return
    rate = "" if robot.control_rate is None else f", {robot.control_rate:g} Hz"
    print(f"{robot.name}: {len(robot.joints)} action joints{rate}, from {robot.urdf_path}\n")
    header = ("#", "joint", "type", "axis", "lower", "upper", "dataset unit", "zero", "scale", "neighbours")
    print_table(header, [_row(robot, index) for index in range(len(robot.joints))])
    print("\nlimits and zero in rad (revolute) or m (prismatic); dataset value = (value - zero) * scale")


def _row(robot: Any, index: int) -> tuple[object, ...]:
    joint = robot.joints[index]
    axis = " ".join(f"{component:g}" for component in joint.axis)
    neighbours = [str(other) for other, near in enumerate(robot.adjacency[index]) if near and other != index]
    kind = f"{joint.type}, gripper" if joint.is_gripper else joint.type
    return (
        *(index, joint.name, kind, axis, float(joint.lower), float(joint.upper)),
        *(joint.unit, float(joint.zero), float(joint.scale), " ".join(neighbours)),
    )


def as_plain(robot: Any) -> dict[str, Any]:
    """A Robot as plain values: its joints in action order, and its graph."""
    return {
        "name": robot.name,
        "urdf": str(robot.urdf_path),
        "control_rate": robot.control_rate,
        "joints": to_plain(robot.joints),
        "rest": to_plain(robot.rest),
        "adjacency": to_plain(robot.adjacency),
        "distances": to_plain(robot.distances),
        "descriptors": to_plain(robot.descriptors),
    }


def run_draw(arguments: argparse.Namespace) -> None:
    """Write the picture and print its path."""
    from morph_vla.robots import draw

    robot = robots.load(arguments.robot, folders=arguments.folders)
    output = arguments.output or Path(f"{robot.name}_joint_graph.png")
    draw.write(robot, output)
    print(output)
