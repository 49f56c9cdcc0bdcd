"""Recipes held against their model: its room, the prompts, weights and tokenizer."""

import dataclasses
import re

import pytest
from recipe_checks import check_sentences, once, recipe_of

from morph_vla.checks.recipe import check
from morph_vla.checks.recipe_model import suites
from morph_vla.files import remote
from morph_vla.recipes.keys import Data, Dataset
from morph_vla.training import memory


def test_a_prompt_that_does_not_fit(write):
    root = write()
    assert once(
        check_sentences(root, "model.max_tokens=13"),
        rf"error: {root}: episode \d, frame \d+: the prompt of task 'wave' takes 14 tokens, the model 13; "
        r"the state at its end would be cut: raise model\.max_tokens or shorten the task",
    )


def test_more_joints_than_the_model_has_room_for(write):
    lines = check_sentences(write(), "model.action_dim=5", "model.morphology.max_joints=5")
    assert once(lines, r"error: model\.action_dim: actions have 6 values, the model 5; raise it")
    assert once(
        lines,
        r"error: model\.morphology\.max_joints: robot 'so101' has 6 joints, the model room for 5; raise it",
    )


def test_a_warm_up_that_no_step_comes_after(write):
    root = write()
    words = r"warning: optimizer\.warmup: 7 of 7 steps: the rate only rises; lower it, or train longer"
    assert once(check_sentences(root, "training.steps=7", "optimizer.warmup=7"), words)
    assert check_sentences(root, "training.steps=7", "optimizer.warmup=6") == []


def test_what_one_entry_holds_out_and_another_trains_on(write):
    """Also where one folder is spelled in two ways."""
    root = write()
    recipe = recipe_of(root)
    first = recipe.data.sources[0]
    later = dataclasses.replace(first, dataset=f"{root}/../{root.name}/", episodes=(1, 2, 3, 4))

    def problems(*entries: Dataset) -> list[str]:
        data = dataclasses.replace(recipe.data, dataset="", robot="", cameras={}, datasets=entries)
        return [
            str(p) for p in check(dataclasses.replace(recipe, data=data)).problems if p.severity == "error"
        ]

    words = (
        r"error: data\.held_out: episode \d of .* is held out by one entry and trained on by another; which "
        r"are held out goes by their places among the chosen: give both entries the same episodes or "
        r"different ones, or held_out: 0"
    )
    assert once(problems(first, later), words)
    assert problems(first, dataclasses.replace(later, episodes=())) == []


def test_weights_and_tokenizer_that_are_not_there(write, tmp_path, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    root = write()
    lines = check_sentences(root, f"weights={tmp_path}/no", f"tokenizer=paligemma:{tmp_path}/no.model")
    assert once(
        lines,
        f"error: weights: {tmp_path}/no: there is no such file or folder .*; name a checkpoint, or leave "
        "weights empty to train anew",
    )
    assert once(
        lines, r"error: tokenizer: tokenizer: no tokenizer at .*; name its file, or 'bytes' for a small model"
    )
    lines = check_sentences(root, "weights=pi05-base", "tokenizer=paligemma", notes=True)
    assert once(
        lines, r"note: weights: gs://openpi-assets/\S+ is not on this machine; training fetches it first"
    )
    assert once(
        lines,
        r"note: tokenizer: paligemma is not on this machine; training fetches it first; the length of .*",
    )


@pytest.mark.parametrize("address", ["hf://me/nano", "gs://bucket/nano"])
def test_weights_that_were_fetched_are_looked_at(write, tmp_path, monkeypatch, address):
    """Those of the Hub were said not to be here whether they were or not."""
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    monkeypatch.setattr(remote, "kept", lambda source: fetched if source == address else None)
    lines = check_sentences(write(), f"weights={address}", notes=True)
    assert not [line for line in lines if "is not on this machine" in line]
    assert once(lines, rf"error: weights: {re.escape(str(fetched))}\b.*")


def test_addresses_that_cannot_be_are_errors(write):
    root = write()
    lines = check_sentences(root, "weights=hf://bad")
    assert once(lines, r"error: weights: hf://bad is not a repository of the Hub; expected hf://OWNER/NAME.*")
    lines = check_sentences(root, "weights=gs://x")
    assert once(lines, r"error: weights: gs://x is not a folder in a bucket; expected gs://BUCKET/FOLDER.*")


def test_suites_of_an_evaluation_are_there_and_of_a_robot_that_is_trained(write):
    root = write()
    lines = check_sentences(root, "evaluation.suites=[nope, droid_panda]")
    assert once(lines, r"error: evaluation\.suites: no suite 'nope' .*")
    assert sum("of robot 'panda'; this recipe trains so101; name a suite" in line for line in lines) == 3
    assert not [
        line for line in check_sentences(root, "evaluation.suites=[so101_pick_orange]") if "suite" in line
    ]
    cameras = "data.cameras={base_0_rgb: observation.images.front, left_wrist_0_rgb: waist}"
    assert once(
        check_sentences(root, "evaluation.suites=[so101_pick_orange]", cameras),
        r"error: evaluation\.suites: 'so101_pick_orange' has no camera 'waist', which the model looks "
        r"through; did you mean 'wrist'\? \(front, wrist\); name a suite that shows what the dataset shows, "
        r"or leave it out",
    )


def test_of_two_datasets_of_a_robot_the_first_ones_cameras_are_asked_of_a_suite(write):
    """As a checkpoint of them looks through those."""
    root = write()
    recipe = recipe_of(root, "evaluation.suites=[so101_pick_orange]")
    first, other = (Dataset(str(root), "so101", {"base_0_rgb": camera}) for camera in ("front", "waist"))
    for datasets, count in (((first, other), 0), ((other, first), 1)):
        of_both = dataclasses.replace(recipe, data=Data(datasets=datasets))
        assert len(list(suites(of_both))) == count


def test_parameters_that_this_machine_does_not_hold_are_a_warning(write, monkeypatch):
    """Another machine may: `train` refuses it there alone."""
    monkeypatch.setattr(memory, "device_memory", lambda: ("a device", 1000))
    assert once(
        check_sentences(write()),
        r"warning: training: parameters, optimizer and average alone take \S+ GB a device, and a "
        r"device has 1e-06; `recipes show` names what saves memory; a larger machine may have it",
    )
