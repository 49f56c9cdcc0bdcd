"""The broker: which row of which chunk is executed when, and what the server is told of it."""

import threading
from typing import Any

import numpy as np
import pytest
from stand_ins import (
    LIMIT_S,
)

from morph_vla.errors import MorphVlaError
from morph_vla.serving import card as cards
from morph_vla.serving.broker import ActionBroker
from morph_vla.serving.client import LateAnswerError

pytestmark = pytest.mark.slow


class Robot:
    """A server whose answers come when they are let go; chunk n has rows n.00, n.01, ..."""

    late: tuple[int, ...] = ()

    def __init__(self, rows: int = 7, accepts: tuple[str, ...] = cards.REAL_TIME):
        self.rows, self.accepts, self.asked, self.resets = rows, accepts, [], 0
        self.go = threading.Semaphore(1)

    def get_server_metadata(self):
        return {"accepts": list(self.accepts)}

    def infer(self, obs):
        self.asked.append(dict(obs))
        assert self.go.acquire(timeout=LIMIT_S)
        if obs["at"] in self.late:
            raise LateAnswerError("too late")
        actions = len(self.asked) - 1 + np.arange(self.rows)[:, None] / 100
        return {"actions": actions, "served_by": "robot"}

    def reset(self):
        self.resets += 1


def walk(robot: Robot, broker: ActionBroker, steps: range, there_at: dict[int, int] | None = None) -> list:
    """The actions of control steps; at `there_at` (step -> answers) answers are let go and have arrived."""
    rows = []
    for step in steps:
        for _ in range((there_at or {}).get(step, 0)):
            robot.go.release()
            pending = broker._pending
            if pending is not None:
                pending.exception(timeout=LIMIT_S)
        rows.append(round(float(broker.infer({"at": step})["actions"][0]), 2))
    return rows


def test_a_chunk_is_executed_while_the_next_is_asked_for():
    robot = Robot()
    with ActionBroker(robot, open_loop=3, session="left", delay=1) as broker:
        # The second chunk is asked at step 3 and there at step 5, the third at 8 - 3 + ... and so on.
        rows = walk(robot, broker, range(9), {5: 1, 7: 1})
    assert rows == [0, 0.01, 0.02, 0.03, 0.04, 1.02, 1.03, 2.01, 2.02]
    assert robot.asked == [
        {"at": 0, "env_id": "left", "inference_delay": 1},
        {"at": 3, "env_id": "left", "inference_delay": 1, "executed_steps": 3},
        {"at": 6, "env_id": "left", "inference_delay": 2, "executed_steps": 3},
    ]
    assert broker.stalls == 0


def test_a_robot_without_actions_waits_and_the_broker_counts_it():
    robot = Robot(rows=4)
    with ActionBroker(robot, open_loop=3) as broker:
        walk(robot, broker, range(4))
        threading.Timer(0.05, robot.go.release).start()
        assert walk(robot, broker, range(4, 6)) == [1.01, 1.02]
        assert broker.stalls == 1


def test_an_answer_that_is_shorter_than_it_took_to_come_is_asked_for_again():
    robot = Robot(rows=7)
    with ActionBroker(robot, open_loop=3) as broker:
        walk(robot, broker, range(7))
        robot.rows = 2  # a server that was started again, with a shorter horizon
        for _ in range(2):
            robot.go.release()
        assert walk(robot, broker, range(7, 9)) == [2, 2.01]
    assert [asked["at"] for asked in robot.asked[:3]] == [0, 3, 7]


def test_what_was_expected_gives_way_to_what_was_measured():
    robot = Robot()
    with ActionBroker(robot, open_loop=3, delay=5) as broker:
        walk(robot, broker, range(8), {4: 1, 7: 1})
    assert [asked["inference_delay"] for asked in robot.asked] == [5, 5, 1]


def test_a_late_answer_is_asked_for_again():
    robot = Robot()
    robot.late = (3,)
    with ActionBroker(robot, open_loop=3) as broker:
        rows = walk(robot, broker, range(7), {4: 1, 5: 1})
    assert rows == [0, 0.01, 0.02, 0.03, 0.04, 2.01, 2.02]
    assert [asked["at"] for asked in robot.asked] == [0, 3, 4]


def test_a_late_answer_is_said_where_there_is_nothing_left_to_do():
    robot = Robot(rows=4)
    robot.late = (3,)
    with ActionBroker(robot, open_loop=3) as broker:
        walk(robot, broker, range(4))
        robot.go.release()
        with pytest.raises(LateAnswerError, match=r"^too late$"):
            broker.infer({"at": 4})
        robot.go.release()
        assert walk(robot, broker, range(5, 7)) == [2, 2.01]  # what was asked at 5, by the call of 5
    assert [asked["at"] for asked in robot.asked] == [0, 3, 5]


def test_a_longer_open_loop_than_a_chunk_asks_at_its_end():
    robot = Robot(rows=3)
    robot.go.release(2)
    with ActionBroker(robot, open_loop=20) as broker:
        assert walk(robot, broker, range(8)) == [0, 0.01, 0.02, 1, 1.01, 1.02, 2, 2.01]
    assert broker.stalls == 2


def test_brokers_that_share_a_connection_without_sessions_do_not_go_on(caplog):
    """The last answer may be the other robot's: the server has one session for both."""
    robot = Robot()
    robot.go.release(4)
    with ActionBroker(robot, open_loop=1) as one, ActionBroker(robot, open_loop=1) as other:
        for step in range(2):
            for broker in (one, other):
                walk(robot, broker, range(step, step + 1))
    assert [asked["at"] for asked in robot.asked] == [0, 0, 1, 1]
    assert not [asked for asked in robot.asked if "executed_steps" in asked]
    words = "another robot asks through the same connection: give each broker a `session`; until then"
    assert words in caplog.text


def test_a_broker_after_another_goes_on_from_its_own_answers(caplog):
    robot = Robot()
    for _ in range(2):
        robot.go.release(2)
        with ActionBroker(robot, open_loop=2) as broker:
            walk(robot, broker, range(4))
    assert [asked.get("executed_steps") for asked in robot.asked[:4]] == [None, 2, None, 2]
    assert caplog.text == ""


def test_a_reset_of_one_robot_is_no_other_ones():
    robot = Robot(accepts=(*cards.REAL_TIME, "reset"))
    robot.go.release(4)
    with (
        ActionBroker(robot, open_loop=3, session="left") as left,
        ActionBroker(robot, open_loop=3, session="right") as right,
    ):
        walk(robot, left, range(1))
        left.reset()
        walk(robot, right, range(1))
        walk(robot, left, range(2))
    assert robot.resets == 0
    assert [(asked["env_id"], asked.get("reset")) for asked in robot.asked] == [
        ("left", None), ("right", None), ("left", True),
    ]  # fmt: skip


def test_another_episode_begins_with_an_answer_of_its_own():
    robot = Robot()
    with ActionBroker(robot, open_loop=3) as broker:
        walk(robot, broker, range(4))
        robot.go.release(2)
        broker.reset()
        assert walk(robot, broker, range(2)) == [2, 2.01]
    assert robot.resets == 1
    assert "executed_steps" not in robot.asked[-1]


def test_a_server_that_knows_nothing_of_it_is_asked_in_its_own_words():
    robot = Robot(accepts=())
    with ActionBroker(robot, open_loop=3) as broker:
        walk(robot, broker, range(4))
        robot.go.release()
    assert robot.asked == [{"at": 0}, {"at": 3}]
    with pytest.raises(MorphVlaError, match="open_loop must be at least 1 action, not 0"):
        ActionBroker(robot, open_loop=0)


class Saying(Robot):
    """A robot's server that answers what it is told to."""

    answer: Any = None

    def infer(self, obs):
        return self.answer


def test_what_is_no_chunk_of_numbers_is_not_executed():
    chunks = [np.full((4, 8), np.nan), np.zeros(8), np.zeros((0, 8)), np.full((2, 2), "x"), None]
    robot = Saying()
    for chunk in chunks:
        for answer in ({"actions": chunk}, {} if chunk is None else {"actions": chunk, "step": 3}):
            robot.answer = answer
            with ActionBroker(robot, open_loop=2) as broker:
                with pytest.raises(MorphVlaError, match=r"^the policy.s answer has actions of .*expected"):
                    broker.infer({"at": 0})
                robot.answer = {"actions": np.zeros((3, 2))}
                assert broker.infer({"at": 0})["actions"].shape == (2,)  # and it goes on


def test_an_episode_begins_with_the_delay_that_was_measured_before():
    robot = Robot()
    with ActionBroker(robot, open_loop=3, delay=1) as broker:
        walk(robot, broker, range(7), {6: 1})
        broker.reset()
        robot.go.release()
        walk(robot, broker, range(1))
    assert [asked["inference_delay"] for asked in robot.asked] == [1, 1, 3, 3]


@pytest.mark.parametrize("accepts", [None, 5, np.zeros(3)])
def test_a_server_that_says_nonsense_of_what_it_accepts_accepts_nothing_more(accepts):
    robot = Robot()
    robot.get_server_metadata = lambda: {"accepts": accepts}
    with ActionBroker(robot, open_loop=2, session="left") as broker:
        walk(robot, broker, range(1))
    assert robot.asked == [{"at": 0, "env_id": "left"}]
