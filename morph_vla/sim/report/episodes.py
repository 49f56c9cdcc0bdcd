"""What happened in each episode: the grid, the maps of initial states, the videos and how many fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from morph_vla.sim.report.maps import OUTCOMES, outcome, start_maps
from morph_vla.sim.report.markup import Markup, duration, el, join, number
from morph_vla.sim.report.reading import Evaluation, data_uri, encoded_size, inside, media_type, the_policy

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


@dataclass(frozen=True)
class Clips:
    """The videos (or frame strips) of the page: (evaluation, episode) -> file, and how many stay outside."""

    files: Mapping[tuple[int, int], Path]
    shown: frozenset[tuple[int, int]]
    left_out: int
    missing: int


def choose_clips(folder: Path, evaluations: Sequence[Evaluation], budget: int) -> Clips:
    """Pick videos until `budget` bytes of page are full, the evaluations in turn, failures among successes.

    Raises MorphVlaError for a file outside the folder. One that is not there, or that no browser shows,
    counts as missing.
    """
    files: dict[tuple[int, int], Path] = {}
    shown: set[tuple[int, int]] = set()
    left_out = missing = 0
    queues = [_queue(place, evaluation) for place, evaluation in enumerate(evaluations)]
    turns = chain.from_iterable(zip_longest(*reversed(queues)))
    for key, name in (turn for turn in turns if turn is not None):
        path = inside(folder, name)
        if not path.is_file() or media_type(path) is None:
            missing += 1
        elif (size := encoded_size(path) + OVERHEAD) <= budget:
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
    place: int, evaluation: Evaluation, everyone: Sequence[Evaluation], clips: Clips, folder: Path
) -> Markup | None:
    """Every episode of one evaluation; None when it has none."""
    if not evaluation.trials:
        return None
    says = f"says-{place}"
    cells = [_cell(place, trial, clips, says) for trial in _ordered(evaluation)]
    many = " many" if len(cells) > NUMBERED else ""
    grid = el(
        "div",
        el("div", cells, class_=f"cells{many}"),
        el("p", "Choose an episode to read how it ended.", id=says, class_="says", aria_live="polite"),
        _legend(evaluation, dots=any(key[0] == place for key in clips.files)),
    )
    maps = start_maps(evaluation, everyone)
    view = None
    if maps:
        words = (
            "Where the objects began, seen from above in the robot's base frame: dot success, cross failure"
        )
        words += ", ring error." if evaluation.summary["errors"] else "."
        view = el("figure", el("div", maps, class_="maps"), el("figcaption", words))
    videos = [_clip(place, trial, clips, folder) for trial in _ordered(evaluation)]
    return el(
        "section",
        el("h2", f"{the_policy(evaluation)}, episode by episode"),
        el("div", grid, view, class_="two"),
        el("div", videos, class_="clips") if any(videos) else None,
    )


def describe(trial: Mapping[str, Any]) -> str:
    """One episode in words."""
    start, seconds = f"Episode {trial['episode']}", number(trial.get("time_s"))
    if trial["success"]:
        return f"{start}: success" + (f" after {duration(seconds)}" if seconds is not None else "")
    if outcome(trial) == "error":
        return f"{start}: error, {trial.get('error') or 'no message'}"
    return f"{start}: failed, {failed_at(trial.get('failed_clause'))}"


def failed_at(clause: object) -> str:
    """The clause of the success criterion at which an episode stopped, in words."""
    return FAILED_AT.get(str(clause), str(clause or "clause not recorded"))


def _queue(place: int, evaluation: Evaluation) -> list[tuple[tuple[int, int], object]]:
    """The videos of an evaluation with outcomes taking turns, so that the first few show each of them."""
    named = [trial for trial in _ordered(evaluation) if trial.get("video") is not None]
    by_outcome = [[trial for trial in named if outcome(trial) == how] for how in OUTCOMES]
    turns = chain.from_iterable(zip_longest(*by_outcome))
    return [((place, trial["episode"]), trial["video"]) for trial in turns if trial is not None]


def _ordered(evaluation: Evaluation) -> list[Mapping[str, Any]]:
    return sorted(evaluation.trials, key=lambda trial: trial["episode"])


def _cell(place: int, trial: Mapping[str, Any], clips: Clips, says: str) -> Markup:
    words, key = describe(trial), (place, trial["episode"])
    common = {
        "class_": f"cell {outcome(trial)}",
        "title": words,
        "aria_label": words,
        "data_says": words,
        "data_line": says,
    }
    if key in clips.files:
        return el("a", trial["episode"], href=f"#{_anchor(key)}", **common)
    return el("button", trial["episode"], type="button", **common)


def _legend(evaluation: Evaluation, dots: bool) -> Markup:
    summary = evaluation.summary
    failures = summary["trials"] - summary["successes"] - summary["errors"]
    counts = dict(zip(OUTCOMES, (summary["successes"], failures, summary["errors"]), strict=True))
    keys = [
        join(el("span", class_=f"cell {how}", aria_hidden="true"), el("span", f"{counts[how]} {how}"))
        for how in OUTCOMES
        if counts[how]
    ]
    hint = el("span", "A dot: with video.") if dots else None
    return el("p", keys, hint, class_="note legend")


def _clip(place: int, trial: Mapping[str, Any], clips: Clips, folder: Path) -> Markup | None:
    key = (place, trial["episode"])
    path = clips.files.get(key)
    if path is None:
        return None
    words, address = describe(trial), data_uri(path)
    if str(media_type(path)).startswith("video/"):
        switches = {"controls": True, "muted": True, "loop": True, "playsinline": True}
        picture = el("video", src=address, preload="metadata", aria_label=words, **switches)
    else:
        picture = el("img", src=address, alt=words, loading="lazy")
    extra = "" if key in clips.shown else " extra"
    return el(
        "figure", picture, el("figcaption", words), class_=f"clip {outcome(trial)}{extra}", id=_anchor(key)
    )


def _anchor(key: tuple[int, int]) -> str:
    return f"clip-{key[0]}-{key[1]}"
