"""What a study's cells say: rates of conditions, paired differences with seeds as a random effect, verdicts.

Of each seed s and body b, d(s, b) is the difference of two conditions' success rates on the same rows. The
estimate is the mean over bodies and seeds; its interval is Student's t over the seeds' means, each over all
bodies. Bodies are those named, no sample: a difference is measured only over seeds of which both conditions
have every body.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from morph_vla.errors import MorphVlaError
from morph_vla.results.cells import CellRecord, Judged
from morph_vla.results.intervals import Mean, holm, student
from morph_vla.results.values import Real

Verdict = Literal["yes", "no", "undecided"]
Place = tuple[str, str]
"""A split, and a body that is judged in it"""
ERROR = 0.05  # of all hypotheses together
PRIMARY = "primary splits together"
NO_WIDTH = 1e-9
"""Half an interval so short is rounding: every seed gave the same difference, which says nothing of how far
another seed's would be"""


@dataclass(frozen=True)
class Condition:
    """How a condition does in a split: the mean over bodies of its success rates, over seeds."""

    split: str
    condition: str
    seen: bool
    """Whether these bodies were trained on"""
    rate: float
    interval: Mean | None
    """None with one seed, and where all gave the same: see NO_WIDTH"""
    seeds: dict[int, float]
    """Seed -> mean over the bodies"""
    bodies: dict[str, float]
    """Body -> mean over the seeds"""
    graded: dict[str, float]
    """What does not vanish where success is zero: shares of all rows, `seconds` of those that succeeded, and
    means of measures"""
    parameters: int | None
    missing: int
    """Seeds that the grid asks for and that are not there"""


@dataclass(frozen=True)
class Contrast:
    """The difference `better` - `than` over some places."""

    name: str
    """The hypothesis, or nothing for one that is exploratory"""
    better: str
    than: str
    places: tuple[Place, ...]
    seeds: dict[int, float]
    """Seed -> mean over the places"""
    bodies: dict[str, float]
    """`SPLIT: BODY` -> mean over the seeds"""
    estimate: Mean | None
    """None with fewer than two seeds that have every place"""
    p_holm: float | None = None
    together: int = 1
    """How many hypotheses `p_holm` is corrected for, this one among them"""
    verdict: Verdict | None = None
    flat: str = ""
    """Why all seeds say the same, so that there is no interval"""
    unfinished: str = ""
    """What is not there yet of what a hypothesis is tested on: until then it is undecided"""

    @property
    def interval(self) -> Mean | None:
        """The estimate, where seeds differ enough to give an interval; it ends where rates differ by all."""
        mean = wide(self.estimate)
        return None if mean is None else replace(mean, low=max(-1.0, mean.low), high=min(1.0, mean.high))

    @property
    def note(self) -> str:
        """Why there is no interval or no verdict, where there is none."""
        return "; ".join(filter(None, (self.flat, self.unfinished)))

    def __str__(self) -> str:
        """`H1: mix - bare: +4.2 points [-1.0, +9.4] (95%, Student's t over 5 seeds), Holm p 0.08: ...`.

        One that is tested alone has a p value that nothing corrects, and so no Holm's.
        """
        name, seeds = f"{self.name}: " if self.name else "", len(self.seeds)
        text = f"{name}{self.better} - {self.than}: {seeds} seeds have every body; two are needed"
        if (mean := self.estimate) is not None:
            text = f"{name}{self.better} - {self.than}: {100 * mean.mean:+.1f} points"
        if (d := self.interval) is not None:
            text += f" [{100 * d.low:+.1f}, {100 * d.high:+.1f}] (95%, Student's t over {seeds} seeds)"
        if self.p_holm is not None:
            text += f", {'Holm p' if self.together > 1 else 'p'} {p_words(self.p_holm)}: {self.verdict}"
        return f"{text} ({self.note})" if self.note else text


@dataclass(frozen=True)
class Answer:
    """What a study says so far, and what of it was run."""

    title: str
    question: str
    margin: Real
    primary: list[Condition]
    """Each condition over the bodies that hypotheses are tested on, of all splits together"""
    conditions: list[Condition]
    hypotheses: list[Contrast]
    exploratory: list[Contrast]
    """Each condition against the control of the first hypothesis; not corrected for their number"""
    done: int
    asked: int
    """Cells"""
    missing: list[str]
    failures: dict[str, str]
    hours: float
    episodes: int
    apart: list[str]
    """Suites and datasets in which seeds differ; within a seed every condition had the same"""
    machines: list[str]
    versions: dict[str, list[str]]

    def __str__(self) -> str:
        lines = [str(each) for each in (*self.hypotheses, *self.exploratory)]
        if self.apart:
            lines.append(f"seeds differ in: {', '.join(self.apart)}")
        return "\n".join([*lines, f"{self.done} of {self.asked} cells, {self.hours:.1f} h"])


def wide(mean: Mean | None) -> Mean | None:
    """The mean, where its interval is more than rounding (NO_WIDTH)."""
    return None if mean is None or mean.half_width <= NO_WIDTH else mean


def p_words(p_value: float) -> str:
    """A p value to four decimals."""
    return f"{p_value:.4f}" if p_value >= 1e-4 else "< 0.0001"


def pooled(
    records: Sequence[CellRecord], places: Sequence[Place], seeds: Mapping[str, int]
) -> list[Condition]:
    """Each condition over some places as if they were one split, of the seeds that have every place.

    `seeds` is of each condition how many the grid asks for.
    """
    known: dict[tuple[str, int], dict[Place, Judged]] = {}
    parameters: dict[str, int | None] = {}
    for record in records:
        parameters[record.condition] = record.parameters
        for body in record.judged:
            place = record.split, body.body
            if place in places:
                known.setdefault((record.condition, record.seed), {})[place] = body
    of_condition: dict[str, dict[int, list[Judged]]] = {}
    for (condition, seed), bodies in known.items():
        if len(bodies) == len(places):
            of_condition.setdefault(condition, {})[seed] = [bodies[place] for place in places]
    return [
        _condition(PRIMARY, condition, _seen(of_seed), of_seed, parameters[condition], seeds[condition])
        for condition, of_seed in of_condition.items()
    ]


def conditions(records: Iterable[CellRecord], seeds: Mapping[str, int]) -> list[Condition]:
    """Each condition of each split, bodies that were trained on apart from those that were not.

    `seeds` is of each how many the grid asks for.
    """
    groups: dict[tuple[str, str, bool], dict[int, list[Judged]]] = {}
    parameters: dict[tuple[str, str], int | None] = {}
    for record in records:
        parameters[record.split, record.condition] = record.parameters
        for body in record.judged:
            of_seed = groups.setdefault((record.split, record.condition, body.seen), {})
            of_seed.setdefault(record.seed, []).append(body)
    return [
        _condition(split, condition, seen, of_seed, parameters[split, condition], seeds[condition])
        for (split, condition, seen), of_seed in groups.items()
    ]


def _condition(
    split: str,
    condition: str,
    seen: bool,
    of_seed: Mapping[int, Sequence[Judged]],
    parameters: int | None,
    seeds: int,
) -> Condition:
    means = {seed: fmean(body.rate for body in bodies) for seed, bodies in of_seed.items()}
    every = [body for bodies in of_seed.values() for body in bodies]
    return Condition(
        split=split,
        condition=condition,
        seen=seen,
        rate=fmean(means.values()),
        interval=wide(student(list(means.values()))),
        seeds=means,
        bodies=_of_bodies(every),
        graded=_graded(every),
        parameters=parameters,
        missing=seeds - len(of_seed),
    )


def _seen(of_seed: Mapping[int, Sequence[Judged]]) -> bool:
    """Whether every body was trained on."""
    return all(body.seen for bodies in of_seed.values() for body in bodies)


def _of_bodies(judged: Sequence[Judged]) -> dict[str, float]:
    """Body -> its rate, averaged over seeds."""
    rates: dict[str, list[float]] = {}
    for body in judged:
        rates.setdefault(body.body, []).append(body.rate)
    return {name: fmean(several) for name, several in rates.items()}


def _graded(bodies: Sequence[Judged]) -> dict[str, float]:
    """The graded measures over all rows of all bodies and seeds; one that no row has is left out."""
    events = dict.fromkeys(name for body in bodies for name in body.events)
    letters = {name: "".join(body.events.get(name, "") for body in bodies) for name in events}
    shares = {
        name: known.count("1") / max(1, known.count("1") + known.count("0"))
        for name, known in letters.items()
    }
    measures = dict.fromkeys(name for body in bodies for name in body.least)
    values = {name: [v for body in bodies for v in body.least.get(name, ())] for name in measures}
    values["seconds"] = [v for body in bodies for v in body.seconds]
    known = {name: [v for v in several if v is not None] for name, several in values.items()}
    return shares | {name: float(fmean(several)) for name, several in known.items() if several}


def contrast(
    records: Sequence[CellRecord], better: str, than: str, places: Sequence[Place], name: str = ""
) -> Contrast:
    """The difference of two conditions over `places`.

    Raises MorphVlaError where the two were not judged on the same rows.
    """
    known = {
        (record.condition, record.seed, record.split, body.body): body
        for record in records
        for body in record.judged
    }
    differences: dict[int, list[float]] = {}
    rates: list[float] = []
    for seed in sorted({record.seed for record in records}):
        pairs = [[known.get((c, seed, *place)) for c in (better, than)] for place in places]
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        if places and len(both) == len(places):
            differences[seed] = [paired(a, b) for a, b in both]
            rates += [side.rate for pair in both for side in pair]
    columns = zip(*differences.values(), strict=True)
    of_body = {": ".join(place): fmean(column) for place, column in zip(places, columns, strict=False)}
    means = {seed: fmean(row) for seed, row in differences.items()}
    made = Contrast(name, better, than, tuple(places), means, of_body, student(list(means.values())))
    if made.estimate is None or made.interval is not None:
        return made
    return replace(made, estimate=replace(made.estimate, p_value=1.0), flat=_why_alike(rates))


def _why_alike(rates: Sequence[float]) -> str:
    """Why the differences of all seeds are the same, from the rates that they were taken of."""
    if max(rates) == 0:
        return "nothing succeeded under either condition: no interval"
    if min(rates) == 1:
        return "every row succeeded under both conditions: no interval"
    return "every seed gave the same difference: no interval"


def paired(better: Judged, than: Judged) -> float:
    """The difference of two success rates on the same rows; raises MorphVlaError where these differ."""
    for what in ("states_sha256", "resolved_sha256", "urdf_sha256"):
        sides = getattr(better, what), getattr(than, what)
        if sides[0] != sides[1] and not (what == "urdf_sha256" and None in sides):
            raise MorphVlaError(
                f"body '{better.body}': the two conditions were judged on other initial states, by another "
                f"suite or with another robot of that name ({what} {sides[0]} and {sides[1]})"
            )
    if len(better.rows) != len(than.rows):
        rows = f"{len(better.rows)} and {len(than.rows)}"
        raise MorphVlaError(f"body '{better.body}': the two conditions were judged on {rows} rows")
    return better.rate - than.rate


def judge(contrasts: Sequence[Contrast], margin: Real) -> list[Contrast]:
    """The hypotheses with their verdicts, tested together (Holm, `ERROR` in all).

    yes: the difference is above zero by Holm's test, and at least `margin`; no: the upper end of its interval
    is below `margin`; undecided: anything else. What is unfinished or has no interval has p = 1: a yes beside
    it is never taken back.
    """
    known = [None if item.unfinished else item.interval for item in contrasts]
    adjusted = holm([interval.p_value if interval else 1.0 for interval in known])
    return [
        replace(
            item,
            p_holm=p_holm if item.estimate else None,
            together=len(contrasts),
            verdict="undecided" if item.unfinished else _verdict(item.interval, p_holm, margin),
        )
        for item, p_holm in zip(contrasts, adjusted, strict=True)
    ]


def _verdict(estimate: Mean | None, p_holm: float, margin: Real) -> Verdict:
    if estimate is None:
        return "undecided"
    if p_holm <= ERROR and estimate.low > 0 and estimate.mean >= margin:
        return "yes"
    return "no" if estimate.high < margin else "undecided"
