"""`morph-vla robots list | show | draw | check | add | vary`."""

import argparse
from pathlib import Path

from morph_vla import robots
from morph_vla.cli import robots_add, robots_check, robots_vary
from morph_vla.cli.common import add, add_folders, add_json, add_verbs
from morph_vla.cli.render import render
from morph_vla.robots import examine, screws, tool
from morph_vla.wording import table

EXAMPLES = """
  morph-vla robots list
  morph-vla robots show panda
  morph-vla robots show panda --descriptors geometry
  morph-vla robots show ./my_humanoid.urdf --joints 'left_arm_*,right_arm_*' --json
  morph-vla robots draw panda -o panda.png
  morph-vla robots check ./my_arm.urdf --episode ~/datasets/lift:7
  morph-vla robots add ~/Downloads/my_arm.urdf
  morph-vla robots add scene.xml --root robot0_base --strip robot0_
  morph-vla robots add rd:iiwa14
  morph-vla robots vary panda --seed 3 --links 0.8:1.25 --limits 0.7:1.0 --remove 1 --count 8
  morph-vla robots vary panda --set composition --count 20
"""


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
            "add": ("check a robot, add it to your folder, and print a side file to fill in", robots_add.run),
            "vary": ("draw relatives of a robot: other lengths, ranges, axes or hands", robots_vary.run),
        },
    )  # fmt: skip
    for name in ("list", "show", "draw", "check", "vary"):
        add_folders(verbs[name])
    for name in ("list", "show", "add", "vary"):
        add_json(verbs[name])
    for name in ("show", "draw", "vary"):
        add(verbs[name], "robot", "a robot's name, or the path to a URDF file", "ROBOT")
    about = "the action's joints in order, separated by commas: names, or patterns such as 'left_arm_*'"
    for name in ("show", "draw", "check", "add"):
        add(verbs[name], "--joints", about, "NAMES", type=lambda t: t.replace(",", " ").split(), default=[])
    about = "print these features of a joint too: paper (default; always printed) or geometry"
    add(verbs["show"], "--descriptors", about, "KIND", choices=("paper", "geometry"), default="paper")
    add(verbs["draw"], "-o --output", "default: ROBOT_joint_graph.png", "FILE", type=Path)
    robots_check.add_arguments(verbs["check"])
    robots_add.add_arguments(verbs["add"])
    robots_vary.add_arguments(verbs["vary"])


def run_list(arguments: argparse.Namespace) -> int:
    """A file that cannot be read is listed with its reason, and the status is 1."""
    rows = examine.listed(arguments.folders)
    cells = [(row.name, "?" if row.joints is None else row.joints, row.path) for row in rows]
    problems = [f"\n{row.name}: {row.problem}" for row in rows if row.problem]
    render(rows, arguments.json, text="\n".join([*table(("robot", "joints", "file"), cells), *problems]))
    return int(bool(problems))


def run_show(arguments: argparse.Namespace) -> None:
    """Joints with type, axis, limits, units and neighbours; the 12 features; what was assumed."""
    robot = robots.load(arguments.robot, arguments.folders, arguments.joints)
    more = {name: getattr(robot, name) for name in ("descriptors", "side", "findings")}
    text = f"{robot}\n\n{tool.listed(robot)}"
    if arguments.descriptors == "geometry":
        more["geometry"] = dict(zip(screws.GEOMETRY, screws.features(robot).T, strict=True))
        text += f"\n\n{screws.listed(robot)}"
    render(robot.as_dict() | {"urdf": robot.urdf_path} | more, arguments.json, text=text)


def run_draw(arguments: argparse.Namespace) -> None:
    """Write the picture and print its path."""
    from morph_vla.robots import draw

    robot = robots.load(arguments.robot, arguments.folders, arguments.joints)
    output = arguments.output or Path(f"{robot.name}_joint_graph.png")
    draw.write(robot, output)
    print(output)
