"""`morph-vla bench train`: shares and ratios, words for what is not there; the run itself is slow."""

import json

import pytest

from benchmarks import train as bench_train
from benchmarks.openpi_step import openpi_step
from benchmarks.subject import config_of
from morph_vla.cli import main
from morph_vla.errors import MorphVlaError

pytestmark = pytest.mark.slow


def test_shares_are_of_the_whole_step():
    names = ("step", *bench_train.PARTS, "joint")
    calls: list[str] = []
    works = {name: lambda name=name: calls.append(name) for name in names}
    row = bench_train.measured("full", works, lambda: calls.append("openpi"), 3)
    assert calls == [*names, "openpi"] * 4  # in turn, and the first turn is not counted
    for part in bench_train.PARTS:
        assert row.shares[part] == pytest.approx(row.parts_ms[part] / row.step_ms)
    assert row.step_over_joint == pytest.approx(row.step_ms / row.joint_ms)
    assert row.openpi_ms is not None
    assert row.step_over_openpi == pytest.approx(row.step_ms / row.openpi_ms)
    assert bench_train.measured("full", works, None, 1).step_over_openpi is None


def test_a_kind_or_a_checkout_that_is_not_there(capsys, tmp_path, monkeypatch):
    assert main(["bench", "train", "--kind", "ful"]) == 2
    assert "error: no kind 'ful'; did you mean 'full'? (expert, full, lora)" in capsys.readouterr().err
    with pytest.raises(MorphVlaError, match=r"is no checkout of openpi: scripts/train\.py is not there"):
        openpi_step(tmp_path, config_of("small"), 2, "full")
    fake = {name: lambda: None for name in ("step", *bench_train.PARTS, "joint")}
    monkeypatch.setattr(bench_train, "works", lambda *_: fake)
    assert main(["bench", "train", "--kind", "full", "--openpi", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["openpi"].endswith("is no checkout of openpi: scripts/train.py is not there")
    assert [row["kind"] for row in answer["rows"]] == ["full"]


@pytest.mark.long
def test_every_part_runs(capsys):
    assert main(["bench", "train", "--repeats", "1", "--batch", "2", "--kind", "lora", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert all(row["parts_ms"][part] > 0 for part in bench_train.PARTS)
