"""Sentences about evaluations that several commands print."""

from collections.abc import Iterator

from morph_vla.results.record import Record, Stopped
from morph_vla.results.statistics import Rates


def count(number: int, noun: str) -> str:
    """`1 joint`, `2 joints`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts(numbers: dict[str, int]) -> str:
    """`1 error, 0 warnings, 2 notes` of `findings.counts`."""
    return ", ".join(count(number, nouns[:-1]) for nouns, number in numbers.items())


def rate(value: float, low: float, high: float) -> str:
    """`76.0% [66.8, 83.3] (95% Wilson)`."""
    return f"{value:.1%} [{100 * low:.1f}, {100 * high:.1f}] (95% Wilson)"


def evaluation(record: Record) -> Iterator[str]:
    """'trained: 76 of 100 succeeded, 76.0% [66.8, 83.3] (95% Wilson), median 4.2 s to success'.

    Of several tasks, the sentence of all and an indented one for each.
    """
    yield _rates(record.policy.label, record.summary)
    tasks = record.summary.tasks
    if len(tasks) > 1:
        yield from (f"  {_rates(task, rates)}" for task, rates in tasks.items())


def stopped(end: Stopped) -> str:
    """'stopped after 20 of 50 episodes: decided: ...'."""
    return f"stopped after {end.episodes} of {end.of} episodes: {end.reason}"


def _rates(name: str, rates: Rates) -> str:
    if rates.rate is None or rates.low is None or rates.high is None:
        return f"{name}: not measured"
    text = f"{name}: {rates.successes} of {rates.trials} succeeded, {rate(rates.rate, rates.low, rates.high)}"
    if rates.time_to_success_s:
        text += f", median {rates.time_to_success_s.median:.1f} s to success"
    return f"{text}, {rates.errors} ended in an error" if rates.errors else text
