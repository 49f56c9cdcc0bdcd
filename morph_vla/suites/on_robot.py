"""A suite held against its robot: whether the links and joints that it names are there."""

from collections.abc import Iterator

from morph_vla.errors import ConfigError, nearest
from morph_vla.robots import Robot
from morph_vla.suites.suite import Suite


def problems(suite: Suite, robot: Robot) -> Iterator[str]:
    """What the robot does not have, one sentence each."""
    links = {link.name for link in robot.urdf.links}
    named = {"expert.tool": suite.expert.tool}
    named |= {f"cameras.{name}.link": camera.link for name, camera in suite.cameras.items() if camera.link}
    for key, link in named.items():
        if link not in links:
            yield f"{key}: robot '{robot.name}' has no link '{link}'{nearest(link, links)}"
    for name in suite.objects:  # the distractors among them that lie on the table
        if name in links:
            yield f"objects.{name}: robot '{robot.name}' has a link of that name; call the object otherwise"
    yield from of_start(suite, robot)
    for joint in suite.actuators.joints:
        if joint not in robot.names:
            yield _moves_no("actuators.joints", joint, robot)


def of_start(suite: Suite, robot: Robot) -> Iterator[str]:
    """What is wrong with where the suite has joints begin, one sentence each."""
    for joint, value in suite.start.items():
        if joint not in robot.names:
            yield _moves_no("start", joint, robot)
            continue
        low, high = (float(ends[robot.names.index(joint)]) for ends in robot.stops)
        if not low <= value <= high:
            yield f"start.{joint}: {value:g} is outside the joint's limits [{low:g}, {high:g}]"


def _moves_no(key: str, joint: str, robot: Robot) -> str:
    return f"{key}: robot '{robot.name}' moves no joint '{joint}'{nearest(joint, robot.names)}"


def check(suite: Suite, robot: Robot) -> None:
    """Raise ConfigError with every problem: of another robot's model no episode is worth playing."""
    if lines := [f"{suite.path}: {problem}" for problem in problems(suite, robot)]:
        raise ConfigError("\n".join(lines))
