"""The difference of two evaluations: paired where both met the same initial states, else independent.

Pure functions of evaluation records. Trials are paired by (task, episode). Where two records say that what
they measured is not the same (`identity.MEASURED`), there is no difference of rates; conditions may differ,
and are named.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.results import identity
from morph_vla.results.intervals import NEWCOMBE, TANGO, mcnemar, newcombe, tango
from morph_vla.results.statistics import by_task, policy_label, summarise, task_of, trials_of

Key = tuple[str, int]


def compare(
    record_a: Mapping[str, Any], record_b: Mapping[str, Any], confidence: float = 0.95
) -> dict[str, Any]:
    """How much better b is than a: rate_b - rate_a over all trials and under `tasks` for each task.

    Where both ran the same episodes from equal initial states, `low` and `high` are Tango's paired interval
    and `paired` counts the episodes that both, only a, only b or neither solved, with the exact McNemar p
    value. Otherwise they are Newcombe's interval of independent samples, `paired` is None and `reason` says
    why. `independent` is Newcombe's in either case. What was not measured, or cannot be compared because the
    suites, their versions, their tasks or what counts as success differ, has the difference None and a
    reason, never 0. Where one was stopped early, all speak of the episodes that both have, and `common`
    counts them. `conditions` names what else differs, and `unknown` what cannot be told.
    Raises MorphVlaError as `summarise` does.
    """
    apart = why_not_comparable(record_a, record_b)
    a, b, common = _common(record_a, record_b)
    whole = _compare(a, b, apart, _unpaired(record_a, record_b, a, b), confidence)
    shared = [task for task in by_task(a) if task and task in by_task(b)]
    suites = suite_difference(record_a, record_b)
    tasks = {}
    for task in shared if len(by_task(a)) > 1 or len(by_task(b)) > 1 else []:
        own_a, own_b = by_task(a)[task], by_task(b)[task]
        tasks[task] = _compare(own_a, own_b, suites, _unpaired(record_a, record_b, own_a, own_b), confidence)
    return {
        "a": policy_label(record_a),
        "b": policy_label(record_b),
        "engine_a": engine_label(record_a),
        "engine_b": engine_label(record_b),
        "conditions": [one.words() for one in identity.conditions(record_a, record_b)],
        "unknown": unknown({"a": record_a, "b": record_b}),
        "common": common,
        **whole,
        "tasks": tasks,
    }


def unknown(records: Mapping[str, Mapping[str, Any]]) -> str | None:
    """In words, which of the records (by name) do not hold their whole suite; None where all do."""
    few = [name for name, record in records.items() if not identity.is_whole(record)]
    if not few:
        return None
    verb = "does" if len(few) == 1 else "do"
    return (
        f"{', '.join(few)} {verb} not say the whole criterion, objects, servos, cameras and sampler (written "
        "before schema 3): whether these are the same is unknown"
    )


def why_not_comparable(record_a: Mapping[str, Any], record_b: Mapping[str, Any]) -> str | None:
    """None when the two success rates are of the same thing, else the reason in words."""
    difference = suite_difference(record_a, record_b)
    if difference:
        return difference
    a, b = ({task for task in by_task(trials_of(record)) if task} for record in (record_a, record_b))
    if a and b and a != b:
        return f"the tasks differ: {', '.join(sorted(a))} and {', '.join(sorted(b))}"
    return None


def suite_difference(
    record_a: Mapping[str, Any], record_b: Mapping[str, Any], *, seeds: bool = False
) -> str | None:
    """In words, where two records say that they measure different things; None where they do not.

    These are other suites or versions of one, another robot, control rate, length, criterion, object or text,
    and on demand seeds.
    """
    keys = [("name", "suites"), ("version", "versions of the suite"), *([("seed", "seeds")] if seeds else [])]
    for key, words in keys:
        a, b = (_suite(record).get(key) for record in (record_a, record_b))
        if a is not None and b is not None and a != b:
            return f"the {words} differ: {a} and {b}"
    measured = identity.measured(record_a, record_b)
    return f"what is measured differs: {identity.listed(measured)}" if measured else None


def check_comparable(records: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise MorphVlaError where records (by where they are from) do not measure the same thing."""
    first_name, first = next(iter(records.items()))
    for name, record in records.items():
        difference = suite_difference(first, record)
        if difference:
            raise MorphVlaError(
                f"{first_name} and {name}: {difference}; success rates of different tasks are neither "
                "compared nor pooled"
            )


def why_not_paired(record_a: Mapping[str, Any], record_b: Mapping[str, Any]) -> str | None:
    """None when both records hold the same episodes from equal initial states, else the reason in words."""
    return _unpaired(record_a, record_b, trials_of(record_a), trials_of(record_b))


def states_differ(trial_a: Mapping[str, Any], trial_b: Mapping[str, Any]) -> str | None:
    """Why two trials of one number are no pair, in words; None when they are."""
    first, second = trial_a.get("initial"), trial_b.get("initial")
    of = f" of task {task_of(trial_a)}" if task_of(trial_a) else ""
    if first is None or second is None:
        return f"episode {trial_a['episode']}{of} does not say from which initial state it started"
    if first != second:
        return f"the initial states differ, first in episode {trial_a['episode']}{of}"
    return None


def by_key(trials: Sequence[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    """(task, episode) -> trial."""
    return {(task_of(trial), trial["episode"]): trial for trial in trials}


def paired_counts(pairs: Sequence[tuple[bool, bool]]) -> dict[str, int]:
    """How many pairs (a succeeded, b succeeded) both, only a, only b and neither solved."""
    counts = Counter(pairs)
    return {
        "both": counts[True, True],
        "only_a": counts[True, False],
        "only_b": counts[False, True],
        "neither": counts[False, False],
    }


def engine_label(record: Mapping[str, Any]) -> str | None:
    """`mujoco 4.0.0`, or None where the record names no engine."""
    engine = record.get("engine")
    if not isinstance(engine, Mapping) or not engine.get("name"):
        return None
    return f"{engine['name']} {engine.get('version') or ''}".strip()


def _compare(
    trials_a: Sequence[Mapping[str, Any]],
    trials_b: Sequence[Mapping[str, Any]],
    apart: str | None,
    unpaired: str | None,
    confidence: float,
) -> dict[str, Any]:
    """One comparison of two lists of trials; `apart` says why there is none, `unpaired` why not in pairs."""
    a, b = summarise(trials_a, confidence), summarise(trials_b, confidence)
    measured = bool(trials_a and trials_b) and apart is None
    counts = (a["successes"], a["trials"], b["successes"], b["trials"])
    independent = newcombe(*counts, confidence) if measured else None
    paired = None if unpaired or not measured else _paired(trials_a, trials_b)
    bounds = tango(paired["only_a"], paired["only_b"], a["trials"], confidence) if paired else independent
    p_value = {"p_value": mcnemar(paired["only_a"], paired["only_b"])} if paired else {}
    return {
        "rate_a": a["rate"],
        "rate_b": b["rate"],
        "difference": b["rate"] - a["rate"] if measured else None,
        "low": bounds.low if bounds else None,
        "high": bounds.high if bounds else None,
        "confidence": confidence,
        "interval": TANGO if paired else NEWCOMBE if independent else None,
        "paired": {**paired, **p_value} if paired else None,
        "independent": {"low": independent.low, "high": independent.high, "interval": NEWCOMBE}
        if independent
        else None,
        "reason": apart or unpaired,
    }


def _common(
    record_a: Mapping[str, Any], record_b: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]], int | None]:
    """The trials of each, and how many both have where one was stopped early: then only those, else None."""
    a, b = list(trials_of(record_a)), list(trials_of(record_b))
    if not (record_a.get("stopped") or record_b.get("stopped")):
        return a, b, None
    shared = by_key(a).keys() & by_key(b).keys()
    if not shared:
        return a, b, None
    a, b = ([one for one in own if (task_of(one), one["episode"]) in shared] for own in (a, b))
    return a, b, len(shared)


def _paired(trials_a: Sequence[Mapping[str, Any]], trials_b: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Outcome counts over the episodes of both."""
    b = by_key(trials_b)
    return paired_counts([(trial["success"], b[key]["success"]) for key, trial in by_key(trials_a).items()])


def _unpaired(
    record_a: Mapping[str, Any],
    record_b: Mapping[str, Any],
    trials_a: Sequence[Mapping[str, Any]],
    trials_b: Sequence[Mapping[str, Any]],
) -> str | None:
    if not trials_a or not trials_b:
        return "one of the two has no trials"
    suites = suite_difference(record_a, record_b)
    if suites:
        return suites
    a, b = by_key(trials_a), by_key(trials_b)
    seeds = [_suite(record).get("seed") for record in (record_a, record_b)]
    if None not in seeds and seeds[0] != seeds[1]:
        return f"the seeds differ, and with them the initial states: {seeds[0]} and {seeds[1]}"
    if a.keys() != b.keys():
        return (
            f"the episodes differ: {len(a.keys() - b.keys())} only in a, {len(b.keys() - a.keys())} only in b"
        )
    return next((words for key in sorted(a) if (words := states_differ(a[key], b[key]))), None)


def _suite(record: Mapping[str, Any]) -> Mapping[str, Any]:
    suite = record.get("suite")
    return suite if isinstance(suite, Mapping) else {}
