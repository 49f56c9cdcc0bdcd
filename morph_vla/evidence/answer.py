"""From the records of a grid to its answer."""

import logging
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from morph_vla.errors import MorphVlaError
from morph_vla.evidence.asked import require_same
from morph_vla.evidence.grid import Cell, Grid, Hypothesis, as_read_now, cells, seeds_of
from morph_vla.evidence.status import failures_of, read_all, require_study
from morph_vla.results.cells import CellRecord
from morph_vla.results.evidence import Answer, Contrast, Place, conditions, contrast, judge, pooled
from morph_vla.results.values import mapping

LOG = logging.getLogger(__name__)
RECORDING = "/recording.json"


def answer(grid: Grid, folders: Sequence[Path], within_seeds: bool = False, by_info: bool = False) -> Answer:
    """What the cells in one folder, or in those of several machines, say.

    `within_seeds`: suites and datasets of one name are to be the same within a seed alone. `by_info`:
    recordings are told apart by meta/info.json alone, whatever else a recording.json says.
    Raises MorphVlaError for folders without a cell of this grid, for a file that is no record, for cells that
    were judged on different rows, for cells of one condition that differ in more than the seed, for those
    that were measured under other settings than the grid's, and for one cell with two results.
    """
    known = _joined(folders)
    asked = cells(grid)
    records = [known[cell.name] for cell in asked if cell.name in known]
    failures = {name: why for folder in folders for name, why in failures_of(asked, known, folder).items()}
    if not records and not failures:
        where = ", ".join(map(str, folders))
        raise MorphVlaError(f"{where}: no cell of this grid has ended there ({len(known)} of other grids)")
    require_same(grid, records)
    differing = _check_alike(records, within_seeds, by_info)
    if others := [record.name for record in known.values() if _is_left_out(grid, record)]:
        LOG.warning("finished cells whose seed the grid does not name are left out: %s", ", ".join(others))
    places = primary(grid, records)
    tested = [_tested(grid, name, known, records, places) for name in grid.hypotheses]
    seeds = {name: len(seeds_of(grid, name)) for name in grid.conditions}
    return Answer(
        title=grid.title,
        question=grid.question,
        margin=grid.margin,
        primary=pooled(records, places, seeds) if places else [],
        conditions=conditions(records, seeds),
        hypotheses=judge(tested, grid.margin),
        exploratory=_exploratory(grid, records, places),
        done=len(records),
        asked=len(asked),
        missing=[cell.name for cell in asked if cell.name not in known],
        failures=failures,
        hours=sum(float(s) for record in records for s in record.seconds.values()) / 3600,
        episodes=sum(len(body.rows) for record in records for body in record.judged),
        apart=differing,
        machines=sorted({str(record.machine.get("processor")) for record in records}),
        versions=_versions(records),
    )


def _joined(folders: Sequence[Path]) -> dict[str, CellRecord]:
    """The cells of all folders. Raises MorphVlaError where one was measured twice and did otherwise."""
    known: dict[str, tuple[CellRecord, Path]] = {}
    for folder in folders:
        require_study(folder)
        for name, record in read_all(folder).items():
            other, where = known.setdefault(name, (record, folder))
            if {body.body: body.rows for body in record.judged} != {b.body: b.rows for b in other.judged}:
                raise MorphVlaError(
                    f"{name} has one result in {where} and another one in {folder}; report on one of them"
                )
    return {name: record for name, (record, _) in known.items()}


def _is_left_out(grid: Grid, record: CellRecord) -> bool:
    if record.condition not in grid.conditions or record.split not in grid.splits:
        return False
    return record.seed not in seeds_of(grid, record.condition)


def _check_alike(records: Sequence[CellRecord], within_seeds: bool, by_info: bool) -> list[str]:
    """What had several contents, where it may.

    Raises MorphVlaError where the cells of a condition were measured under settings of several grids, or
    where suites or datasets of one name had several contents.
    """
    first: dict[tuple[str, str], tuple[CellRecord, dict[str, object]]] = {}
    contents: dict[tuple[str, ...], dict[tuple[str, int], CellRecord]] = {}
    for record in records:
        settings = _but_seed(record)
        other, others = first.setdefault((record.split, record.condition), (record, settings))
        if settings != others:
            raise MorphVlaError(
                f"{other.name} and {record.name} differ in more than the seed: they were measured under "
                "several states of this grid; report on folders of one of them"
            )
        for what, sha in _contents(record):
            known = contents.setdefault(what, {})
            for (other_sha, _), other in known.items():
                passed = within_seeds and record.seed != other.seed
                if sha != other_sha and not passed and not (by_info and what[0].endswith(RECORDING)):
                    more = "" if record.seed == other.seed else "; or --within-seeds, where seeds may differ"
                    raise MorphVlaError(
                        f"{other.name} and {record.name} are of several contents of one name: {what[0]} has "
                        f"SHA-256 {other_sha[:12]} and {sha[:12]}; report on cells of one of them{more}"
                    )
            known.setdefault((sha, record.seed), record)
    several = [what for what, known in contents.items() if len({sha for sha, _ in known}) > 1]
    return list(dict.fromkeys(what[0] for what in several))


def _contents(record: CellRecord) -> Iterator[tuple[tuple[str, ...], str]]:
    """What a cell was measured with: its name, with where that must be the same; SHA-256. Earlier records do
    not say it of datasets.
    """
    for name, sha in record.datasets.items():
        yield (name,), sha
    for body in record.judged:
        digests = {
            "initial states": body.states_sha256,
            "suite": body.resolved_sha256,
            "URDF": body.urdf_sha256,
        }
        for key, sha in digests.items():
            if sha is not None:
                yield (f"the {key} of body '{body.body}'", record.split), sha


def _but_seed(record: CellRecord) -> dict[str, object]:
    """What a cell was measured under, as this version reads it, its seed left out."""
    settings = as_read_now(record.settings)
    recipe = mapping(settings.get("recipe"))
    training = {key: value for key, value in mapping(recipe.get("training")).items() if key != "seed"}
    others = {key: value for key, value in settings.items() if key != "seed"}
    return {**others, "recipe": {**recipe, "training": training}}


def _tested(
    grid: Grid,
    name: str,
    known: Container[str],
    records: Sequence[CellRecord],
    places: Sequence[Place],
) -> Contrast:
    """A hypothesis on its own seeds: those of another one's `more_seeds` do not count for it."""
    hypothesis = grid.hypotheses[name]
    its = [record for record in records if record.seed in (*grid.seeds, *hypothesis.more_seeds)]
    made = contrast(its, hypothesis.better, hypothesis.than, places, name)
    return replace(made, unfinished=_unfinished(grid, known, hypothesis))


def _unfinished(grid: Grid, known: Container[str], hypothesis: Hypothesis) -> str:
    """What is not there yet of what a hypothesis is tested on; nothing where all of it is.

    A verdict that may be read at any time is not the 5% that the plan promises: whoever looks after every
    seed, and stops at a yes, says yes more often.
    """
    both, asked = (hypothesis.better, hypothesis.than), (*grid.seeds, *hypothesis.more_seeds)
    seeds = {
        split: {seed for seed in asked if all(Cell(seed, split, c).name in known for c in both)}
        for split in grid.primary
    }
    if nothing := [split for split, its_seeds in seeds.items() if not its_seeds]:
        return f"so far: nothing of {', '.join(nothing)}"
    done = len(set.intersection(*seeds.values())) if seeds else len(asked)
    return f"so far: {done} of {len(asked)} seeds" if done < len(asked) else ""


def primary(grid: Grid, records: Sequence[CellRecord]) -> list[Place]:
    """Where hypotheses are tested: the bodies of the primary splits that were not trained on.

    Where every one was trained on, all of them. The records say which bodies these are: a grid's patterns are
    no longer needed once it has been run.
    """
    of_split = [record for split in grid.primary for record in records if record.split == split]
    judged = {(record.split, body.body): body.seen for record in of_split for body in record.judged}
    return [place for place, seen in judged.items() if not seen] or [*judged]


def _exploratory(grid: Grid, records: Sequence[CellRecord], places: Sequence[Place]) -> list[Contrast]:
    """Each condition against the control of the first hypothesis, or against the first condition."""
    control = next((h.than for h in grid.hypotheses.values()), next(iter(grid.conditions)))
    tested = {frozenset((h.better, h.than)) for h in grid.hypotheses.values()}
    others = [c for c in grid.conditions if c != control and frozenset((c, control)) not in tested]
    return [contrast(records, name, control, places) for name in others if places]


def _versions(records: Sequence[CellRecord]) -> dict[str, list[str]]:
    """Package -> the versions that cells were run with."""
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    return {name: sorted(several) for name, several in versions.items()}
