"""The real openpi-client against our server: `make test-openpi-client`.

It wants numpy < 2, so that it runs in an environment of its own: `MORPH_VLA_OPENPI_CLIENT` is its Python.
"""

import os
import subprocess
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from stand_ins import HORIZON, Wave, expected, observation, rest, serving
from test_wire import same, values

from morph_vla.engines import by_name as engines
from morph_vla.engines.episode import play
from morph_vla.serving import keys, wire
from morph_vla.suites.suite import initial_state

PYTHON = os.environ.get("MORPH_VLA_OPENPI_CLIENT", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="MORPH_VLA_OPENPI_CLIENT names no Python with openpi-client"),
]


class Client:
    """openpi's client in its process."""

    def __init__(self) -> None:
        command = [PYTHON, str(Path(__file__).with_name("openpi_child.py"))]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

        assert self.child.stdin
        assert self.child.stdout
        self.into, self.out = self.child.stdin, self.child.stdout

    def ask(self, **message):
        frame = wire.encode(message)
        self.into.write(len(frame).to_bytes(4, "big") + frame)
        self.into.flush()
        size = int.from_bytes(self.out.read(4), "big")
        return wire.decode(self.out.read(size), wire.ANSWER)


@pytest.fixture(scope="module")
def client():
    asker = Client()
    with asker.child:
        yield asker
        asker.into.close()
        assert asker.child.wait(20) == 0


@hypothesis.given(values)
@hypothesis.settings(max_examples=100, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_its_frames_are_ours_byte_for_byte(client, value):
    """What it reads of our frame it writes as the same bytes, and we read those as the same value."""
    ours = wire.encode(value)
    theirs = client.ask(pack=value)
    assert theirs == ours
    assert same(value, wire.decode(theirs, wire.ANSWER))


def test_it_is_answered_told_a_sentence_and_answered_again(client):
    asked = observation(3, episode=4, step=5)
    with serving(api_key="secret") as server:
        metadata = client.ask(port=server.port, key="secret")
        assert metadata["robot"] == "panda"
        np.testing.assert_array_equal(client.ask(infer=asked)["actions"], expected(asked))
        assert "the observation lacks images/exterior" in client.ask(infer={"prompt": "x"})
        np.testing.assert_array_equal(client.ask(infer=asked)["actions"], expected(asked))


def test_its_broker_of_chunks_drives_a_simulated_robot(client, tiny_suite):
    """One action a step through DROID's keys; the robot goes where it goes when asked without a socket."""
    dialect = keys.of({"base_0_rgb": "exterior", "left_wrist_0_rgb": "wrist"}, "droid")
    there, here = [], []

    def over_the_wire(seen):
        asked = keys.request({**seen, "episode": 0, "step": 0}, dialect)
        there.append(seen["state"])
        return np.stack([client.ask(step=asked)["actions"] for _ in range(HORIZON)])

    def at_once(seen):
        here.append(seen["state"])
        return expected({**seen, "episode": 0, "step": 0})

    with serving(Wave(), preset="droid", api_key="secret") as server:
        client.ask(port=server.port, key="secret", horizon=HORIZON)
        for answer in (over_the_wire, at_once):
            worlds = engines.worlds(tiny_suite, 1)
            status = play(worlds, initial_state(tiny_suite, 0, 8), answer)
            assert status.error is None
            worlds.close()
    assert len(there) > 3
    assert np.abs(np.array(there) - rest()).max() > 0.01
    np.testing.assert_array_equal(there, here)
