"""What the clients of others send, in messages of ours: RoboLab, Arena, sim-evals, LeIsaac, RoboArena.

Each was run against this server once, without its simulator; `docs/serving.md` has what came of it.
"""

import contextlib
from typing import Any

import numpy as np
import pytest
from stand_ins import CAMERAS, HORIZON, LIMIT_S, PANDA, card, expected, observation, serving
from websockets.sync.client import connect

from morph_vla import robots
from morph_vla.serving import keys, wire
from morph_vla.serving.requests import Sessions

ROBOARENA = {
    "image_resolution": None,
    "n_external_cameras": 1,
    "needs_wrist_camera": True,
    "needs_stereo_camera": False,
    "needs_session_id": False,
    "action_space": "joint_position",
}
PROMPT = "put the cube in the bowl"


def picture(number: int, height: int = 224, width: int = 224) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def droid() -> dict:
    """RoboLab's, Arena's and sim-evals' requests: pictures already square, the gripper in an array of one."""
    return {
        "observation/exterior_image_1_left": picture(1),
        "observation/wrist_image_left": picture(2),
        "observation/joint_position": np.arange(7, dtype=np.float32) / 10,
        "observation/gripper_position": np.ones(1, np.float32),
        "prompt": PROMPT,
    }


def roboarena(**more) -> dict:
    """RoboArena's, as RoboLab's world-model client sends it: two exterior cameras, the second black."""
    known = droid()
    return {
        **known,
        "observation/exterior_image_0_left": known["observation/exterior_image_1_left"],
        "observation/exterior_image_1_left": np.zeros((180, 320, 3), np.uint8),
        "observation/cartesian_position": np.zeros(6, np.float32),
        "session_id": "38DSA3hd3",
        "endpoint": "infer",
        **more,
    }


def leisaac() -> dict:
    """LeIsaac's: the state in float64."""
    state = np.array([10.0, -20.0, 30.0, 5.0, -1.0, 60.0])
    return {"images/front": picture(1), "images/wrist": picture(2), "state": state, "prompt": PROMPT}


PANDA_STATE = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0]


@pytest.mark.parametrize(
    ("preset", "robot", "message", "state"),
    [
        ("droid", "panda", droid(), PANDA_STATE),
        ("droid", "panda", roboarena(), PANDA_STATE),
        ("roboarena", "panda", roboarena(), PANDA_STATE),
        ("so101", "so101", leisaac(), [10, -20, 30, 5, -1, 60]),
    ],
)
def test_each_dialect_gives_the_policy_the_same_observation(preset, robot, message, state):
    """The robot's own cameras, whichever key they came under, and its joints in one float32 vector."""
    seen = keys.observation(
        wire.decode(wire.encode(message)), keys.of(CAMERAS, preset), robots.load(robot).names
    )
    np.testing.assert_array_equal(seen["images/exterior"], picture(1))
    np.testing.assert_array_equal(seen["images/wrist"], picture(2))
    np.testing.assert_array_equal(seen["state"], np.float32(state))
    assert seen["prompt"] == PROMPT


@contextlib.contextmanager
def connected(preset: str):
    """A server in that preset, a connection to it, and the metadata that came first."""
    with serving(preset=preset) as server, connect(f"ws://127.0.0.1:{server.port}") as connection:
        yield connection, answered(connection)


def answered(connection) -> Any:
    reply = connection.recv(timeout=LIMIT_S)
    return reply if isinstance(reply, str) else wire.decode(reply, wire.ANSWER)


def ask(connection, message) -> Any:
    connection.send(wire.encode(message))
    return answered(connection)


def asked() -> dict:
    return keys.request(observation(2), keys.of(CAMERAS, "roboarena"))


def test_roboarenas_clients_are_told_its_six_keys_and_no_other():
    """They make a dataclass of them, which an unknown key ends; every other preset says more beside them."""
    with connected("roboarena") as (connection, metadata):
        assert metadata == ROBOARENA
        answer = ask(connection, {**asked(), "endpoint": "infer"})
    assert answer["actions"].shape == (HORIZON, len(PANDA.names))
    assert card("droid").metadata().items() > ROBOARENA.items()


def test_roboarenas_reset_begins_the_next_episode_of_the_sessions_it_names():
    with connected("roboarena") as (connection, _):

        def infer(session: str) -> np.ndarray:
            return ask(connection, {**asked(), "endpoint": "infer", "session_id": session})["actions"]

        first = {session: infer(session) for session in "abc"}
        for reset in ({"session_ids": ["a"]}, {"session_id": "b"}, {"session_ids": None}):
            assert ask(connection, {"endpoint": "reset", **reset}) == "reset successful"
        again = {session: infer(session) for session in "abc"}
    # The episode of c went on; a and b began another one, with random numbers of its own.
    assert len({actions.tobytes() for actions in (*first.values(), *again.values())}) == 6
    sessions = Sessions()
    names = [{"session_id": name} for name in "abc"]
    for name in names:
        sessions.moment(name)
    sessions.reset({"session_ids": ["a", "b"]})
    assert [sessions.moment(name)[1] for name in names] == [0, 0, 1]
    sessions.reset({"session_ids": np.array(["a", "c"])})
    assert [sessions.moment(name)[1] for name in names] == [0, 1, 0]


def test_a_session_that_is_no_name_is_said():
    with connected("roboarena") as (connection, _):
        sentence = ask(connection, {"endpoint": "reset", "session_ids": ["a", {}]})
        alone = ask(connection, {"endpoint": "reset", "session_ids": "a"})
    assert sentence == "session_ids: expected a whole number, or a text of at most 200 letters"
    assert alone == "session_ids: expected a list of sessions"


def test_an_answer_in_roboarenas_dialect_is_that_of_any_other():
    message = {**asked(), "episode": 3, "step": 4}
    with connected("droid") as (connection, _):
        plain, dialect = ask(connection, message), ask(connection, {**message, "endpoint": "infer"})
    np.testing.assert_array_equal(plain["actions"], dialect["actions"])
    np.testing.assert_array_equal(plain["actions"], expected(observation(2, episode=3, step=4)))
