"""Films of trials: which are worth making, and where their still pictures lie."""

from collections.abc import Sequence
from pathlib import Path

from morph_vla.results.trial import Trial


def worth_filming(trials: Sequence[Trial]) -> list[int]:
    """Episodes to play again for their film: the first success and the first failure, where none has one."""
    wanted = []
    for outcome in ("success", "failure"):
        alike = [trial for trial in trials if trial.outcome == outcome]
        if alike and not any(trial.video for trial in alike):
            wanted.append(alike[0].episode)
    return wanted


def poster_of(film: Path) -> Path:
    """Where the still picture of a film lies: beside it."""
    return film.with_suffix(".jpg")
