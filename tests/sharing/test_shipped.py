"""The base that comes with the package: its bits, its card, what it does not say, and its name."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from made_run import SIZES, Made, make

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05.parts import by_name
from morph_vla.recipes import recipe as recipes
from morph_vla.serving import policy as policies
from morph_vla.sharing import shipped
from morph_vla.training import checkpoint, parameters, restoring
from morph_vla.weights import packed

WIDE = ["model.action_dim=11", "model.morphology.max_joints=11"]  # the robot has 8


@pytest.fixture(scope="module")
def wide(root, tmp_path_factory) -> Made:
    """A run with places for more joints than its robot has; its dataset and weights lie on a machine."""
    places = ["data.dataset=/home/me/runs/demos", "weights=/home/me/earlier/3000"]
    return make(root, tmp_path_factory.mktemp("wide"), [*WIDE, *places])


@pytest.fixture(scope="module")
def base(wide, tmp_path_factory) -> Path:
    """The same as a base."""
    return shipped.write(wide.folder, tmp_path_factory.mktemp("bases") / "pi05_nano", "pi05-nano").folder


def rounded(params: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf).astype(ml_dtypes.bfloat16) for name, leaf in by_name(params).items()}


def test_a_packed_leaf_is_the_averaged_one_in_16_bits(wide, base):
    opened = weights.open_checkpoint(base)
    for name, leaf in rounded(wide.params).items():
        stored = opened.read(name, (), opened.entries[name].dtype)
        np.testing.assert_array_equal(stored.view(np.uint16), leaf.view(np.uint16), strict=True)
    values = sum(leaf.size for leaf in by_name(wide.params).values())
    assert 2 * values < (base / packed.FILE).stat().st_size < 2 * values + 10_000


def test_it_is_loaded_as_float32(wide, base, tmp_path):
    loaded = restoring.load_params(base, wide.params)
    packed.pack(weights.open_checkpoint(base), tmp_path / packed.FILE)  # packed again, it still is
    for params in (loaded, restoring.load_params(tmp_path, wide.params)):
        for name, leaf in rounded(wide.params).items():
            np.testing.assert_array_equal(by_name(params)[name], leaf.astype(np.float32), strict=True)


def test_nothing_in_it_names_this_machine(wide, base):
    files = {path.relative_to(base).as_posix(): path for path in base.rglob("*") if path.is_file()}
    assert sorted(files) == [
        "README.md", "about/policy.json", "about/recipe.json", "about/robots/panda.urdf",
        "about/robots/panda.yaml", "about/versions.json", "averaged.safetensors",
    ]  # fmt: skip
    for path in files.values():
        assert b"/home/me" not in path.read_bytes()
        assert str(wide.folder).encode() not in path.read_bytes()
    recipe = recipes.of_run(base / "about")
    assert (recipe.data.dataset, recipe.weights) == ("demos", "3000")


def test_a_path_that_a_digest_is_of_is_refused(wide, tmp_path):
    source = wide.last / "about" / "policy.json"
    kept = source.read_text()
    source.write_text(kept.replace('"panda"', '"/home/me/panda.urdf"'))
    try:
        with pytest.raises(MorphVlaError, match=r"policy.json names a path of this machine \(/home/me/panda"):
            shipped.write(wide.folder, tmp_path / "base", "pi05-nano")
    finally:
        source.write_text(kept)
    assert not list(tmp_path.iterdir())  # nothing half done


def test_the_card_says_how_each_robot_did(wide, tmp_path):
    target = tmp_path / "base"
    digest = shipped.write(wide.last, target, "pi05-nano").sha256
    places = [
        wide.evaluated(tmp_path / "eval" / "panda", digest, "panda", 3),
        wide.evaluated(tmp_path / "eval" / "kuka", digest, "kuka", 2),
        wide.evaluated(tmp_path / "eval" / "kuka" / "can", digest, "kuka", 2),  # a part of the one above
        wide.evaluated(tmp_path / "eval" / "ur5e", wide.sha256, "ur5e", 1),
        wide.evaluated(tmp_path / "eval" / "others", "0" * 64, "ur5e", 5),
    ]
    made = shipped.write(wide.last, target, "pi05-nano", [tmp_path / "eval"], {"made by": "`me`"})
    assert made.evaluations == 3 == len(places) - 2
    card = (target / "README.md").read_text()
    for line in (
        "# pi05-nano",
        "| panda | droid_panda v3 | can | 3 of 5 | 60.0% [23.1, 88.2] |  |",
        "| kuka, never trained on | droid_panda v3 | can | 2 of 5 | 40.0% [11.8, 76.9] |  |",
        "| 2 evaluations, never trained on |  | all | 3 of 10 | 30.0% [10.8, 60.3] |  |",
        "1 evaluation measured the parameters before they were rounded to 16 bits.",
        "| made by | `me` |",
        f"| sha256 | {digest} |",
        f"| sha256 before it was rounded | {wide.sha256} |",
    ):
        assert line in card.splitlines()
    assert "morph-vla serve pi05-nano " in card
    assert "record.json" not in card
    with pytest.raises(MorphVlaError, match="others: no evaluation is of"):
        shipped.write(wide.last, target, "pi05-nano", [tmp_path / "eval" / "others"])


def test_another_folder_is_not_replaced(wide, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(MorphVlaError, match="is there and is no packed checkpoint; give another folder"):
        shipped.write(wide.folder, tmp_path, "pi05-nano")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_name_begins_a_run_of_its_own_sizes(wide, base, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_PI05_NANO", str(base))
    mine = ["data.dataset=me/demonstrations", "weights=pi05-nano"]
    begun = parameters.first_params(recipes.load("panda_demo", [*SIZES, *WIDE, *mine]))
    for name, leaf in rounded(wide.params).items():
        np.testing.assert_array_equal(by_name(begun)[name], leaf.astype(np.float32))
    with pytest.raises(MorphVlaError, match=r"action_dim is 11 in the checkpoint, 8 .*\n.*in_proj/kernel"):
        parameters.first_params(recipes.load("panda_demo", [*SIZES, *mine]))
    assert packed.open_base("pi05-nano", weights.open_checkpoint).path == base


def test_the_commands_take_the_name(wide, base, monkeypatch, run):
    monkeypatch.setenv("MORPH_VLA_PI05_NANO", str(base))
    status, out, err = run("weights inspect pi05-nano --json")
    assert (status, err) == (0, "")
    assert json.loads(out)["parameters"] == sum(leaf.size for leaf in by_name(wide.params).values())
    status, _, err = run(
        "serve pi05-nano --robot so101"
    )  # of a policy whose statistics are the Panda's alone
    assert status == 2
    assert "was not trained on robot 'so101'" in err


def test_a_run_answers_by_the_name(tiny_run, tmp_path, monkeypatch):
    """A real one: what is served is what the card names."""
    made = shipped.write(tiny_run.folder, tmp_path / "base", "pi05-nano")
    monkeypatch.setenv("MORPH_VLA_PI05_NANO", str(made.folder))
    policy = policies.load("pi05-nano")
    described = policy.describe()
    assert (described["name"], described["checkpoint"]) == ("pi05-nano", "pi05-nano")
    assert described["sha256"] == policy.digest() == made.sha256
    assert made.sha256 != policies.load(tiny_run.checkpoint).digest()
    assert checkpoint.about(made.folder) == checkpoint.about(tiny_run.checkpoint)
