"""What is wrong with a suite of another simulator, found in seconds: one environment, two rows, a few steps.

A `vectorized` one is made for two episodes, which are also begun beside each other.

`code` says what kind of thing was found. An error keeps the suite from being evaluated; a warning is worth a
look; notes list what there is, to be named in the suite's file.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from morph_vla.engines.engine import ENVIRONMENT, Observation
from morph_vla.engines.gymnasium.stage import Environments
from morph_vla.errors import MorphVlaError, words_of
from morph_vla.findings import Finding, Line, Severity, in_order
from morph_vla.suites.environment import EnvironmentSuite
from morph_vla.suites.suite import InitialState

Code = Literal[
    "environment", "action-space", "action-map", "reset", "observation", "step", "rows", "rate", "time-limit",
    "there-is", "text",
]  # fmt: skip
STEPS = 3  # control steps that are taken


@runtime_checkable
class Box(Protocol):
    """What we use of `gymnasium.spaces.Box`."""

    low: np.ndarray
    high: np.ndarray
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Probe:
    """What was found, and what the environment takes."""

    findings: tuple[Finding, ...]
    low: Float[np.ndarray, "a"]
    """The least that each value of an action may be; without bounds where a processor comes after it."""
    high: Float[np.ndarray, "a"]
    cameras: tuple[str, ...] = ()
    """That a policy is shown."""
    states: int = 0
    """Values of the state that it is shown."""
    environment: int = 0
    """And of what is no joint's."""
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of each camera's frames, (height, width) [pixels]."""


def probe(suite: EnvironmentSuite) -> Probe:
    """What an environment of the suite is like; never raises."""
    stage, empty = Environments(suite, 2 if suite.vectorized else 1), np.zeros(0)
    with contextlib.closing(stage):
        try:
            stage.prepare()
        except MorphVlaError as error:
            return Probe((_finding(suite, "environment", "error", str(error)),), empty, empty)
        space = stage.vector.single_action_space
        if not isinstance(space, Box) or len(space.shape) != 1:
            text = f"it takes actions of {space}; a policy answers one row of numbers a step"
            return Probe((_finding(suite, "action-space", "error", text),), empty, empty)
        if (kind := space.low.dtype).kind != "f":
            text = f"it takes actions of {kind}, and a policy's numbers are no whole ones: each would be cut"
            return Probe((_finding(suite, "action-space", "error", text),), empty, empty)
        low, high = (np.asarray(end, np.float64) for end in (space.low, space.high))
        findings = [*_action_map(suite, len(low)), *_limits(suite, stage)]
        shown, known = _seen(suite, stage, low, high)
        findings += known
        pictures = {key.removeprefix("images/"): shown[key] for key in shown if key.startswith("images/")}
        shapes = {name: np.shape(picture) for name, picture in pictures.items()}
        sizes = {name: (height, width) for name, (height, width, *_) in shapes.items()}
        states, numbers = (len(np.asarray(shown.get(key, ()))) for key in ("state", ENVIRONMENT))
        if stage.processes:
            low, high = np.full_like(low, -np.inf), np.full_like(high, np.inf)
    return Probe(in_order(findings), low, high, (*sizes,), states, numbers, sizes)


def _finding(
    suite: EnvironmentSuite, code: Code, severity: Severity, text: str, subject: str = ""
) -> Finding:
    return Finding(code, severity, Line(str(suite.path)), (subject,), text, "", "")


def _action_map(suite: EnvironmentSuite, width: int) -> Iterator[Finding]:
    """The map has as many values as the environment takes."""
    for key in ("columns", "scale", "offset"):
        given = getattr(suite.actions, key)
        if given and len(given) != width:
            text = f"actions.{key}: {len(given)} values, the environment takes {width}"
            yield _finding(suite, "action-map", "error", text, key)


def _limits(suite: EnvironmentSuite, stage: Environments) -> Iterator[Finding]:
    """The rate and the length that the environment itself states."""
    metadata, vector = stage.vector.metadata, stage.vector
    rate = metadata.get("render_fps")
    if isinstance(rate, int | float) and rate != suite.control_rate:
        text = f"control_rate: {suite.control_rate:g} Hz, the environment's own rate is {rate:g} Hz"
        yield _finding(suite, "rate", "warning", text)
    spec = getattr(vector, "spec", None)
    most = suite.kwargs.get("max_episode_steps", getattr(spec, "max_episode_steps", None))
    if isinstance(most, int) and 0 < most != suite.max_steps:  # -1: it has no limit
        text = f"episode_seconds: {suite.max_steps} steps, the environment ends an episode after {most}"
        yield _finding(suite, "time-limit", "warning", text)


def _seen(
    suite: EnvironmentSuite, stage: Environments, low: np.ndarray, high: np.ndarray
) -> tuple[Observation, list[Finding]]:
    """What a policy is shown of row 0, where that can be had, and what there is to say of rows and steps."""
    first = _begun(stage, 0)
    if isinstance(first, str):
        return {}, [_finding(suite, "reset", "error", first)]
    try:
        shown, wrong = stage.observe(0), []
    except Exception as error:  # of whatever an environment renders with
        shown, wrong = {}, [_finding(suite, "observation", "error", words_of(error))]
    notes = [*_there_is(suite, first, low, high), *_text(suite, shown)]
    return shown, [*notes, *(wrong or _moved(suite, stage, first, low, high))]


def _text(suite: EnvironmentSuite, shown: Observation) -> Iterator[Finding]:
    """What a policy is asked to do, in words."""
    if shown.get("prompt"):
        yield _finding(suite, "there-is", "note", f"its text is '{shown['prompt']}'", "prompt")
    elif shown:
        text = "task: no text, nor has the environment one: a policy is asked for nothing in words"
        yield _finding(suite, "text", "warning", text)


def _there_is(
    suite: EnvironmentSuite, first: Mapping[str, np.ndarray], low: np.ndarray, high: np.ndarray
) -> Iterator[Finding]:
    """What a row begins with, and what it takes, to be named in the suite's file."""
    listed = ", ".join(f"{key} {value.dtype} {list(value.shape[1:])}" for key, value in first.items())
    yield _finding(suite, "there-is", "note", f"its observation has {listed}", "observation")
    bounds = f"in [{low.min():g}, {high.max():g}]" if len(low) else ""
    yield _finding(suite, "there-is", "note", f"it takes {len(low)} action values {bounds}", "action")


def _moved(
    suite: EnvironmentSuite,
    stage: Environments,
    first: Mapping[str, np.ndarray],
    low: np.ndarray,
    high: np.ndarray,
) -> Iterator[Finding]:
    """What a few steps in the middle do, and rows after them."""
    bounded = np.isfinite(low) & np.isfinite(high)
    middle = np.where(bounded, low, 0.0) / 2 + np.where(bounded, high, 0.0) / 2
    for _ in range(STEPS):
        if (status := stage.step({0: middle})[0]).ended:
            break
    if status.ended == "error":
        yield _finding(suite, "step", "error", str(status.error))
    for key, text in status.lacking.items():
        yield _finding(suite, "step", "warning", f"{text}; there it does not hold, and is not measured", key)
    if status.ended and status.ended != "error":
        text = f"an episode ended after {status.steps} steps of an action in the middle ({status.ended})"
        yield _finding(suite, "step", "warning", text)
    yield from _rows(suite, stage, first)


def _rows(suite: EnvironmentSuite, stage: Environments, first: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """A row is the same state whenever it is reset, and another row another one."""
    again, other = _begun(stage, 0), _begun(stage, 1)
    if isinstance(again, str) or isinstance(other, str):
        text = f"the second time, {again if isinstance(again, str) else other}"
        yield _finding(suite, "reset", "error", text)
        return
    if key := _differing(first, again):
        text = f"row 0 began otherwise the second time ('{key}'): what is paired by row is not the same state"
        yield _finding(suite, "rows", "warning", text, "again")
    if not _differing(first, other):
        text = "rows 0 and 1 begin alike: all that differs between episodes is chance in the policy"
        yield _finding(suite, "rows", "warning", text, "alike")
    if stage.count > 1:
        beside = _begun(stage, 0, 1)
        if isinstance(beside, str):
            yield _finding(suite, "reset", "error", f"row 1 beside row 0: {beside}", "beside")
        elif key := _differing(other, beside):
            text = (
                f"row 1 begins otherwise beside row 0 than alone ('{key}'): a row's state depends on those "
                "that are played with it, so records of another --parallel are not of the same states"
            )
            yield _finding(suite, "rows", "warning", text, "beside")


def _begun(stage: Environments, *rows: int) -> Mapping[str, np.ndarray] | str:
    """What is seen at the beginning of the last of these rows, in a place each; a sentence where it fails."""
    stage.reset({place: InitialState(row, {}, ()) for place, row in enumerate(rows)})
    last = len(rows) - 1
    return stage.status[last].error or {
        key: value[last : last + 1].copy() for key, value in stage.seen.items()
    }


def _differing(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> str | None:
    """The first key whose values differ."""
    return next((key for key in a if key not in b or not _same(a[key], b[key])), None)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two values are the same, also where they are padded with NaN."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")
