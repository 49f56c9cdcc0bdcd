"""What happened in each episode: the grid, the maps of initial states, the videos and how many fit."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from morph_vla.report.maps import OUTCOMES, start_maps
from morph_vla.report.markup import Markup, duration, el, join
from morph_vla.report.reading import (
    Evaluation,
    data_uri,
    encoded_size,
    in_its_folder,
    media_type,
    task_text,
    the_policy,
)
from morph_vla.results.films import poster_of
from morph_vla.results.trial import Trial

SHOWN = 6  # videos of the last evaluation that stand open, half as many of the others; a cell opens the rest
OVERHEAD = 700  # bytes of markup around a video
NUMBERED = 200  # episodes up to which the cells of the grid carry their number

FAILED_AT = {
    "reached": "never touched the object",
    "grasped": "touched it, did not grasp it",
    "lifted": "grasped it, did not lift it",
    "inside": "not inside the target",
    "at_rest": "inside, not at rest",
    "released": "inside, not released",
    "dwell": "not for the dwell time",
}


Key = tuple[int, str, int]  # the evaluation's place, the task, the episode


@dataclass(frozen=True)
class Clips:
    """The videos (or frame strips) of the page, and how many stay outside."""

    files: Mapping[Key, Path]
    shown: frozenset[Key]
    left_out: int
    missing: int


def choose_clips(evaluations: Sequence[Evaluation], budget: int) -> Clips:
    """Pick videos until `budget` bytes of page are full, the evaluations in turn, failures among successes.

    Raises MorphVlaError for a file outside its record's folder. One that is not there, or that no browser
    shows, counts as missing.
    """
    files: dict[Key, Path] = {}
    shown: set[Key] = set()
    left_out = missing = 0
    queues = [_queue(place, evaluation) for place, evaluation in enumerate(evaluations)]
    turns = chain.from_iterable(zip_longest(*reversed(queues)))
    for key, video in (turn for turn in turns if turn is not None):
        path = in_its_folder(evaluations[key[0]].record.folder, video)
        if not path.is_file() or media_type(path) is None:
            missing += 1
        elif (size := encoded_size(path) + _poster_size(path) + OVERHEAD) <= budget:
            budget -= size
            files[key] = path
            most = SHOWN if key[0] == len(evaluations) - 1 else SHOWN // 2
            if sum(other[0] == key[0] for other in shown) < most:
                shown.add(key)
        else:
            left_out += 1
    return Clips(files, frozenset(shown), left_out, missing)


def clips_note(clips: Clips) -> str | None:
    """How many videos the page holds and how many it does not; None when there are none at all."""
    if not clips.files and not clips.left_out and not clips.missing:
        return None
    words = f"This page holds {len(clips.files)} episode videos."
    if clips.left_out:
        words += f" {clips.left_out} more did not fit into its size and lie beside it in the folder."
    if clips.missing:
        words += f" {clips.missing} named in the record are not in the folder, or no browser shows them."
    return words


def section(
    place: int, everyone: Sequence[Evaluation], clips: Clips, elsewhere: Collection[Key] = ()
) -> Markup | None:
    """Every episode of one evaluation, task by task; None when it has none.

    All but the last evaluation's are folded. Videos that stand `elsewhere` on the page are not repeated.
    """
    evaluation = everyone[place]
    if not evaluation.trials:
        return None
    blocks = [
        _block(place, nth, task, everyone, clips, elsewhere) for nth, task in enumerate(evaluation.tasks)
    ]
    title = el("h2", f"{the_policy(evaluation)}, episode by episode")
    if place != len(everyone) - 1:
        words = f"{len(evaluation.trials)} episodes"
        return el("section", title, el("details", el("summary", words), blocks, class_="fold"))
    return el("section", title, blocks)


def _block(
    place: int,
    nth: int,
    task: str,
    everyone: Sequence[Evaluation],
    clips: Clips,
    elsewhere: Collection[Key],
) -> list[Markup]:
    """One task of an evaluation: the grid of its episodes, the map, the videos."""
    evaluation = everyone[place]
    trials = sorted(evaluation.tasks[task], key=lambda trial: trial.episode)
    several = len(evaluation.tasks) > 1
    says = f"says-{place}-{nth}" if several else f"says-{place}"
    cells = [_cell((place, task, trial.episode), nth, trial, clips, says) for trial in trials]
    grid = el(
        "div",
        el("div", cells, class_=f"cells{' many' if len(cells) > NUMBERED else ''}"),
        el("p", "Choose an episode to read how it ended.", id=says, class_="says", aria_live="polite"),
        _legend(trials, dots=any(key[:2] == (place, task) for key in clips.files)),
    )
    maps = start_maps(trials, [other.tasks.get(task, []) for other in everyone])
    view = None
    if maps:
        words = (
            "Where the objects began, seen from above in the robot's base frame: dot success, cross failure"
        )
        words += ", ring error." if any(trial.outcome == "error" for trial in trials) else "."
        view = el("figure", el("div", maps, class_="maps"), el("figcaption", words))
    keys = [(place, task, trial.episode) for trial in trials]
    videos = [
        clip(key, nth, trial, clips) for key, trial in zip(keys, trials, strict=True) if key not in elsewhere
    ]
    text = task_text(evaluation, task)
    title = el("h3", task, el("span", f" “{text}”", class_="quiet") if text else None) if several else None
    pictures = el("div", videos, class_="clips") if any(videos) else None
    return [part for part in (title, el("div", grid, view, class_="two"), pictures) if part]


def describe(trial: Trial) -> str:
    """One episode in words."""
    start, seconds = f"Episode {trial.episode}", trial.time_s
    if trial.success:
        return f"{start}: success" + (f" after {duration(seconds)}" if seconds is not None else "")
    if trial.outcome == "error":
        return f"{start}: error, {trial.error or 'no message'}"
    return f"{start}: failed, {failed_at(trial.failed_clause)}"


def failed_at(clause: str | None) -> str:
    """The clause of the success criterion at which an episode stopped, in words."""
    return FAILED_AT.get(clause or "", clause or "clause not recorded")


def _queue(place: int, evaluation: Evaluation) -> list[tuple[Key, Path]]:
    """The videos of an evaluation with outcomes and tasks taking turns, so that the first show each."""
    filmed = sorted((trial for trial in evaluation.trials if trial.video), key=lambda trial: trial.episode)
    kinds = [(task, outcome) for outcome in OUTCOMES for task in evaluation.tasks]
    groups = [[trial for trial in filmed if (trial.task, trial.outcome) == kind] for kind in kinds]
    turns = (trial for trial in chain.from_iterable(zip_longest(*groups)) if trial is not None)
    return [((place, trial.task, trial.episode), trial.video) for trial in turns if trial.video]


def _cell(key: Key, nth: int, trial: Trial, clips: Clips, says: str) -> Markup:
    words = describe(trial)
    common = {
        "class_": f"cell {trial.outcome}",
        "title": words,
        "aria_label": words,
        "data_says": words,
        "data_line": says,
    }
    if key in clips.files:
        return el("a", trial.episode, href=f"#{anchor(key, nth)}", **common)
    return el("button", trial.episode, type="button", **common)


def _legend(trials: Sequence[Trial], dots: bool) -> Markup:
    counts = Counter(trial.outcome for trial in trials)
    keys = [
        join(el("span", class_=f"cell {how}", aria_hidden="true"), el("span", f"{counts[how]} {how}"))
        for how in OUTCOMES
        if counts[how]
    ]
    hint = el("span", "A dot: with video.") if dots else None
    return el("p", keys, hint, class_="note legend")


def clip(
    key: Key,
    nth: int,
    trial: Trial,
    clips: Clips,
    before: str = "",
    *,
    playing: bool = False,
) -> Markup | None:
    """An episode's video with its words, `before` them others; None where the page does not hold it."""
    path = clips.files.get(key)
    if path is None:
        return None
    words, address = describe(trial), data_uri(path)
    if str(media_type(path)).startswith("video/"):
        # report.js shows the controls only under a pointer or the keyboard.
        switches = {"controls": True, "muted": True, "loop": True, "playsinline": True, "autoplay": playing}
        poster = data_uri(poster_of(path)) if _poster_size(path) else None
        picture = el("video", src=address, poster=poster, preload="metadata", aria_label=words, **switches)
    else:
        picture = el("img", src=address, alt=words, loading="lazy")
    extra = "" if key in clips.shown or playing else " extra"
    return el(
        "figure",
        picture,
        el("figcaption", el("b", before) if before else None, words),
        class_=f"clip {trial.outcome}{extra}",
        id=anchor(key, nth),
    )


def _poster_size(path: Path) -> int:
    """Bytes that a video's still picture takes in the page; 0 where it has none beside it."""
    poster = poster_of(path)
    still = path.suffix == ".mp4" and poster.is_file() and not poster.is_symlink()
    return encoded_size(poster) if still else 0


def anchor(key: Key, nth: int) -> str:
    """The id of a video; the task's number is in it from the second task on."""
    return f"clip-{key[0]}-{key[2]}" if nth == 0 else f"clip-{key[0]}-{nth}-{key[2]}"
