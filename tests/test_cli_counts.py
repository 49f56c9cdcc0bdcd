"""`morph-vla recipes show`: the file as it is, then what its model counts."""

import json

import pytest
import yaml

FULL = (
    "recipes show panda_demo training.kind=expert training.batch=16 training.flow_samples=4 "
    "'model={morphology: {}}'"
)


@pytest.mark.slow
def test_the_table_of_the_full_size(run):
    status, out, err = run(FULL)
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "# vision encoder 414,803,696 0" in lines
    assert "# language model 2,508,531,712 0" in lines
    assert "# host alone 0 0 73.06 +0.00% 4.548 +0.00%" in lines
    assert "# tokens: 768 image, 200 prompt, 16 action, 32 kinematic" in lines
    for variant in (
        "Adj-Soft v1.0",
        "SPD-Soft",
        "start: exact",
        "control: random",
        "control: tokens",
        "G = 16",
    ):
        assert any(line.startswith(f"# {variant} ") for line in lines), variant
    # All of it is still a recipe.
    assert yaml.safe_load(out)["training"]["kind"] == "expert"


def test_the_papers_counts_of_the_bare_host(run):
    _, out, _ = run("recipes show panda_demo 'model={}' training.kind=expert --json")
    answer = json.loads(out)
    assert answer["training"]["kind"] == "expert"
    assert answer["counts"]["kinds"]["expert"] == {"trainable": 430_098_464, "frozen": 2_923_335_408}
    assert answer["counts"]["kinds"]["full"] == {"trainable": 3_353_433_872, "frozen": 0}
    alone = {row["variant"]: row for row in answer["counts"]["variants"]}["host alone"]
    assert (alone["new_parameters"], alone["training_step_over_host"]) == (0, 0)


def test_without_overrides_the_file_comes_first_as_it_is_written(run, request):
    _, out, _ = run("recipes show panda_demo")
    text = (request.config.rootpath / "configs" / "panda_demo.yaml").read_text(encoding="utf-8")
    assert out.startswith(text)
    assert all(line.startswith("#") or not line for line in out[len(text) :].splitlines())
