"""Which file the name of a suite means, which of its tasks, and of which kind it is."""

from collections.abc import Sequence
from pathlib import Path

from morph_vla.errors import ConfigError, nearest
from morph_vla.files import dropin, typed_yaml

TASKS = "tasks"  # the key of a file that holds several
KIND = "kind"  # the key of a file that is no suite of ours: another simulator's


def named(name: str | Path, folders: Sequence[Path | str] = ()) -> tuple[Path, list[str]]:
    """A suite's file, and the names of its tasks: of `name:task` that one, "" where they have no names.

    Raises MorphVlaError for an unknown suite, ConfigError for an unknown task.
    """
    file, _, wanted = str(name).partition(":")
    path = dropin.find("suites", file, folders)
    names = typed_yaml.layers(path, TASKS)
    if wanted and wanted not in names:
        known = f"its tasks are {', '.join(names)}" if names else "it holds a single one, without a name"
        raise ConfigError(f"{path}: no task '{wanted}'{nearest(wanted, names)} ({known})")
    return path, [wanted] if wanted else list(names) or [""]


def refuse_other_kinds(path: Path) -> None:
    """Raise ConfigError where the file is no suite of ours."""
    if (kind := typed_yaml.top(path, KIND)) is not None:
        raise ConfigError(
            f"{path}: a suite of kind '{kind}' is another simulator's: `morph-vla eval` and `morph-vla "
            "suites check` take it, and nothing is recorded from it"
        )
