"""What the trials of an evaluation say: success rates per task and over all, times, and why the rest failed.

Pure functions of trials; the intervals are those of `results/intervals.py`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from morph_vla.results.intervals import SQUARE_AND_ADD, mean_of_rates, median_interval, quantile, wilson
from morph_vla.results.trial import ERROR, Trial, by_task


@dataclass(frozen=True)
class Times:
    """Seconds to success of the trials that succeeded. `low` and `high` bound the median."""

    median: float
    mean: float
    low: float | None
    high: float | None
    count: int
    interval: str = "order statistics of the median"


@dataclass(frozen=True)
class Rates:
    """How some trials ended. Without trials nothing was measured: rate and bounds are None, never 0."""

    successes: int
    trials: int
    errors: int
    """Trials that ended in an error; they count, as trials that did not succeed."""
    rate: float | None
    low: float | None
    high: float | None
    half_width: float | None
    confidence: float
    time_to_success_s: Times | None
    failed_clauses: dict[str, int]
    """The clause at which the other failures stopped -> how many, most frequent first."""

    def sentence(self, name: str) -> str:
        """`trained: 76 of 100 succeeded, 76.0% [66.8, 83.3] (95% Wilson), median 4.2 s to success`."""
        if self.rate is None or self.low is None or self.high is None:
            return f"{name}: not measured"
        measured = percent(self.rate, self.low, self.high)
        text = f"{name}: {self.successes} of {self.trials} succeeded, {measured}"
        if self.time_to_success_s:
            text += f", median {self.time_to_success_s.median:.1f} s to success"
        return f"{text}, {self.errors} ended in an error" if self.errors else text


@dataclass(frozen=True)
class Average:
    """The mean of several tasks' success rates, with its interval."""

    rate: float
    low: float
    high: float
    half_width: float
    interval: str = SQUARE_AND_ADD


@dataclass(frozen=True)
class Summary(Rates):
    """The rates over all trials, and each task's."""

    tasks: dict[str, Rates]
    """Empty where no trial names its task."""
    average_of_tasks: Average | None
    """None below two tasks."""


def percent(rate: float, low: float, high: float) -> str:
    """`76.0% [66.8, 83.3] (95% Wilson)`."""
    return f"{rate:.1%} [{100 * low:.1f}, {100 * high:.1f}] (95% Wilson)"


def time_to_success(seconds: Sequence[float], confidence: float = 0.95) -> Times | None:
    """Median and mean time [s] of the trials that succeeded, or None when none did.

    `low` and `high` bound the **median** (see `median_interval`); they are None with too few successes. All
    four speak of successes only: a policy that fails the slow episodes looks faster, so read the rate first.
    """
    if not seconds:
        return None
    bounds = median_interval(seconds, confidence)
    low, high = (bounds.low, bounds.high) if bounds else (None, None)
    return Times(float(median(seconds)), fmean(seconds), low, high, len(seconds))


def summarise(trials: Sequence[Trial], confidence: float = 0.95) -> Summary:
    """The summary of an evaluation: over all trials, and of each task that they name."""
    tasks = {task: _rates(of_task, confidence) for task, of_task in by_task(trials).items() if task}
    average = average_of_tasks(tasks, confidence)
    return Summary(**vars(_rates(trials, confidence)), tasks=tasks, average_of_tasks=average)


def average_of_tasks(tasks: Mapping[str, Rates], confidence: float = 0.95) -> Average | None:
    """The mean of the tasks' success rates with its interval, or None with fewer than two tasks.

    The paper's "Avg SR" is this mean. It equals the rate over all trials where the tasks have equally many.
    The interval here is narrower than the paper's +-: that is the half-width of Wilson's interval at 300
    trials, the number of one task, while three tasks' trials stand behind the mean (Table 1: 47.4 +- 5.6 is
    Wilson's 142 of 300; 5.7, 77.7 and 58.7% of 300 each give 47.4 +- 2.6).
    """
    counts = [(rates.successes, rates.trials) for rates in tasks.values()]
    if len(counts) < 2 or not all(trials for _, trials in counts):
        return None
    rate, bounds = mean_of_rates(counts, confidence)
    return Average(rate, bounds.low, bounds.high, bounds.half_width)


def _rates(trials: Sequence[Trial], confidence: float) -> Rates:
    quantile(confidence)
    successes = sum(trial.success for trial in trials)
    bounds = wilson(successes, len(trials), confidence) if trials else None
    failures = [trial for trial in trials if trial.outcome == "failure"]
    seconds = [float(trial.time_s) for trial in trials if trial.success and trial.time_s is not None]
    return Rates(
        successes=successes,
        trials=len(trials),
        errors=sum(trial.outcome == ERROR for trial in trials),
        rate=successes / len(trials) if trials else None,
        low=bounds.low if bounds else None,
        high=bounds.high if bounds else None,
        half_width=bounds.half_width if bounds else None,
        confidence=confidence,
        time_to_success_s=time_to_success(seconds, confidence),
        failed_clauses=dict(Counter(trial.failed_clause or "unknown" for trial in failures).most_common()),
    )
