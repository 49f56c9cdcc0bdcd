"""Which trials are worth a film."""

from pathlib import Path

import pytest

from morph_vla.results import films
from morph_vla.results.trial import Trial


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        ("ssf", [0, 2]),
        ("Ssf", [2]),
        ("SFs", []),
        ("FFs", [2]),
        ("ffF", []),
        ("Sse", []),
        ("", []),
    ],
)
def test_one_success_and_one_failure_are_worth_filming(trials, wanted):
    given = [
        Trial(episode=i, success=letter in "sS", ended="error" if letter == "e" else "time",
              video=Path("v.mp4") if letter.isupper() else None)
        for i, letter in enumerate(trials)
    ]  # fmt: skip
    assert films.worth_filming(given) == wanted


def test_the_failure_is_the_first_at_the_clause_at_which_most_failed():
    clauses = ("reached", "inside", None, "inside", "lost")
    trials = [Trial(episode=7 + i, success=False, failed_clause=clause) for i, clause in enumerate(clauses)]
    assert films.worth_filming(trials) == [8]
    assert films.worth_filming(trials[:1] + trials[2:]) == [7]
