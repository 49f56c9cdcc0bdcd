"""The main job, small and real: from a URDF to a success rate with its interval (`job.run`)."""

from typing import NamedTuple

NO_BASE = "none"
BASE = "pi05-nano"
"""What the demo fine-tunes where neither it nor a suite nor an arm is named; NO_BASE trains random weights"""
ARMS = "pi05-arms"
"""What acts where nothing is trained and no base is named"""


class Size(NamedTuple):
    """How much is done where nobody says it."""

    attempts: int
    """Demonstrations to try"""
    episodes: int
    """Initial states of each task in which a policy is evaluated"""


ALONE = Size(750, 100)
FROM_BASE = Size(300, 50)  # two trainings and three evaluations, in the same minutes
AS_IT_IS = Size(0, 25)  # one evaluation, in one minute
