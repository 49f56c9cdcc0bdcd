"""Which file the name of a suite means, which of its tasks, and of which kind it is."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from morph_vla.errors import ConfigError, nearest
from morph_vla.files import dropin, typed_yaml
from morph_vla.findings import visible

TASKS = "tasks"  # the key of a file that holds several
EARLIER = "earlier-"  # and a number: folders of an evaluation in which others are kept
KIND = "kind"  # the key of a file that is no suite of ours: another simulator's

Schema = TypeVar("Schema")


@dataclasses.dataclass(frozen=True)
class Named:
    """How one task of a suite of any kind is called."""

    name: str = ""
    """The suite's, which is its file's."""
    path: Path = Path()
    task_name: str = ""
    """Its own among several."""

    @property
    def label(self) -> str:
        """What `load` is asked for: `so101_pick_orange`, or `droid_panda:can_in_mug`."""
        return f"{self.name}:{self.task_name}" if self.task_name else self.name

    @property
    def task_key(self) -> str:
        """What a record calls the task: its own name, or the suite's where that has a single one."""
        return self.task_name or self.name


def named(name: str | Path, folders: Sequence[Path | str] = ()) -> tuple[Path, list[str]]:
    """A suite's file, and the names of its tasks: of `name:task` that one, "" where they have no names.

    Raises MorphVlaError for an unknown suite, ConfigError for an unknown task.
    """
    file, wanted = _apart(str(name))
    path = dropin.find("suites", file, folders)
    names = typed_yaml.layers(path, TASKS)
    for task in names:
        _check_name(path, task)
    if wanted and wanted not in names:
        known = f"its tasks are {', '.join(names)}" if names else "it holds a single one, without a name"
        raise ConfigError(f"{path}: no task '{wanted}'{nearest(wanted, names)} ({known})")
    return path, [wanted] if wanted else list(names) or [""]


def _check_name(path: Path, task: str) -> None:
    """Raise ConfigError for a task's name that is no folder's: an evaluation has one for each task."""
    is_kept = task.startswith(EARLIER)
    if (
        not task
        or is_kept
        or not task.isprintable()
        or task.startswith(".")
        or any(letter in task for letter in "/\\:")
    ):
        shown = visible(task, 60)
        raise ConfigError(
            f"{path}: {TASKS}: a task is called '{shown}'; expected a name without '/', '\\', ':', a dot or "
            f"'{EARLIER}' before it, and unprintable letters: it names a folder"
        )


def _apart(text: str) -> tuple[str, str]:
    """`name:task`, where folders may have colons too: a task's name has no `/`."""
    file, _, task = text.rpartition(":")
    return (text, "") if not file or "/" in task or Path(text).is_file() else (file, task)


def read(
    path: Path,
    task: str,
    overrides: Sequence[str],
    schema: type[Schema],
    problems: Callable[[Schema], Iterable[str]],
) -> Schema:
    """One task of a file, by its schema. Raises ConfigError with every problem found, one line each."""
    overrides = [overrides] if isinstance(overrides, str) else overrides  # a text is a sequence of letters
    values = typed_yaml.read(path, schema, overrides, (TASKS, task) if task else None)
    where = f"{path}: {TASKS}.{task}" if task else str(path)
    if sentences := [f"{where}: {problem}" for problem in problems(values)]:
        raise ConfigError("\n".join(sentences))
    return values


def too_short(episode_seconds: float, control_rate: float) -> Iterator[str]:
    """Whether an episode has no control step, as one sentence."""
    if episode_seconds > 0 and control_rate > 0 and round(episode_seconds * control_rate) < 1:
        yield f"episode_seconds: {episode_seconds:g} s at {control_rate:g} Hz is not one control step"


def refuse_other_kinds(path: Path) -> None:
    """Raise ConfigError where the file is no suite of ours."""
    if (kind := typed_yaml.top(path, KIND)) is not None:
        raise ConfigError(
            f"{path}: a suite of kind '{kind}' is another simulator's: `morph-vla eval` and `morph-vla "
            "suites check` take it, and nothing is recorded from it"
        )
