"""The page: its head, its sections in order, and writing it."""

from collections.abc import Sequence
from pathlib import Path

from morph_vla.files.writing import write_text
from morph_vla.report import attention, episodes, hero, reading, results, sections
from morph_vla.report.episodes import Clips
from morph_vla.report.markup import Markup, el, join
from morph_vla.report.reading import Evaluation, evaluations
from morph_vla.results.record import Json, Record, Study
from morph_vla.results.trial import inside
from morph_vla.results.values import integer, mapping

FILE_NAME = "report.html"
MAX_BYTES = 12_000_000

# The page asks for nothing: a browser that reads this refuses every address but `data:`.
POLICY = "default-src 'none'; img-src data:; media-src data:"
POLICY += "; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
NO_CLIPS = Clips({}, frozenset(), 0, 0)


def write(folder: Path, record: Record | Study | Sequence[Record], path: Path | None = None) -> Path:
    """Write `folder`/report.html about an evaluation, several, or a demo, whole or not at all; its path.

    Each evaluation is compared with the first of its suite. A file that is not there is left out. `path` is
    another place for the page. The page stays under MAX_BYTES (12 MB): it counts the videos that do not fit.
    Raises MorphVlaError, one sentence, when nothing was measured, and for a file outside its record's folder.
    """
    study = record if isinstance(record, Study) else _study(record)
    shown = evaluations(study.evaluations)
    bare = render(study, shown, NO_CLIPS)
    clips = episodes.choose_clips(shown, MAX_BYTES - len(_encoded(bare)) - 2_000)
    path = path or folder / FILE_NAME
    write_text(path, _encoded(render(study, shown, clips)).decode("utf-8"))
    return path


def _study(record: Record | Sequence[Record]) -> Study:
    """Evaluations without a demo around them."""
    records = (record,) if isinstance(record, Record) else tuple(record)
    return Study(evaluations=records, kind="evaluation")


def render(study: Study, shown: tuple[Evaluation, ...], clips: Clips) -> Markup:
    """The page as text, with the given videos in it."""
    parts = {
        "the training": sections.training(study.training),
        "the robot's joints": sections.robot(study),
        "the attention between joints": _attention(study, shown, clips),
    }
    on_top = hero.chosen(shown, clips)
    absent = [name for name, part in parts.items() if part is None] if study.kind == "demo" else []
    if not any(trial.video for evaluation in shown for trial in evaluation.trials):
        absent.append("episode videos")
    notes = [
        episodes.clips_note(clips),
        f"Not in this record, or not readable: {', '.join(absent)}." if absent else None,
        "Rates and intervals are computed from the trials in record.json. This file is self-contained.",
    ]
    body = el(
        "body",
        el(
            "main",
            results.header(study, shown, hero.films(shown, clips)),
            results.result(shown),
            # A demo's untrained and trained policy are two points, which the bars say better.
            results.curve(shown) if study.kind == "evaluation" else None,
            results.failures(shown),
            [episodes.section(place, shown, clips, on_top) for place in reversed(range(len(shown)))],
            parts.values(),
            sections.making(study, shown),
        ),
        el("footer", (el("p", note) for note in notes if note)),
        el("script", Markup(_asset("report.js"))),
    )
    return join(Markup("<!doctype html>\n"), el("html", _head(results.headline(shown)), body, lang="en"))


def _attention(study: Study, shown: tuple[Evaluation, ...], clips: Clips) -> Markup | None:
    """That of the whole study, else of the last evaluation that has one; beside it the episode's film."""
    name = study.pictures.get("attention")
    places = [(study.folder, inside(study.folder, name), len(shown) - 1)] if name is not None else []
    for place, evaluation in reversed(list(enumerate(shown))):
        if evaluation.record.attention:
            places.append((evaluation.record.folder, evaluation.record.attention, place))
    for folder, path, place in places:
        read = reading.attention(folder, path)
        if read is not None and (
            part := attention.section(study.robot, read, _film(read, shown, place, clips))
        ):
            return part
    return None


def _film(read: Json, shown: tuple[Evaluation, ...], place: int, clips: Clips) -> tuple[str, str] | None:
    """(id of the figure, words) of the film of the episode whose attention was read."""
    about = mapping(read.get("episode"))
    key = (place, str(about.get("task_key") or ""), integer(about.get("episode")))
    if key[2] is None or (place, key[1], key[2]) not in clips.files:
        return None
    tasks = shown[place].tasks
    trial = next(trial for trial in tasks[key[1]] if trial.episode == key[2])
    return episodes.anchor((place, *trial.key), list(tasks).index(key[1])), episodes.describe(trial)


def _head(title: str) -> Markup:
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Markup(_asset("report.css"))),
    )


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _encoded(page: str) -> bytes:
    """UTF-8; a lone surrogate, which JSON can carry and UTF-8 cannot, becomes a question mark."""
    return page.encode("utf-8", "replace")
