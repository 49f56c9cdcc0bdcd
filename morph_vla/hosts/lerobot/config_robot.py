"""A suite in the place of a robot, for LeRobot's programs that drive one: `--robot.type=morph_vla`."""

import dataclasses

from lerobot.robots import RobotConfig

from morph_vla.engines import by_name as engines


@RobotConfig.register_subclass("morph_vla")
@dataclasses.dataclass(kw_only=True)
class SuiteRobotConfig(RobotConfig):
    """Given as `--robot.suite=so101_pick_orange`; by this class's name LeRobot finds `robot.SuiteRobot`."""

    suite: str = "droid_panda:cube_in_bowl"
    """One task of a suite"""
    row: int = 0
    """Of the table of initial states, in which the first episode begins; a new connection has the next"""
    overrides: list[str] = dataclasses.field(default_factory=list)
    """Changes to the suite: `--robot.overrides='["episode_seconds=60"]'`"""
    engine: str = engines.DEFAULT
