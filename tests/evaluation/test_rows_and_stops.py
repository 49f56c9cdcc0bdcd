"""Which rows are played, kept and left out, in a table whose episodes take no time at all."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from morph_vla.engines.pool import Answer
from morph_vla.evaluation import rollout
from morph_vla.evaluation.chunking import Chunking
from morph_vla.evaluation.flights import Episode, Flights
from morph_vla.results.record import SuiteFacts, TaskFacts
from morph_vla.results.trial import Trial
from morph_vla.suites.suite import InitialState


def answer(ended: str | None = "time", observation: Any = None) -> Any:
    """What a worker sends back."""
    made: Any = Answer.__new__(Answer)
    status = SimpleNamespace(ended=ended, steps=3, error=None)
    vars(made).update(status=status, observation=observation, frames=[])
    return made


class Workers:
    """Simulation workers whose episodes end at once."""

    waves, width = False, 1

    def __init__(self, slots: int):
        self.slots = slots
        self.sent: dict[int, Any] = {}
        self.spent: dict[str, float] = {}

    def close(self) -> None:
        pass

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def usable(self, slot: int) -> bool:
        return True

    def send(self, messages: Mapping[int, Any]) -> None:
        self.sent |= messages

    def receive(self, slots: Sequence[int]) -> dict[int, Answer]:
        return {slot: answer() for slot in slots if self.sent.pop(slot)}


class Table:
    """A task of nine rows, each of which fails."""

    label, name, task_key, episodes, control_rate, maps_actions = "s:t", "s", "t", 9, 15.0, False

    def findings(self, policy: object) -> tuple[()]:
        return ()

    def check(self) -> None:
        pass

    def states(self, count: int) -> tuple[InitialState, ...]:
        return tuple(InitialState(row, {}, ()) for row in range(count))

    def facts(self, states: Sequence[InitialState] = ()) -> SuiteFacts:
        return SuiteFacts(name="s", version=1, seed=1, tasks={"t": TaskFacts(task="x")})

    def engine(self) -> None:
        return None

    def pool(self, slots: int, workers: int) -> Workers:
        return Workers(slots)

    def actions(self, values: Any) -> Any:
        return values

    def arm(self, targets: Any) -> Any:
        return targets

    def trial(self, state: InitialState, verdict: object, error: str | None) -> Trial:
        return Trial(task="t", episode=state.episode, success=False, initial={})


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(rollout, "_check", lambda *_: None)
    monkeypatch.setattr(rollout, "benchmark", SimpleNamespace(of=lambda task, *_: task))
    return Table()


POLICY: Any = SimpleNamespace(infer=dict)


def settings(episodes: int, first: int = 0) -> rollout.Settings:
    return rollout.Settings(episodes, first=first, parallel=1, workers=1, groups=1, videos=0)


def test_rows_of_another_part_in_the_same_folder_are_not_of_this_one(table, tmp_path: Path):
    rollout.evaluate(table, POLICY, settings(3), folder=tmp_path)
    record = rollout.evaluate(table, POLICY, settings(3, first=3), folder=tmp_path)
    assert [trial.episode for trial in record.trials] == [3, 4, 5]


def test_a_part_that_is_decided_counts_its_own_rows(table):
    stop = {2: "enough"}
    record = rollout.evaluate(table, POLICY, settings(5, first=4), stop=lambda trials: stop.get(len(trials)))
    assert record.stopped is not None
    assert (record.stopped.episodes, record.stopped.of) == (2, 5)


def test_a_row_that_was_under_way_when_all_was_killed_is_played_before_the_decision_holds(table, tmp_path):
    """No gap is left before the last row that is known."""

    def decided(trials: Sequence[Trial]) -> str | None:
        return "enough" if len(trials) >= 5 else None

    rollout.evaluate(table, POLICY, settings(9), folder=tmp_path, stop=decided)
    path = tmp_path / "trials.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"episode": 2,' not in line]
    assert len(kept) == len(lines) - 1
    path.write_text("".join(kept))
    record = rollout.evaluate(
        table, POLICY, settings(9), folder=tmp_path,
        stop=lambda trials: "enough" if len(trials) >= 4 else None,
    )  # fmt: skip
    assert [trial.episode for trial in record.trials] == [0, 1, 2, 3, 4]


class Asker:
    """A policy that does not answer the first time, as one whose server went away."""

    def ask(self, observations: Sequence[object]) -> list[Any]:
        return ["policy: late", *[None] * (len(observations) - 1)]


def flights(**more: Any) -> Any:
    """Of two slots, with nothing behind them."""
    made: Any = Flights.__new__(Flights)
    pool = SimpleNamespace(slots=2, width=1, send=lambda messages: None)
    vars(made).update(
        _pool=pool, _asker=Asker(), _benchmark=Table(), _chunking=Chunking(8), _folder=None, _filmed=0,
        _queue=deque(), _flying={}, _groups=((0, 1),), _anew={}, _name="n",
    )  # fmt: skip
    vars(made).update(more)
    return made


def test_an_episode_that_had_begun_is_finished_when_no_more_begin():
    state = InitialState(3, {}, ())
    of_two = flights()
    of_two._queue.extend([Episode(state, begun=True), Episode(InitialState(4, {}, ()))])
    of_two.begin_no_more()
    assert [episode.state.episode for episode in of_two._queue] == [3]


def test_so_is_one_whose_policy_was_not_asked_and_its_film_begins_anew():
    """It had begun: left out, the record would have a gap."""
    discarded = []
    film = SimpleNamespace(discard=lambda: discarded.append(True))
    of_two = flights(_trial=lambda episode, error: Trial(episode=episode.state.episode, success=False))
    for row in (0, 1):
        flying: Any = Episode(InitialState(row, {}, ()), answer=answer(None, {}))
        flying.film, flying.begun_anew = film, row == 1
        of_two._flying[row] = flying
    (failed,) = of_two._ask([0, 1])
    assert failed.episode == 0
    of_two.begin_no_more()
    (again,) = of_two._queue
    assert (again.state.episode, again.begun_anew, again.film, discarded) == (1, True, None, [True])


def test_jumps_are_of_what_was_executed():
    of_one = flights(_chunking=Chunking(4))
    targets = np.arange(8.0)[:, None]
    targets[7] = 99.0  # the episode ended before
    jumps = of_one._jumps(Episode(InitialState(0, {}, ()), targets=[targets[:4], targets[4:]]), 6)
    assert (jumps.count, jumps.others, jumps.elsewhere) == (1, 3, 0.0)


def test_a_film_of_another_outcome_is_not_taken_for_the_trials():
    states = [InitialState(row, {}, ()) for row in (0, 1)]
    film = Path("videos/001.mp4")
    trials = {0: Trial(episode=0, success=False, video=film), 1: Trial(episode=1, success=True)}

    def flown(outcome: bool) -> list[Trial]:
        def fly(states: object) -> Iterator[Trial]:
            return iter([Trial(episode=1, success=outcome, video=film)])

        return [*flights(_fly=fly)._film_again(states, trials)]

    assert flown(False) == []
    assert [trial.video for trial in flown(True)] == [film]
