"""Which evaluations are the same one, and in what two differ: pure functions of records.

A record holds each task's whole suite as it was resolved, overrides included (`suite.tasks.NAME.resolved`),
with its SHA-256 digest beside it. Records of schema 2 and below hold a few of these facts; what they lack is
unknown, and only what both sides say is compared.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

NONE = "none"  # what a record says of a key that it does not have
SHARED = ("name", "version", "seed", "robot", "control_rate", "variation")  # of a suite's tasks
# What a success rate is a rate of. Everything else of a suite is a condition, which may differ on purpose.
MEASURED = ("robot", "control_rate", "episode_seconds", "task", "success", "objects", "expert")
TABLE = "initial_states_sha256"
SPOKEN_ELSEWHERE = ("name", "task_name", "version", "seed", TABLE)


class Difference(NamedTuple):
    """A fact by its dotted name, with the value of each side."""

    key: str
    a: Any
    b: Any

    def words(self, in_a: str = "", in_b: str = "") -> str:
        """`success.dwell_seconds: 0.5 and 0.05`, or `KEY: 0.5 there, 0.05 here` where the sides are named."""
        if in_a:
            return f"{self.key}: {said(self.a)} {in_a}, {said(self.b)} {in_b}"
        return f"{self.key}: {said(self.a)} and {said(self.b)}"


def digest(plain: Any) -> str:
    """SHA-256 of plain values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def of_evaluation(facts: Mapping[str, Any]) -> str:
    """What two evaluations must share for one to continue the other, of a record or of its first facts.

    How many rows were asked for is not of it, nor are overrides: what they changed is in the suite.
    """
    keys = ("schema", "kind", "suite", "policy", "engine", "open_loop")
    return digest({key: facts.get(key) for key in keys})


def is_whole(record: Mapping[str, Any]) -> bool:
    """Whether the record holds the whole suite of each of its tasks."""
    tasks = _tasks(record)
    return bool(tasks) and all("resolved" in _mapping(own) for own in tasks.values())


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """All that two evaluations differ in: their suites, policies, engines, actions per answer."""
    found = suite_differences(a, b)
    for key in ("policy", "engine"):
        found += _apart(flat(a.get(key) or {}, key), flat(b.get(key) or {}, key))
    return found + _apart({"open_loop": a.get("open_loop")}, {"open_loop": b.get("open_loop")})


def suite_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """What differs in the suites of two records, over the tasks of both; a difference of all is named once.

    A key that one of the two does not have differs only where both hold their whole suite.
    """
    common = not (is_whole(a) and is_whole(b))
    found = _apart(_shared(a), _shared(b), common)
    tasks_a, tasks_b = _tasks(a), _tasks(b)
    by_task = {
        task: _apart(_task_facts(own), _task_facts(tasks_b[task]), common)
        for task, own in tasks_a.items()
        if task in tasks_b
    }
    for task, own in by_task.items():
        for one in own:
            everywhere = all(one in other for other in by_task.values())
            found.append(one if everywhere else Difference(f"{task}: {one.key}", one.a, one.b))
    unique = [one for place, one in enumerate(found) if one not in found[:place]]
    beside = _beside(a) | _beside(b)
    # What is measured comes first, and a digest, which says least, comes last.
    return sorted(unique, key=lambda one: (_bare(one.key) == TABLE, not _is_measured(one.key, beside)))


def measured(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Differences of what is measured: success rates of the two are not of the same thing."""
    return [one for one in suite_differences(a, b) if _is_measured(one.key, _beside(a) | _beside(b))]


def conditions(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Differences of the conditions under which it is measured, which may be what one wants to compare."""
    beside = _beside(a) | _beside(b)
    found = [
        one
        for one in suite_differences(a, b)
        if not _is_measured(one.key, beside)
        and _bare(one.key).split(".")[0] not in SPOKEN_ELSEWHERE
        and not _is_added(one, beside)
    ]
    engines = [_mapping(record.get("engine")) for record in (a, b)]
    if all(engines):
        if engines[0].get("name") != engines[1].get("name"):
            found.append(Difference("engine", *(_engine(one) for one in engines)))
        else:
            found += _apart(flat(engines[0], "engine"), flat(engines[1], "engine"))
    samplers = [flat(_mapping(record.get("policy")).get("sampler") or {}, "sampler") for record in (a, b)]
    found += _apart(*samplers, common=True)
    loops = [{"open_loop": record["open_loop"]} if record.get("open_loop") else {} for record in (a, b)]
    return found + _apart(*loops, common=True)


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names; lists are values."""
    if not isinstance(value, Mapping):
        return {name: value}
    found: dict[str, Any] = {}
    for key, own in value.items():
        found |= flat(own, f"{name}.{key}" if name else str(key))
    return found


def said(value: Any) -> str:
    """A value in a sentence: words as they are, anything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def listed(found: list[Difference], in_a: str = "", in_b: str = "", most: int = 3) -> str:
    """The first few differences in words, and how many more there are."""
    words = "; ".join(one.words(in_a, in_b) for one in found[:most])
    return f"{words}; and {len(found) - most} more" if len(found) > most else words


def _apart(a: Mapping[str, Any], b: Mapping[str, Any], common: bool = False) -> list[Difference]:
    keys = [key for key in a if key in b] if common else [*a, *(key for key in b if key not in a)]
    found = [Difference(key, a.get(key, NONE), b.get(key, NONE)) for key in keys]
    return [one for one in found if one.a != one.b]


def _bare(key: str) -> str:
    """A fact's name without that of the task."""
    return key.rpartition(": ")[2]


def _is_measured(key: str, beside: set[str]) -> bool:
    first, *rest = _bare(key).split(".")
    if first == "objects" and rest:
        # A distractor is no part of the task, and a colour is how a thing looks.
        return rest[0] not in beside and rest[-1] != "color"
    return first in MEASURED


def _is_added(one: Difference, beside: set[str]) -> bool:
    """Whether it is a fact of a distractor that one side does not have: `distractors` names those."""
    first, *rest = _bare(one.key).split(".")
    return first in ("objects", "placement") and rest[0] in beside and NONE in (one.a, one.b)


def _beside(record: Mapping[str, Any]) -> set[str]:
    """The distractors on any of its tables."""
    every = (_mapping(_mapping(own).get("resolved")).get("distractors") for own in _tasks(record).values())
    return {name for names in every for name in names or ()}


def _engine(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('name')} {facts.get('version') or ''}".strip()


def _shared(record: Mapping[str, Any]) -> dict[str, Any]:
    suite = _mapping(record.get("suite"))
    return flat({key: suite[key] for key in (*SHARED, "task") if suite.get(key) is not None})


def _task_facts(own: Any) -> dict[str, Any]:
    """A task's facts by the names that they have in a suite's file."""
    facts = _mapping(own)
    target = _mapping(facts.get("target"))
    success = {"object": facts.get("object"), "target": target.get("name")}
    success |= {key: target.get(key) for key in ("low", "high")}
    few = {key: facts.get(key) for key in ("task", "episode_seconds", TABLE)}
    old = flat({**few, "success": success})
    return {key: value for key, value in old.items() if value is not None} | flat(facts.get("resolved") or {})


def _tasks(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(record.get("suite")).get("tasks"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
