"""The top of the page: the number, films of a success and a failure beside it, why the rest failed."""

from collections.abc import Sequence

from morph_vla.report.episodes import FAILED_AT, Clips, Key, clip, failed_at
from morph_vla.report.markup import Markup, el
from morph_vla.report.reading import Evaluation
from morph_vla.results.statistics import Rates


def films(evaluations: Sequence[Evaluation], clips: Clips) -> Markup | None:
    """The films beside the number, playing; None where the page holds none."""
    shown = []
    for key, words in chosen(evaluations, clips).items():
        place, task, _ = key
        trials = evaluations[place].tasks[task]
        nth = list(evaluations[place].tasks).index(task)
        trial = next(trial for trial in trials if trial.episode == key[2])
        words += f" ({task}). " if len(evaluations[place].tasks) > 1 else ". "
        shown.append(clip(key, nth, trial, clips, words, playing=True))
    return el("div", shown, class_="films") if shown else None


def chosen(evaluations: Sequence[Evaluation], clips: Clips) -> dict[Key, str]:
    """The first success and the first failure of the last evaluation whose film is on the page."""
    place = max((place for place, one in enumerate(evaluations) if one.trials), default=-1)
    films: dict[Key, str] = {}
    for wanted, words in (("success", "It succeeds"), ("failure", "It fails")):
        for task, trials in evaluations[place].tasks.items() if place >= 0 else ():
            keys = [(place, task, trial.episode) for trial in trials if trial.outcome == wanted]
            there = [key for key in sorted(keys, key=lambda key: key[2]) if key in clips.files]
            if there and words not in films.values():
                films[there[0]] = words
    return films


def why(rates: Rates) -> str | None:
    """`Of the 5 that failed: 3 touched it, did not grasp it; 2 ...`; None where none failed."""
    clauses, errors = rates.failed_clauses, rates.errors
    missed = rates.trials - rates.successes
    if not missed:
        return None
    order = [clause for clause in FAILED_AT if clause in clauses] + sorted(clauses.keys() - FAILED_AT.keys())
    known = sorted(order, key=lambda clause: -clauses[clause])
    parts = [f"{clauses[clause]} {failed_at(clause)}" for clause in known]
    parts += [f"{errors} ended in an error"] if errors else []
    if len(parts) == 1:
        others = f"All {missed} that failed" if missed > 1 else "The one that failed"
        return f"{others}: {parts[0].partition(' ')[2]}."
    return f"Of the {missed} that failed: {'; '.join(parts)}."
