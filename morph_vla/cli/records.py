"""Records read from disk, for the commands that work on finished evaluations."""

import json
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError


def read(given: Path) -> tuple[Path, dict[str, Any]]:
    """A record and the folder it lies in; `given` is the folder, or the JSON file itself.

    Raises MorphVlaError when there is none, or it is not JSON, or not a record.
    """
    path = given / "record.json" if given.is_dir() else given
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = f"{given} holds no record.json" if given.is_dir() else f"no such folder or file: {given}"
        raise MorphVlaError(f"{hint}; a record is written by `morph-vla eval` and `morph-vla demo`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MorphVlaError(f"{path}: cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise MorphVlaError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(record, dict) or record.get("kind") not in ("evaluation", "demo"):
        raise MorphVlaError(f"{path}: not a record: expected kind 'evaluation' or 'demo'")
    return path.parent, record


def so_far(given: Path) -> tuple[Path, dict[str, Any]]:
    """An evaluation as far as it has come, and its folder: its record, or else its journal.

    Raises MorphVlaError as `read` does where there is neither.
    """
    from morph_vla.evaluation import journal

    if given.name == journal.FILE_NAME and given.is_file():
        given = given.parent
    if given.is_dir() and journal.newer(given):
        found = journal.read(given)
        if found is not None:
            return given, found
    return given if given.is_dir() else given.parent, evaluation(given)


def evaluation(given: Path) -> dict[str, Any]:
    """The record of one evaluation; of a demo, that of its trained policy (the last one)."""
    _, record = read(given)
    if record["kind"] == "evaluation":
        return record
    evaluations = record.get("evaluations") or []
    if not evaluations:
        raise MorphVlaError(f"{given}: the demo's record holds no evaluation yet")
    return evaluations[-1]
