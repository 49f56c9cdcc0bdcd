"""`morph-vla bench serve`: nothing is lost or mixed, and the table says what was measured."""

import json
import sys

import pytest

from morph_vla.cli import main

pytestmark = pytest.mark.slow


def test_a_row_per_number_of_clients(capsys):
    asked = ["bench", "serve", "--clients", "1", "3", "--seconds", "0.6", "--batch", "2", "--ms", "5"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["batch"]) == ("stand-in of 5 ms", 2)
    assert [row["clients"] for row in found["rows"]] == [1, 3]
    for row in found["rows"]:
        assert row["requests_per_s"] > 0
        assert row["share"] == pytest.approx(row["requests_per_s"] / row["offline_per_s"])
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert (row["lost"], row["mixed"]) == (0, 0)


def test_openpis_own_server_is_asked_beside_ours(tmp_path, capsys, monkeypatch):
    """A checkout whose server is a stand-in: the same clients, the same policy, columns of its own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "packages/openpi-client/src").mkdir(parents=True)
    serving = tmp_path / "src/openpi/serving"
    serving.mkdir(parents=True)
    (serving / "websocket_policy_server.py").write_text(OPENPI)
    asked = ["bench", "serve", "--clients", "2", "--seconds", "0.6", "--ms", "5", "--openpi", str(tmp_path)]
    assert main([*asked, "--json"]) == 0
    for name in [name for name in sys.modules if name.split(".")[0] == "openpi"]:
        del sys.modules[name]
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["openpi_per_s"] > 0
    assert row["openpi_lost"] == 0


OPENPI = """
import websockets.asyncio.server
from morph_vla.serving import wire

class WebsocketPolicyServer:
    def __init__(self, policy, host, port):
        self.policy, self.where = policy, (host, port)

    async def run(self):
        async with websockets.asyncio.server.serve(self.answer, *self.where, max_size=None) as server:
            await server.serve_forever()

    async def answer(self, connection):
        await connection.send(wire.encode({}))
        async for frame in connection:
            await connection.send(wire.encode(self.policy.infer(wire.decode(frame))))
"""


def test_what_is_no_checkout_of_openpi_is_said(run, tmp_path):
    status, _, err = run(f"bench serve --openpi {tmp_path}")
    assert status == 2
    assert err.startswith(f"error: --openpi {tmp_path}: no checkout of openpi ({tmp_path}/src and ")


def test_a_number_of_clients_that_cannot_be_is_refused(run):
    status, _, err = run("bench serve --clients 0")
    assert (status, err) == (2, "error: --clients must be at least 1, not 0\n")
