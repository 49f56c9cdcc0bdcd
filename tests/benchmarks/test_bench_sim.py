"""`morph-vla bench sim`: what it measures, in words and as JSON."""

import json

import pytest

from benchmarks import sim as bench_sim
from morph_vla.cli import main

pytestmark = pytest.mark.slow

SIZES = [f"cameras.{name}.{side}=16" for name in ("exterior", "wrist") for side in ("width", "height")]
SMALL = [*SIZES, "settle_seconds=0.1", "--seconds", "0.8", "--workers", "1"]
SHARES = ("physics", "rendering", "pipe", "waiting")


def test_a_row_per_number_of_environments_with_frames_and_without(capsys):
    asked = ["bench", "sim", "droid_panda:cube_in_bowl", *SMALL, "--environments", "1", "3", "--json"]
    assert main(asked) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["suite"], answer["control_rate"], answer["policy"]) == (
        "droid_panda:cube_in_bowl",
        15.0,
        "stand-in",
    )
    assert [(row["frames"], row["environments"]) for row in answer["rows"]] == [
        (False, 1),
        (False, 3),
        (True, 1),
        (True, 3),
    ]
    for row in answer["rows"]:
        assert row["times_real_time"] == pytest.approx(row["steps_per_s"] / 15.0)
        assert row["ratio"] == pytest.approx(row["steps_per_s"] / row["reference_steps_per_s"])
        assert row["minutes_for_300_episodes"] == pytest.approx(300 * 30 * 15 / row["steps_per_s"] / 60)
        assert sum(row[share] for share in SHARES) == pytest.approx(1)
        assert all(0 <= row[share] < 1 for share in (*SHARES, "policy"))
        assert row["processor_s_per_simulated_s"] > 0
        assert row["processor_s_here_per_simulated_s"] > 0
    without, with_frames = answer["rows"][1], answer["rows"][3]
    assert with_frames["rendering"] > without["rendering"]  # by how much depends on what else runs


def test_the_table_names_its_shares(capsys, monkeypatch):
    numbers = dict.fromkeys((*SHARES, "policy"), 0.25)
    row = {
        "frames": True, "environments": 20, "workers": 2, "groups": 1, "steps_per_s": 900.0,
        "times_real_time": 60.0, "ratio": 1.5, "processor_s_per_simulated_s": 0.0123,
        "processor_s_here_per_simulated_s": 0.0045,
        "minutes_for_300_episodes": 2.5, **numbers,
    }  # fmt: skip
    monkeypatch.setattr(bench_sim, "_row", lambda *_: row)
    assert main(["bench", "sim", "--environments", "20", "--workers", "2", "--frames", "with"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("suite droid_panda:cube_in_bowl, control rate 15, open loop 8, policy stand-in")
    header, line = shown.splitlines()[2:4]
    assert " ".join(header.split()) == (
        "frames environments workers groups steps/s x real time of one here processor s per s "
        "and here physics rendering pipe waiting policy 300 episodes"
    )
    assert " ".join(line.split()) == "yes 20 2 1 900 60.0 1.50 0.0123 0.0045 25% 25% 25% 25% 25% 2.5 min"


@pytest.mark.parametrize("option", ["environments", "workers", "groups"])
def test_nothing_at_once_is_refused(capsys, option):
    assert main(["bench", "sim", f"--{option}", "2", "0"]) == 2
    assert f"--{option} must be at least 1, not 0" in capsys.readouterr().err
