"""The page of a study: bars with intervals, differences with verdicts, a table of bodies, what was run."""

import json
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_bytes, write_text
from morph_vla.report import charts
from morph_vla.report.page import template
from morph_vla.report.words import Table, bracket, count, percent, points
from morph_vla.results.evidence import Answer, Condition, Contrast, p_words
from morph_vla.results.intervals import Mean

FILE_NAME = "evidence.html"
GRADED = ("touched", "grasped", "lifted", "seconds")
SHARES = ("touched", "grasped", "lifted", "knocked", "dropped")


def write(folder: Path, answer: Answer) -> Path:
    """Write evidence.html, which opens offline and loads nothing; its path.

    Beside it evidence.json has its numbers, and for a page of the docs evidence.md has the tables, rates.svg
    the bars of the first of them and differences.svg the hypotheses, or what is exploratory without any.
    """
    figures = [(name, bars(name, rows)) for name, rows in groups(answer)]
    hypotheses = charts.mean_differences("Hypotheses", _drawn(answer.hypotheses), answer.margin)
    exploratory = charts.mean_differences("Exploratory", _drawn(answer.exploratory), answer.margin)
    page = template("evidence.html.jinja").render(
        answer=answer,
        lead=lead(answer),
        figures=figures,
        hypotheses=hypotheses,
        exploratory=exploratory,
        tables=[rates_table(name, rows) for name, rows in groups(answer)],
        contrasts=contrast_table(answer),
        graded=[graded_table(name, rows) for name, rows in groups(answer)],
    )
    path = folder / FILE_NAME
    write_bytes(path, page.encode("utf-8", "replace"))
    write_text(path.with_suffix(".json"), json.dumps(to_plain(answer), indent=1) + "\n")
    write_text(path.with_suffix(".md"), markdown(answer))
    pictures = {"rates.svg": figures[0][1] if figures else None, "differences.svg": hypotheses or exploratory}
    for name, chart in pictures.items():
        if chart is not None:
            write_bytes(folder / name, charts.picture(chart))
        else:  # of an earlier report
            (folder / name).unlink(missing_ok=True)
    return path


def lead(answer: Answer) -> list[str]:
    """Every hypothesis in a sentence."""
    return [str(each) for each in answer.hypotheses] or [
        "No hypothesis is tested: everything here is exploratory."
    ]


def groups(answer: Answer) -> list[tuple[str, list[Condition]]]:
    """`no-panda, unseen bodies` -> its conditions in the grid's order; the primary splits together first."""
    several: dict[str, list[Condition]] = {}
    for row in (*answer.primary, *answer.conditions):
        kind = "bodies that were trained on" if row.seen else "unseen bodies"
        several.setdefault(f"{row.split}, {kind}", []).append(row)
    return list(several.items())


def bars(name: str, rows: Sequence[Condition]) -> Markup:
    """A bar for each condition, with Student's interval over seeds and a dot a seed."""
    drawn = [(row.condition, row.rate, row.interval, list(row.seeds.values())) for row in rows]
    return charts.mean_bars(f"Success rates, {name}", drawn)


def rates_table(name: str, rows: Sequence[Condition]) -> Table:
    """A row a condition: its mean with the interval, each body, seeds."""
    bodies = list(dict.fromkeys(body for row in rows for body in row.bodies))
    head = ("condition", "mean over bodies", "95%, over seeds", *bodies, "seeds", "parameters")
    cells = [
        (
            row.condition,
            percent(row.rate),
            _interval(row),
            *(percent(row.bodies.get(body)) if body in row.bodies else "–" for body in bodies),
            f"{len(row.seeds)}{f' of {len(row.seeds) + row.missing}' if row.missing else ''}",
            count(row.parameters),
        )
        for row in rows
    ]
    return Table(name, head, cells)


def graded_table(name: str, rows: Sequence[Condition]) -> Table:
    """Shares of rows in which something happened, seconds to success, means of measures."""
    known = dict.fromkeys(key for row in rows for key in row.graded)
    columns = [*(key for key in GRADED if key in known), *(key for key in known if key not in GRADED)]
    cells = [(row.condition, *(_graded(key, row.graded.get(key)) for key in columns)) for row in rows]
    return Table(name, ("condition", *columns), cells)


def _graded(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return percent(value) if name in SHARES else f"{value:.2f} s" if name == "seconds" else f"{value:.3f}"


def contrast_table(answer: Answer) -> Table:
    """A row a difference."""
    head = ("difference", "points", "95%, over seeds", "seeds", "p", "Holm p", "verdict")
    rows = []
    for each in (*answer.hypotheses, *answer.exploratory):
        mean, d, name = each.estimate, each.interval, f"{each.better} − {each.than}"
        rows.append(
            (
                f"{each.name}: {name}" if each.name else name,
                points(mean.mean) if mean else "–",
                f"[{points(d.low)}, {points(d.high)}]" if d else "–",
                len(each.seeds),
                p_words(d.p_value) if d else "–",
                "–" if each.p_holm is None else p_words(each.p_holm),
                (each.verdict or "exploratory") + (f" ({each.note})" if each.note else ""),
            )
        )
    return Table("Differences", head, rows)


def markdown(answer: Answer) -> str:
    """The tables for a page of the docs."""
    tables = [contrast_table(answer), *(rates_table(name, rows) for name, rows in groups(answer))]
    ran = f"{answer.done} of {answer.asked} cells, {answer.hours:.1f} h, {answer.episodes} episodes."
    return "\n\n".join([*(_markdown(table) for table in tables), ran]) + "\n"


def _markdown(table: Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    rows = ("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
    return "\n".join([f"**{table.label}**\n", *rows])


def _interval(row: Condition) -> str:
    if (mean := row.interval) is None:
        return "one seed" if len(row.seeds) < 2 else "all seeds alike"
    return bracket(max(0.0, mean.low), min(1.0, mean.high))


def _drawn(contrasts: Sequence[Contrast]) -> list[tuple[str, Mean, str]]:
    """Label, estimate and verdict of those that have an interval."""
    return [
        (f"{each.name}: {each.better} − {each.than}".removeprefix(": "), each.interval, each.verdict or "")
        for each in contrasts
        if each.interval is not None
    ]
