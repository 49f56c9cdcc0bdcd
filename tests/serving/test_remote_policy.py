"""A policy on a server is evaluated as the checkpoint itself: the same trials, the same refusals."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stand_ins import LIMIT_S, card, observation, serving, without
from test_client import other

from morph_vla.cli import build_parser
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import fit
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.serving import card as cards
from morph_vla.serving import keys, remote, wire
from morph_vla.serving.policy import EVALUATION_BATCH, CheckpointPolicy
from morph_vla.serving.remote import ServedPolicy
from morph_vla.serving.requests import example
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings
from morph_vla.suites import suite
from morph_vla.suites.environment import load_tasks

CAN = "droid_panda:can_in_mug"


def test_rows_go_in_frames_that_a_server_reads(monkeypatch):
    monkeypatch.setattr(remote.wire, "REQUEST", dataclasses.replace(remote.wire.REQUEST, frame_bytes=1000))
    sizes = (200, 200, 200, 900, 7, 7)
    rows = [{"image": np.zeros(size, np.uint8), "number": number} for number, size in enumerate(sizes)]
    parts = [[row["number"] for row in part] for part in remote._parts(rows)]
    assert parts == [[0, 1], [2], [3], [4, 5]]
    assert [len(part) for part in remote._parts([{}] * 300)] == [256, 44]


@pytest.mark.slow
def test_an_evaluation_over_the_wire_is_bit_for_bit_the_checkpoints_own(tiny_run, tiny_suite, tmp_path):
    policy = CheckpointPolicy(tiny_run.checkpoint, batch=2)
    known, limits = cards.of(policy, "droid")
    assert known.sha256 == policy.digest()
    options: dict[str, Any] = {"episodes": 3, "parallel": 3, "workers": 1, "videos": 0}
    here = evaluate(policy, tiny_suite, **options)
    free = np.full_like(limits.upper, np.inf)  # the engine keeps the limits too
    wide = dataclasses.replace(limits, lower=-free, upper=free, speed=free)
    server = PolicyServer(policy, known, wide, Settings(port=0))
    with server.background([example(known)]):
        served = remote.connect(f"ws://127.0.0.1:{server.port}", [tiny_suite])
        assert isinstance(served, ServedPolicy)
        assert isinstance(served, fit.Trained)
        assert fit.check(served, tiny_suite) == fit.check(policy, tiny_suite)
        there = evaluate(served, tiny_suite, folder=tmp_path / "there", **options)
        row = {**observation(), "images/exterior": np.zeros((24, 24, 3), np.uint8), "episode": 3, "step": 1}
        (answer,), alone = served.infer_batch([row]), policy.infer(row)
        other_suite = suite.load("so101_pick_orange")
        with pytest.raises(
            MorphVlaError, match="does not fit suite 'so101_pick_orange': robot: the suite has"
        ):
            evaluate(served, other_suite, **options)
    np.testing.assert_array_equal(answer["actions"], wide.apply(alone["actions"], row["state"])[0])
    assert answer["policy_timing"].keys() == {"prepare_ms", "sample_ms", "restore_ms"}
    assert there.trials == here.trials
    assert not there.summary.errors
    assert (there.policy.sha256, there.policy.batch) == (here.policy.sha256, 2)
    assert there.command.startswith(f"morph-vla eval --policy ws://127.0.0.1:{server.port} --suite ")


class Small:
    """A server of somebody else: eight joints, a chunk of two."""

    def __init__(self, joints: int = 8, bare: bool = False):
        self.joints, self.bare, self.asked = joints, bare, []

    def __call__(self, frame, _connection):
        self.asked.append(wire.decode(frame))
        actions = np.zeros((2, self.joints), np.float32)
        return wire.encode(actions if self.bare else {"actions": actions})


def connect(server, preset: str = ""):
    return remote.connect(f"ws://127.0.0.1:{server.port}", [suite.load(CAN)], preset=preset)


def test_a_server_of_somebody_else_is_asked_in_its_own_keys_once_before_the_first_episode(caplog):
    small = Small()
    with other(small) as server:
        policy = connect(server, "droid")
        assert not isinstance(policy, ServedPolicy)
        assert policy.describe()["server"] == f"ws://127.0.0.1:{server.port}"
    assert "does not say what joints, units and rate its actions have" in caplog.text
    (asked,) = small.asked
    assert {key for key in asked if "/" in key} == {
        "observation/exterior_image_1_left", "observation/wrist_image_left",
        "observation/joint_position", "observation/gripper_position",
    }  # fmt: skip
    assert (asked["observation/joint_position"].shape, asked["prompt"]) == ((7,), suite.load(CAN).task)


def test_a_server_of_roboarenas_is_asked_in_its_dialect():
    small = Small(bare=True)
    metadata = wire.encode({"needs_session_id": True, "action_space": "joint_position"})
    with other(small, metadata) as server:
        policy, sessions = connect(server, "droid"), []
        for episode, step in ((4, 0), (5, 0), (4, 8), (4, 0), (4, 8)):
            answer = policy.infer({**suite_observation(), "episode": episode, "step": step})
            sessions.append(small.asked[-1]["session_id"])
    assert answer["actions"].shape == (2, 8)
    assert small.asked[-1]["endpoint"] == "infer"
    probed, four, five, again, replayed, its = (small.asked[0]["session_id"], *sessions)
    assert (again, its) == (four, replayed)
    assert len({probed, four, five, replayed}) == 4  # what is played again is another episode to a server
    assert "observation/exterior_image_0_left" in small.asked[-1]


ENVIRONMENT = """
kind: gymnasium
id: tiny_environment:Tiny-v0
version: 1
seed: 100
episodes: 8
control_rate: 5
episode_seconds: 1
success: {info: is_success}
task: walk right
state: [agent_pos]
images: {front: pixels}
"""


@pytest.mark.slow
def test_another_simulators_environment_is_played_by_any_server(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium", reason="needs the extra 'gymnasium'")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "evaluation"))  # the environment's module
    (tmp_path / "tiny.yaml").write_text(ENVIRONMENT)
    tasks, asked = load_tasks(tmp_path / "tiny.yaml"), []

    def right(frame, _connection):
        asked.append(wire.decode(frame))
        return wire.encode({"actions": np.ones((2, 1), np.float32)})

    with other(right) as server:
        policy = remote.connect(f"ws://127.0.0.1:{server.port}", tasks)
        record = evaluate(policy, tasks, episodes=8, parallel=2, workers=1, videos=0)
    # Seeds 100 to 107 have their goals 2, 3, 4, 5, 6, -1, 1 and 2 steps to the right; an episode has five.
    assert [trial.success for trial in record.trials] == [True] * 4 + [False] * 2 + [True] * 2
    assert {question["prompt"] for question in asked} == {"walk right"}
    assert asked[0]["images/front"].shape == (6, 8, 3)


def suite_observation() -> dict:
    return {f"images/{name}": np.zeros((4, 4, 3), np.uint8) for name in suite.load(CAN).cameras} | {
        "state": np.zeros(8, np.float32), "prompt": "x",
    }  # fmt: skip


def test_what_cannot_be_evaluated_is_refused_before_hours_are_spent():
    with other(Small(joints=7)) as server:
        sentence = r"does not fit suite 'droid_panda:can_in_mug': the policy's actions have shape \(2, 7\)"
        with pytest.raises(MorphVlaError, match=sentence):
            connect(server)
    velocities = wire.encode({"action_space": "joint_velocity"})
    with (
        other(Small(), velocities) as server,
        pytest.raises(MorphVlaError, match="answers with 'joint_velocity'"),
    ):
        connect(server)
    with pytest.raises(
        MorphVlaError, match=r"^a policy's address is ws://HOST:PORT or wss://HOST, not 'h:1'$"
    ):
        remote.connect("h:1", [suite.load(CAN)])
    with serving(preset="so101") as server:  # fits but for its pictures' size, of which it does not speak
        assert connect(server).describe()["sha256"] == "12" * 32


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"trained": {}}, "joints, control rate, statistics"),
        ({"cameras": {}}, "cameras"),
        ({"keys": {**card().keys, "state": ["a", "b", "c"]}}, "keys"),
        ({"keys": {**card().keys, "images": {"exterior": []}}}, "keys"),
        ({"trained": {**card().trained, "affine": [["x", 1]] * 8}}, "units"),
        ({"trained": {**card().trained, "joints": ["a"]}}, "joints"),
    ],
)
def test_a_card_without_what_is_compared_is_refused(change, missing):
    sentence = f"^the server's metadata does not say {missing} as it should$"
    with pytest.raises(MorphVlaError, match=sentence):
        cards.check(without(card(), **change))


def test_a_card_is_read_back_from_its_metadata():
    known = card("droid")
    back = cards.read(wire.decode(wire.encode(known.metadata()), wire.ANSWER))
    assert back is not None
    cards.check(back)
    plain = {"trained", "lower", "upper"}
    for field in dataclasses.fields(known):
        if field.name not in plain:
            assert getattr(back, field.name) == getattr(known, field.name), field.name
    assert back.request_keys() == keys.of(known.cameras, "droid")
    assert cards.read({"served_by": "other 1.0"}) is None


@pytest.mark.slow
def test_a_checkpoint_is_served_and_asked_by_the_command_line(tiny_run, run, folder):
    command = [
        sys.executable,
        "-m",
        "morph_vla.cli",
        "serve",
        str(tiny_run.checkpoint),
        "--port",
        "0",
        "--batch",
        "2",
    ]
    environment = {**os.environ, "MORPH_VLA_API_KEY": "secret"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout
        try:
            first, second = (child.stdout.readline() for _ in range(2))
            listening = re.search(r"on (ws://127\.0\.0\.1:\d+), compiling$", first)
            assert listening
            address = listening[1]
            assert second == "ready: /healthz answers 200\n"
            pixels = " ".join(
                f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")
            )
            asked = f"eval --policy {address} {pixels} episode_seconds=0.8 --suite droid_panda:cube_in_bowl"
            rest = "--workers 1 --parallel 1 --videos 0 --episodes 1 -o out"
            status, _, err = run(f"{asked} {rest}")
            assert (status, "refuses the API key" in err) == (2, True)
            os.environ["MORPH_VLA_API_KEY"] = "secret"
            assert run(f"{asked} {rest}")[0] == 0
        finally:
            os.environ.pop("MORPH_VLA_API_KEY", None)
            child.send_signal(signal.SIGINT)
        assert child.wait(LIMIT_S) == 0
    record = json.loads((folder / "out/record.json").read_text())
    assert record["policy"]["server"] == address
    assert record["summary"]["errors"] == 0


def test_a_server_computes_as_many_at_once_as_an_evaluation():
    assert build_parser("serve").parse_args(["serve", "folder"]).batch == EVALUATION_BATCH


def test_an_evaluation_needs_a_policy(run, folder):
    status, _, err = run("eval --suite droid_panda -o out")
    assert status == 2
    either = "a checkpoint's folder, or --policy ws://HOST:PORT, lerobot:FOLDER or expert"
    assert err == f"error: what is evaluated? {either}\n"
    begun = time.monotonic()
    status, _, err = run("eval --policy ws://127.0.0.1:9 --suite droid_panda -o out --timeout 0.1")
    waiting, error = err.splitlines()
    assert (status, waiting[:41]) == (2, "warning: ws://127.0.0.1:9 does not answer")
    assert error.startswith("error: ws://127.0.0.1:9 is not to be reached: ")
    assert time.monotonic() - begun < 3 * LIMIT_S


def test_a_policy_that_sees_nothing_says_so():
    """A blind control, which is served as any other; a card whose keys have pictures lacks its cameras."""
    blind = without(card(), cameras={}, keys={**card().keys, "images": {}})
    assert cards.check(blind) is None
    assert blind.request_keys().images == {}
    with pytest.raises(MorphVlaError, match="does not say cameras as it should"):
        cards.check(without(card(), cameras={}))


def test_a_server_of_somebody_else_is_sent_every_camera_where_no_preset_says_which(caplog):
    """Which of them it looks through is its own affair; a preset has keys for few."""
    cameras = ["front", "top", "wrist"]
    with other(Small()) as server:
        address = f"ws://127.0.0.1:{server.port}"
        assert [*remote.reach(address, cameras)._keys.images] == cameras
        assert "not through" not in caplog.text
        known = remote.reach(address, cameras, preset="droid")._keys.images
    assert [*known] == ["front", "wrist"]
    words = "left_wrist_0_rgb), and not through top; without --preset it is sent every one, as images/NAME"
    assert caplog.messages[-1].endswith(words)
