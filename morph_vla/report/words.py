"""Numbers and values in words, as the page shows them, and the tables they stand in."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from morph_vla.results.values import Real, number

FAILED_AT = {
    "lost": "lost it over the table's edge",
    "reached": "never touched the object",
    "knocked": "knocked it away, did not grasp it",
    "grasped": "touched it, did not grasp it",
    "lifted": "grasped it, did not lift it",
    "inside": "not inside the target",
    "upright": "inside, the target not upright",
    "in_place": "inside, the target dragged away",
    "at_rest": "inside, not at rest",
    "released": "inside, not released",
    "dwell": "not for the dwell time",
    "unknown": "clause not recorded",
}  # in the criterion's order


class Table(NamedTuple):
    """A table whose first column heads its rows."""

    label: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


def short(value: Real) -> str:
    """A coordinate: at most two decimals, no trailing zeros, no minus zero."""
    words = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if words in ("-0", "") else words


def percent(rate: Real | None) -> str:
    """A rate in [0, 1] as `76.0%`; an unmeasured one in words."""
    return "not measured" if rate is None else f"{100 * rate:.1f}%"


def bracket(low: Real | None, high: Real | None) -> str:
    """The bounds of a rate as `[66.8, 83.3]`, in per cent, kept on one line."""
    return "not measured" if low is None or high is None else f"[{100 * low:.1f},\u00a0{100 * high:.1f}]"


def points(difference: Real) -> str:
    """A difference of rates as `+74.0` percentage points."""
    words = f"{100 * difference:+.1f}".replace("-", "−")
    return "0.0" if words in ("+0.0", "−0.0") else words


def duration(seconds: Real) -> str:
    """Seconds as a person says them: `4.2 s`, `12 min 30 s`, `1 h 05 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    return f"{minutes} min {whole % 60:02d} s" if whole < 3600 else f"{hours} h {minutes % 60:02d} min"


def count(value: object) -> str:
    """A whole number with thousands set apart, or a dash for anything else."""
    whole = number(value)
    return "–" if whole is None else f"{whole:,.0f}".replace(",", "\u202f")


def value_words(value: object) -> str:
    """Any small JSON value as words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(value_words(item) for item in value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def plain(name: str) -> str:
    """A name of a record as words."""
    return name.replace("_", " ")


def failed_at(clause: str | None) -> str:
    """The clause of the success criterion at which an episode stopped, in words; one of another, its name."""
    return FAILED_AT.get(clause or "unknown", plain(clause or ""))


def in_order(clauses: Sequence[str]) -> list[str]:
    """Clauses in the criterion's order, those that it does not know last."""
    return [clause for clause in FAILED_AT if clause in clauses] + sorted(set(clauses) - FAILED_AT.keys())
