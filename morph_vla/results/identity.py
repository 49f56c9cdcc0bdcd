"""Which evaluations are the same one, and in what two differ: pure functions of records.

A record holds each task's whole suite as it was resolved, overrides included (`TaskFacts.resolved`), with its
SHA-256 digest beside it. Records of schema 2 and below hold a few of these facts; what they lack is unknown,
and only what both sides say is compared.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from morph_vla.results.record import Json, Record, Target, TaskFacts
from morph_vla.results.values import listing

NONE = "none"  # what a record says of a key that it does not have
# What a success rate is a rate of. Everything else of a suite is a condition, which may differ on purpose.
MEASURED = ("robot", "control_rate", "episode_seconds", "task", "success", "objects", "expert")
MEASURED += ("kind", "id", "kwargs")  # of another simulator's environment
TABLE = "initial_states_sha256"
OF_ROBOT = ("urdf_sha256", "side_sha256")  # unknown in records from before they were kept
Kind = Literal["measured", "condition", "elsewhere"]
SPOKEN_ELSEWHERE = ("name", "task_name", "version", "seed", TABLE)

COMMIT = re.compile(r"(?<=@)([0-9a-f]{12})[0-9a-f]{28}$")  # of an address on the Hub


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

    How many rows were asked for is not part of it, nor are overrides: what they changed is in the suite. Nor
    is where a policy with a digest lies. Of a commit on the Hub twelve digits are, which is what records had
    at first.
    """
    facts = record.facts()
    kept = {key: facts[key] for key in ("schema", "kind", "suite", "engine")}
    policy = dict(record.policy.to_json())
    if policy.get("sha256"):
        policy.pop("checkpoint", None)
    elif isinstance(address := policy.get("checkpoint"), str):
        policy["checkpoint"] = COMMIT.sub(r"\1", address)
    return digest({**kept, "policy": policy, **record.chunking})


def is_whole(record: Record) -> bool:
    """Whether the record holds the whole suite of each of its tasks."""
    tasks = record.suite.tasks.values()
    return bool(tasks) and all(task.resolved is not None for task in tasks)


def differences(a: Record, b: Record) -> list[Difference]:
    """All that two evaluations differ in: their suites, policies, engines, actions per answer."""
    others_a, others_b = (
        flat(record.policy.to_json(), "policy")
        | (flat(record.engine.to_json(), "engine") if record.engine else {})
        | record.chunking
        for record in (a, b)
    )
    return [difference for _, difference in _of_suites(a, b)] + apart(others_a, others_b)


def measured(a: Record, b: Record) -> list[Difference]:
    """Differences of what is measured: success rates of the two are not of the same thing."""
    return [difference for kind, difference in _of_suites(a, b) if kind == "measured"]


def conditions(a: Record, b: Record) -> list[Difference]:
    """Differences of the conditions under which it is measured, which may be what one wants to compare."""
    differing = [difference for kind, difference in _of_suites(a, b) if kind == "condition"]
    if a.engine and b.engine:
        if a.engine.name != b.engine.name:
            differing.append(Difference("engine", a.engine.label, b.engine.label))
        else:
            differing += apart(flat(a.engine.to_json(), "engine"), flat(b.engine.to_json(), "engine"))
    asked_a, asked_b = (
        flat(record.policy.to_json().get("sampler") or {}, "sampler")
        | ({"open_loop": record.open_loop} if record.open_loop else {})
        for record in (a, b)
    )
    late_a, late_b = ({**record.chunking, "open_loop": None} for record in (a, b))
    return differing + apart(asked_a, asked_b, common=True) + apart(late_a, late_b)


def _of_suites(a: Record, b: Record) -> list[tuple[Kind, Difference]]:
    """What differs in the suites of two records, over the tasks of both; a difference of all is named once.

    A key that one of the two does not have differs only where both hold their whole suite. What is measured
    comes first, and a digest, which says least, comes last.
    """
    common = not (is_whole(a) and is_whole(b))
    shared_a, shared_b = (flat({**record.suite.to_json(), "tasks": {}}) for record in (a, b))
    differing = apart(shared_a, shared_b, common)
    by_task = {
        name: apart(_task_facts(task), _task_facts(b.suite.tasks[name]), common)
        for name, task in a.suite.tasks.items()
        if name in b.suite.tasks
    }
    for name, of_task in by_task.items():
        for difference in of_task:
            everywhere = all(difference in other for other in by_task.values())
            differing.append(
                difference if everywhere else difference._replace(key=f"{name}: {difference.key}")
            )
    # Records that were written before they were kept do not say the digests of the robot's files.
    differing = [fact for fact in differing if fact.key not in OF_ROBOT or NONE not in (fact.a, fact.b)]
    unique = [difference for place, difference in enumerate(differing) if difference not in differing[:place]]
    tasks = [task.resolved or {} for record in (a, b) for task in record.suite.tasks.values()]
    distractors = {str(name) for task in tasks for name in listing(task.get("distractors"))}
    facts: list[tuple[Kind, Difference]] = [(_kind(fact, distractors), fact) for fact in unique]
    return sorted(facts, key=lambda fact: (fact[1].bare == TABLE, fact[0] != "measured"))


def _kind(difference: Difference, distractors: set[str]) -> Kind:
    """Whether it is of what is measured, of its conditions, or is spoken of in other words.

    A distractor is no part of the task, and a colour is how a thing looks. That one side lacks a distractor
    is said by their number.
    """
    first, *rest = difference.bare.split(".")
    distracting = first in ("objects", "placement") and bool(rest) and rest[0] in distractors
    if first in MEASURED and not (first == "objects" and rest and (distracting or rest[-1] == "color")):
        return "measured"
    added = distracting and NONE in (difference.a, difference.b)
    return "elsewhere" if added or first in SPOKEN_ELSEWHERE else "condition"


def flat(value: object, name: str = "") -> dict[str, object]:
    """Nested mappings as one, with dotted names; lists are values."""
    if not isinstance(value, Mapping):
        return {name: value}
    facts: dict[str, object] = {}
    for key, item in value.items():
        facts |= flat(item, f"{name}.{key}" if name else str(key))
    return facts


def value_words(value: object) -> str:
    """A value in a sentence: words as they are, `none`, anything else as JSON writes it."""
    return value if isinstance(value, str) else NONE if value is None else json.dumps(value)


def listed(differing: list[Difference], in_a: str = "", in_b: str = "", most: int = 3) -> str:
    """The first few differences in words, and how many more there are."""
    words = "; ".join(difference.words(in_a, in_b) for difference in differing[:most])
    return f"{words}; and {len(differing) - most} more" if len(differing) > most else words


def apart(a: Json, b: Json, common: bool = False) -> list[Difference]:
    """The facts that differ, in a's order, and of `common` ones alone on demand."""
    keys = [key for key in a if key in b] if common else [*a, *(key for key in b if key not in a)]
    pairs = [Difference(key, a.get(key, NONE), b.get(key, NONE)) for key in keys]
    return [pair for pair in pairs if pair.a != pair.b]


def _task_facts(task: TaskFacts) -> dict[str, object]:
    """A task's facts by the names that they have in a suite's file."""
    few = {key: getattr(task, key) for key in ("task", "episode_seconds", TABLE)}
    box = task.target or Target()
    success = {"object": task.object, "target": box.name, "low": box.low, "high": box.high}
    known = flat({**few, "success": success})
    return {key: value for key, value in known.items() if value is not None} | flat(task.resolved or {})
