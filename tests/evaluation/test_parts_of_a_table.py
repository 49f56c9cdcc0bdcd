"""Rows of the table: halves that merge into the whole, tables that grow, and stopping when decided."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import journal
from morph_vla.evaluation.rollout import Settings, evaluate
from morph_vla.results import merging
from morph_vla.results.record import Record, SuiteFacts, record_from_json
from morph_vla.results.sequential import stopper
from morph_vla.results.trial import Trial
from morph_vla.suites.suite import initial_state

ABOUT = {"name": "still", "checkpoint": None, "step": 5, "sha256": "0123"}


class Still:
    """Holds the arm where it rests; remembers which episodes it was asked about."""

    def __init__(self):
        panda = robots.load("panda")
        self.rest = panda.to_dataset(panda.rest).astype(np.float32)
        self.episodes: set[int] = set()

    def infer(self, observation):
        self.episodes.add(observation["episode"])
        return {"actions": np.tile(self.rest, (5, 1))}


def run(suite, policy, settings: dict, **more) -> dict[str, Any]:
    """The record as it is written."""
    record = evaluate(suite, policy, Settings(workers=1, groups=1, **settings), about=ABOUT, **more)
    return record.to_json()


@pytest.fixture(scope="module")
def short(tiny_suite):
    success = dataclasses.replace(tiny_suite.success, dwell_seconds=0.1)
    return dataclasses.replace(tiny_suite, episode_seconds=0.4, success=success)


@pytest.fixture(scope="module")
def whole(short):
    return run(short, Still(), {"episodes": 5, "parallel": 2, "videos": 0})


@pytest.fixture(scope="module")
def halves(short, tmp_path_factory):
    folders = [tmp_path_factory.mktemp("half") for _ in range(2)]
    rows = [{"episodes": 3}, {"first": 2, "episodes": 3}]  # row 2 is in both
    records = [
        run(short, Still(), {"parallel": 2, "videos": 1, **own}, folder=folder)
        for own, folder in zip(rows, folders, strict=True)
    ]
    return list(zip(folders, records, strict=True))


@pytest.mark.slow
def test_a_part_of_the_table_has_the_tables_own_states_and_says_which_rows(short, halves):
    (_, first), (_, second) = halves
    assert [t["episode"] for t in first["trials"]] == [0, 1, 2]
    assert [t["episode"] for t in second["trials"]] == [2, 3, 4]
    assert (first["rows"], second["rows"]) == ([0, 3], [2, 5])
    expected = initial_state(short, 4, 8).poses
    assert second["trials"][2]["initial"] == {name: list(pose) for name, pose in expected.items()}
    assert [t["video"] for t in second["trials"]] == ["videos/002.mp4", None, None]  # the first of the part


def written(record: Record) -> dict:
    """A record without its videos, which stay with the halves."""
    bare = tuple(dataclasses.replace(trial, video=None) for trial in record.trials)
    return dataclasses.replace(record, trials=bare).to_json()


def test_two_halves_merge_into_what_one_evaluation_writes(whole, halves):
    parts = {str(folder): record_from_json(record, folder) for folder, record in halves}
    merged = written(merging.merge(parts))
    for key in ("schema", "suite", "policy", "engine", "open_loop", "rows"):
        assert merged[key] == whole[key]
    assert merged["trials"] == whole["trials"]
    assert merged["summary"] == whole["summary"]
    unfinished = {str(folder): journal.read(folder) or Record() for folder, _ in halves}
    assert written(merging.merge(unfinished))["trials"] == merged["trials"]


@pytest.mark.slow
def test_a_table_grows_without_running_an_episode_twice(short, halves, whole, tmp_path):
    run(short, Still(), {"episodes": 3, "parallel": 2, "videos": 0}, folder=tmp_path)
    policy = Still()
    record = run(short, policy, {"episodes": 5, "parallel": 2, "videos": 0}, folder=tmp_path)
    assert policy.episodes == {3, 4}
    assert record["trials"] == whole["trials"]
    again = Still()
    shorter = run(short, again, {"episodes": 2, "parallel": 2, "videos": 0}, folder=tmp_path)
    assert again.episodes == set()
    assert shorter["trials"] == whole["trials"][:2]


def beaten(short, rows: int) -> Record:
    """A record in which every episode succeeds."""
    tables = [initial_state(short, i, 8).poses for i in range(rows)]
    trials = [
        Trial(
            task="cube_in_bowl",
            episode=i,
            success=True,
            ended="success",
            initial={name: list(pose) for name, pose in poses.items()},
        )
        for i, poses in enumerate(tables)
    ]
    return Record(suite=facts(short), trials=tuple(trials))


def facts(short) -> SuiteFacts:
    return SuiteFacts(name=short.name, version=short.version, seed=short.seed)


@pytest.mark.slow
def test_an_evaluation_stops_when_it_is_decided_and_counts_all_that_it_began(short, tmp_path):
    stop = stopper(beaten(short, 19), facts(short), "cube_in_bowl")
    settings = {"episodes": 19, "parallel": 3, "videos": 0}
    record = run(short, Still(), settings, folder=tmp_path, stop=stop)
    episodes = [trial["episode"] for trial in record["trials"]]
    assert episodes == list(range(len(episodes)))  # no gap: what was begun is counted
    assert 11 <= len(episodes) <= 11 + 2  # 11 pairs decide, up to two more were under way
    assert record["summary"]["trials"] == len(episodes)
    assert record["rows"] == [0, 19]
    reason = record["stopped"].pop("reason")
    assert record["stopped"] == {"episodes": len(episodes), "of": 19}
    assert reason.startswith("decided: the earlier one is better (from episode 11 on;")
    json.dumps(record)

    (tmp_path / "record.json").write_text(json.dumps(record))
    policy = Still()
    assert run(short, policy, settings, folder=tmp_path, stop=stop)["trials"] == record["trials"]
    assert policy.episodes == set()
    rest = Still()
    assert "stopped" not in run(short, rest, settings, folder=tmp_path)  # asked for all of it, it goes on
    assert rest.episodes == set(range(len(episodes), 19))


@pytest.mark.slow
def test_what_is_there_may_decide_a_longer_one_and_be_all_of_a_shorter(short, tmp_path):
    stop = stopper(beaten(short, 19), facts(short), "cube_in_bowl")

    def kept(episodes: int, **more) -> dict[str, Any]:
        policy = Still()
        record = run(
            short, policy, {"episodes": episodes, "parallel": 3, "videos": 0}, folder=tmp_path, **more
        )
        (tmp_path / "record.json").write_text(json.dumps(record))
        assert policy.episodes in (set(), set(range(13)))
        return record

    whole = kept(13)
    assert "stopped" not in whole
    decided = kept(19, stop=stop)
    assert decided["stopped"]["reason"].startswith("decided: the earlier one is better (from episode 11 on;")
    assert (decided["stopped"]["episodes"], decided["stopped"]["of"], decided["rows"]) == (13, 19, [0, 19])
    again = kept(13)
    assert "stopped" not in again
    assert (again["rows"], again["wall_s"], again["trials"]) == ([0, 13], whole["wall_s"], whole["trials"])


def test_what_began_at_a_later_row_is_decided_against_from_there_on(short):
    before = beaten(short, 19)
    later = dataclasses.replace(before, trials=before.trials[4:], rows=(4, 19))
    stop = stopper(later, facts(short), "cube_in_bowl")
    lost = [dataclasses.replace(trial, success=False) for trial in before.trials]
    assert stop(lost[:14]) is None
    assert str(stop(lost[:15])).startswith("decided: the earlier one is better")


def test_what_cannot_be_decided_against_is_refused_before_the_first_episode(short):
    with pytest.raises(MorphVlaError, match="the same initial states, but the seeds differ: 20264 and 5"):
        stopper(beaten(short, 3), dataclasses.replace(facts(short), seed=5), "cube_in_bowl")
    with pytest.raises(MorphVlaError, match="has no episode of task 'can_in_mug'"):
        stopper(beaten(short, 3), facts(short), "can_in_mug")


def test_a_row_before_the_first_is_refused(short):
    with pytest.raises(MorphVlaError, match="the first row of the table is 0, not -1"):
        run(short, Still(), {"first": -1})


def test_episodes_of_two_evaluations_are_told_apart(short):
    """Both count from 0: one policy that looks back would take the one's past for the other's."""

    class Named(Still):
        def infer(self, observation):
            names.add(observation["connection"])
            return super().infer(observation)

    policy, all_names = Named(), set()
    for count in (1, 2):
        names: set[str] = set()
        run(short, policy, {"episodes": 2, "parallel": 2, "videos": 0})
        assert len(names) == 1
        all_names |= names
        assert len(all_names) == count
