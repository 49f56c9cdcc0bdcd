"""How large the demo is, and of what."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.demo import ALONE, ARMS, AS_IT_IS, BASE, FROM_BASE, NO_BASE, Size
from morph_vla.errors import MorphVlaError

SUITE = "droid_panda"
# With a base: its own bodies had suites that were written for them too.
ARM, TASKS = "panda", ("cube_in_bowl", "can_in_mug", "banana_in_bin")
UNTRAINED_EPISODES = 5  # few, for an untrained policy uses all of every episode's time
STAGES = ("robot", "record", "train", "evaluate", "attention", "report")
WITH_BASE = ("robot", "zero-shot", "record", "train", "scratch", *STAGES[3:])
WITHOUT_TRAINING = ("robot", "zero-shot", "report")


@dataclass(frozen=True)
class Settings:
    """How large the demo is."""

    suite: str | None = None
    """Tasks of a Panda; None: SUITE, with a base those of a suite that is written for it"""
    robot: Path | None = None
    """A URDF of an arm, or the name of a registered one: it gets a suite of its own, in place of `suite`"""
    base: str | None = None
    """What is fine-tuned, as `weights` of a recipe; NO_BASE trains random weights; None: see `source`"""
    overrides: Sequence[str] = ()
    """Changes to the recipe"""
    attempts: int | None = None
    """Demonstrations to try; None: those of `size`"""
    episodes: int | None = None
    """Initial states of each task in which the trained policy is evaluated; None: those of `size`"""
    untrained_episodes: int | None = None
    """The same for those it is compared with; None: as many, but without a base at most UNTRAINED_EPISODES"""
    zero_shot: bool = False
    """The base acts as it is (`act`): nothing is recorded or trained"""
    poses_from: str = ""
    """With `zero_shot`: poses of objects come from a camera's pictures, through this estimator"""

    @property
    def source(self) -> str:
        """What is fine-tuned: BASE where neither it nor a suite nor an arm was asked for. What acts: ARMS."""
        if self.base is not None:
            return self.base
        if self.zero_shot:
            return ARMS
        return NO_BASE if self.suite or self.robot else BASE

    @property
    def has_base(self) -> bool:
        """Whether something is fine-tuned."""
        return self.source != NO_BASE

    @property
    def size(self) -> Size:
        """How much is done."""
        default = AS_IT_IS if self.zero_shot else FROM_BASE if self.has_base else ALONE
        asked = {"attempts": self.attempts, "episodes": self.episodes}
        return default._replace(**{key: value for key, value in asked.items() if value is not None})

    @property
    def writes_suite(self) -> bool:
        """Whether the arm's suite is made by the demo."""
        return self.robot is not None or (self.has_base and self.suite is None)

    @property
    def suite_name(self) -> str:
        """What its suite is called; of one that it makes, also the arm."""
        return self.robot.stem if self.robot else self.suite or (ARM if self.has_base else SUITE)

    @property
    def stages(self) -> tuple[str, ...]:
        """What is done, in order."""
        return WITHOUT_TRAINING if self.zero_shot else WITH_BASE if self.has_base else STAGES

    def _check_suite(self) -> None:
        if self.robot and self.suite:
            raise MorphVlaError(f"--robot gets a suite of its own: leave out --suite {self.suite}")

    def check_poses(self) -> None:
        """Raise MorphVlaError for an estimator where something is trained, and for two suites."""
        self._check_suite()
        if self.poses_from and not self.zero_shot:
            raise MorphVlaError("--poses-from stands before a base that acts as it is: add --zero-shot")

    def check_zero_shot(self) -> None:
        """Raise MorphVlaError where more was asked for than a base that acts as it is takes."""
        self._check_suite()
        if not self.has_base:
            raise MorphVlaError("--zero-shot: a base acts as it is; --base none names none")
        training = {"changes to a recipe": self.overrides, "--attempts": self.attempts}
        training |= {"--untrained-episodes": self.untrained_episodes}
        if asked := [words for words, value in training.items() if value]:
            raise MorphVlaError(f"--zero-shot: nothing is recorded or trained, so leave out {asked[0]}")

    @property
    def rows(self) -> tuple[int, int]:
        """Episodes of a task for those that the trained policy is compared with, and for it."""
        many, few = self.size.episodes, self.untrained_episodes
        most = many if self.has_base else UNTRAINED_EPISODES
        return min(many, most) if few is None else few, many

    @property
    def command(self) -> str:
        """The whole command, with what was left to its default."""
        words = ["morph-vla", "demo", *self.overrides]
        words += ["--robot", self.robot] if self.robot else []
        words += [] if self.writes_suite else ["--suite", self.suite_name]
        words += ["--base", self.source, "--attempts", self.size.attempts]
        words += ["--episodes", self.rows[1], "--untrained-episodes", self.rows[0]]
        return shlex.join(map(str, words))
