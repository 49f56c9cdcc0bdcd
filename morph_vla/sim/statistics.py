"""What a number of successes says: intervals, time to success, and the comparison of two evaluations.

Everything here is a pure function of counts or of an evaluation record's trials (JSON-shaped mappings).

Sources: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) for the interval of one proportion; R. G. Newcombe,
Statistics in Medicine 17 (1998) 873-890, method 10, for the difference of two; Q. McNemar, Psychometrika 12
(1947), in its exact binomial form, for paired outcomes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, takewhile
from math import hypot, isfinite, sqrt
from statistics import NormalDist, fmean, median
from typing import Any

from morph_vla.errors import MorphVlaError

TIME_INTERVAL = "order statistics of the median"
DIFFERENCE_INTERVAL = "Newcombe 1998, method 10"


@dataclass(frozen=True)
class Interval:
    """A confidence interval, in the unit of what it bounds (a rate, a difference of rates, seconds)."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of high - low."""
        return (self.high - self.low) / 2


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a success rate, inside [0, 1].

    With p = successes / trials, n = trials and z the two-sided normal quantile:
    (p + z^2/2n -+ z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n).
    0/n has low = 0 and n/n has high = 1 exactly. Raises MorphVlaError for zero trials, for counts that cannot
    be, and for a confidence outside (0, 1).
    """
    _check_counts(successes, trials)
    z = _quantile(confidence)
    # The upper bound is the mirrored lower bound of the failures, so s -> n - s is an exact symmetry.
    return Interval(_wilson_low(successes, trials, z), 1.0 - _wilson_low(trials - successes, trials, z))


def newcombe(
    successes_a: int, trials_a: int, successes_b: int, trials_b: int, confidence: float = 0.95
) -> Interval:
    """Newcombe's interval (method 10) of rate_b - rate_a for two independent samples, inside [-1, 1].

    With l, u the Wilson bounds of each rate p and d = p_b - p_a:
    [d - sqrt((p_b - l_b)^2 + (u_a - p_a)^2), d + sqrt((u_b - p_b)^2 + (p_a - l_a)^2)].
    Raises MorphVlaError as `wilson` does.
    """
    a, b = wilson(successes_a, trials_a, confidence), wilson(successes_b, trials_b, confidence)
    rate_a, rate_b = successes_a / trials_a, successes_b / trials_b
    difference = rate_b - rate_a
    return Interval(
        difference - hypot(rate_b - b.low, a.high - rate_a),
        difference + hypot(b.high - rate_b, rate_a - a.low),
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p value of McNemar's test.

    Were the success rates equal, an episode that exactly one of the two solved would be a's or b's with the
    same chance: p = min(1, 2 P[Binomial(only_a + only_b, 1/2) <= min(only_a, only_b)]).
    Without such an episode p = 1. Raises MorphVlaError for a negative count.
    """
    if only_a < 0 or only_b < 0:
        raise MorphVlaError(f"paired counts cannot be negative: only_a {only_a}, only_b {only_b}")
    count = only_a + only_b
    tail = sum(_binomials(count, min(only_a, only_b)))
    return min(1.0, float(Fraction(2 * tail, 2**count)))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Distribution-free interval of the median between two order statistics, in the values' unit.

    [x_(k), x_(n+1-k)] with the largest k for which P[Binomial(n, 1/2) < k] <= (1 - confidence) / 2: it covers
    with at least `confidence` whatever the distribution, ties included. None when even [min, max] covers less
    (fewer than 6 values at 95%). Raises MorphVlaError for a confidence outside (0, 1).
    """
    _quantile(confidence)
    ordered, count = sorted(values), len(values)
    allowed = Fraction(1 - confidence) / 2 * 2**count  # compared with whole numbers, so nothing is rounded
    tails = accumulate(_binomials(count, count // 2))
    rank = sum(1 for _ in takewhile(lambda tail: tail <= allowed, tails))
    return Interval(ordered[rank - 1], ordered[count - rank]) if rank else None


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
    """The `summary` of an evaluation record.

    Every trial counts: one that ended in an error is a trial that did not succeed, and `errors` says how many
    there were. `failed_clauses` counts the clause at which the other failures stopped, most frequent first.
    Without trials nothing was measured, and `rate`, `low`, `high`, `half_width` are None, never 0.
    Raises MorphVlaError naming the trial that is not well formed.
    """
    check_trials(trials)
    _quantile(confidence)
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


def compare(
    record_a: Mapping[str, Any], record_b: Mapping[str, Any], confidence: float = 0.95
) -> dict[str, Any]:
    """How much better b is than a: rate_b - rate_a with Newcombe's interval, and the paired counts.

    The Newcombe interval treats the two as independent samples. Where both ran the same episodes from equal
    initial states, `paired` counts the episodes that both, only a, only b or neither solved, with the exact
    McNemar p value; otherwise `paired` is None and `reason` says why. `difference`, `low` and `high` are None
    when either has no trials. Raises MorphVlaError as `summarise` does.
    """
    a, b = summarise(trials_of(record_a), confidence), summarise(trials_of(record_b), confidence)
    measured = a["trials"] > 0 and b["trials"] > 0
    bounds = None
    if measured:
        bounds = newcombe(a["successes"], a["trials"], b["successes"], b["trials"], confidence)
    reason = why_not_paired(record_a, record_b)
    return {
        "a": policy_label(record_a),
        "b": policy_label(record_b),
        "rate_a": a["rate"],
        "rate_b": b["rate"],
        "difference": b["rate"] - a["rate"] if measured else None,
        "low": bounds.low if bounds else None,
        "high": bounds.high if bounds else None,
        "confidence": confidence,
        "interval": DIFFERENCE_INTERVAL,
        "paired": None if reason else _paired(trials_of(record_a), trials_of(record_b)),
        "reason": reason,
    }


def why_not_paired(record_a: Mapping[str, Any], record_b: Mapping[str, Any]) -> str | None:
    """None when both records hold the same episodes from equal initial states, else the reason in words."""
    a = {trial["episode"]: trial for trial in trials_of(record_a)}
    b = {trial["episode"]: trial for trial in trials_of(record_b)}
    if not a or not b:
        return "one of the two has no trials"
    suites = [str((record.get("suite") or {}).get("name")) for record in (record_a, record_b)]
    if suites[0] != suites[1]:
        return f"the suites differ: {suites[0]} and {suites[1]}"
    if a.keys() != b.keys():
        only_a, only_b = len(a.keys() - b.keys()), len(b.keys() - a.keys())
        return f"the episodes differ: {only_a} only in a, {only_b} only in b"
    for episode in sorted(a):
        first, second = a[episode].get("initial"), b[episode].get("initial")
        if first is None or second is None:
            return f"episode {episode} does not say from which initial state it started"
        if first != second:
            return f"the initial states differ, first in episode {episode}"
    return None


def check_trials(trials: Sequence[Mapping[str, Any]]) -> None:
    """Raise MorphVlaError naming the trial that has no episode number of its own or no possible outcome."""
    seen = set()
    for place, trial in enumerate(trials):
        if not isinstance(trial, Mapping):
            raise MorphVlaError(f"trial {place} is {type(trial).__name__}, expected a mapping")
        episode = trial.get("episode")
        if not isinstance(episode, int) or isinstance(episode, bool):
            raise MorphVlaError(f"trial {place} has episode {episode!r}, expected an integer")
        if episode in seen:
            raise MorphVlaError(f"episode {episode} appears twice, expected one trial per episode")
        seen.add(episode)
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


def _paired(
    trials_a: Sequence[Mapping[str, Any]], trials_b: Sequence[Mapping[str, Any]]
) -> dict[str, int | float]:
    """Outcome counts over the episodes of both, and McNemar's exact p value."""
    b = {trial["episode"]: trial["success"] for trial in trials_b}
    counts = Counter((trial["success"], b[trial["episode"]]) for trial in trials_a)
    only_a, only_b = counts[True, False], counts[False, True]
    return {
        "both": counts[True, True],
        "only_a": only_a,
        "only_b": only_b,
        "neither": counts[False, False],
        "p_value": mcnemar(only_a, only_b),
    }


def _binomials(count: int, last: int) -> Iterator[int]:
    """C(count, 0), C(count, 1), ... C(count, last)."""
    term = 1
    for i in range(last + 1):
        yield term
        term = term * (count - i) // (i + 1)


def _wilson_low(successes: int, trials: int, z: float) -> float:
    if successes == 0:
        return 0.0  # the formula's exact value, free of rounding
    rate = successes / trials
    centre = rate + z**2 / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + z**2 / (4 * trials**2))
    return max(0.0, (centre - spread) / (1 + z**2 / trials))


def _quantile(confidence: float) -> float:
    """Quantile z with P[|N(0, 1)| <= z] = confidence."""
    if not 0 < confidence < 1:
        raise MorphVlaError(f"a confidence lies between 0 and 1, got {confidence}; 95% is 0.95")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check_counts(successes: int, trials: int) -> None:
    if trials == 0:
        raise MorphVlaError("0 trials: nothing was measured, so there is no rate and no interval")
    if not 0 <= successes <= trials:
        raise MorphVlaError(f"{successes} successes of {trials} trials cannot be")
