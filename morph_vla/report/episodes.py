"""The episodes of a page: what each says, and which of their videos the page holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from morph_vla.report.reading import Evaluation, data_uri, encoded_size, in_its_folder, media_type
from morph_vla.report.words import duration, failed_at, in_order, plain, short
from morph_vla.results.films import poster_of
from morph_vla.results.statistics import Rates
from morph_vla.results.trial import OUTCOMES, Trial

SHOWN = 6  # videos of the last evaluation that stand open, half as many of the others; a cell opens the rest
OVERHEAD = 700  # bytes of markup around a video
# Fields of a trial that the page shows by themselves, or that its clause says already; the others are noted.
SAID = {"task", "episode", "success", "time_s", "ended", "error", "steps", "failed_clause", "clauses"}
SAID |= {"touched", "grasped", "lifted", "initial", "final_object", "video"}

Key = tuple[int, str, int]  # the evaluation's place, the task, the episode


@dataclass(frozen=True)
class Clips:
    """The videos (or frame strips) of the page, and how many stay outside."""

    files: Mapping[Key, Path]
    shown: frozenset[Key] = frozenset()
    left_out: int = 0
    missing: int = 0


@dataclass(frozen=True)
class Episode:
    """An episode as the page shows it."""

    trial: Trial
    anchor: str
    """The id of its video on the page."""
    path: Path | None
    """The video, where the page holds it."""
    shown: bool
    """Whether the video stands open."""

    @property
    def words(self) -> str:
        """How it ended, in words, and what was noted of it."""
        trial, notes = self.trial, noted(self.trial)
        end = "failed" + (f", {failed_at(trial.failed_clause)}" if trial.failed_clause else "")
        if trial.success:
            end = "success" + (f" after {duration(trial.time_s)}" if trial.time_s is not None else "")
        elif trial.outcome == "error":
            end = f"error, {trial.error or 'no message'}"
        return f"Episode {trial.episode}: {end}" + "".join(f"; {note}" for note in notes)

    @property
    def is_video(self) -> bool:
        """Whether it moves; else it is a strip of frames."""
        return self.path is not None and str(media_type(self.path)).startswith("video/")

    @property
    def address(self) -> str | None:
        """The video as a `data:` address."""
        return data_uri(self.path) if self.path else None

    @property
    def poster(self) -> str | None:
        """The video's still picture as a `data:` address, where one lies beside it."""
        return data_uri(poster_of(self.path)) if self.path and _poster_size(self.path) else None


Episodes = Sequence[Mapping[str, Sequence[Episode]]]  # of each evaluation: task -> its episodes, in order


def listed(evaluations: Sequence[Evaluation], clips: Clips) -> Episodes:
    """The episodes of each evaluation by task, with the videos that the page holds."""

    def episode(place: int, nth: int, trial: Trial) -> Episode:
        key = (place, *trial.key)
        task = f"{nth}-" if nth else ""  # the task's number is in the id from the second task on
        return Episode(trial, f"clip-{place}-{task}{trial.episode}", clips.files.get(key), key in clips.shown)

    return [
        {
            task: [episode(place, nth, trial) for trial in sorted(trials, key=lambda trial: trial.episode)]
            for nth, (task, trials) in enumerate(evaluation.tasks.items())
        }
        for place, evaluation in enumerate(evaluations)
    ]


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


def noted(trial: Trial) -> list[str]:
    """What a trial says of its course besides how it ended: `dropped`, `pushed in`, and whatever is new."""
    notes = []
    for name, value in vars(trial).items():
        new = name not in SAID and name != trial.failed_clause
        if new and isinstance(value, int | float) and short(value) != "0":
            notes.append(plain(name) if value is True else f"{plain(name)} {short(value)}")
    return notes


def on_top(episodes: Episodes) -> dict[str, Episode]:
    """A success and a failure of the last evaluation whose videos are on the page, by words.

    The failure is one of the commonest clause that was filmed, the success of the same task where one was.
    """
    last = next((tasks for tasks in reversed(episodes) if tasks), {})
    everyone = [(task, episode) for task, of_task in last.items() for episode in of_task]
    clauses = Counter(episode.trial.failed_clause for _, episode in everyone)
    filmed = [(task, episode) for task, episode in everyone if episode.path]
    failures = [pair for pair in filmed if pair[1].trial.outcome == "failure"]
    failure = max(failures, key=lambda pair: clauses[pair[1].trial.failed_clause], default=None)
    successes = [pair for pair in filmed if pair[1].trial.success]
    beside = [pair for pair in successes if failure and pair[0] == failure[0]]
    success = next(iter(beside or successes), None)
    pairs = (("It succeeds", success), ("It fails", failure))
    return {
        f"{words} ({pair[0]}). " if len(last) > 1 else f"{words}. ": pair[1] for words, pair in pairs if pair
    }


def why(rates: Rates) -> str | None:
    """`Of the 5 that failed: 3 touched it, did not grasp it; 2 ...`; None where none failed."""
    clauses, missed = rates.failed_clauses, rates.trials - rates.successes
    if not missed or (clauses.keys() == {"unknown"} and not rates.errors):
        return None
    known = sorted(in_order([*clauses]), key=lambda clause: -clauses[clause])
    parts = [f"{clauses[clause]} {failed_at(clause)}" for clause in known]
    parts += [f"{rates.errors} ended in an error"] if rates.errors else []
    if len(parts) == 1:
        others = f"All {missed} that failed" if missed > 1 else "The one that failed"
        return f"{others}: {parts[0].partition(' ')[2]}."
    return f"Of the {missed} that failed: {'; '.join(parts)}."


def _queue(place: int, evaluation: Evaluation) -> list[tuple[Key, Path]]:
    """The videos of an evaluation with outcomes and tasks taking turns, so that the first show each."""
    filmed = sorted((trial for trial in evaluation.trials if trial.video), key=lambda trial: trial.episode)
    kinds = [(task, outcome) for outcome in OUTCOMES for task in evaluation.tasks]
    groups = [[trial for trial in filmed if (trial.task, trial.outcome) == kind] for kind in kinds]
    turns = (trial for trial in chain.from_iterable(zip_longest(*groups)) if trial is not None)
    return [((place, trial.task, trial.episode), trial.video) for trial in turns if trial.video]


def _poster_size(path: Path) -> int:
    """Bytes that a video's still picture takes in the page; 0 where it has none beside it."""
    poster = poster_of(path)
    still = path.suffix == ".mp4" and poster.is_file() and not poster.is_symlink()
    return encoded_size(poster) if still else 0
