"""What the benchmarks share: sides that take turns, their ratio, the machine's load, one way to print."""

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ahead
from morph_vla.cli.common import add_json, add_number
from morph_vla.cli.render import print_json
from morph_vla.errors import ConfigError, nearest
from morph_vla.wording import table

Work = Callable[[], Any]


@dataclass(frozen=True)
class Ratio:
    """Median seconds of ours and of the reference, and how many times the reference ours takes."""

    name: str
    ours_s: float
    reference: str
    reference_s: float
    ratio: float


def add_common(parser: argparse.ArgumentParser, run: Callable[..., None], repeats: int = 0) -> None:
    """`--json`, and `--repeats` with its default where there is one; `run` is what the verb calls."""
    if repeats:
        add_number(parser, "--repeats", repeats, "turns of each", least=1)
    add_json(parser)
    parser.set_defaults(run=run)


def check_names(noun: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for a name that there is none of, with the nearest."""
    for name in names:
        if name not in known:
            raise ConfigError(f"no {noun} '{name}'{nearest(name, known)} ({', '.join(known)})")


def take_turns(
    works: Mapping[str, Work], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each, all in turn, so that what else the machine does falls on every one.

    The first turn, which compiles, is not counted. `clock`: `time.process_time` counts this process alone.
    Where programs are only compiled ahead, nothing runs, and no time is a number.
    """
    if ahead.collecting():
        return dict.fromkeys(works, math.nan)
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(max(1, repeats) + 1):
        for name, work in works.items():
            begun = clock()
            work()
            taken[name].append(clock() - begun)
    return {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}


def measure(
    name: str,
    ours: Work,
    reference_name: str,
    reference: Work,
    *,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """The two sides in turn, and their ratio."""
    first, second = take_turns({"ours": ours, "reference": reference}, repeats, clock).values()
    return Ratio(name, first, reference_name, second, first / second)


def show_ratios(found: Mapping[str, Any], *, as_json: bool) -> None:
    """`show` for rows that are `Ratio`."""
    header = ("what", "ms", "against", "ms", "ratio", "times as quick")

    def cells(row: Ratio) -> tuple[object, ...]:
        ours, theirs = 1e3 * row.ours_s, 1e3 * row.reference_s
        return row.name, ours, row.reference, theirs, row.ratio, f"{1 / row.ratio:.2f}"

    show(found, header, cells, as_json=as_json)


def processor_s(pids: Iterable[int | None]) -> float:
    """Processor time of other processes so far [s]; nan where there is no /proc."""
    total = 0.0
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists():
            return float("nan")
        fields = stat.read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def load() -> float:
    """What else this machine does: its load average over the last minute."""
    return os.getloadavg()[0]


def show(
    found: Mapping[str, Any],
    header: Sequence[str],
    cells: Callable[[Any], Sequence[object]],
    *,
    as_json: bool,
    right: Iterable[int] = (),
) -> None:
    """Print facts and their "rows" as JSON, or the facts in a line and a table of `cells(row)`."""
    if as_json:
        print_json(found)
        return
    facts = [f"{name.replace('_', ' ')} {_words(value)}" for name, value in found.items() if name != "rows"]
    print(", ".join(facts), end="\n\n")
    print(*table(header, [cells(row) for row in found["rows"]], right=right), sep="\n")


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
