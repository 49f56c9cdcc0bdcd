"""`morph-vla bench serve`: nothing is lost or mixed, and the table says what was measured."""

import json

import pytest

from morph_vla.cli import main


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


def test_a_number_of_clients_that_cannot_be_is_refused(run):
    status, _, err = run("bench serve --clients 0")
    assert (status, err) == (2, "error: --clients must be at least 1, not 0\n")
