"""Deciding while an evaluation runs: which of two policies is better, at an error that holds at every look.

Both policies meet the same initial states. Of the pairs of outcomes, those count that exactly one of the two
solved; were the success rates equal, each would be b's with chance 1/2. A gambler who bets on these pairs
multiplies the stake by the likelihood ratio of a mixture of chances to 1/2; where the rates are equal no
strategy gains in the mean, so the stake ever reaches 1/error with a probability of at most `error` (Ville's
inequality). One may look after every episode and stop when it does. This is Robbins's mixture (Annals of
Mathematical Statistics 41, 1970) on McNemar's pairs; A. Ramdas et al., Statistical Science 38 (2023), review
the method. The bounds of the difference are the differences that the same argument does not reject, with the
likelihood's maximum over what the hypothesis leaves open (L. Wasserman, A. Ramdas, S. Balakrishnan, PNAS 117,
2020).

**Pairs must be looked at in the order of the table, never in the order in which episodes end**: successes end
sooner, so the first hundred to end are not a fair sample. `pairs_so_far` stops at the first gap.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, lgamma, log

from morph_vla.errors import MorphVlaError
from morph_vla.results.comparison import (
    Counts,
    check_comparable,
    paired_counts,
    states_differ,
    suite_difference,
)
from morph_vla.results.intervals import Interval, Real, constrained, last
from morph_vla.results.record import Record, SuiteFacts
from morph_vla.results.trial import Trial, by_key

Pairs = Sequence[tuple[bool, bool]]

ERROR = 0.05  # of saying that one is better where none is, or the other, however often one looks
MARGIN = 0.10  # a difference of rates smaller than this is called none
PRIOR = 4.0  # Beta(4, 4): bets on chances between 0.2 and 0.8, chosen for 300 episodes (docs/evaluation.md)
CELLS = 0.5  # Dirichlet(1/2, 1/2, 1/2) over only a, only b, and the rest
FAR = 1_000_000  # episodes: further than this nobody goes on


@dataclass(frozen=True)
class Look(Counts):
    """What the pairs say so far, in the table's order."""

    episodes: int
    """Pairs that were looked at."""
    of: int | None
    """Episodes in the table."""
    difference: float | None
    low: float
    high: float
    stake: float
    """What a stake of 1 has become."""
    error: Real
    margin: Real
    decision: str | None
    """`a` or `b` from the first pair on at which the stake reached 1/error, `none` where the bounds of the
    difference lie within +-margin, None where neither is the case."""
    decided_at: int | None
    """The number of pairs at that point."""
    more: int | None
    """Episodes until a decision if they go on as so far; None where that is further than a million."""


def pairs_so_far(record_a: Record, record_b: Record) -> dict[str, Pairs]:
    """Task -> (a succeeded, b succeeded) of each episode in the table's order, from the first row that both
    were asked for up to the first one lacks.

    The task is "" where trials name none. The records may be unfinished. Raises MorphVlaError where they are
    not of the same suite and criterion, where they will never share an episode, or where an episode began in
    different states.
    """
    check_comparable({"A": record_a, "B": record_b})
    asked = [record.rows for record in (record_a, record_b) if record.rows]
    if len(asked) == 2 and max(first for first, _ in asked) >= min(end for _, end in asked):
        spans = [f"{first} to {end - 1}" for first, end in asked]
        raise MorphVlaError(f"the two share no row of the table: A has {spans[0]} and B {spans[1]}")
    a, b = by_key(record_a.trials), by_key(record_b.trials)
    tasks: dict[str, list[tuple[bool, bool]]] = {task: [] for task, _ in (*a, *b)}
    for task, pairs in tasks.items():
        numbers = [episode for other, episode in (*a, *b) if other == task]
        # Not the first that ended: of many at once the short ones end first.
        first = max((record.rows[0] for record in (record_a, record_b) if record.rows), default=min(numbers))
        for key in ((task, episode) for episode in range(first, max(numbers) + 1)):
            if key not in a or key not in b:
                break
            if words := states_differ(a[key], b[key]):
                raise MorphVlaError(f"deciding early needs the same initial states, but {words}")
            pairs.append((a[key].success, b[key].success))
    return dict(tasks)


def in_turn(pairs: Mapping[str, Pairs]) -> Pairs:
    """The tasks' pairs taking turns, as far as every task has come: each counts alike at every look."""
    return [pair for turn in zip(*pairs.values(), strict=False) for pair in turn]


def stopper(
    against: Record, suite: SuiteFacts, task: str, first: int = 0, error: Real = ERROR, margin: Real = MARGIN
) -> Callable[[Sequence[Trial]], str | None]:
    """For `rollout.evaluate`: why the trials so far are enough beside the record `against`, or None.

    They are of `task`, from row `first` of the table on; `suite` is what the record will say of it, at least
    name, version and seed. Raises MorphVlaError where the two measure different things or have other seeds,
    or where `against` has no such trial.
    """
    if words := suite_difference(against, Record(suite=suite), seeds=True):
        raise MorphVlaError(f"deciding early needs the same initial states, but {words}")
    chosen = [trial for trial in against.trials if trial.task in (task, "") and trial.episode >= first]
    if not chosen:
        from_row = f" from row {first} on" if first else ""
        raise MorphVlaError(f"the record to decide against has no episode of task '{task}'{from_row}")

    def of_task(trials: Sequence[Trial], rows: tuple[int, int] | None) -> Record:
        return Record(trials=tuple(replace(trial, task=task) for trial in trials), rows=rows)

    whole, last = of_task(chosen, against.rows), max(trial.episode for trial in chosen) + 1

    def stop(trials: Sequence[Trial]) -> str | None:
        look = watch(pairs_so_far(whole, of_task(trials, (first, last)))[task], error, margin)
        return sentence(look, "the earlier one", "this one") if look.decision else None

    return stop


def evidence(only_a: Real, only_b: Real) -> float:
    """The logarithm of what a stake of 1 has become; 0 before the first pair that one alone solved.

    B(4 + only_b, 4 + only_a) / B(4, 4) * 2^(only_a + only_b), with B Euler's beta function.
    """
    gained = _log_beta(PRIOR + only_b, PRIOR + only_a) - _log_beta(PRIOR, PRIOR)
    return gained + (only_a + only_b) * log(2)


def bounds(only_a: Real, only_b: Real, pairs: Real, error: Real = ERROR) -> Interval:
    """Bounds of rate_b - rate_a that hold for all numbers of pairs at once, with probability 1 - error.

    They are wider than an interval for one look at a number of pairs fixed beforehand.
    """
    if not pairs:
        return Interval(-1.0, 1.0)
    rest = pairs - only_a - only_b
    mixture = sum(lgamma(CELLS + n) - lgamma(CELLS) for n in (only_a, only_b, rest))
    mixture += lgamma(3 * CELLS) - lgamma(3 * CELLS + pairs)

    def allowed(d: float) -> bool:
        return mixture - _likelihood(only_a, only_b, pairs, d) < log(1 / error)

    middle = (only_b - only_a) / pairs
    return Interval(-last(-middle, 1.0, lambda d: allowed(-d)), last(middle, 1.0, allowed))


def watch(pairs: Pairs, error: Real = ERROR, margin: Real = MARGIN, of: int | None = None) -> Look:
    """What the pairs say so far, in the table's order, which has `of` episodes.

    Raises MorphVlaError for an error or a margin outside (0, 1).
    """
    for name, value in (("error", error), ("margin", margin)):
        if not 0 < value < 1:
            raise MorphVlaError(f"the {name} must be between 0 and 1, got {value}; 5% is 0.05")
    counts, count = paired_counts(list(pairs)), len(pairs)
    only_a, only_b = counts.only_a, counts.only_b
    better, at = _first_decision(pairs, error)
    around = bounds(only_a, only_b, count, error)
    if better is None and count and _alike(around, margin):
        better, at = "none", count
    return Look(
        **vars(counts),
        episodes=count,
        of=of,
        difference=(only_b - only_a) / count if count else None,
        low=around.low,
        high=around.high,
        stake=exp(min(evidence(only_a, only_b), 700.0)),
        error=error,
        margin=margin,
        decision=better,
        decided_at=at,
        more=None if better else _more(only_a, only_b, count, error, margin),
    )


def sentence(look: Look, a: str = "A", b: str = "B", waiting: Sequence[str] = ()) -> str:
    """What `watch` returned, in one sentence; `waiting`: tasks of which both have no episode yet."""
    where = f"after {look.episodes} episodes" + (f" of {look.of}" if look.of else "")
    span = f"B - A between {100 * look.low:+.1f} and {100 * look.high:+.1f} points"
    if look.decision in ("a", "b"):
        winner = a if look.decision == "a" else b
        return (
            f"decided: {winner} is better (from episode {look.decided_at} on; the chance of a wrong "
            f"decision is at most {100 * look.error:g}%, however often one looks)"
        )
    if look.decision == "none":
        return f"no difference of {100 * look.margin:g} points can be expected ({where}: {span})"
    if not look.episodes:
        of_tasks = f" of {', '.join(waiting)}" if waiting else ""
        return f"undecided: no episode{of_tasks} is finished in both yet"
    if look.more is None:
        return f"undecided {where}: {span}; nothing points to an end"
    words = f"undecided {where}: {span}; go on, about {look.more} more if they go on as so far"
    left = look.of - look.episodes if look.of else look.more
    return f"{words}, and the table has {left} left" if left < look.more else words


def _first_decision(pairs: Pairs, error: Real) -> tuple[str | None, int | None]:
    only_a = only_b = 0
    for place, (a, b) in enumerate(pairs, start=1):
        only_a, only_b = only_a + (a and not b), only_b + (b and not a)
        if a != b and evidence(only_a, only_b) >= log(1 / error):
            return ("b" if only_b > only_a else "a"), place
    return None, None


def _more(only_a: int, only_b: int, count: int, error: Real, margin: Real) -> int | None:
    """About how many episodes are missing if the shares stay as they are, or None beyond FAR."""

    def decided(total: int) -> bool:
        a, b = only_a * total / count, only_b * total / count
        around = bounds(a, b, total, error)
        return _alike(around, margin) or evidence(a, b) >= log(1 / error)

    low, high = count, 2 * count
    while count and not decided(high):
        low, high = high, 2 * high
        if low > FAR:
            return None
    while high - low > max(1, low // 100):  # a forecast needs no more than two digits
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return max(1, high - count) if count else None


def _alike(around: Interval, margin: Real) -> bool:
    return -margin < around.low and around.high < margin


def _likelihood(only_a: Real, only_b: Real, pairs: Real, difference: Real) -> float:
    """The largest log likelihood of the counts where rate_b - rate_a is `difference`."""
    q = constrained(only_a, only_b, pairs, difference)
    cells = ((only_a, q), (only_b, q + difference), (pairs - only_a - only_b, 1 - difference - 2 * q))
    return sum(n * log(max(p, 1e-300)) for n, p in cells if n > 0)


def _log_beta(a: Real, b: Real) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)
