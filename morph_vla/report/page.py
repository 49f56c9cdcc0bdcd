"""The page: a Jinja2 template, what it is filled with, and writing it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_bytes
from morph_vla.report import attention, charts, episodes, kept, making, maps, rates, words
from morph_vla.report.episodes import Clips
from morph_vla.report.reading import Evaluation, evaluations
from morph_vla.results import curves
from morph_vla.results.curves import Panel
from morph_vla.results.record import Record, Study
from morph_vla.results.values import listing, mapping, number

if TYPE_CHECKING:
    from jinja2 import Template

FILE_NAME = "report.html"
MAX_BYTES = 10_000_000


def write(folder: Path | str, record: Record | Study | Sequence[Record], path: Path | None = None) -> Path:
    """Write `folder`/report.html about an evaluation, several, or a demo, whole or not at all; its path.

    Each evaluation is compared with the first of its suite. A file that is not there is left out. `path` is
    another place for the page. The page stays under MAX_BYTES (10 MB) where its tables do: it counts the
    videos that do not fit, and leaves out pictures of image tokens before that. Raises MorphVlaError, one
    sentence, when nothing was measured, and for a file outside its record's folder.
    """
    study, path = study_of(record), path or Path(folder) / FILE_NAME
    shown = evaluations(study.evaluations)
    bare, with_tokens = render(study, shown, Clips({})), True
    if len(bare) > MAX_BYTES:
        bare, with_tokens = render(study, shown, Clips({}), False), False
    room = MAX_BYTES - len(bare) - 2_000
    page = render(study, shown, episodes.choose_clips(shown, room), with_tokens)
    while room > 0 and (above := len(page) - MAX_BYTES) > 0:  # what stands beside videos was longer
        room -= above
        page = render(study, shown, episodes.choose_clips(shown, room), with_tokens)
    write_bytes(path, page)
    return path


def study_of(record: Record | Study | Sequence[Record]) -> Study:
    """What a page is about: a demo as it is, or evaluations."""
    records = (record,) if isinstance(record, Record) else record
    return records if isinstance(records, Study) else Study(evaluations=tuple(records), kind="evaluation")


def render(study: Study, shown: Sequence[Evaluation], clips: Clips, with_tokens: bool = True) -> bytes:
    """The page with the given videos in it, and pictures of image tokens where there are, in UTF-8."""
    groups, listed = rates.groups(shown), episodes.listed(shown, clips)
    # A demo's untrained and trained policy are two points, which the bars say better.
    panels, note = _learning(shown) if study.kind == "evaluation" else ([], None)
    joints = [joint for joint in map(mapping, listing(study.robot.get("joints"))) if joint]
    attended = attention.find(study, shown, listed)
    tokens = kept.find(study, shown) if with_tokens else None
    graph = making.picture(study.folder, study.pictures.get("joint_graph"))
    drawn = None if graph else charts.joint_graph(study.robot)
    parts = {
        "the training": study.training,
        "the robot's joints": graph or drawn or joints,
        "the attention between joints": attended,
        "the image tokens that are kept": tokens or not with_tokens or "image_tokens" not in study.pictures,
        "episode videos": any(trial.video for evaluation in shown for trial in evaluation.trials),
    }
    page = template("page.html.jinja").render(
        study=study,
        evaluations=shown,
        measured=[evaluation for evaluation in shown if evaluation.trials],
        groups=groups,
        tasks=[name for name, _ in groups[1:]],
        panels=panels,
        panels_note=note,
        episodes=listed,
        on_top=episodes.on_top(listed),
        graph=graph,
        drawn=drawn,
        joints=joints,
        attention=attended,
        kept=tokens,
        too_large=not with_tokens,
        clips=clips,
        absent=[name for name in parts if not parts[name]] if study.kind == "demo" else [],
    )
    # A lone surrogate, which JSON can carry and UTF-8 cannot, becomes a question mark.
    return page.encode("utf-8", "replace")


def _learning(shown: Sequence[Evaluation]) -> tuple[list[Panel], str | None]:
    """Success against training steps, or why there is no such curve (`curves.curves`)."""
    try:
        return curves.curves([evaluation.record for evaluation in shown]), None
    except MorphVlaError as error:
        return [], str(error)


@cache
def template(name: str) -> "Template":
    """A template of this folder; every value in it is escaped unless it is markup, and None is left out."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "" if value is None else value,
    )
    environment.globals |= {"charts": charts, "making": making, "rates": rates, "why": episodes.why}
    environment.globals |= {"maps": maps, "failed_at": words.failed_at}
    environment.filters |= {"count": words.count, "mapping": mapping, "number": number}
    return environment.get_template(name)
