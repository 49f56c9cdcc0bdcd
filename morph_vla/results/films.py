"""Films of trials: which are worth making, and where their still pictures lie."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def worth_filming(trials: Sequence[Mapping[str, Any]]) -> list[int]:
    """Episodes to play again for their film: the first success and the first failure, where none has one."""
    wanted = []
    for success in (True, False):
        alike = [trial for trial in trials if trial["success"] is success and not trial.get("error")]
        if alike and not any(trial.get("video") for trial in alike):
            wanted.append(int(alike[0]["episode"]))
    return wanted


def poster_of(film: Path) -> Path:
    """Where the still picture of a film lies: beside it."""
    return film.with_suffix(".jpg")
