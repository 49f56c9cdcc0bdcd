"""What the trials of an evaluation say: success rates per task and over all, times, and why the rest failed.

Everything here is a pure function of an evaluation record's trials (JSON-shaped mappings); the intervals are
those of `results/intervals.py`. A trial belongs to a task, and is one of its task's episodes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean, median
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.results.intervals import (
    SQUARE_AND_ADD,
    Interval,
    mcnemar,
    mean_of_rates,
    median_interval,
    newcombe,
    quantile,
    tango,
    wilson,
)

__all__ = [
    "Interval",
    "average_of_tasks",
    "by_task",
    "check_trials",
    "is_error",
    "mcnemar",
    "median_interval",
    "newcombe",
    "policy_label",
    "summarise",
    "tango",
    "task_of",
    "time_to_success",
    "trials_of",
    "wilson",
]

TIME_INTERVAL = "order statistics of the median"


def time_to_success(seconds: Sequence[float], confidence: float = 0.95) -> dict[str, Any] | None:
    """Median and mean time [s] of the trials that succeeded, or None when none did.

    `low` and `high` bound the **median** (see `median_interval`); they are None with too few successes. All
    four speak of successes only: a policy that fails the slow episodes looks faster, so read the rate first.
    """
    if not seconds:
        return None
    bounds = median_interval(seconds, confidence)
    return {
        "median": float(median(seconds)),
        "mean": fmean(seconds),
        "low": bounds.low if bounds else None,
        "high": bounds.high if bounds else None,
        "count": len(seconds),
        "interval": TIME_INTERVAL,
    }


def summarise(trials: Sequence[Mapping[str, Any]], confidence: float = 0.95) -> dict[str, Any]:
    """The `summary` of an evaluation record: over all trials, and under `tasks` that of each task.

    Every trial counts: one that ended in an error is a trial that did not succeed, and `errors` says how many
    there were. `failed_clauses` counts the clause at which the other failures stopped, most frequent first.
    Without trials nothing was measured, and `rate`, `low`, `high`, `half_width` are None, never 0.
    `tasks` is empty where no trial names its task, and `average_of_tasks` is None below two tasks.
    Raises MorphVlaError naming the trial that is not well formed.
    """
    check_trials(trials)
    tasks = {task: _summary(own, confidence) for task, own in by_task(trials).items() if task}
    return {
        **_summary(trials, confidence),
        "tasks": tasks,
        "average_of_tasks": average_of_tasks(tasks, confidence),
    }


def average_of_tasks(
    tasks: Mapping[str, Mapping[str, Any]], confidence: float = 0.95
) -> dict[str, Any] | None:
    """The mean of the tasks' success rates with its interval, or None with fewer than two tasks.

    The paper's "Avg SR" is this mean. It equals the rate over all trials where the tasks have equally many.
    The interval here is narrower than the paper's +-: that is the half-width of Wilson's interval at 300
    trials, the number of one task, while three tasks' trials stand behind the mean (Table 1: 47.4 +- 5.6 is
    Wilson's 142 of 300; 5.7, 77.7 and 58.7% of 300 each give 47.4 +- 2.6).
    """
    counts = [(one["successes"], one["trials"]) for one in tasks.values()]
    if len(counts) < 2 or not all(trials for _, trials in counts):
        return None
    rate, bounds = mean_of_rates(counts, confidence)
    return {
        "rate": rate,
        "low": bounds.low,
        "high": bounds.high,
        "half_width": bounds.half_width,
        "interval": SQUARE_AND_ADD,
    }


def by_task(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Task -> its trials, in the order in which the tasks appear; "" where a trial names none."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        found.setdefault(task_of(trial), []).append(trial)
    return found


def task_of(trial: Mapping[str, Any]) -> str:
    """The task that a trial names, or ""."""
    return str(trial.get("task") or "")


def check_trials(trials: Sequence[Mapping[str, Any]]) -> None:
    """Raise MorphVlaError naming the trial that has no episode number of its own or no possible outcome."""
    seen = set()
    for place, trial in enumerate(trials):
        if not isinstance(trial, Mapping):
            raise MorphVlaError(f"trial {place} is {type(trial).__name__}, expected a mapping")
        episode = trial.get("episode")
        if not isinstance(episode, int) or isinstance(episode, bool):
            raise MorphVlaError(f"trial {place} has episode {episode!r}, expected an integer")
        if (task_of(trial), episode) in seen:
            of = f" of task '{task_of(trial)}'" if task_of(trial) else ""
            raise MorphVlaError(f"episode {episode}{of} appears twice, expected one trial per episode")
        seen.add((task_of(trial), episode))
        success, time = trial.get("success"), trial.get("time_s")
        if not isinstance(success, bool):
            raise MorphVlaError(f"episode {episode} has success {success!r}, expected true or false")
        if success and is_error(trial):
            raise MorphVlaError(f"episode {episode} ended in an error and yet counts as a success")
        if time is not None and not (isinstance(time, int | float) and isfinite(time)):
            raise MorphVlaError(f"episode {episode} has time_s {time!r}, expected seconds or null")


def is_error(trial: Mapping[str, Any]) -> bool:
    """Whether the trial ended because something broke, not because the policy failed."""
    return trial.get("ended") == "error"


def trials_of(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The record's trials; MorphVlaError when it has no such list."""
    trials = record.get("trials") if isinstance(record, Mapping) else None
    if not isinstance(trials, Sequence) or isinstance(trials, str):
        raise MorphVlaError("this is no evaluation record: it has no list of trials")
    return trials


def policy_label(record: Mapping[str, Any]) -> str:
    """The name of the policy that was evaluated, as shown to people."""
    policy = record.get("policy")
    return str(policy.get("name") or "policy") if isinstance(policy, Mapping) else "policy"


def _summary(trials: Sequence[Mapping[str, Any]], confidence: float) -> dict[str, Any]:
    quantile(confidence)
    successes = sum(trial["success"] for trial in trials)
    bounds = wilson(successes, len(trials), confidence) if trials else None
    clauses = Counter(
        str(trial.get("failed_clause") or "unknown")
        for trial in trials
        if not trial["success"] and not is_error(trial)
    )
    return {
        "successes": successes,
        "trials": len(trials),
        "errors": sum(is_error(trial) for trial in trials),
        "rate": successes / len(trials) if trials else None,
        "low": bounds.low if bounds else None,
        "high": bounds.high if bounds else None,
        "half_width": bounds.half_width if bounds else None,
        "confidence": confidence,
        "time_to_success_s": time_to_success(
            [float(t["time_s"]) for t in trials if t["success"] and t.get("time_s") is not None], confidence
        ),
        "failed_clauses": dict(clauses.most_common()),
    }
