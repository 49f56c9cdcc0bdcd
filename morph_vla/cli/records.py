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


def evaluation(given: Path) -> dict[str, Any]:
    """The record of one evaluation; of a demo, that of its trained policy (the last one)."""
    _, record = read(given)
    if record["kind"] == "evaluation":
        return record
    evaluations = record.get("evaluations") or []
    if not evaluations:
        raise MorphVlaError(f"{given}: the demo's record holds no evaluation yet")
    return evaluations[-1]
