"""The rows that a policy that looks back is shown: each episode's own, and none that was not there."""

import dataclasses

import numpy as np
import pytest
from mutations import Mutation, is_noticed, law
from stand_ins import card, observation

from morph_vla.engines.engine import ENVIRONMENT
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config
from morph_vla.pi05.model import example
from morph_vla.serving import history, keys, wire
from morph_vla.serving.history import History
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.requests import Request, Sessions, read
from morph_vla.serving.watched import batches


def shown(episode, step):
    """An observation whose values say of which episode and step it is."""
    return {
        "episode": episode,
        "step": step,
        "state": np.array([episode, step], np.float32),
        ENVIRONMENT: np.full(3, 100 * episode + step, np.float32),
    }


def test_a_window_is_of_its_own_episode_and_repeats_its_first_row_before_the_start():
    windows = History((6, 3, 0))
    for step in (0, 3, 6):
        windows.windows([shown(5, step), shown(7, step)])
    states, poses, mask = windows.windows([shown(7, 9), shown(5, 9), shown(2, 0)])
    assert states[:, :, 0].tolist() == [[7] * 3, [5] * 3, [2] * 3]
    assert states[:, :, 1].tolist() == [[3, 6, 9], [3, 6, 9], [0, 0, 0]]
    assert poses.shape == (3, 3, 3)
    assert poses[0, :, 0].tolist() == [703, 706, 709]
    assert mask.tolist() == [[True] * 3, [True] * 3, [False, False, True]]


def test_an_episode_begins_at_step_0_whatever_was_known_of_its_number():
    windows = History((3, 0))
    windows.windows([shown(5, 0)])
    windows.windows([shown(5, 3)])
    changed = {**shown(5, 0), "state": np.array([11, 13], np.float32)}
    states, _, mask = windows.windows([changed])
    assert states.tolist() == [[[11, 13], [11, 13]]]
    assert mask.tolist() == [[False, True]]


def test_episodes_of_other_connections_are_not_mixed_up():
    windows = History((3, 0))
    for step in (0, 3):
        for client, moved in (("a", 0), ("b", 50)):
            row = {**shown(5, step), "connection": client}
            states, _, _ = windows.windows([{**row, "state": row["state"] + np.float32(moved)}])
    assert states[0, :, 1].tolist() == [50, 53]
    states, _, _ = windows.windows([{**shown(5, 6), "connection": "a"}])
    assert states[0, :, 1].tolist() == [3, 6]


def test_being_asked_more_often_changes_no_window():
    seldom, often = History((6, 3, 0)), History((6, 3, 0))
    for step in range(13):
        ours = often.windows([shown(5, step)])
        if step % 3 == 0:
            theirs = seldom.windows([shown(5, step)])
            assert all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_what_was_shown_is_kept_as_it_was():
    windows, state = History((3, 0)), np.zeros(2, np.float32)
    windows.windows([{**shown(5, 0), "state": state}])
    state += 1  # an environment that writes into the same array
    assert windows.windows([shown(5, 3)])[0][0, 0].tolist() == [0, 0]


def test_a_row_at_which_the_policy_was_not_asked_is_said():
    windows = History((16, 8, 0))
    windows.windows([shown(5, 0)])
    windows.windows([shown(5, 5)])
    words = (
        r"^episode 5, step 10: this policy looks back at step 2, at which it was not asked; "
        r"ask it every 8 control steps from step 0 on \(--open-loop 8\)$"
    )
    with pytest.raises(MorphVlaError, match=words):
        windows.windows([shown(5, 10)])


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 6, 8])
def test_every_row_was_shown_exactly_where_the_steps_between_two_calls_divide_the_stride(rows, stride):
    lags = [stride * back for back in reversed(range(rows))]
    assert history.stride_of(lags) == (stride if rows > 1 else 0)
    for every in range(1, 18):
        assert are_all_shown(History(lags), every) == (history.stride_of(lags) % every == 0)


def are_all_shown(windows, every):
    try:
        for step in range(0, 100, every):
            windows.windows([shown(5, step)])
    except MorphVlaError:
        return False
    return True


@pytest.mark.parametrize("again", [0, 3])
def test_the_episode_asked_about_longest_ago_is_forgotten_first(monkeypatch, again):
    monkeypatch.setattr(history, "EPISODES", 2)
    windows = History((3, 0))
    for episode, step in ((5, 0), (7, 0), (5, again), (2, 0)):
        windows.windows([shown(episode, step)])
    windows.windows([shown(5, 3)])
    windows.windows([shown(5, 6)])
    with pytest.raises(MorphVlaError, match=r"^episode 7, step 3: "):
        windows.windows([shown(7, 3)])


def test_steps_that_count_down_are_not_kept():
    windows = History((3, 0))
    for step in (70, 50, 30, 11, 7):
        with pytest.raises(MorphVlaError, match=rf"^episode 5, step {step}: "):
            windows.windows([shown(5, step)])
    assert [list(rows) for rows in windows._episodes.values()] == [[7]]


def test_observations_of_one_episode_fill_a_batch_in_their_order():
    windows, asked = History((16, 8, 0)), []

    class Policy(CheckpointPolicy):
        def __init__(self):
            self.batch = 5

        def prepare(self, observations):
            windows.windows(observations)
            asked.append([row["step"] for row in observations])
            return example(Pi05Config())[0]

    counts = [count for count, _ in batches(Policy(), [shown(5, 8 * i) for i in range(7)])]
    assert counts == [5, 2]
    assert asked == [[0, 8, 16, 24, 32], [40, 48, 48, 48, 48]]


def test_a_server_of_a_policy_that_looks_back_has_to_be_told_the_control_step():
    about = dataclasses.replace(card(), looks_back=True)
    known, sessions = about.request_keys(), Sessions()

    def asked(**moment) -> Request:
        request = {**keys.request(observation(3), known), **moment}
        return read(wire.encode(request), about, known, sessions)

    for moment in ({"episode": 4, "step": 5}, {"episode": np.int64(4), "step": np.array([5])}):
        (row,) = asked(**moment).observations
        assert (row["episode"], row["step"]) == (4, 5)
    left, right = (asked(episode=4, step=5, env_id=name).observations[0] for name in ("left", "right"))
    assert left["connection"] != right["connection"]  # two robots of one connection are two episodes
    words = "^this policy looks back: every request has to say `episode` and `step`, whole numbers; `step` "
    for moment in ({}, {"env_id": 3}):
        with pytest.raises(MorphVlaError, match=words):
            asked(**moment)
    for moment, words in (
        ({"episode": 4}, "^episode: given without `step`; an answer's random numbers need both or neither$"),
        ({"step": 4}, "^step: given without `episode`; "),
        ({"episode": 4, "step": 2.0}, r"^step: expected a whole number from 0 to 2\^32 - 1$"),
        ({"episode": "4", "step": 2}, "^episode: expected a whole number"),
        ({"episode": 2**32, "step": 2}, "^episode: expected a whole number"),
        ({"episode": 4, "step": -1}, "^step: expected a whole number"),
    ):
        with pytest.raises(MorphVlaError, match=words):
            asked(**moment)
    row = {**keys.request(observation(3), known), "episode": 4, "step": 5}
    batch = wire.encode({"batch": [{**row, "env_id": name} for name in ("left", "right")]})
    assert len(read(batch, about, known, sessions).observations) == 2
    with pytest.raises(
        MorphVlaError, match="two rows are of one episode of one session; give each its own env_"
    ):
        read(wire.encode({"batch": [row, row]}), about, known, sessions)


BEFORE = law(test_a_window_is_of_its_own_episode_and_repeats_its_first_row_before_the_start)
MUTATIONS = {
    "the newest first": Mutation(
        History, "return [known[at] for at in wanted]", "return [known[at] for at in wanted[::-1]]", BEFORE
    ),
    "the present row is not of the episode": Mutation(
        History, "steps >= np.asarray", "steps > np.asarray", BEFORE
    ),
    "a row too new": Mutation(
        History, "wanted = [max(0, step - lag)", "wanted = [min(step, max(0, step - lag + 3))", BEFORE
    ),
    "every episode is one": Mutation(History, "episode  # clients", "0  # clients", BEFORE),
    "every client is one": Mutation(
        History,
        'row.get("connection"), episode',
        "None, episode",
        law(test_episodes_of_other_connections_are_not_mixed_up),
    ),
    "the caller's array is kept": Mutation(
        History, "np.array(row[key])", "row[key]", law(test_what_was_shown_is_kept_as_it_was)
    ),
    "what was first shown stays": Mutation(
        History,
        "known[step] = {",
        "known[step] = before.get(step) or {",
        law(test_an_episode_begins_at_step_0_whatever_was_known_of_its_number),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_noticed(name):
    is_noticed(MUTATIONS[name])
