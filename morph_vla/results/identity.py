"""Which evaluations are the same one, and in what two differ: pure functions of records.

A record holds each task's whole suite as it was resolved, overrides included (`TaskFacts.resolved`), with its
SHA-256 digest beside it. Records of schema 2 and below hold a few of these facts; what they lack is unknown,
and only what both sides say is compared.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from morph_vla.results.record import Json, Record, Target, TaskFacts
from morph_vla.results.values import listing

NONE = "none"  # what a record says of a key that it does not have
# What a success rate is a rate of. Everything else of a suite is a condition, which may differ on purpose.
MEASURED = ("robot", "control_rate", "episode_seconds", "task", "success", "objects", "expert")
TABLE = "initial_states_sha256"
SPOKEN_ELSEWHERE = ("name", "task_name", "version", "seed", TABLE)


class Difference(NamedTuple):
    """A fact by its dotted name, with the value of each side."""

    key: str
    a: object
    b: object

    def words(self, in_a: str = "", in_b: str = "") -> str:
        """`success.dwell_seconds: 0.5 and 0.05`, or `KEY: 0.5 there, 0.05 here` where the sides are named."""
        if in_a:
            return f"{self.key}: {value_words(self.a)} {in_a}, {value_words(self.b)} {in_b}"
        return f"{self.key}: {value_words(self.a)} and {value_words(self.b)}"

    @property
    def bare(self) -> str:
        """The fact's name without that of its task."""
        return self.key.rpartition(": ")[2]


def digest(plain: object) -> str:
    """SHA-256 of plain values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def of_evaluation(record: Record) -> str:
    """What two evaluations must share for one to continue the other.

    How many rows were asked for is not part of it, nor are overrides: what they changed is in the suite.
    """
    facts = record.facts()
    return digest({key: facts[key] for key in ("schema", "kind", "suite", "policy", "engine", "open_loop")})


def is_whole(record: Record) -> bool:
    """Whether the record holds the whole suite of each of its tasks."""
    tasks = record.suite.tasks.values()
    return bool(tasks) and all(task.resolved is not None for task in tasks)


def differences(a: Record, b: Record) -> list[Difference]:
    """All that two evaluations differ in: their suites, policies, engines, actions per answer."""
    others = _apart(_policy_and_engine(a), _policy_and_engine(b))
    return suite_differences(a, b) + others + _apart({"open_loop": a.open_loop}, {"open_loop": b.open_loop})


def suite_differences(a: Record, b: Record) -> list[Difference]:
    """What differs in the suites of two records, over the tasks of both; a difference of all is named once.

    A key that one of the two does not have differs only where both hold their whole suite.
    """
    common = not (is_whole(a) and is_whole(b))
    differing = _apart(_shared(a), _shared(b), common)
    by_task = {
        name: _apart(_task_facts(task), _task_facts(b.suite.tasks[name]), common)
        for name, task in a.suite.tasks.items()
        if name in b.suite.tasks
    }
    for name, of_task in by_task.items():
        for difference in of_task:
            everywhere = all(difference in other for other in by_task.values())
            differing.append(
                difference if everywhere else difference._replace(key=f"{name}: {difference.key}")
            )
    # Records that were written before it was kept do not say the URDF's digest.
    differing = [fact for fact in differing if fact.key != "urdf_sha256" or NONE not in (fact.a, fact.b)]
    unique = [difference for place, difference in enumerate(differing) if difference not in differing[:place]]
    distractors = _distractors(a, b)
    # What is measured comes first, and a digest, which says least, comes last.
    return sorted(unique, key=lambda fact: (fact.bare == TABLE, not _is_measured(fact, distractors)))


def measured(a: Record, b: Record) -> list[Difference]:
    """Differences of what is measured: success rates of the two are not of the same thing."""
    distractors = _distractors(a, b)
    return [difference for difference in suite_differences(a, b) if _is_measured(difference, distractors)]


def conditions(a: Record, b: Record) -> list[Difference]:
    """Differences of the conditions under which it is measured, which may be what one wants to compare."""
    distractors = _distractors(a, b)
    differing = [
        difference
        for difference in suite_differences(a, b)
        if not _is_measured(difference, distractors)
        and difference.bare.split(".")[0] not in SPOKEN_ELSEWHERE
        and not _is_added(difference, distractors)
    ]
    if a.engine and b.engine:
        if a.engine.name != b.engine.name:
            differing.append(Difference("engine", a.engine.label, b.engine.label))
        else:
            differing += _apart(flat(a.engine.to_json(), "engine"), flat(b.engine.to_json(), "engine"))
    samplers = [flat(record.policy.to_json().get("sampler") or {}, "sampler") for record in (a, b)]
    differing += _apart(samplers[0], samplers[1], common=True)
    loops = [{"open_loop": record.open_loop} if record.open_loop else {} for record in (a, b)]
    return differing + _apart(loops[0], loops[1], common=True)


def flat(value: object, name: str = "") -> dict[str, object]:
    """Nested mappings as one, with dotted names; lists are values."""
    if not isinstance(value, Mapping):
        return {name: value}
    facts: dict[str, object] = {}
    for key, item in value.items():
        facts |= flat(item, f"{name}.{key}" if name else str(key))
    return facts


def value_words(value: object) -> str:
    """A value in a sentence: words as they are, anything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def listed(differing: list[Difference], in_a: str = "", in_b: str = "", most: int = 3) -> str:
    """The first few differences in words, and how many more there are."""
    words = "; ".join(difference.words(in_a, in_b) for difference in differing[:most])
    return f"{words}; and {len(differing) - most} more" if len(differing) > most else words


def _apart(a: Json, b: Json, common: bool = False) -> list[Difference]:
    keys = [key for key in a if key in b] if common else [*a, *(key for key in b if key not in a)]
    pairs = [Difference(key, a.get(key, NONE), b.get(key, NONE)) for key in keys]
    return [pair for pair in pairs if pair.a != pair.b]


def _is_measured(difference: Difference, distractors: set[str]) -> bool:
    first, *rest = difference.bare.split(".")
    if first == "objects" and rest:
        # A distractor is no part of the task, and a colour is how a thing looks.
        return rest[0] not in distractors and rest[-1] != "color"
    return first in MEASURED


def _is_added(difference: Difference, distractors: set[str]) -> bool:
    """Whether it is a fact of a distractor that one side does not have: `distractors` names those."""
    first, *rest = difference.bare.split(".")
    return (
        first in ("objects", "placement") and rest[0] in distractors and NONE in (difference.a, difference.b)
    )


def _distractors(*records: Record) -> set[str]:
    """The distractors on any of their tables."""
    tasks = [task for record in records for task in record.suite.tasks.values()]
    return {str(name) for task in tasks for name in listing((task.resolved or {}).get("distractors"))}


def _policy_and_engine(record: Record) -> dict[str, object]:
    engine = flat(record.engine.to_json(), "engine") if record.engine else {}
    return flat(record.policy.to_json(), "policy") | engine


def _shared(record: Record) -> dict[str, object]:
    return flat({key: value for key, value in record.suite.to_json().items() if key != "tasks"})


def _task_facts(task: TaskFacts) -> dict[str, object]:
    """A task's facts by the names that they have in a suite's file."""
    few = {key: getattr(task, key) for key in ("task", "episode_seconds", TABLE)}
    box = task.target or Target()
    success = {"object": task.object, "target": box.name, "low": box.low, "high": box.high}
    known = flat({**few, "success": success})
    return {key: value for key, value in known.items() if value is not None} | flat(task.resolved or {})
