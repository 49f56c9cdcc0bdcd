"""What a checkpoint says of a robot, so that its actions mean the same later; of one it never saw, too.

A policy can drive a robot that no training saw where nothing of the robot was measured: its statistics are
those of a body (`data.statistics: robot`), and what else training knew is the same for all robots it had.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla import robots
from morph_vla.data import recorded
from morph_vla.data.space import Space, relative, tools_of
from morph_vla.data.stats import Stats
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files import dropin
from morph_vla.files.plain import to_plain
from morph_vla.recipes.keys import Recipe
from morph_vla.robots.robot import Robot
from morph_vla.robots.tool import left_first
from morph_vla.robots.views import views
from morph_vla.training.datasets import pose_stats, read_parts, robot_stats
from morph_vla.training.part import Part
from morph_vla.training.statistics import RobotStats, of_body

MAX_TEXTS = 500  # a checkpoint keeps no more: of a dataset with a text per episode they say little
SHARED = ("control_rate", "actions", "space", "cameras", "environment", "environment_stats")
"""What an unseen robot takes over from the others, which must agree in it"""
LEFT_FIRST = "left first"  # the order of tools, and of their grippers' values
SHARE = "share of closing"  # what a gripper's value is told as, where values are poses of tools


def of_robot(robot: Robot, stats: RobotStats, space: Space = "joints") -> dict[str, Any]:
    """What the robot itself says: a suite's robot of the same name must still have all of it."""
    return {
        **({} if space == "joints" else _of_poses(robot, space)),
        "urdf_sha256": robot.urdf_sha256,
        "side_sha256": robot.side_sha256,
        "limits": [[joint.lower, joint.upper] for joint in robot.joints],
        "units": [joint.unit for joint in robot.joints],
        "affine": [[joint.scale, joint.zero] for joint in robot.joints],
        "joints": list(robot.names),
        "relative": relative(robot, space).tolist(),
        "state_stats": dataclasses.asdict(stats.state),
        "action_stats": dataclasses.asdict(stats.action),
        "statistics": stats.source,
    }


def _of_poses(robot: Robot, space: Space) -> dict[str, Any]:
    return {"space": space, "tools": tools_of(robot).frames, "grippers": SHARE, "order": LEFT_FIRST}


def of_parts(
    parts: Sequence[Part],
    stats: Mapping[str, RobotStats],
    poses: Mapping[str, Stats | None],
    space: Space = "joints",
) -> dict[str, dict[str, Any]]:
    """Of each robot of a run what its checkpoints say, in the recipe's order."""
    known = {}
    for name in dict.fromkeys(part.asked.robot for part in parts):
        own = [part for part in parts if part.asked.robot == name]
        asked, recordings = own[0].asked, own[0].recordings
        # Whatever any of its datasets was looked at through; where two differ, the first one's. A camera that
        # has a slot is asked for in no other.
        cameras: dict[str, str] = {}
        sizes: dict[str, list[int]] = {}
        for part in own:
            shown = {*cameras.values()}
            new = {slot: camera for slot, camera in part.asked.cameras.items() if camera not in shown}
            cameras = new | cameras
            sizes = {name: list(size) for name, size in part.recordings.sizes.items()} | sizes
        texts = sorted({text for part in own for text in part.recordings.tasks})
        known[name] = {
            **of_robot(own[0].robot, stats[name], space),
            "tasks": texts if len(texts) <= MAX_TEXTS else [],
            "sizes": sizes,
            **_of_views(own),
            "control_rate": recordings.fps,
            "actions": asked.actions,
            "cameras": cameras,
            **of_environment(recordings.environment_names, poses[name]),
        }
    return known


def _of_views(own: Sequence[Part]) -> dict[str, Any]:
    """From where each camera of one robot's datasets looked, where `morph-vla record` made all of them."""
    robot, known = own[0].robot, dict[str, list[list[float]]]()
    for part in own:
        scenes = recorded.scenes(part.recordings.root)
        if not scenes:
            return {}
        for scene in scenes:
            posture = robot.rest.copy()
            for name in {*scene.start} & {*robot.names}:
                posture[robot.names.index(name)] = scene.start[name]
            for camera, view in views(robot, posture, scene.cameras, scene.middle).items():
                rounded = [round(value, 4) for value in view]
                if camera in part.asked.cameras.values() and rounded not in known.setdefault(camera, []):
                    known[camera].append(rounded)
    return {"views": known} if known else {}


def of_recipe(recipe: Recipe, parts: Sequence[Part] | None = None) -> dict[str, dict[str, Any]]:
    """The same before anything is trained: values are read, no frame. Raises as `source.Source`.

    `parts` are the recipe's datasets where they have been read already.
    """
    parts = parts or read_parts(recipe)
    names = dict.fromkeys(part.asked.robot for part in parts)
    stats = {name: robot_stats(recipe, name, parts) for name in names}
    poses = {name: pose_stats(recipe, name, parts) for name in names}
    return of_parts(parts, stats, poses, recipe.data.space)


def of_environment(names: tuple[str, ...], stats: Stats | None) -> dict[str, Any]:
    """The names and statistics of poses; nothing where the model reads none."""
    return (
        {} if stats is None else {"environment": list(names), "environment_stats": dataclasses.asdict(stats)}
    )


def called(known: Collection[str], name: str) -> str | None:
    """The one of the `known` robots that is called as `name` is: a recipe may have named it by its file."""
    wanted = dropin.name_of("robots", name)
    return next((other for other in known if dropin.name_of("robots", other) == wanted), None)


def check_joints(known: Mapping[str, Any], robot: Robot, where: Path) -> None:
    """Raise MorphVlaError where the robot's joints, or their order, are not those a policy was trained on."""
    if list(known["joints"]) != list(robot.names):
        raise MorphVlaError(
            f"{where}: trained on joints {', '.join(known['joints'])}; "
            f"robot '{robot.name}' now has {', '.join(robot.names)}"
        )


def check_grippers(known: Mapping[str, Any], robot: Robot, where: Path) -> None:
    """Raise MorphVlaError where a policy in a space of tools learnt a gripper as its dataset counts it.

    Until 2026-11-25 all did: one that counts from closed to open would now be driven the wrong way round.
    """
    if known.get("space", "joints") == "joints" or known.get("grippers") == SHARE:
        return
    for name, gripper in robot.side.grippers.items():
        if (gripper.dataset_open, gripper.dataset_closed) != (0.0, 1.0):
            raise MorphVlaError(
                f"{where}: robot '{robot.name}': '{name}' was trained as its dataset counts it "
                f"({gripper.dataset_open:g} open, {gripper.dataset_closed:g} closed), and is told as its "
                f"{SHARE} now (data.space: {known['space']}): train it anew"
            )


def check_order(known: Mapping[str, Any], name: str, where: Path) -> None:
    """Raise MorphVlaError where a policy learnt two tools in another order than left first (`robots.tool`).

    Until 2026-11-29 the order was that of the side file's grippers, and of their values that of its joints.
    """
    if known.get("space", "joints") == "joints":
        return
    tools = list(known.get("tools", ()))
    closing = [joint for joint in known["joints"] if joint in tools]
    places = [(frame[0][3], frame[1][3]) for frame in known.get("tools", {}).values()]
    of_old = known.get("order") != LEFT_FIRST and closing and closing != tools
    if of_old or left_first(places) != list(range(len(tools))):
        raise MorphVlaError(
            f"{where}: robot '{name}' was trained with its tools as {', '.join(tools)} and its grippers as "
            f"{', '.join(closing)}; the left one is the first now (data.space: {known['space']}): "
            "train it anew"
        )


def _check_counts(known: Mapping[str, Mapping[str, Any]], where: Path) -> None:
    """Raise MorphVlaError where an unseen robot's gripper would be told as its share of closing (`SHARE`) to
    a policy that learnt others as their datasets count them; what it stored of their ranges says so.
    """
    for name, about in known.items():
        if about.get("space", "joints") == "joints" or about.get("grippers") == SHARE:
            continue
        stats = about["state_stats"]
        for low, high, is_of_pose in zip(stats["q01"], stats["q99"], about["relative"], strict=True):
            if not is_of_pose and (low, high) != (0.0, 1.0):
                raise MorphVlaError(
                    f"{where}: the gripper of '{name}' was trained as its dataset counts it ({low:g} to "
                    f"{high:g}), and that of an unseen robot is told as its {SHARE}: train it anew"
                )


def unseen(known: Mapping[str, Mapping[str, Any]], name: str, where: Path) -> tuple[Robot, dict[str, Any]]:
    """A robot that none of the `known` ones is, and what a checkpoint at `where` would say of it.

    Raises MorphVlaError where a policy cannot drive a robot that it has not seen, and as `robots.load`.
    """
    if any(about.get("statistics") != "robot" for about in known.values()):
        raise MorphVlaError(
            f"{where} was not trained on robot '{name}'{nearest(name, known)} ({', '.join(known)}); only a "
            "policy trained with data.statistics: robot can drive one that it has not seen"
        )
    _check_counts(known, where)
    for trained_name, about in known.items():
        check_order(about, trained_name, where)
    first, *others = known.values()
    unlike = [
        key for key in SHARED if any(to_plain(other.get(key)) != to_plain(first.get(key)) for other in others)
    ]
    if unlike:
        raise MorphVlaError(
            f"{where} was not trained on robot '{name}', and those it was trained on differ in "
            f"{', '.join(unlike)}: nobody says which holds for it"
        )
    # Of pictures in several sizes nobody knows which: then none is asked for (`evaluation.fit`).
    one_size = all(to_plain(other.get("sizes")) == to_plain(first.get("sizes")) for other in others)
    robot = robots.load(name)
    space = first.get("space", "joints")
    about = of_robot(robot, of_body(robot, first["actions"], space), space)
    tasks = sorted({text for each in known.values() for text in each.get("tasks", ())})
    return robot, {
        **about,
        "tasks": tasks,
        **{key: first[key] for key in SHARED if key in first},
        "sizes": first.get("sizes", {}) if one_size else {},
        **_all_views([*known.values()]),
        "unseen": True,
    }


def _all_views(known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """From where the cameras of any of the robots looked; nothing where that is not known of all."""
    if not all("views" in about for about in known):
        return {}
    every: dict[str, list[list[float]]] = {}
    for about in known:
        for camera, views_of_one in about["views"].items():
            seen = every.setdefault(camera, [])
            seen += [view for view in views_of_one if view not in seen]
    return {"views": every}
