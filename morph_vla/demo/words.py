"""The demo's last screen: the table, the difference, the minutes, the page, and what to try next."""

from collections.abc import Iterator
from pathlib import Path

from morph_vla.results.comparison import compare
from morph_vla.results.record import Record, Study
from morph_vla.results.statistics import Rates, Summary
from morph_vla.results.values import number
from morph_vla.wording import span, table


def lines(study: Study, page: Path, suite: str, episodes: int, prefix: str = "") -> Iterator[str]:
    """What the demo measured; `prefix` stands before the commands that need the run's own robot."""
    untrained, trained = study.evaluations
    yield ""
    yield from table(
        ["task", "untrained", "trained", "", "95% Wilson", "median time to success"],
        _rows(untrained.summary, trained.summary),
        right=range(1, 6),
    )
    yield f"\n{compare(untrained, trained)}"
    seconds = {name: number(value) or 0.0 for name, value in study.seconds_by_stage.items()}
    yield f"{span(sum(seconds.values()))}: " + ", ".join(f"{name} {span(s)}" for name, s in seconds.items())
    yield f"\nThe page, with videos of episodes: {page}\n\nTry next:"
    for command, why in next_commands(page.parent, suite, trained, episodes, prefix):
        yield f"  {command}\n      {why}"


def _rows(before: Summary, after: Summary) -> list[list[str]]:
    """A row a task, and one of all where there are several."""
    rows = [_row(name, before.tasks.get(name), rates) for name, rates in after.tasks.items()]
    return rows if len(rows) == 1 else [*rows, _row("all", before, after)]


def _row(name: str, before: Rates | None, after: Rates) -> list[str]:
    time, low, high = after.time_to_success_s, after.low, after.high
    return [
        name,
        _count(before),
        _count(after),
        "" if after.rate is None else f"{after.rate:.1%}",
        "" if low is None or high is None else f"[{100 * low:.1f}, {100 * high:.1f}]",
        "-" if time is None else f"{time.median:.1f} s",
    ]


def _count(rates: Rates | None) -> str:
    return f"{rates.successes} of {rates.trials}" if rates and rates.trials else "not measured"


def next_commands(
    folder: Path, suite: str, trained: Record, episodes: int, prefix: str = ""
) -> list[tuple[str, str]]:
    """Three commands that go on from here, and what each is for."""
    sampler = trained.policy.sampler
    noise = f" --noise {sampler.noise:g}" if sampler and sampler.noise not in (None, 1.0) else ""
    checkpoint = folder / "train" / "checkpoints" / str(trained.policy.step)
    rows = f"{episodes}:{2 * episodes}"
    return [
        (
            f"{prefix}morph-vla eval {checkpoint} --suite {suite} --episodes {rows}{noise}"
            f" -o {folder}/eval/fresh",
            "the same policy from initial states that nobody has seen yet",
        ),
        (
            f"{prefix}morph-vla train panda_demo data.dataset={folder}/dataset model.depth=6"
            f" -o {folder}/deeper",
            "your own recipe: any value of `morph-vla recipes show panda_demo`, or a file in configs/",
        ),
        ("morph-vla robots add my_robot.urdf", "your own robot: a URDF is enough"),
    ]
