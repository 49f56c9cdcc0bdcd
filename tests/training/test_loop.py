"""The trainer: one folder, exact resume, a log that never runs ahead of its checkpoints."""

import dataclasses
import json
import math
import os
import resource
import signal
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from morph_vla import policies
from morph_vla.data import frames
from morph_vla.errors import MorphVlaError
from morph_vla.pi05.parts import PARTS
from morph_vla.recipes.keys import Recipe, Training
from morph_vla.training import checkpoint, kinds, loop, parameters, progress, restoring, saving


def leaves(run: loop.Run, recipe: Recipe) -> list[np.ndarray]:
    params = restoring.load_params(run.checkpoint, shapes(recipe), "params")
    return [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


def shapes(recipe: Recipe) -> dict:
    return policies.shapes(recipe.model)


@pytest.mark.slow
def test_an_interrupted_run_equals_an_uninterrupted_one(tiny_recipe, tiny_run, tmp_path):
    class Stop(Exception):
        pass

    def stop(report: progress.Report) -> None:
        if report.step == 4:  # after the checkpoint of step 3, before that of step 6
            raise Stop

    with pytest.raises(Stop):
        loop.train(tiny_recipe, tmp_path, on_report=stop)
    assert checkpoint.steps(tmp_path / "checkpoints") == [0, 3]
    run = loop.train(tiny_recipe, tmp_path)
    pairs = zip(leaves(run, tiny_recipe), leaves(tiny_run, tiny_recipe), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert [(e["step"], e["loss"]) for e in run.curve] == [(e["step"], e["loss"]) for e in tiny_run.curve]


def test_a_finished_run_is_left_as_it_is(tiny_recipe, tiny_run):
    before = (tiny_run.folder / "log.jsonl").read_bytes()
    again = loop.train(tiny_recipe, tiny_run.folder)
    assert again.checkpoint == tiny_run.checkpoint
    assert again.curve == tiny_run.curve
    assert (tiny_run.folder / "log.jsonl").read_bytes() == before


def test_the_log_is_json_lines_with_loss_rate_and_held_out_loss(tiny_run):
    lines = [json.loads(line) for line in (tiny_run.folder / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert all(np.isfinite(line["loss"]) and line["lr"] >= 0 for line in lines)
    assert [line["held_out_loss"] is not None for line in lines] == [False, True, True]
    for line in lines:
        assert set(line["gradient_norms"]) == set(PARTS)
        assert line["gradient_norm"] == pytest.approx(math.hypot(*line["gradient_norms"].values()), rel=1e-5)


def test_first_and_newest_checkpoints_are_kept(tiny_run):
    assert checkpoint.steps(tiny_run.folder / "checkpoints") == [0, 3, 6]
    assert tiny_run.checkpoint.name == "6"


def test_parts_add_up_to_all_parameters(tiny_run):
    assert sum(sum(row.values()) for row in tiny_run.parts.values()) == tiny_run.parameters
    assert set(tiny_run.parts) == set(PARTS)


def test_expert_tuning_freezes_the_language_model(tiny_recipe):
    parts = kinds.parts_of(parameters.fresh_params(tiny_recipe), Training(steps=1, kind="expert"))
    for name in ("vision encoder", "language model"):
        assert parts[name]["trainable"] == 0 < parts[name]["frozen"]
    for name in ("action expert", "projections", "morphology"):
        assert parts[name]["frozen"] == 0 < parts[name]["trainable"]


def test_a_folder_of_another_recipe_is_refused_with_the_key_that_differs(tiny_recipe, tiny_run):
    other = dataclasses.replace(tiny_recipe, training=dataclasses.replace(tiny_recipe.training, seed=7))
    with pytest.raises(MorphVlaError, match=r"holds a run of another recipe \(differs in training\.seed\)"):
        loop.train(other, tiny_run.folder)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_the_run_with_advice(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "math", types.SimpleNamespace(isfinite=lambda _: False))
    words = r"the loss is .* at step 1, on episodes 2 of .*; the last good checkpoint is .*/checkpoints/0\."
    with pytest.raises(MorphVlaError, match=words):
        loop.train(tiny_recipe, tmp_path)


def test_a_robot_with_other_joints_than_the_dataset_is_refused(tiny_recipe, tmp_path):
    data = dataclasses.replace(tiny_recipe.data, robot="so101")
    with pytest.raises(MorphVlaError, match="actions have 8 values, robot 'so101' has 6 joints"):
        loop.train(dataclasses.replace(tiny_recipe, data=data), tmp_path)


def test_a_checkpoint_that_does_not_fit_names_the_leaf(tiny_recipe, tiny_run):
    bigger = dataclasses.replace(
        tiny_recipe.model, expert=dataclasses.replace(tiny_recipe.model.expert, mlp_dim=30)
    )
    like = shapes(dataclasses.replace(tiny_recipe, model=bigger))
    with pytest.raises(
        MorphVlaError, match=r"leaf 'PaliGemma/llm/layers/mlp_1/gating_einsum' has shape \(2, 2, 16, 28\)"
    ):
        restoring.load_params(tiny_run.checkpoint, like)
    bare = dataclasses.replace(tiny_recipe, model=dataclasses.replace(tiny_recipe.model, morphology=None))
    with pytest.raises(
        MorphVlaError, match=r"the checkpoint's leaf 'morphology/.*' has no place in the model"
    ):
        restoring.load_params(tiny_run.checkpoint, shapes(bare))


def test_an_unfinished_checkpoint_is_not_a_checkpoint(tmp_path):
    (tmp_path / "9.orbax-checkpoint-tmp").mkdir()
    assert checkpoint.steps(tmp_path) == []
    with pytest.raises(MorphVlaError, match="no checkpoint here"):
        checkpoint.about(tmp_path)


def test_params_are_stored_as_openpi_stores_them(tiny_run):
    tree = restoring._shapes(tiny_run.checkpoint / "params")
    assert set(tree) == {"params"}
    assert tree["params"]["PaliGemma"]["llm"]["layers"]["attn"]["q_einsum_1"]["w"].shape == (2, 2, 16, 6)


@pytest.mark.slow
def test_sigterm_saves_and_the_same_call_goes_on(tiny_recipe, tiny_run, tmp_path, monkeypatch):
    def stop(report: progress.Report) -> None:
        if report.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    def stop_again(saver: saving.Saver) -> Path | None:  # an impatient scheduler, after the last step
        os.kill(os.getpid(), signal.SIGTERM)
        return newest(saver)

    newest, before = saving.Saver.newest, signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(saving.Saver, "newest", stop_again)
        run = loop.train(tiny_recipe, tmp_path, on_report=stop)
    assert signal.getsignal(signal.SIGTERM) == before
    assert (run.stopped, run.checkpoint.name) == (True, "5")  # the step under way is finished
    again = loop.train(tiny_recipe, tmp_path)
    assert (again.stopped, again.checkpoint.name) == (False, "6")
    pairs = zip(leaves(again, tiny_recipe), leaves(tiny_run, tiny_recipe), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_sigterm_after_the_last_step_is_whoever_set_us_offs(tiny_recipe, tmp_path, monkeypatch):
    """The checkpoint is whole, and what comes after training does not begin."""

    def stop(saver: saving.Saver) -> Path | None:
        last = newest(saver)
        if last is not None and last.name == "6":
            os.kill(os.getpid(), signal.SIGTERM)
        return last

    newest, came = saving.Saver.newest, list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(saving.Saver, "newest", stop)
            run = loop.train(tiny_recipe, tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (came, run.stopped, run.checkpoint.name) == ([signal.SIGTERM], False, "6")


@pytest.mark.slow
def test_a_full_disk_loses_no_earlier_checkpoint(tiny_recipe, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(report: progress.Report) -> None:  # from step 2 on no file may grow beyond 200 bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))

    words = r"3: the checkpoint cannot be written \(.*\); kept are 0: make room, and the same command goes on"
    try:
        with pytest.raises(MorphVlaError, match=words):
            loop.train(tiny_recipe, tmp_path, on_report=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert checkpoint.steps(tmp_path / "checkpoints") == [0]
    assert loop.train(tiny_recipe, tmp_path).checkpoint.name == "6"


@pytest.mark.slow
def test_runs_may_share_their_decoded_pictures(tiny_recipe, tiny_run, tmp_path, monkeypatch):
    def decode(*_: object) -> None:
        pytest.fail("the pictures were decoded again")

    monkeypatch.setattr(frames, "_fill", decode)
    run = loop.train(tiny_recipe, tmp_path / "run", frames=tiny_run.folder / "cache")
    assert run.checkpoint.is_dir()
    assert not (tmp_path / "run" / "cache").exists()
