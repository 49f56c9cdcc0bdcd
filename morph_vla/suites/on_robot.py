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
    for key, joints in (("start", suite.start), ("actuators.joints", suite.actuators.joints)):
        for joint in joints:
            if joint not in robot.names:
                near = nearest(joint, robot.names)
                yield f"{key}: robot '{robot.name}' moves no joint '{joint}'{near}"
    for joint, value in suite.start.items():
        if joint in robot.names:
            low, high = (float(ends[robot.names.index(joint)]) for ends in robot.stops)
            if not low <= value <= high:
                yield f"start.{joint}: {value:g} is outside the joint's limits [{low:g}, {high:g}]"


def check(suite: Suite, robot: Robot) -> None:
    """Raise ConfigError with every problem: of another robot's model no episode is worth playing."""
    if lines := [f"{suite.path}: {problem}" for problem in problems(suite, robot)]:
        raise ConfigError("\n".join(lines))
