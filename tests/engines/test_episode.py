"""The one loop of an episode: it ends at success, when its time is up and where the physics diverges.

Worlds without physics, whose object lies where a script says, also stand for a third engine: what `by_name`
and an evaluation need of one is in this file.
"""

import dataclasses
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest
from bowl import UPRIGHT
from policies import Wave

from morph_vla import robots
from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import Frame, Observation, Sight, Worlds, observation
from morph_vla.engines.episode import Episodes, play
from morph_vla.engines.success import Reading, dwell_steps
from morph_vla.engines.waves import WavePool
from morph_vla.engines.workers import WorkerPool
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.rollout import Settings, evaluate
from morph_vla.results.record import EngineFacts
from morph_vla.suites.suite import InitialState, Suite, initial_states

TARGET = np.array([0.5, 0.1, 0.0])
NEVER = 10**9


class Scripted:
    """World i's object is in the target from step `inside[i]` on, and off the table from `falls[i]` on; its
    physics diverges at `diverges[i]`.
    """

    lockstep = True

    def __init__(self, suite: Suite, inside=(), diverges=(), falls=()):
        self.suite, self.robot = suite, robots.load(suite.robot)
        self.count = max(len(inside), len(diverges), len(falls))
        self.limb = np.ones(len(self.robot.joints), dtype=bool)
        self.inside, self.diverges, self.falls = inside, diverges, falls
        self.steps = [0] * self.count
        self.told: list[dict[int, np.ndarray]] = []

    def place(self, states: Mapping[int, InitialState]) -> None:
        for index in states:
            self.steps[index] = 0

    reset = place

    def step(self, actions: Mapping[int, np.ndarray]) -> dict[int, Reading | MorphVlaError]:
        assert actions, "worlds are not stepped for nobody"
        self.told.append(dict(actions))
        for index in actions:
            self.steps[index] += 1
        failed = {i for i in actions if self.diverges and self.steps[i] == self.diverges[i]}
        return {i: MorphVlaError("it flew away") if i in failed else self.reading(i) for i in actions}

    def reading(self, index: int) -> Reading:
        there = bool(self.inside) and self.steps[index] >= self.inside[index]
        offset = np.array([0.0, 0.0, 0.02]) if there else np.array([0.3, 0.0, 0.02])
        if self.falls and self.steps[index] >= self.falls[index]:
            offset = np.array([1.2, 0.0, -0.11])
        return Reading(TARGET + offset, TARGET, UPRIGHT, 0.0, 0.0, 1.0, False, False)

    def native(self, index: int) -> np.ndarray:
        return np.full(len(self.robot.joints), 0.1 * self.steps[index])

    def state(self, index: int) -> np.ndarray:
        return self.native(index).astype(np.float32)

    def sight(self, index: int) -> Sight:
        return Sight(self.native(index), 1.0, TARGET, np.array([1.0, 0, 0, 0]), TARGET)

    def pose(self, index: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        return TARGET, np.array([1.0, 0, 0, 0])

    def camera_pose(self, index: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(3), np.eye(3)

    def render(self, index: int, camera: str) -> Frame:
        return np.zeros((2, 3, 3), np.uint8)

    def scene_view(self, index: int) -> Frame | None:
        return None

    def observe(self, index: int) -> Observation:
        return observation(self, index)

    def close(self) -> None:
        pass


def begun(worlds: Worlds) -> Episodes:
    worlds.reset(dict(enumerate(initial_states(worlds.suite, worlds.count, 8))))
    episodes = Episodes(worlds)
    episodes.begin(range(worlds.count))
    return episodes


def hold(episodes: Episodes, steps: int) -> None:
    rows = dict.fromkeys(range(episodes.worlds.count), np.zeros(8))
    for _ in range(steps):
        episodes.step(rows)


def test_an_episode_ends_at_success_and_the_others_go_on(tiny_suite):
    dwell = dwell_steps(tiny_suite.success, tiny_suite.control_rate)
    worlds = Scripted(tiny_suite, inside=[3, 7, NEVER])
    episodes = begun(worlds)
    hold(episodes, tiny_suite.max_steps - 1)
    assert [status.ended for status in episodes.status.values()] == ["success", "success", None]
    assert [status.progress.steps for status in episodes.status.values()][:2] == [2 + dwell, 6 + dwell]
    assert worlds.steps[:2] == [2 + dwell, 6 + dwell]  # one that has ended takes no further step
    assert [set(actions) for actions in worlds.told[1 + dwell : 3 + dwell]] == [{0, 1, 2}, {1, 2}]


def test_an_episode_ends_when_its_time_is_up(tiny_suite):
    worlds = Scripted(tiny_suite, inside=[NEVER, NEVER])
    episodes = begun(worlds)
    hold(episodes, tiny_suite.max_steps + 5)
    assert [status.ended for status in episodes.status.values()] == ["time", "time"]
    assert worlds.steps == [tiny_suite.max_steps] * 2
    assert len(worlds.told) == tiny_suite.max_steps  # with nobody left, no world moves


def test_an_episode_whose_object_fell_off_the_table_ends_at_once(tiny_suite):
    worlds = Scripted(tiny_suite, falls=[4, NEVER])
    episodes = begun(worlds)
    hold(episodes, tiny_suite.max_steps)
    assert [status.ended for status in episodes.status.values()] == ["lost", "time"]
    assert worlds.steps == [4, tiny_suite.max_steps]


def test_a_lost_object_is_a_failure_of_its_own_in_a_trial(tiny_suite, third_engine):
    third_engine.falls = [NEVER, 5]
    record = evaluate(tiny_suite, Wave(), Settings(2, parallel=2, videos=0, engine="third"))
    whole, lost = record.trials
    assert (lost.ended, lost.failed_clause, lost.outcome, lost.steps) == ("lost", "lost", "failure", 5)
    assert (whole.ended, whole.failed_clause) == ("time", "reached")
    assert (lost.knocked, lost.dropped, lost.dragged) == (True, False, False)
    assert lost.final_target == [*TARGET, *UPRIGHT]


def test_success_in_the_last_step_is_success(tiny_suite):
    dwell = dwell_steps(tiny_suite.success, tiny_suite.control_rate)
    episodes = begun(Scripted(tiny_suite, inside=[tiny_suite.max_steps - dwell + 1]))
    hold(episodes, tiny_suite.max_steps)
    assert episodes.status[0].ended == "success"
    assert episodes.status[0].progress.success_step == tiny_suite.max_steps


def test_an_episode_ends_where_its_physics_diverges_with_what_was_measured_before(tiny_suite):
    worlds = Scripted(tiny_suite, inside=[NEVER, 0], diverges=[4, NEVER])
    episodes = begun(worlds)
    hold(episodes, tiny_suite.max_steps)
    flown, beside = episodes.status.values()
    assert (flown.ended, flown.error, flown.progress.steps) == ("error", "it flew away", 3)
    assert np.isfinite(flown.reading.object_position).all()
    assert beside.ended == "success"


def test_a_world_that_diverged_while_it_settled_is_shown_to_nobody(tiny_suite, monkeypatch):
    worlds = Scripted(tiny_suite, inside=[0, 0])
    state = worlds.state
    monkeypatch.setattr(worlds, "state", lambda index: state(index) * (np.nan if index else 1))
    episodes = begun(worlds)
    assert (episodes.status[1].ended, episodes.status[1].error) == (
        "error",
        "the physics diverged while the world settled",
    )
    hold(episodes, tiny_suite.max_steps)
    assert episodes.status[0].ended == "success"


def test_an_episode_begins_anew_in_its_world(tiny_suite):
    worlds = Scripted(tiny_suite, inside=[NEVER], diverges=[2])
    episodes = begun(worlds)
    hold(episodes, 2)
    worlds.diverges = [NEVER]
    worlds.reset({0: initial_states(tiny_suite, 1, 8)[0]})
    episodes.begin([0])
    hold(episodes, 1)
    assert episodes.status[0].ended is None
    assert episodes.status[0].progress.steps == 1


def test_a_policy_is_asked_until_the_episode_ends(tiny_suite):
    """Actions of an answer that come after the end are not executed."""
    asked, worlds = [], Scripted(tiny_suite, inside=[NEVER])

    def answer(seen):
        asked.append((seen["episode"], seen["step"], float(seen["state"][0])))
        return np.zeros((7, 8))

    status = play(worlds, initial_states(tiny_suite, 4, 8)[3], answer)
    assert status.ended == "time"
    steps = range(0, tiny_suite.max_steps, 7)
    assert asked == [(3, step, pytest.approx(0.1 * step)) for step in steps]
    assert worlds.steps == [tiny_suite.max_steps]


def test_divergence_is_the_episodes_error_in_a_trial(tiny_suite, third_engine):
    third_engine.diverges = [NEVER, 5]
    record = evaluate(tiny_suite, Wave(), Settings(4, parallel=2, videos=0, engine="third"))
    assert [trial.ended for trial in record.trials] == ["time", "error", "time", "error"]
    assert [trial.error for trial in record.trials][1] == "simulation: it flew away"
    assert record.trials[1].steps == 4


# -------------------------------------------------------------------------------------------- a third engine


@pytest.fixture
def third_engine(monkeypatch) -> type:
    """An engine `third` with one option, registered as a line of the table; what its worlds do."""

    class Script:
        inside: tuple[int, ...] | list[int] = [NEVER] * 3
        diverges: tuple[int, ...] | list[int] = ()
        falls: tuple[int, ...] | list[int] = ()
        made: ClassVar[list[int]] = []

    def facts(options):
        if set(options) - {"speed"}:
            raise MorphVlaError("engine third has the option speed alone")
        return {"name": "third", **options}

    def worlds(suite, count, options):
        facts(options)
        Script.made.append(count)
        return Scripted(suite, Script.inside[:count], Script.diverges[:count], Script.falls[:count])

    door = ModuleType("third_engine_door")
    vars(door).update(LOCKSTEP=True, facts=facts, worlds=worlds)
    monkeypatch.setitem(sys.modules, door.__name__, door)
    monkeypatch.setitem(engines.ENGINES, "third", door.__name__)
    return Script


def test_a_third_engine_is_a_door_and_a_line_of_the_table(tiny_suite, third_engine):
    third_engine.inside = [0, NEVER, 0]
    settings = Settings(5, parallel=3, videos=0, engine="third,speed=2")
    record = evaluate(tiny_suite, Wave(), settings)
    assert record.engine == EngineFacts("third", others={"speed": "2"})
    assert [trial.success for trial in record.trials] == [True, False, True, True, False]  # in waves
    with pytest.raises(MorphVlaError, match=r"^engine third has the option speed alone$"):
        engines.check("third,color=red")


def test_films_are_taken_in_a_wave_of_their_own_with_as_many_worlds(tiny_suite, third_engine, tmp_path):
    """Six films would otherwise cost the frames of all worlds, at every step."""
    record = evaluate(tiny_suite, Wave(), Settings(6, parallel=3, videos=2, engine="third"), folder=tmp_path)
    assert [trial.video is not None for trial in record.trials] == [True, True, False, False, False, False]
    assert third_engine.made == [2, 3]


def test_worlds_that_move_together_live_here_and_others_in_processes(tiny_suite, third_engine):
    here = engines.pool(tiny_suite, 2, 1, "third")
    assert isinstance(here, WavePool)
    assert (here.slots, here.waves) == (2, True)
    blind = dataclasses.replace(tiny_suite, cameras={})
    with engines.pool(blind, 2, 1, "mujoco") as there:
        assert isinstance(there, WorkerPool)
        assert (there.slots, there.waves) == (2, False)
