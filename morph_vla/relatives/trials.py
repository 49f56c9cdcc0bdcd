"""Relatives that can do something: each is tried, and one that fails is drawn again under another name.

The first draw has the number's own name, `panda_interpolation1_007`, those after it a letter behind it,
`panda_interpolation1_007b`. So a name says which body it is, whatever was tried before. What became of each
is in `suites.json`, so that nothing is tried twice. How a body is tried is the caller's affair.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from morph_vla.errors import ConfigError
from morph_vla.relatives import vary
from morph_vla.relatives.draft import Changes, Relative
from morph_vla.robots.robot import Robot

AGAIN = ("", *"bcdefgh")
"""What stands behind a number's name in its first draw, and in the next ones"""
FILE, LOCK = "suites.json", ".suites.lock"
"""What is known of each, and what a process holds while it adds to it"""
MAX_BYTES = 256 << 20
"""Of that file: some 500,000 trials"""


@dataclass(frozen=True)
class Trial:
    """What became of one body."""

    name: str
    digest: str
    """Of its files"""
    tasks: tuple[str, ...]
    """As they were asked for"""
    states: int
    """In which the expert tried each task"""
    successes: tuple[int, ...] = ()
    """Of each task"""
    refused: str = ""
    """Why it was not kept, in a sentence; "" where it was"""
    camera_side: str = "hand"
    """On which side of the hand its suite's camera is; those of before 2026-11-30 do not say it"""

    @property
    def asked(self) -> tuple[tuple[str, ...], int, str]:
        """What the body was tried with: tasks, states, and the side of the hand's camera."""
        return self.tasks, self.states, self.camera_side

    def __str__(self) -> str:
        """How the expert did."""
        if self.refused:
            return f"{self.name} is not kept: {self.refused}"
        return ", ".join(f"{number} of {self.states}" for number in self.successes) or "untried"


@dataclass(frozen=True)
class Journal:
    """The content of `suites.json`."""

    trials: tuple[Trial, ...] = ()


def read(folder: Path) -> dict[str, Trial]:
    """What was tried in a folder before, by name. Raises ConfigError for a file that is no such list."""
    path = folder / FILE
    if not path.is_file():
        return {}
    if path.stat().st_size > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # a tenth of a second

    # The tuple of one carries the settings, which pydantic passes on into nested standard dataclasses.
    adapter = TypeAdapter(tuple[Journal], config=ConfigDict(extra="forbid", strict=True))
    try:
        (journal,) = adapter.validate_json(b"[%b]" % path.read_bytes())
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"][1:])) or "the file"
        text = f"{path}: {place}: {problem['msg']}; expected what `morph-vla robots vary --suites` writes"
        raise ConfigError(text) from error
    return {trial.name: trial for trial in journal.trials}


def write(folder: Path, trials: Mapping[str, Trial]) -> None:
    """Keep what was tried."""
    vary.write_json(folder / FILE, Journal(tuple(trials[name] for name in sorted(trials))))


def settle(
    robot: Robot, changes: Changes, name: str, attempt: Callable[[Relative], Trial]
) -> tuple[Trial, ...]:
    """Draw the body of a name until one is not refused: all trials, that of the body which is kept last.

    Raises MorphVlaError as `vary.drawn`.
    """
    trials = []
    for letter in AGAIN:
        trials.append(attempt(vary.drawn(robot, changes, name + letter)))
        if not trials[-1].refused:
            break
    return tuple(trials)
