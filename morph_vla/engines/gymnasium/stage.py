"""A stage of another simulator's environments: reset by row, observe, step, and their own verdict.

Row r begins where the environment goes from seed + r. Usually each episode has a vector environment of one,
so that it begins, fails and ends alone; `vectorized` ones share a single vector environment, as simulators on
a GPU do. An environment that has raised is closed, and made anew for the next row.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Literal, cast

import numpy as np
from jaxtyping import Float

from morph_vla.engines import films
from morph_vla.engines.engine import ENVIRONMENT, Frame, Observation
from morph_vla.engines.gymnasium import reading
from morph_vla.engines.gymnasium.making import Made, VectorEnv, make
from morph_vla.engines.gymnasium.reading import Leaves, Transition
from morph_vla.errors import MorphVlaError, words_of
from morph_vla.suites.environment import RENDER, EnvironmentSuite
from morph_vla.suites.suite import InitialState


@dataclasses.dataclass(frozen=True)
class Standing:
    """How an episode stands; a `pool.Verdict`."""

    steps: int = 0
    held: int = 0
    """Control steps for which the signal of success has held up to now."""
    longest: int = 0
    """And in its longest unbroken stretch."""
    reward: float = 0.0
    """Sum so far."""
    noted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Signals that do not decide -> control steps in which they held."""
    least: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Measures -> the least so far."""
    lacking: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of both, what was not there in a step -> in a sentence."""
    first_seen: str | None = None
    """`reading.fingerprint` of what it began with."""
    ended: Literal["success", "time", "terminated", "error"] | None = None
    error: str | None = None

    def failed(self, error: str) -> "Standing":
        """The same episode, ended by an error."""
        return dataclasses.replace(self, ended="error", error=error)


def judged(before: Standing, change: Transition, hold: int, most: int) -> Standing:
    """The standing after one more control step.

    Success is the signal in `hold` steps without a break. An environment that ends an episode while it
    signals success leaves nothing to hold: that is success too. `most`: control steps of an episode.
    """
    held = before.held + 1 if change.success else 0
    longest, reward = max(before.longest, held), before.reward + change.reward
    noted = {key: before.noted.get(key, 0) + value for key, value in change.noted.items()}
    least = {key: min(value, before.least.get(key, value)) for key, value in change.measured.items()}
    lacking = {**before.lacking, **change.lacking}
    beside = {"noted": noted, "least": least, "lacking": lacking}
    after = dataclasses.replace(
        before, steps=before.steps + 1, held=held, longest=longest, reward=reward, **beside
    )
    if held >= hold or (change.success and change.terminated):
        return dataclasses.replace(after, ended="success")
    if change.terminated:
        return dataclasses.replace(after, ended="terminated")
    return dataclasses.replace(after, ended="time" if change.truncated or after.steps >= most else None)


def hold_steps(suite: EnvironmentSuite) -> int:
    """Consecutive control steps for which the signal must hold (at least one)."""
    return max(1, round(suite.success.hold_seconds * suite.control_rate))


class Environments:
    """`count` episodes of one suite; a `pool.Stage`."""

    def __init__(self, suite: EnvironmentSuite, count: int):
        self.suite, self.count, self.lockstep = suite, count, suite.vectorized
        self.status: dict[int, Standing] = {}
        self._width = count if suite.vectorized else 1
        self._made: dict[int, Made] = {}  # its first episode -> an environment
        self._seen: dict[int, Leaves] = {}  # likewise, what it showed last
        self._last: dict[int, np.ndarray] = {}  # likewise, the actions that it was given last
        self._over: dict[int, np.ndarray] = {}  # likewise, which of its episodes it has ended
        self._broken: set[int] = set()  # first episodes of those that are made anew at the next reset

    def _home(self, index: int) -> tuple[int, int]:
        """The first episode of the environment that an episode lives in, and its place there."""
        return index - index % self._width, index % self._width

    @property
    def vector(self) -> VectorEnv:
        """The first environment."""
        return self._environment(0).vector

    @property
    def processes(self) -> bool:
        """Whether its actions go through a processor: its bounds are those of what comes out."""
        return self._environment(0).processed is not None

    @property
    def seen(self) -> Leaves:
        """What it showed last."""
        return self._seen[0]

    def prepare(self) -> None:
        """Make the first environment."""
        self._environment(0)

    def _environment(self, first: int) -> Made:
        if first not in self._made:
            self._made[first] = made = make(self.suite, self._width)
            space = made.vector.single_action_space
            shape, kind = getattr(space, "shape", None) or (0,), getattr(space, "dtype", np.float32)
            self._last[first] = np.zeros((self._width, *shape), kind)
        return self._made[first]

    def reset(self, states: Mapping[int, InitialState]) -> None:
        """Begin these episodes at their rows; where an environment cannot be reset, they have failed."""
        self.begin(states)
        homes: dict[int, dict[int, int]] = {}  # first episode of an environment -> place in it -> row
        for index, state in states.items():
            first, place = self._home(index)
            homes.setdefault(first, {})[place] = state.episode
        for first, rows in homes.items():
            if first in self._broken:
                self._drop(first)
            try:
                with _aside():
                    self._reset(first, rows)
            except Exception as error:  # whatever an environment raises is the error of its episodes
                self._drop(first)
                failed = Standing().failed(f"the environment could not be reset: {words_of(error)}")
                self.status |= {first + place: failed for place in rows}

    def _reset(self, first: int, rows: Mapping[int, int]) -> None:
        """Reset an environment, places to their rows; one that is to rest gets the row of another."""
        made, spare = self._environment(first), next(iter(rows.values()))
        numbers = [rows.get(place, spare) for place in range(self._width)]
        if name := self.suite.row_attribute:
            if first not in self._seen:
                _check_attribute(made, name)
            made.vector.set_attr(name, numbers)
        seen, _ = made.vector.reset(seed=[self.suite.seed + number for number in numbers])
        self._over.pop(first, None)
        self._seen[first] = batch = made.read(seen)
        self.status |= {
            first + place: Standing(first_seen=reading.fingerprint(batch, place)) for place in rows
        }

    def begin(self, indices: Collection[int]) -> None:
        """Forget how these episodes stood."""
        self.status |= {index: Standing() for index in indices}

    def step(self, actions: Mapping[int, Float[np.ndarray, "_"]]) -> dict[int, Standing]:
        """One control step of the episodes that are still going, and how they stand after it."""
        going = {index: row for index, row in actions.items() if self.status[index].ended is None}
        homes: dict[int, list[int]] = {}
        for index in going:
            homes.setdefault(self._home(index)[0], []).append(index)
        after: dict[int, Standing] = {}
        for first, indices in homes.items():
            with _aside():
                after |= self._advance(first, {index: going[index] for index in indices})
        self.status |= after
        return after

    def _advance(self, first: int, actions: Mapping[int, np.ndarray]) -> dict[int, Standing]:
        """One control step of an environment; episodes in it that have ended are told their last action."""
        made, batch = self._made[first], self._last[first]
        for index, row in actions.items():
            batch[index - first] = row
        try:
            self._go_on(first, made)
            taken = made.processed(batch) if made.processed else batch.copy()
            seen, reward, terminated, truncated, info = made.vector.step(taken)
            self._seen[first] = made.read(seen)
            self._over[first] = reading.array(terminated).astype(bool) | reading.array(truncated).astype(bool)
        except Exception as error:
            self._drop(first)
            who = "the environment" if len(actions) == 1 else f"the environment of {len(actions)} episodes"
            return {index: self.status[index].failed(f"{who} raised {words_of(error)}") for index in actions}
        after = {index: self._judged(index, (reward, terminated, truncated, info)) for index in actions}
        if any(standing.error for standing in after.values()) and self._width == 1:
            self._drop(first)
        return after

    def _go_on(self, first: int, made: Made) -> None:
        """Reset those of its episodes that have ended, where the environment leaves that to its user."""
        over, mode = self._over.get(first), made.vector.metadata.get("autoreset_mode")
        if self._width > 1 and over is not None and over.any() and getattr(mode, "name", "") == "DISABLED":
            # Ours, which are never in that mode, take no options.
            reset = cast("Callable[..., object]", made.vector.reset)
            reset(options={"reset_mask": over})

    def _judged(self, index: int, step: reading.Step) -> Standing:
        before, suite = self.status[index], self.suite
        try:
            place = self._home(index)[1]
            change = reading.transition(suite.success, step, place, suite.noted, suite.measured)
        except MorphVlaError as error:
            return before.failed(f"the environment's step {before.steps + 1}: {error}")
        return judged(before, change, hold_steps(suite), suite.max_steps)

    def observe(self, index: int) -> Observation:
        """What an episode shows now, as policies are asked."""
        try:
            with _aside():
                return self._observed(index)
        except Exception:  # of whatever an environment renders with: the next row is not to meet it too
            self._broken.add(self._home(index)[0])
            raise

    def _observed(self, index: int) -> Observation:
        first, place = self._home(index)
        batch = self._seen[first]
        keys, cameras = reading.maps(self.suite, batch)
        frames = {f"images/{name}": self._image(index, key) for name, key in cameras.items()}
        about: Observation = {"prompt": self._prompt(first, place), "robot": self.suite.robot}
        if self.suite.poses and not cameras:
            about[ENVIRONMENT] = reading.poses(batch, tuple(self.suite.poses.values()), place)
        elif (numbers := batch.get(f"observation.{ENVIRONMENT}")) is not None and numbers.dtype.kind == "f":
            about[ENVIRONMENT] = np.asarray(numbers[place], np.float32).reshape(-1)
        return {**frames, "state": reading.state(batch, keys, place), **about}

    def _image(self, index: int, key: str) -> Frame:
        first, place = self._home(index)
        if key in (views := self._made[first].views):
            return views[key]()
        if key != RENDER:
            return reading.image(self._seen[first], key, place)
        picture = self._rendered(index)
        if picture is None:
            raise MorphVlaError("it renders nothing: set render_mode: rgb_array under kwargs")
        return picture

    def _rendered(self, index: int) -> Frame | None:
        """What the environment's `render` shows of an episode; None where it shows nothing."""
        first, place = self._home(index)
        vector = self._made[first].vector
        if vector.render_mode != "rgb_array":
            return None
        with _aside():
            frame = reading.array(vector.render()[place])
        return reading.checked_image(frame.copy(), "what it renders")  # some render into one buffer

    def film(self, index: int) -> Frame | None:
        """What it renders, else the policy's cameras in a row."""
        first, _ = self._home(index)
        if first not in self._made:  # it could not be reset
            return None
        mode = self._made[first].vector.metadata.get("autoreset_mode")
        if self.status[index].ended is not None and getattr(mode, "name", "") == "SAME_STEP":
            return None  # what it shows is the next episode's beginning
        _, cameras = reading.maps(self.suite, self._seen[first])
        rendered = self._rendered(index)
        if rendered is None and cameras:
            return films.in_a_row([self._image(index, key) for key in cameras.values()])
        return rendered

    def _prompt(self, first: int, place: int) -> str:
        """The suite's text, else the environment's own."""
        if self.suite.task:
            return self.suite.task
        for name in ("task_description", "task"):  # as LeRobot's rollout looks
            with contextlib.suppress(Exception):  # most environments have none
                texts = self._made[first].vector.get_attr(name)
                if isinstance(texts, tuple | list) and isinstance(texts[place], str) and texts[place]:
                    return texts[place]
        return ""

    def _drop(self, first: int) -> None:
        """Close an environment that has raised; the next reset makes another."""
        self._broken.discard(first)
        with contextlib.suppress(Exception):
            self._made.pop(first).vector.close()

    def close(self) -> None:
        """Close every environment."""
        for first in list(self._made):
            self._drop(first)


def _aside() -> contextlib.AbstractContextManager[object]:
    """What an environment prints goes to stderr: a command's own answer may be JSON."""
    return contextlib.redirect_stdout(sys.stderr)


def _check_attribute(made: Made, name: str) -> None:
    """Raise MorphVlaError for an attribute that there is none of: set, it would be one that nothing reads."""
    try:
        made.vector.get_attr(name)
    except AttributeError as error:
        raise MorphVlaError(f"the environment has no attribute '{name}' (row_attribute)") from error
