"""Cells that are measured once more from their records' grid: do they give the same counts?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from morph_vla.errors import MorphVlaError
from morph_vla.evidence import run as runs
from morph_vla.evidence.grid import Grid, cells
from morph_vla.evidence.run import Bars, Settings
from morph_vla.evidence.status import failure_of, read_all, require_study
from morph_vla.results.cells import CellRecord

AGAIN = "again"
"""The folder of repeated cells, in that of the study"""


@dataclass(frozen=True)
class Repeated:
    """A cell beside its record."""

    cell: str
    counts: dict[str, tuple[int, int]]
    """Body -> successes in the record, and now"""
    other_rows: tuple[str, ...]
    """Bodies of which a row came out otherwise"""
    is_same_policy: bool
    """Whether the parameters are the same bit for bit"""
    elsewhere: tuple[str, ...]
    """What is another: the processor, a package, or what judged"""
    kept: str = ""
    """Where it was measured again before, and when; nothing where that was now"""

    @property
    def is_same(self) -> bool:
        """Whether every body has the same number of successes."""
        return all(then == now for then, now in self.counts.values())

    def __str__(self) -> str:
        """`both/mix/0: the same counts on 2 bodies, row by row; the same parameters`."""
        others = [f"{body} {now}, was {then}" for body, (then, now) in self.counts.items() if then != now]
        text = f"other counts: {', '.join(others)}"
        if self.is_same:
            rows = f", other rows on {', '.join(self.other_rows)}" if self.other_rows else ", row by row"
            bodies = "1 body" if len(self.counts) == 1 else f"{len(self.counts)} bodies"
            text = f"the same counts on {bodies}{rows}"
        where = f" ({'; '.join(self.elsewhere)})" if self.elsewhere else ""
        kept = f"; not measured now, but read from {self.kept}" if self.kept else ""
        same = "the same" if self.is_same_policy else "other"
        return f"{self.cell}: {text}; {same} parameters{where}{kept}"


def again(
    grid: Grid, settings: Settings, names: Sequence[str], most: int, bars: Bars, say: Callable[[str], None]
) -> tuple[Repeated, ...]:
    """Measure finished cells once more, in `FOLDER/again`: those named, or `most` from first to last.

    One that is there already is read, and says so. Raises MorphVlaError where none is finished, for a cell
    that is not or was measured under other settings than the grid's, and for one that fails now.
    """
    require_study(settings.folder)
    records = read_all(settings.folder)
    known = {cell.name: records[cell.name] for cell in cells(grid) if cell.name in records}
    if not known:
        raise MorphVlaError(
            f"{settings.folder}: no cell of this grid is finished; there is nothing to repeat"
        )
    for name in names:
        if name not in known:
            where = f"{settings.folder}: cell '{name}' is not finished"
            raise MorphVlaError(f"{where}; `morph-vla evidence status` counts those that are")
    repeated = []
    for name in names or spread([*known], most):
        runs.run(grid, replace(settings, only=[name]), bars)  # nothing but its check of the settings
        once_more = replace(settings, folder=settings.folder / AGAIN, only=[name])
        ran = runs.run(grid, once_more, bars)
        if ran.failed:
            (cell,) = (cell for cell in cells(grid) if cell.name == name)
            why = failure_of(once_more.folder, cell).read_text(encoding="utf-8").partition("\n")[0]
            raise MorphVlaError(f"{name} failed: {why}")
        now = read_all(once_more.folder).get(name)
        if now is None:
            raise MorphVlaError(f"{name}: another process measures it again in {once_more.folder}")
        kept = f"{once_more.folder} (of {now.time}; remove it to measure anew)" if ran.there else ""
        repeated.append(replace(compared(known[name], now), kept=kept))
        say(str(repeated[-1]))
    runs.remove_frames(settings.folder / AGAIN)
    return tuple(repeated)


def spread(names: Sequence[str], most: int) -> list[str]:
    """`most` of them, evenly from the first to the last."""
    if most >= len(names):
        return [*names]
    return [names[round(place * (len(names) - 1) / max(1, most - 1))] for place in range(most)]


def compared(then: CellRecord, now: CellRecord) -> Repeated:
    """A cell's record beside that of its repetition, body by body, whose order may be another."""
    judged = {body.body: body for body in now.judged}
    pairs = [(body, judged[body.body]) for body in then.judged]
    elsewhere = [
        f"{key} {new}, was {old}"
        for key, old, new in (
            ("processor", then.machine.get("processor"), now.machine.get("processor")),
            *((key, then.versions.get(key), version) for key, version in now.versions.items()),
        )
        if old != new
    ]
    elsewhere += [
        f"the {what} of {a.body}"
        for a, b in pairs
        for what, old, new in (
            ("initial states", a.states_sha256, b.states_sha256),
            ("suite", a.resolved_sha256, b.resolved_sha256),
            ("URDF", a.urdf_sha256, b.urdf_sha256),
        )
        if None not in (old, new) and old != new
    ]
    return Repeated(
        cell=then.name,
        counts={a.body: (a.successes, b.successes) for a, b in pairs},
        other_rows=tuple(a.body for a, b in pairs if a.rows != b.rows),
        is_same_policy=all(a.policy_sha256 == b.policy_sha256 for a, b in pairs),
        elsewhere=tuple(elsewhere),
    )
