"""Evaluations that may still run, for the commands that look at them."""

from pathlib import Path

from morph_vla.results import record
from morph_vla.results.record import Record


def so_far(given: Path) -> Record:
    """An evaluation as far as it has come: its record, or else its journal.

    Raises MorphVlaError as `record.read` does where there is neither.
    """
    from morph_vla.evaluation import journal

    if given.name == journal.FILE_NAME and given.is_file():
        given = given.parent
    if given.is_dir() and journal.newer(given) and (unfinished := journal.read(given)) is not None:
        return unfinished
    return record.read(given)
