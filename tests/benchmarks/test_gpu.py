"""`make gpu`: what is run, what is written of it, floors; the whole list at the small size is slow."""

import json
import subprocess

import jax
import numpy as np
import pytest

from benchmarks import ahead, gpu, gpu_floors, gpu_levers, gpu_parts
from benchmarks.gpu_part import Asked, Result
from benchmarks.gpu_parts import ALL
from benchmarks.subject import PARTS, recipe_of
from morph_vla.pi05 import Pi05Config, counts

# As an error, this one of the profiler's own ends the process.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")]


@pytest.fixture
def asked(tmp_path):
    return Asked(tmp_path, "small", 1, None, None)


def test_what_was_never_tried_comes_first_then_what_failed(asked):
    assert gpu.remaining({}) == list(ALL)
    known = {
        "machine": Result([{"ms": 1.0}]),
        "call_1": Result(failed="no"),
        "demo": Result(not_possible="no"),
    }
    assert gpu.remaining(known) == [name for name in ALL if name not in known] + ["call_1", "demo"]


def test_what_cannot_be_done_here_says_why(asked):
    words = "no checkout of openpi was given: OPENPI=path"
    gpu.run_part(asked, "openpi_step")
    assert gpu.results(asked.folder)["openpi_step"].not_possible == words
    assert f"openpi_step: not possible here: {words}" in (asked.folder / gpu.PAGE).read_text()


@pytest.mark.long
def test_seeds_that_train_together_lose_what_each_loses_alone(asked):
    gpu.run_part(asked, "bodies")
    result = gpu.results(asked.folder)["bodies"]
    assert [row["condition"] for row in result.rows] == ["token-matched", "h1-mix-film", "h2-all"], result
    for row in result.rows:
        assert row["seeds"] == 2
        assert row["losses_apart"] < 1e-4
        assert row["ratio"] == pytest.approx(row["together_ms"] / row["apart_ms"])


def test_a_part_that_fails_stops_nothing(asked, monkeypatch):
    def full(_):
        raise RuntimeError("RESOURCE_EXHAUSTED: 99 GB\nand much more")

    monkeypatch.setattr(gpu, "ALL", {**ALL, "plugin": full})
    gpu.run_part(asked, "plugin")
    assert gpu.results(asked.folder)["plugin"].failed == "RuntimeError: RESOURCE_EXHAUSTED: 99 GB"
    assert "plugin" in gpu.remaining(gpu.results(asked.folder))


def test_the_page_has_every_row_and_what_is_still_to_come(asked):
    gpu.keep(asked.folder, "machine", Result([{"device": "a card", "jax": "1.2"}], "as it is", seconds=3.0))
    page = (asked.folder / gpu.PAGE).read_text()
    assert page.startswith(f"# pi0.5 on one device\n\n1 of {len(ALL)} parts are done.\n")
    assert "machine, 3 s. as it is\n\n```\ndevice  jax\na card  1.2\n```\n" in page
    assert "call_16: not yet run." in page
    assert set(json.loads((asked.folder / gpu.JSON).read_text())) == {"machine"}
    titles = [gpu_parts.title(name) for name in ALL]
    assert all(title.endswith((".", "?")) for title in titles)
    assert all(f"## {title}\n" in page for title in titles)


def test_a_part_that_hangs_or_dies_is_ended_and_the_next_one_begins(asked, monkeypatch, capsys):
    begun = []

    def run(command, *, check, timeout):
        assert not check
        assert timeout == gpu.LIMIT == 480
        begun.append(command[-1])
        if len(begun) == 1:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, -9)

    monkeypatch.setattr(gpu.subprocess, "run", run)
    only = ["--only", "call_1", "--only", "call_2"]
    assert gpu.main([str(asked.folder), "--size", "small", *only]) == 0
    assert begun == ["call_1", "call_2"]
    out = capsys.readouterr().out
    assert "call_1 ... it took more than 8 min 00 s" in out
    assert "call_2 ... its process ended with -9" in out
    assert gpu.main([str(asked.folder), "--minutes", "0"]) == 0
    assert "0 minutes are over; the same command goes on with machine" in capsys.readouterr().out


def test_floors_at_full_size_are_those_of_the_paper_and_pencil():
    """facts: 44 bytes of each of the 431 million that learn, 141 TFLOP before the suffix."""
    recipe = recipe_of("full", 32)
    work = gpu_floors.work_of(recipe)
    assert list(work) == [*PARTS, "step"]
    assert work["optimizer"][1] / 44 == pytest.approx(431e6, rel=0.02)
    assert work["prefix"][0] == pytest.approx(141e12, rel=0.05)
    assert work["images"][0] == pytest.approx(21e12, rel=0.05)
    assert isinstance(recipe.model, Pi05Config)
    assert work["step"][0] == counts.training_step(recipe.model, 32, 1, "expert")
    assert work["step"][0] == work["prefix"][0] + work["suffix"][0]


def test_goals_are_held_against_what_was_measured():
    step = [{"ms": 312.4, "temporary GB": 5.1}]
    said = "goals: ms 312.4 of at most 250, missed; temporary GB 5.1 of at most 5.5, reached"
    assert gpu_parts.goals("step_expert_middle", step) == said
    shares = [{"what": "step, batch 32", "ratio": 1.04}, {"what": "call, batch 1", "ratio": 1.2}]
    said = "goals: step, batch 32 1.04 of at most 1.05, reached; call, batch 1 1.2 of at most 1.1, missed"
    assert gpu_parts.goals("plugin", shares) == said
    assert gpu_parts.goals("call_16", [{"ms": 1.0}]) == ""


def test_numbers_that_are_too_far_apart_have_failed_and_are_shown(asked, monkeypatch):
    sides = iter([{"losses": np.array([1.0])}, {"losses": np.array([1.3])}])
    monkeypatch.setattr(gpu_parts, "numbers", lambda *_: next(sides))
    gpu.run_part(asked, "parity_float32")
    result = gpu.results(asked.folder)["parity_float32"]
    assert result.failed == "further apart than 0.0002: losses"
    page = (asked.folder / gpu.PAGE).read_text()
    assert "parity_float32: failed: further apart than 0.0002: losses" in page
    assert "\nlosses " in page
    assert "parity_float32" in gpu.remaining(gpu.results(asked.folder))


@pytest.mark.long
def test_the_list_runs_here(asked):
    only = ("machine", "parity_float32", "step_parts", "step_lora_few", "call_2", "plugin", "lever_all")
    words = [word for name in only for word in ("--only", name)]
    assert gpu.main([str(asked.folder), "--size", "small", "--repeats", "1", *words]) == 0
    known = gpu.results(asked.folder)
    assert {name for name in known if known[name].rows} == set(only)
    assert all(row["within"] for row in known["parity_float32"].rows)
    assert all(
        row["ms"] > 0 for name in ("step_parts", "step_lora_few", "call_2") for row in known[name].rows
    )


def test_what_takes_minutes_to_compile_keeps_nobody_waiting():
    """8 bits are compiled when it is their turn, which is after all that is."""
    ahead_of_time = {name for name in ALL if gpu_parts.is_compiled_ahead(name)}
    levers = [name for name in ALL if name.startswith("lever_")]
    assert set(levers) - ahead_of_time == {"lever_float8"}
    assert list(ALL).index("lever_float8") > max(map(list(ALL).index, ahead_of_time))
    assert {"openpi_step", "openpi_call_1", "openpi_call_8"} <= ahead_of_time


@pytest.mark.long
def test_an_option_of_xlas_is_a_lever(asked, monkeypatch):
    """It reaches the compiler, which knows it, and would refuse another."""
    gpu.run_part(asked, "lever_cublas")
    (row,) = gpu.results(asked.folder)["lever_cublas"].rows
    assert row["step ms"] > 0
    assert "xla_gpu_enable_triton_gemm False" in (asked.folder / gpu.PAGE).read_text()
    monkeypatch.setattr(gpu_levers, "OPTIONS", {"cublas": {"xla_of_nobody": True}})
    gpu.run_part(asked, "lever_cublas")
    assert "xla_of_nobody" in gpu.results(asked.folder)["lever_cublas"].failed


def test_at_once_compiles_first_and_measures_then(asked, monkeypatch, capsys):
    monkeypatch.setattr(ahead, "_kept", None)
    names = ["machine", "call_1", "kernels_call_1", "lever_prompt"]
    with jax.numpy_dtype_promotion("standard"):
        gpu.at_once(asked, names, 2, float("inf"))
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[:2]} == {"call_1", "kernels_call_1"}
    assert all(" is compiled after " in line for line in lines[:2])
    assert lines[2] == "lever_prompt was not compiled: it changes nothing at the size 'small'"
    assert lines[3].startswith("3 parts compiled in ")
    assert [line.split()[0] for line in lines[4:]] == names
    known = gpu.results(asked.folder)
    assert known["call_1"].rows[0]["ms"] > 0
    kernels = known["kernels_call_1"].rows
    assert [row["ms"] for row in kernels] == sorted((row["ms"] for row in kernels), reverse=True)
    written = json.loads((asked.folder / "traces" / "call_1" / "kernels.json").read_text())
    assert len(written) >= len(kernels)
    assert known["lever_prompt"].not_possible
    gpu.at_once(asked, ["machine"], 1, -1.0)
    assert capsys.readouterr().out.splitlines()[-1].startswith("the time is over; machine")
