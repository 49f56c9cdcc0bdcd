"""The page: its head, its sections in order, and writing it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.files.writing import write_text
from morph_vla.report import attention, episodes, hero, results, sections
from morph_vla.report.episodes import Clips
from morph_vla.report.markup import Markup, el, join, mapping
from morph_vla.report.reading import Evaluation, evaluations

FILE_NAME = "report.html"
MAX_BYTES = 12_000_000

# The page asks for nothing: a browser that reads this refuses every address but `data:`.
POLICY = "default-src 'none'; img-src data:; media-src data:"
POLICY += "; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
NO_CLIPS = Clips({}, frozenset(), 0, 0)


def write(
    folder: Path, record: Mapping[str, Any], folders: Sequence[Path] = (), path: Path | None = None
) -> Path:
    """Write `folder`/report.html for a record of kind 'evaluation' or 'demo', whole or not at all; its path.

    A record of kind 'evaluation' is one evaluation, or has a list `evaluations` of them; each is compared
    with the first of its suite. Files named in the record are read from `folder`, or those of the n-th
    evaluation from `folders`[n]; one that is not there is left out. `path` is another place for the page.
    The page stays under MAX_BYTES (12 MB): it counts the videos that do not fit.
    Raises MorphVlaError, one sentence, for another schema or kind, for malformed trials, when nothing was
    measured, and for a file that is not inside `folder`.
    """
    many = len(record.get("evaluations") or [record]) if isinstance(record, Mapping) else 1
    found = evaluations(record, list(folders) or [folder] * many)
    bare = render(folder, record, found, NO_CLIPS)
    clips = episodes.choose_clips(found, MAX_BYTES - len(_encoded(bare)) - 2_000)
    page = render(folder, record, found, clips)
    path = path or folder / FILE_NAME
    write_text(path, _encoded(page).decode("utf-8"))
    return path


def render(folder: Path, record: Mapping[str, Any], found: tuple[Evaluation, ...], clips: Clips) -> Markup:
    """The page as text, with the given videos in it."""
    parts = {
        "the training": sections.training(record),
        "the robot's joints": sections.robot(record, folder),
        "the attention between joints": _attention(record, folder, found, clips),
    }
    on_top = hero.chosen(found, clips)
    shown = [episodes.section(place, found, clips, on_top) for place in reversed(range(len(found)))]
    absent = [name for name, part in parts.items() if part is None] if record["kind"] == "demo" else []
    if not any(trial.get("video") for one in found for trial in one.trials):
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
            results.header(record, found, hero.films(found, clips)),
            results.result(found),
            # A demo's untrained and trained policy are two points, which the bars say better.
            results.curve(found) if record["kind"] == "evaluation" else None,
            results.failures(found),
            shown,
            parts.values(),
            sections.making(record, found),
        ),
        el("footer", (el("p", note) for note in notes if note)),
        el("script", Markup(_asset("report.js"))),
    )
    return join(Markup("<!doctype html>\n"), el("html", _head(results.headline(found)), body, lang="en"))


def _attention(
    record: Mapping[str, Any], folder: Path, found: tuple[Evaluation, ...], clips: Clips
) -> Markup | None:
    """That of the whole record, else of the last evaluation that has one; beside it the episode's film."""
    places = [(record, folder, len(found) - 1)]
    places += [(one.record, one.folder, place) for place, one in reversed(list(enumerate(found)))]
    for own, where, place in places:
        read = attention.find(own, [where])
        if read is not None and (part := attention.section(own, read, _film(read, found, place, clips))):
            return part
    return None


def _film(
    read: Mapping[str, Any], found: tuple[Evaluation, ...], place: int, clips: Clips
) -> tuple[str, str] | None:
    """(id of the figure, words) of the film of the episode whose attention was read."""
    about = mapping(read.get("episode"))
    number = about.get("episode")
    key = (place, str(about.get("task_key") or ""), number if isinstance(number, int) else -1)
    if key not in clips.files:
        return None
    tasks = found[place].tasks
    trial = next(trial for trial in tasks[key[1]] if trial["episode"] == key[2])
    return episodes.anchor(key, list(tasks).index(key[1])), episodes.describe(trial)


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
