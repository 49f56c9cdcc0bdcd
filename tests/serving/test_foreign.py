"""Checkpoints of openpi and LeRobot act as ours do; what their folders lack is said in one sentence."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from foreign_folders import ENDS, given, read, write_assets, write_processor

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import fit
from morph_vla.files.plain import to_plain
from morph_vla.pi05 import Pi05Config
from morph_vla.recipes import recipe as recipes
from morph_vla.serving import card as cards
from morph_vla.serving import foreign, foreign_stats, keys
from morph_vla.serving.foreign import Given
from morph_vla.serving.foreign_stats import Processor
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.weights import tensors
from morph_vla.weights.checkpoint import nested


@pytest.fixture(scope="module")
def bodied(folders, tmp_path_factory) -> Path:
    """The same with a body, in openpi's layout, as openpi's trainer leaves it."""
    folder = tmp_path_factory.mktemp("bodied") / "openpi"
    model = recipes.load(folders / "droid.yaml").model
    assert isinstance(model, Pi05Config)
    shapes = weights.leaf_shapes(model)
    rng = np.random.default_rng(1)
    params = {leaf: 0.1 * rng.standard_normal(shape, np.float32) for leaf, shape in shapes.items()}
    weights.save_openpi(folder, nested(params))
    write_assets(folder, "droid")
    return folder


def test_a_body_of_the_recipe_that_the_checkpoint_has_not_is_said(folders, caplog):
    read = foreign.read(folders / "openpi", "panda", given(folders, preset="droid"))
    assert isinstance(read.config, Pi05Config)
    assert read.config.morphology is None
    assert f"{folders / 'openpi'} has no leaves of the plugin: it acts without the body of the" in caplog.text


@pytest.mark.parametrize(
    ("recipe", "changes", "taken"),
    [
        ("droid", "", "deltas of"),
        ("droid_velocity", "", ""),
        (
            "droid",
            "{dataset: nowhere, robot: panda, actions: absolute, cameras: {base_0_rgb: x}}",
            "absolute",
        ),
        ("droid", "{dataset: nowhere, robot: panda, actions: delta, cameras: {base_0_rgb: x}}", ""),
    ],
)
def test_what_openpis_trainer_did_not_learn_is_said(
    bodied, folders, tmp_path, caplog, recipe, changes, taken
):
    """Its plugin learns deltas, or DROID's velocities: taken for positions they move an arm wrongly."""
    text = (folders / f"{recipe}.yaml").read_text()
    if changes:
        text = text.replace("{dataset: nowhere, preset: droid}", changes)
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    foreign.read(bodied, "panda", Given(str(path), preset="" if changes else "droid"))
    words = [
        record.getMessage() for record in caplog.records if "trained with the plugin" in record.getMessage()
    ]
    assert len(words) == bool(taken)
    assert all(f"answers are taken for {taken} positions, as {path} has it; a" in text for text in words)


def observation(cameras: dict[str, str]) -> dict:
    rng = np.random.default_rng(3)
    pictures = {
        f"images/{name}": rng.integers(0, 256, (24, 31, 3), dtype=np.uint8) for name in cameras.values()
    }
    state = np.linspace(-0.5, 0.5, 8, dtype=np.float32)
    return {**pictures, "state": state, "prompt": "put the cube in the bowl", "episode": 2, "step": 3}


@pytest.mark.slow
def test_one_model_answers_alike_from_openpis_folder_lerobots_and_ours(folders, tmp_path):
    openpi = CheckpointPolicy(folders / "openpi", given=given(folders, preset="droid"))
    lerobot = CheckpointPolicy(folders / "lerobot", given=given(folders))
    ours = tmp_path / "ours"
    assert isinstance(openpi.config, Pi05Config)
    weights.save_morph_vla(ours, weights.load(folders / "openpi", openpi.config)[0])
    (ours / "about").mkdir()
    (ours / "about" / "policy.json").write_text(json.dumps({**openpi.about, "step": 5}))
    recipe = dataclasses.replace(recipes.load(folders / "droid.yaml"), model=openpi.config)
    (ours / "about" / "recipe.json").write_text(json.dumps(to_plain(recipe)))
    answers = [
        policy.infer(observation(policy.cameras)) for policy in (openpi, lerobot, CheckpointPolicy(ours))
    ]
    actions = [answer["actions"] for answer in answers]
    assert actions[0].shape == (7, 8)
    assert np.ptp(actions[0]) > 0.1
    np.testing.assert_array_equal(actions[0], actions[2])
    # LeRobot's file has its statistics in float32.
    np.testing.assert_allclose(actions[1], actions[0], atol=1e-5)
    card, bounds = cards.of(openpi, "droid")
    assert card.request_keys().images["exterior_image_1_left"][0] == "observation/exterior_image_1_left"
    assert (card.horizon, card.control_rate, card.step, bounds.rate) == (7, 15, None, 15)
    degrees, in_degrees = cards.of(openpi, "droid", unit="degrees")
    assert (degrees.units[0], degrees.units[7]) == ("deg", card.units[7])
    np.testing.assert_allclose(in_degrees.upper[:7], np.rad2deg(bounds.upper[:7]))
    assert degrees.trained["affine"] != card.trained["affine"] == openpi.trained["affine"]


def test_a_folder_of_lerobot_says_nearly_everything(folders, tmp_path):
    """Horizon, cameras, kind of actions, which of them are relative, statistics; given is the robot."""
    shutil.copytree(folders / "lerobot", tmp_path / "policy")
    loaded = read(tmp_path / "policy", "panda")
    trained = loaded.about["robots"]["panda"]
    assert (loaded.config.horizon, loaded.config.max_tokens, loaded.config.dtype) == (7, 53, "float32")
    assert trained["cameras"] == {name: name for name in keys.PRESETS["aloha"].images}
    assert (trained["actions"], trained["relative"]) == ("delta", [True] * 7 + [False])
    np.testing.assert_allclose(trained["action_stats"]["q99"], ENDS["actions"]["q99"], rtol=1e-6)
    settings = json.loads((tmp_path / "policy/config.json").read_text())
    settings["input_features"] = {f"observation.images.{name}": {} for name in ("top", "hand")}
    (tmp_path / "policy/config.json").write_text(json.dumps(settings))
    write_processor(tmp_path / "policy", "QUANTILES", "q01", "q99", enabled=False)
    trained = read(tmp_path / "policy", "panda").about["robots"]["panda"]
    assert trained["cameras"] == {"base_0_rgb": "top", "left_wrist_0_rgb": "hand"}
    assert trained["actions"] == "absolute"


@pytest.mark.parametrize("mode", ["MIN_MAX", "MEAN_STD"])
def test_all_of_lerobots_normalisations_are_straight_lines(folders, tmp_path, mode):
    """Values at the two ends become -1 and 1, as (x - mean) / std does at mean -+ std."""
    shutil.copytree(folders / "lerobot", tmp_path / "policy")
    low, high = {"MIN_MAX": ("min", "max"), "MEAN_STD": ("mean", "std")}[mode]
    write_processor(
        tmp_path / "policy",
        mode,
        low,
        high,
        {kind: {"q01": np.full(8, 2.0), "q99": np.full(8, 3.0)} for kind in ENDS},
    )
    stats = read(tmp_path / "policy", "panda").about["robots"]["panda"]["state_stats"]
    expected = {"MIN_MAX": (2, 3), "MEAN_STD": (-1, 5)}[mode]
    assert (stats["q01"], stats["q99"]) == tuple((float(end),) * 8 for end in expected)


def test_statistics_of_another_folder_are_not_read(tmp_path):
    """Whatever a stranger's file names."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    write_processor(folder, "QUANTILES", "q01", "q99")
    assert foreign_stats.processor(folder).state is not None
    (folder / "normalizer.safetensors").rename(tmp_path / "normalizer.safetensors")
    settings = folder / foreign_stats.PREPROCESSOR
    settings.write_text(settings.read_text().replace('"normalizer.', '"../normalizer.'))
    assert foreign_stats.processor(folder).state is None


def test_recorded_steps_are_served_as_velocities(folders):
    """DROID's released policies: an action of 1 moves a joint by 0.2 rad in a step of 1/15 s: 3 rad/s."""
    loaded = foreign.read(folders / "openpi", "", given(folders, "droid_velocity"))
    trained = loaded.about["robots"]["panda"]
    assert trained["actions"] == "velocity"
    factor = np.array([3.0] * 7 + [1.0])
    np.testing.assert_allclose(trained["action_stats"]["q01"], factor * ENDS["actions"]["q01"])


def test_a_preset_alone_says_that_answers_are_taken_for_deltas(folders, caplog):
    """openpi's folder says nothing of its actions, and its released policy's are velocities."""
    chosen = dataclasses.replace(given(folders, preset="droid"), recipe="")
    loaded = foreign.read(folders / "openpi", "", chosen, "bytes")
    assert loaded.about["robots"]["panda"]["actions"] == "delta"
    (said,) = [line.message for line in caplog.records if "velocities" in line.message]
    expected = (
        f"{folders / 'openpi'}: answers are taken for deltas of joint positions, 16 of them; those of a"
    )
    assert said.startswith(expected)
    assert loaded.config.horizon == 16  # of pi05_full_droid_finetune, openpi's policy of DROID's positions
    assert said.endswith("would drive the arm wrongly: give --recipe openpi_droid for one")
    shipped = recipes.load("openpi_droid")
    assert shipped.data.sources[0].recorded == "steps"
    caplog.clear()
    foreign.read(folders / "openpi", "", given(folders, preset="droid"))
    assert "velocities" not in caplog.text


def test_in_an_evaluation_its_cameras_are_the_suites(folders, tiny_suite):
    cameras = tuple(tiny_suite.cameras)
    policy = CheckpointPolicy(folders / "openpi", robot="panda", given=given(folders, cameras=cameras))
    errors = [finding for finding in fit.check(policy, tiny_suite) if finding.severity == "error"]
    assert not errors


def test_a_recipes_cameras_are_looked_through_in_a_suite_that_has_them(caplog):
    """Whatever else the suite shows, and whatever a camera's name sounds like."""
    own, openpi = {"base_0_rgb": "front", "left_wrist_0_rgb": "tip"}, Processor()
    assert foreign._offered(Path("x"), ("side", "front", "tip"), own, openpi) == own
    assert foreign._offered(Path("x"), (), own, openpi) == own  # served: as the clients call them
    assert caplog.messages == []
    by_name = {"base_0_rgb": "side", "left_wrist_0_rgb": "hand"}
    assert foreign._offered(Path("x"), ("side", "hand", "front"), own, openpi) == by_name
    (sentence,) = caplog.messages
    assert sentence == (
        "x: the suite has not all of the cameras front, tip: by the names of the suite's cameras it looks "
        "through side (as base_0_rgb), hand (as left_wrist_0_rgb), and not through front"
    )
    caplog.clear()
    assert foreign._offered(Path("x"), ("side", "hand", "front"), {}, openpi) == by_name
    (sentence,) = caplog.messages
    assert sentence.startswith(
        "x: the checkpoint does not say its cameras: by the names of the suite's cameras"
    )
    assert sentence.endswith("and not through front; --recipe RECIPE with data.cameras says them")
    caplog.clear()
    assert foreign._offered(Path("x"), ("side", "hand"), {}, openpi) == by_name
    assert caplog.messages == []  # each has its place


def test_cameras_that_a_checkpoint_names_are_taken_by_their_names_first():
    """Two of them sound like a base's, so that by their roles one would be left out."""
    of_lerobot = Processor(cameras=("front", "top"))
    suite = ("top", "wrist", "front")
    offered = foreign._offered(Path("x"), suite, {}, of_lerobot)
    assert foreign._cameras(Path("x"), offered, of_lerobot, suite) == {
        "base_0_rgb": "front",
        "left_wrist_0_rgb": "top",
    }


def test_openpis_statistics_are_those_of_the_preset_or_of_the_only_asset(folders, tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(folders / "openpi", folder)
    write_assets(folder, "physical-intelligence/libero", 7)
    of_preset = foreign.read(folder, "", Given(str(folders / "droid.yaml"), "droid"))
    assert of_preset.about["robots"]["panda"]["statistics"] == str(folder / "assets/droid/norm_stats.json")
    (folder / "assets/droid").rename(folder / "assets/franka")
    with pytest.raises(
        MorphVlaError,
        match=rf"^{folder}: the checkpoint has statistics of franka, physical-intelligence/libero; give "
        rf"--statistics {folder}/assets/ID, one of them$",
    ):
        foreign.read(folder, "", given(folders))
    chosen = given(folders, statistics=str(folder / "assets/franka"))
    assert foreign.read(folder, "", chosen).about["robots"]["panda"]["joints"][0] == "panda_joint1"
    few = given(folders, statistics=str(folder / "assets/physical-intelligence/libero"))
    with pytest.raises(
        MorphVlaError, match=r"statistics of 7 values of the states; robot 'panda' has 8 joints"
    ):
        foreign.read(folder, "", few)


@pytest.mark.parametrize(
    ("layout", "robot", "more", "words"),
    [
        (
            "openpi", "", {},
            "the checkpoint does not say which robot it drives; give --robot NAME, --preset or --recipe "
            "RECIPE",
        ),
        (
            "openpi", "panda", {},
            "the checkpoint does not say what its cameras are called; give --preset or --recipe RECIPE",
        ),
        (
            "openpi", "panda", {"preset": "aloha"},
            "the checkpoint does not say whether its actions are absolute, deltas or velocities; give "
            "--recipe RECIPE with data.actions",
        ),
        (
            "openpi", "", {"preset": "so101"},
            "the checkpoint does not say how many actions it answers with; give --recipe RECIPE "
            "with model.horizon",
        ),
        (
            "bare", "", {"recipe": "droid"},
            "the checkpoint has no statistics (assets/ID/norm_stats.json, or LeRobot's "
            "policy_preprocessor.json with its file); give --statistics FILE, a norm_stats.json or what "
            "`morph-vla stats --output` writes",
        ),
        (
            "bodied", "", {"preset": "droid"},
            "the checkpoint has the plugin's leaves and does not say its settings; give --recipe RECIPE, the "
            "one it was trained by (of openpi's trainer: docs/hosts.md says which)",
        ),
    ],
)  # fmt: skip
def test_each_missing_piece_is_one_sentence_that_says_what_to_give(
    folders, tmp_path, layout, robot, more, words
):
    folder = folders / layout
    if layout == "bare":
        shutil.copytree(folders / "openpi" / "params", tmp_path / "bare" / "params")
        folder = tmp_path / "bare"
    if layout == "bodied":
        shutil.copytree(folders / "lerobot", tmp_path / "bodied")
        folder = tmp_path / "bodied"
        leaf = np.zeros((2, 3), np.float32)
        tensors.write(
            folder / "morphology.safetensors",
            {"morphology/x": tensors.Draft((2, 3), leaf.dtype, lambda: [leaf])},
            {},
        )
    if "recipe" in more:
        more = {**more, "recipe": str(folders / f"{more['recipe']}.yaml")}
    with pytest.raises(MorphVlaError) as error:
        read(folder, robot, **more)
    assert str(error.value) == f"{folder}: {words}"


def test_a_recipe_of_another_robot_is_said(folders):
    with pytest.raises(
        MorphVlaError,
        match=r"droid.yaml: the recipe is of panda, not of robot 'so101'; say which with --robot$",
    ):
        foreign.read(folders / "openpi", "so101", given(folders))


def test_damaged_files_beside_the_weights_are_said(folders, tmp_path):
    folder = tmp_path / "policy"
    shutil.copytree(folders / "lerobot", folder)
    (folder / "policy_preprocessor.json").write_text('{"steps": 3}')
    with pytest.raises(
        MorphVlaError, match=rf"^{folder}: LeRobot's files beside the weights cannot be read: "
    ):
        read(folder, "panda")
    (folder / "policy_preprocessor.json").write_text("{")
    with pytest.raises(MorphVlaError, match=rf"^{folder}/policy_preprocessor.json cannot be read: "):
        read(folder, "panda")
    shutil.copy(folders / "lerobot" / "policy_preprocessor.json", folder)
    settings = json.loads((folder / "config.json").read_text())
    for key, value, words in (
        ("chunk_size", "50", "chunk_size is 50; expected a number from 1 on"),
        ("chunk_size", 0.5, "chunk_size is 0.5; expected"),
        ("tokenizer_max_length", -5, "tokenizer_max_length is -5; expected"),
        ("dtype", 5, "dtype is 5; expected a word"),
    ):
        (folder / "config.json").write_text(json.dumps({**settings, key: value}))
        with pytest.raises(MorphVlaError, match=rf"^{folder}: LeRobot's files .* cannot be read: {words}"):
            read(folder, "panda")
    (folder / "config.json").write_text("[" * 200_000)
    with pytest.raises(MorphVlaError, match=rf"^{folder}/config.json cannot be read: "):
        read(folder, "panda")
    shutil.copytree(folders / "openpi", tmp_path / "openpi")
    path = tmp_path / "openpi/assets/droid/norm_stats.json"
    path.write_text('{"norm_stats": {"state": {"q01": null, "q99": [1]}}}')
    expected = "expected openpi's norm_stats with q01 and q99 of state and actions, which pi0.5 needs"
    with pytest.raises(MorphVlaError, match=rf"^{path}: {expected}"):
        foreign.read(tmp_path / "openpi", "", given(folders))


def test_a_checkpoint_of_ours_is_no_foreign_one(folders, tmp_path):
    assert foreign.is_foreign(folders / "openpi")
    assert foreign.is_foreign(folders / "lerobot")
    assert not foreign.is_foreign(tmp_path)
    shutil.copytree(folders / "openpi", tmp_path / "ours")
    (tmp_path / "ours" / "about").mkdir()
    assert not foreign.is_foreign(tmp_path / "ours")
