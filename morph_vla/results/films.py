"""Films of trials: which are worth making, and where their still pictures lie."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from morph_vla.results.trial import Trial


def worth_filming(trials: Sequence[Trial]) -> list[int]:
    """Episodes to play again for their film: a success and a failure, where none has one.

    They are the first success, and the first failure at the clause at which most failed.
    """
    clauses = Counter(trial.failed_clause for trial in trials if trial.outcome == "failure")
    wanted = []
    for outcome in ("success", "failure"):
        alike = [trial for trial in trials if trial.outcome == outcome]
        if alike and not any(trial.video for trial in alike):
            wanted.append(max(alike, key=lambda trial: clauses[trial.failed_clause]).episode)
    return wanted


def poster_of(film: Path) -> Path:
    """Where the still picture of a film lies: beside it."""
    return film.with_suffix(".jpg")
