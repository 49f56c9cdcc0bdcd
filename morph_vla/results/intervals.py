"""Intervals and tests of counts: one proportion, two, paired ones, the mean of several, a median.

Pure functions of numbers that know nothing of this project.

Sources: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927), one proportion; R. G. Newcombe, Statistics in Medicine
17 (1998) 873-890, method 10, the difference of two; T. Tango, Statistics in Medicine 17 (1998) 891-908, the
difference of paired ones; G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008) 1693-1702, sums of
estimates that have intervals of their own; Q. McNemar, Psychometrika 12 (1947), in its exact binomial form;
M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4, Student's t;
S. Holm, Scandinavian Journal of Statistics 6 (1979) 65-70, several hypotheses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, takewhile
from math import atan, comb, cos, hypot, inf, pi, sin, sqrt
from statistics import NormalDist, fmean, stdev

from morph_vla.errors import MorphVlaError
from morph_vla.results.values import Real

NEWCOMBE = "Newcombe 1998, method 10"
TANGO = "Tango 1998, paired"
SQUARE_AND_ADD = "Wilson per task, squared and added (Zou and Donner 2008)"
BISECTIONS = 45  # of an interval no longer than 2: to 6e-14


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
    z = quantile(confidence)
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


def tango(only_a: int, only_b: int, pairs: int, confidence: float = 0.95) -> Interval:
    """Tango's score interval of rate_b - rate_a where both met the same `pairs` cases, inside [-1, 1].

    The differences d that the score test does not reject, |T(d)| <= z, with q the likelihood's maximum of
    P(only a) under rate_b - rate_a = d:
    T(d) = (only_b - only_a - n d) / sqrt(n (2 q + d (1 - d))).
    T(0) is McNemar's statistic without continuity correction, so the interval excludes zero exactly where
    that test says so at this confidence. Raises MorphVlaError for zero pairs and for impossible counts.
    """
    _check_counts(only_a + only_b, pairs)
    _check_counts(min(only_a, only_b), pairs)
    z = quantile(confidence)

    def above(counted: int, other: int) -> float:
        """The upper bound of (counted - other) / pairs."""
        middle = (counted - other) / pairs
        return last(middle, 1.0, lambda d: paired_score(other, counted, pairs, d) >= -z)

    return Interval(-above(only_a, only_b), above(only_b, only_a))


def paired_score(only_a: int, only_b: int, pairs: int, difference: Real) -> float:
    """Tango's T for the hypothesis that rate_b - rate_a = `difference`."""
    q = constrained(only_a, only_b, pairs, difference)
    variance = pairs * (2 * q + difference * (1 - difference))
    gap = only_b - only_a - pairs * difference
    if variance <= 0:  # at the edge: every pair, or none, must be discordant
        return 0.0 if abs(gap) < 1e-9 else inf if gap > 0 else -inf
    return gap / sqrt(variance)


def constrained(only_a: Real, only_b: Real, pairs: Real, difference: Real) -> float:
    """The most likely P(only a) of `pairs` paired outcomes, given P(only b) = P(only a) + `difference`.

    The root in [max(0, -d), (1 - d) / 2] of 2 n q^2 - (b + a - (2 n - b + a) d) q - a d (1 - d) = 0, where
    a = only_a, b = only_b, n = pairs, d = difference.
    """
    b = (2 * pairs - only_b + only_a) * difference - only_a - only_b
    c = -only_a * difference * (1 - difference)
    root = (sqrt(max(0.0, b * b - 8 * pairs * c)) - b) / (4 * pairs)
    return min(max(root, 0.0, -difference), (1 - difference) / 2)


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p value of McNemar's test.

    Were the success rates equal, an episode that exactly one of the two solved would be a's or b's with the
    same chance: p = min(1, 2 P[Binomial(only_a + only_b, 1/2) <= min(only_a, only_b)]).
    Without such an episode p = 1. Raises MorphVlaError for a negative count.
    """
    if only_a < 0 or only_b < 0:
        raise MorphVlaError(f"paired counts cannot be negative: only_a {only_a}, only_b {only_b}")
    count = only_a + only_b
    tail = sum(comb(count, i) for i in range(min(only_a, only_b) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**count)))


def mean_of_rates(counts: Sequence[tuple[int, int]], confidence: float = 0.95) -> tuple[float, Interval]:
    """The plain mean of several success rates, each (successes, trials), with its interval.

    The distances of each rate's Wilson bounds are squared and added: with k rates p_i and their bounds l_i,
    u_i, [m - sqrt(sum (p_i - l_i)^2) / k, m + sqrt(sum (u_i - p_i)^2) / k]. With one rate it is Wilson's.
    """
    rates = [(won / trials, wilson(won, trials, confidence)) for won, trials in counts]
    mean = fmean(rate for rate, _ in rates)
    below = hypot(*(rate - bound.low for rate, bound in rates)) / len(rates)
    above = hypot(*(bound.high - rate for rate, bound in rates)) / len(rates)
    return mean, Interval(mean - below, mean + above)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Distribution-free interval of the median between two order statistics, in the values' unit.

    [x_(k), x_(n+1-k)] with the largest k for which P[Binomial(n, 1/2) < k] <= (1 - confidence) / 2: it covers
    with at least `confidence` whatever the distribution, ties included. None when even [min, max] covers less
    (fewer than 6 values at 95%). Raises MorphVlaError for a confidence outside (0, 1).
    """
    quantile(confidence)
    ordered, count = sorted(values), len(values)
    allowed = Fraction(1 - confidence) / 2 * 2**count  # compared with whole numbers, so nothing is rounded
    tails = accumulate(comb(count, i) for i in range(count // 2 + 1))
    rank = sum(1 for _ in takewhile(lambda tail: tail <= allowed, tails))
    return Interval(ordered[rank - 1], ordered[count - rank]) if rank else None


@dataclass(frozen=True)
class Mean(Interval):
    """The mean of a few values, with Student's interval and the two-sided p value of its being zero."""

    mean: float
    p_value: float


def student(values: Sequence[float], confidence: float = 0.95) -> Mean | None:
    """Student's interval of the mean of n independent values, with n - 1 degrees of freedom.

    [m - t s / sqrt(n), m + t s / sqrt(n)] with s their standard deviation and P[|T| <= t] = confidence. Equal
    values have an interval of no width. None for fewer than two. Raises MorphVlaError for a confidence
    outside (0, 1).
    """
    quantile(confidence)
    if len(values) < 2:
        return None
    mean, error, degrees = fmean(values), stdev(values) / sqrt(len(values)), len(values) - 1
    if error == 0:
        return Mean(mean, mean, mean, 0.0 if mean else 1.0)
    # t = tan(x): bisection over an angle reaches every t.
    angle = last(0.0, pi / 2, lambda x: within(sin(x) / max(cos(x), 1e-300), degrees) <= confidence)
    width = error * sin(angle) / cos(angle)
    return Mean(mean - width, mean + width, mean, 1.0 - within(abs(mean) / error, degrees))


def within(t: float, degrees: int) -> float:
    """P[|T| <= t] of Student's t with that many degrees of freedom, by its finite sum."""
    angle = atan(t / sqrt(degrees))
    odd, square = degrees % 2, cos(angle) ** 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for k in range((degrees - odd) // 2):
        total += term
        term *= square * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's p values of several hypotheses: each at most 5% exactly where it is rejected at 5% in all.

    The i-th smallest of m, from 0, is multiplied by m - i; none is smaller than one before it.
    """
    count, adjusted, largest = len(p_values), [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (count - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def quantile(confidence: float) -> float:
    """Quantile z with P[|N(0, 1)| <= z] = confidence; MorphVlaError for one outside (0, 1)."""
    if not 0 < confidence < 1:
        raise MorphVlaError(f"the confidence must be between 0 and 1, got {confidence}; 95% is 0.95")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def last(low: Real, high: Real, holds: Callable[[float], bool]) -> float:
    """The largest value in [low, high] for which `holds`, which holds at `low` and then for a while."""
    if holds(high):
        return float(high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return float(low)


def _wilson_low(successes: int, trials: int, z: float) -> float:
    if successes == 0:
        return 0.0  # the formula's exact value, free of rounding
    rate = successes / trials
    centre = rate + z**2 / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + z**2 / (4 * trials**2))
    return max(0.0, (centre - spread) / (1 + z**2 / trials))


def _check_counts(successes: int, trials: int) -> None:
    if trials == 0:
        raise MorphVlaError("0 trials: nothing was measured, so there is no rate and no interval")
    if not 0 <= successes <= trials:
        raise MorphVlaError(f"{successes} successes of {trials} trials are impossible")
