"""What a policy cannot act on is one sentence: a model would compute something of almost anything."""

import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.serving.observed import Expected

EXPECTED = Expected(("front",), ("a", "b", "c"), ("x", "y"), ("arm", "an_arm"))


def is_accepted(expected: Expected, observation: dict) -> bool:
    try:
        expected.check(observation)
    except MorphVlaError:
        return False
    return True


def seen(**changes) -> dict:
    """What it can act on, with changes."""
    return {
        "images/front": np.zeros((5, 7, 3), np.uint8),
        "environment_state": np.zeros(2, np.float32),
        "state": np.zeros(3, np.float32),
        "prompt": "go",
    } | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"state": [0, 1, 2.5]},
        {"state": np.zeros(3)},
        {"robot": "arm"},
        {"robot": "an_arm"},
        {"robot": ""},
        {"episode": np.int64(3), "step": 2**32 - 1},
        {"previous_actions": np.zeros((4, 3)), "inference_delay": 0},
        {"further": object()},
    ],
)
def test_what_it_can_act_on_passes(changes):
    of_any_robot = Expected(("front",), ("a", "b", "c"))
    assert is_accepted(EXPECTED, seen(**changes))
    assert is_accepted(of_any_robot, seen(**{**changes, "robot": "anything"}))
    assert not is_accepted(EXPECTED, seen(**{**changes, "robot": "anything"}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"state": np.zeros(4)},
            r"the observation's state has 4 values; this policy was trained with 3",
        ),
        (
            {"state": np.array([0, np.nan, 0])},
            r"the observation's state has shape \[3\]; expected 3 finite",
        ),
        (
            {"state": np.array([0, np.inf, 0])},
            r"the observation's state has shape \[3\]; expected 3 finite",
        ),
        (
            {"state": np.zeros((3, 1))},
            r"the observation's state has shape \[3, 1\]; expected 3 finite",
        ),
        (
            {"state": np.float32(1)},
            r"the observation's state has shape \[\]; expected 3 finite",
        ),
        ({"state": ["a", "b", "c"]}, r"the observation's state has shape \[3\]; expected 3 finite"),
        (
            {"environment_state": np.zeros(3)},
            r"environment_state has shape \[3\]; this policy was trained on 2",
        ),
        (
            {"environment_state": [0, np.nan]},
            r"environment_state has shape \[2\]; this policy was trained on 2",
        ),
        (
            {"images/front": np.zeros((5, 7, 3))},
            r"images/front is float64 \[5, 7, 3\]; expected uint8",
        ),
        (
            {"images/front": np.zeros((3, 5, 7), np.uint8)},
            r"images/front is uint8 \[3, 5, 7\]; expected uint8",
        ),
        (
            {"images/front": np.zeros((5, 7, 4), np.uint8)},
            r"images/front is uint8 \[5, 7, 4\]; expected uint8",
        ),
        (
            {"images/front": np.zeros((0, 7, 3), np.uint8)},
            r"images/front is uint8 \[0, 7, 3\]; expected uint8",
        ),
        (
            {"images/front": [[1]]},
            r"images/front is a list; expected uint8 \[height, width, 3\], RGB from",
        ),
        ({"prompt": None}, r"the observation's prompt is a NoneType; expected a text"),
        ({"robot": "leg"}, r"robot: this policy drives 'arm', not 'leg'"),
        ({"step": 1.7}, r"step is 1\.7; expected a whole number from 0 on"),
        ({"episode": -1}, r"episode is -1; expected a whole number from 0 on"),
        ({"episode": 2**32}, r"episode is 4294967296; expected a whole number from 0 on"),
        (
            {"previous_actions": np.zeros((4, 2))},
            r"previous_actions have shape \[4, 2\]; expected finite",
        ),
        *(
            (
                {"previous_actions": np.full((4, 3), value), "inference_delay": 0},
                r"previous_actions have shape \[4, 3\]; expected finite",
            )
            for value in (np.nan, np.inf)
        ),
        (
            {"previous_actions": np.zeros((4, 3))},
            r"previous_actions come with inference_delay, control",
        ),
    ],
)
def test_what_it_cannot_act_on_is_one_sentence(changes, words):
    with pytest.raises(MorphVlaError, match=f"^{words}"):
        EXPECTED.check(seen(**changes))


@pytest.mark.parametrize("key", ["images/front", "environment_state", "state", "prompt"])
def test_what_is_missing_is_named(key):
    given = seen()
    del given[key]
    words = f"^the observation lacks {key}; this policy was trained with images/front, environment_state"
    with pytest.raises(MorphVlaError, match=words):
        EXPECTED.check(given)
