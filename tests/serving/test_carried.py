"""Statistics go with parameters into openpi's format and LeRobot's, where their own programs find them."""

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import load_file

from morph_vla import robots, weights
from morph_vla.data.stats import Stats
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.pi05 import Pi05Config
from morph_vla.pi05.config import GemmaConfig, VitConfig
from morph_vla.recipes.keys import Dataset
from morph_vla.serving import carried, foreign_stats
from morph_vla.serving.foreign_stats import Processor
from morph_vla.training import meaning
from morph_vla.training.statistics import RobotStats
from morph_vla.weights.checkpoint import nested
from morph_vla.weights.convert import convert
from morph_vla.weights.lerobot_processors import OneRobot

HOST = Pi05Config(
    vocab=37,
    image_size=24,
    vit=VitConfig(width=12, depth=1, mlp_dim=20, heads=2, patch=12),
    prefix=GemmaConfig(20, 28),
    expert=GemmaConfig(16, 28),
    depth=2,
    heads=2,
    head_dim=6,
    action_dim=17,
    horizon=7,
    max_tokens=53,
    dtype="float32",
    cameras=("base_0_rgb",),
)
KINDS = {"panda": "delta", "so101": "absolute", "g1_dex1": "delta"}


def drawn_stats(seed: int, count: int) -> Stats:
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, -1, count)
    columns = (low, low + rng.uniform(1, 3, count), low + 0.5, rng.uniform(0.1, 1, count))
    return Stats(*(tuple(column.tolist()) for column in columns))


def of_robot(name: str) -> dict:
    robot = robots.load(name)
    stats = RobotStats(drawn_stats(3, len(robot.names)), drawn_stats(5, len(robot.names)))
    more = {"control_rate": 15.0, "actions": KINDS[name], "cameras": {"base_0_rgb": "exterior"}}
    return {**meaning.of_robot(robot, stats), **more}


@pytest.fixture(scope="module")
def params() -> dict:
    rng = np.random.default_rng(0)
    shapes = weights.leaf_shapes(HOST)
    return nested({name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()})


@pytest.fixture
def ours(tmp_path, params):
    """A checkpoint of ours, trained on the robots that are named."""

    def write(*names: str, **more) -> Path:
        policy = {"step": 5, "robots": {name: {**of_robot(name), **more} for name in names}}
        recipe = {"model": to_plain(HOST)}
        about = {"about/policy.json": policy, "about/recipe.json": recipe}
        beside = {name: json.dumps(plain).encode() for name, plain in about.items()}
        return weights.save_morph_vla(tmp_path / "ours", params, beside)

    return write


def converted(source: Path, target: Path, to, robot: str = "") -> carried.Carried:
    kept = carried.of(source, to, robot)
    convert(source, target, to, beside=kept.beside)
    return kept


def test_openpi_gets_an_asset_of_each_robot_and_reads_the_same_numbers(ours, tmp_path):
    kept = converted(ours("panda", "so101"), tmp_path / "openpi", "openpi")
    assert kept.lines == (
        "statistics: assets/panda/norm_stats.json, delta actions [rad; 0 open, 1 closed] "
        "(openpi's make_bool_mask(7, -1))",
        "statistics: assets/so101/norm_stats.json, absolute actions [deg; 100 open, 0 closed]",
    )
    for name in ("panda", "so101"):
        file = tmp_path / "openpi" / "assets" / name / "norm_stats.json"
        norm_stats = json.loads(file.read_text())["norm_stats"]
        for feature, ours_of in (("state", "state_stats"), ("actions", "action_stats")):
            theirs = {key: tuple(norm_stats[feature][key]) for key in ("q01", "q99", "mean", "std")}
            assert Stats(**theirs) == Stats(**of_robot(name)[ours_of])
        state, _, source = foreign_stats.of(
            tmp_path / "openpi", robots.load(name), Dataset("nowhere", name), Processor(), "", ""
        )
        assert (state.q01, Path(source)) == (tuple(of_robot(name)["state_stats"]["q01"]), file)


def test_a_mask_counts_runs_of_what_is_a_difference(ours, tmp_path):
    """Two arms, then two grippers."""
    kept = carried.of(ours("g1_dex1"), "openpi")
    assert kept.lines[0].endswith("make_bool_mask(14, -2))")


def test_one_robot_can_be_chosen(ours):
    folder = ours("panda", "so101")
    assert [*carried.of(folder, "openpi", "so101").beside.files] == ["assets/so101/norm_stats.json"]
    with pytest.raises(
        MorphVlaError, match=r"ours has no robot 'pnda'; did you mean 'panda'\? \(panda, so101\)"
    ):
        carried.of(folder, "openpi", "pnda")


def test_our_own_format_keeps_its_about_alone(ours, tmp_path):
    folder = ours("panda")
    assert converted(folder, tmp_path / "copy", "morph_vla") == carried.Carried()
    assert not (tmp_path / "copy" / "assets").exists()
    with pytest.raises(ConfigError, match=r"^--robot: our own format keeps the statistics of every robot$"):
        carried.of(folder, "morph_vla", "panda")


@pytest.mark.slow  # imports LeRobot's policies
def test_lerobot_gets_processors_that_its_own_factory_would_write(ours, tmp_path):
    kept = converted(ours("panda"), tmp_path / "lerobot", "lerobot")
    assert kept.lines == (
        "statistics: policy_preprocessor.json, of 'panda', delta actions [rad; 0 open, 1 closed] "
        "(openpi's make_bool_mask(7, -1))",
    )
    theirs = lerobots_own(tmp_path / "lerobot", tmp_path / "theirs")
    names = sorted(path.name for path in theirs.iterdir())
    assert len(names) == 4
    for name in names:
        one, other = (folder / name for folder in (theirs, tmp_path / "lerobot"))
        if name.endswith(".json"):
            assert json.loads(one.read_text()) == json.loads(other.read_text()), name
        else:
            arrays, ours_arrays = load_file(one), load_file(other)
            assert arrays.keys() == ours_arrays.keys()
            for key, array in arrays.items():
                np.testing.assert_array_equal(array, ours_arrays[key], err_msg=key)


def test_a_lerobot_policy_stays_the_one_that_it_was(ours, tmp_path):
    """Its config.json says more than the model: how it normalises, and how many actions it executes."""
    converted(ours("panda"), tmp_path / "one", "lerobot")
    path = tmp_path / "one" / "config.json"
    settings = json.loads(path.read_text())
    own = {
        "n_action_steps": 4, "num_inference_steps": 5, "empty_cameras": 1,
        "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"},
    }  # fmt: skip
    path.write_text(json.dumps(settings | own))
    converted(tmp_path / "one", tmp_path / "two", "lerobot")
    assert json.loads((tmp_path / "two" / "config.json").read_text()) == settings | own
    path.write_text(json.dumps(settings | {"n_action_steps": settings["chunk_size"] + 3}))
    converted(tmp_path / "one", tmp_path / "three", "lerobot")
    assert json.loads((tmp_path / "three" / "config.json").read_text()) == settings


def test_openpis_assets_beside_its_torch_parameters_go_along(ours, tmp_path):
    source = ours("panda")
    converted(source, tmp_path / "torch", "lerobot")
    for file in (tmp_path / "torch").glob("policy_*"):
        file.unlink()
    converted(source, tmp_path / "openpi", "openpi")
    shutil.copytree(tmp_path / "openpi" / "assets", tmp_path / "torch" / "assets")
    kept = converted(tmp_path / "torch", tmp_path / "again", "openpi")
    assert kept.lines == ("statistics: assets/panda/norm_stats.json, as it was",)
    file = "assets/panda/norm_stats.json"
    assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "openpi" / file).read_bytes()


def lerobots_own(folder: Path, target: Path) -> Path:
    """The processors that LeRobot makes for the config.json in `folder` and the robot's statistics."""
    if importlib.util.find_spec("lerobot") is None:
        pytest.skip("LeRobot is not installed")
    torch = pytest.importorskip("torch")
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.pi05.configuration_pi05 import PI05Config
    from lerobot.policies.pi05.processor_pi05 import make_pi05_pre_post_processors
    from lerobot.processor import tokenizer_processor

    config = PreTrainedConfig.from_pretrained(folder)
    assert isinstance(config, PI05Config)
    config.device = "cpu"
    panda = of_robot("panda")
    stats = {
        feature: {key: torch.tensor(values) for key, values in panda[kind].items()}
        for feature, kind in (("observation.state", "state_stats"), ("action", "action_stats"))
    }
    # PaliGemma's own is on the Hub; that of the pipeline is only named.
    with mock.patch.object(tokenizer_processor, "AutoTokenizer", mock.MagicMock()):
        for pipeline in make_pi05_pre_post_processors(config, stats):
            pipeline.save_pretrained(target)
    return target


def test_of_several_robots_lerobot_gets_the_one_that_is_named(ours, tmp_path):
    folder = ours("panda", "so101")
    kept = carried.of(folder, "lerobot")
    assert kept == carried.Carried(
        lines=(
            "parameters alone, without statistics: LeRobot has room for one robot, this is of 2: "
            "--robot NAME says which",
        )
    )
    converted(folder, tmp_path / "lerobot", "lerobot", "so101")
    config = json.loads((tmp_path / "lerobot" / "config.json").read_text())
    assert config["output_features"]["action"]["shape"] == [6]
    assert "use_relative_actions" not in config


def test_what_lerobot_got_goes_from_there_to_openpi_and_to_lerobot(ours, tmp_path):
    converted(ours("panda"), tmp_path / "lerobot", "lerobot")
    known = foreign_stats.processor(tmp_path / "lerobot")
    assert (known.actions, known.relative) == ("delta", (True,) * 7 + (False,))
    kept = converted(tmp_path / "lerobot", tmp_path / "openpi", "openpi")
    assert kept.lines == (
        "statistics: assets/lerobot/norm_stats.json, delta actions (openpi's make_bool_mask(7, -1))",
    )
    file = tmp_path / "openpi" / "assets" / "lerobot" / "norm_stats.json"
    norm_stats = json.loads(file.read_text())["norm_stats"]
    for feature, ours_of in (("state", "state_stats"), ("actions", "action_stats")):
        for key, values in of_robot("panda")[ours_of].items():
            np.testing.assert_allclose(norm_stats[feature][key], values, atol=1e-6)
    again = converted(tmp_path / "lerobot", tmp_path / "again", "lerobot")
    assert again.lines == ("statistics: policy_preprocessor.json, as it was",)
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in ("lerobot", "again")
    )
    assert one == other


def test_values_behind_lerobots_names_are_differences(ours, tmp_path):
    """The mask is as long as the actions: openpi leaves alone what is behind its end."""
    converted(ours("panda"), tmp_path / "lerobot", "lerobot")
    file = tmp_path / "lerobot" / "policy_preprocessor.json"
    plain = json.loads(file.read_text())
    for names, mask in ((["a", "panda_finger_joint1"], "1, -1, 6"), (None, "8")):
        plain["steps"][2]["config"]["action_names"] = names
        file.write_text(json.dumps(plain))
        assert carried.of(tmp_path / "lerobot", "openpi").lines[0].endswith(f"make_bool_mask({mask}))")


def test_what_our_reader_does_not_know_stops_no_conversion(ours, tmp_path):
    converted(ours("panda"), tmp_path / "lerobot", "lerobot")
    file = tmp_path / "lerobot" / "policy_preprocessor.json"
    plain = json.loads(file.read_text())
    plain["steps"][3]["config"]["norm_map"]["ACTION"] = "IDENTITY"
    file.write_text(json.dumps(plain))
    (line,) = converted(tmp_path / "lerobot", tmp_path / "openpi", "openpi").lines
    assert line.startswith("parameters alone, without statistics: ")
    assert line.endswith("action is normalised by 'IDENTITY'")
    (tmp_path / "lerobot" / plain["steps"][3]["state_file"]).unlink()
    (line,) = carried.of(tmp_path / "lerobot", "lerobot").lines
    assert line.endswith("of LeRobot's processors, is not there or is too large")


def test_what_lies_beside_bare_weights_goes_along(ours, tmp_path):
    folder = ours("panda")
    converted(folder, tmp_path / "lerobot", "lerobot")
    converted(folder, tmp_path / "openpi", "openpi")
    for bare in (tmp_path / "lerobot" / "model.safetensors", tmp_path / "openpi" / "params"):
        assert len(carried.of(bare, "openpi").beside.files) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"actions": "velocity"}, "'panda' learnt velocities, which LeRobot would take for positions"),
        (
            {"joints": ["a", "b", "c", "d", "e", "f", "hand_turn", "hand"]},
            "LeRobot cannot be told that hand are no differences: it leaves out every value whose name has",
        ),
    ],
)
def test_a_robot_that_lerobot_cannot_be_told_of_goes_without_statistics(ours, tmp_path, more, words):
    (line,) = converted(ours("panda", **more), tmp_path / "lerobot", "lerobot").lines
    assert line.startswith(f"parameters alone, without statistics: {words}")
    assert not (tmp_path / "lerobot" / "policy_preprocessor.json").exists()


def test_lerobot_gets_no_policy_that_would_act_otherwise(tmp_path, params):
    """Without the plugin, or with another tokenizer."""
    policy = {"step": 5, "robots": {"panda": of_robot("panda")}}

    def line(more: dict, tokenizer: dict | None) -> str:
        known = policy | ({"tokenizer": tokenizer} if tokenizer else {})
        beside = {"about/policy.json": json.dumps(known).encode()}
        place = tmp_path / ("plugin" if more else "plain")
        return carried.of(weights.save_morph_vla(place, params | more, beside), "lerobot").lines[0]

    plugin = {"morphology": {"encoder": np.zeros((3, 5), np.float32)}}
    assert line(plugin, None).endswith("would act without the plugin; --to lerobot-plugin acts with it")
    read_otherwise = {"name": "bytes", "sha256": "", "vocab": 521}
    assert line({}, read_otherwise).endswith("reads texts by paligemma's tokenizer, and this by another")


def test_openpis_assets_go_along_as_they_are(ours, tmp_path):
    converted(ours("panda", "so101"), tmp_path / "one", "openpi")
    file = tmp_path / "one" / "assets" / "panda" / "norm_stats.json"
    file.write_bytes(file.read_bytes() + b"\n")
    kept = converted(tmp_path / "one", tmp_path / "two", "openpi")
    assert kept.lines[0] == "statistics: assets/panda/norm_stats.json, as it was"
    assert (tmp_path / "two" / "assets" / "panda" / "norm_stats.json").read_bytes() == file.read_bytes()
    assert converted(tmp_path / "two", tmp_path / "three", "morph_vla").lines == kept.lines
    (line,) = carried.of(tmp_path / "one", "lerobot").lines
    assert line.startswith("parameters alone, without statistics: openpi's do not say which values are diff")
    file.write_text("{")
    left_out, as_it_was = carried.of(tmp_path / "one", "openpi").lines
    assert left_out.startswith("left out: ")
    assert "panda/norm_stats.json cannot be read" in left_out
    assert as_it_was == "statistics: assets/so101/norm_stats.json, as it was"


def test_a_robot_is_named_where_the_checkpoint_names_some(params, tmp_path):
    folder = weights.save_openpi(tmp_path / "openpi", params)
    with pytest.raises(ConfigError, match=r"--robot: .*openpi does not say which robots it was trained on"):
        carried.of(folder, "lerobot", "panda")
    assert carried.of(folder, "openpi").lines == (carried.NONE,)


def of_a_name(folder: Path, params: dict, name: str) -> Path:
    policy = {"step": 5, "robots": {name: of_robot("panda")}}
    return weights.save_morph_vla(folder, params, {"about/policy.json": json.dumps(policy).encode()})


def test_a_robot_named_by_its_urdf_has_an_asset_of_that_name(tmp_path, params):
    folder = of_a_name(tmp_path / "ours", params, "../arms/my.arm.urdf")
    assert [*carried.of(folder, "openpi").beside.files] == ["assets/my.arm/norm_stats.json"]


@pytest.mark.parametrize("name", ["", "..", "a/.."])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, params, name):
    folder = of_a_name(tmp_path / "ours", params, name)
    with pytest.raises(MorphVlaError, match=r"cannot be the name of a folder under assets"):
        carried.of(folder, "openpi")


def test_a_gripper_whose_name_is_in_another_joints_cannot_be_left_out():
    values = dataclasses.asdict(drawn_stats(2, 3))
    with pytest.raises(MorphVlaError, match=r"LeRobot cannot be told that hand are no differences: it"):
        OneRobot(values, values, ("a", "hand_turn", "hand"), (True, True, False))
    assert OneRobot(values, values, ("a", "turn", "hand"), (True, True, False)).absolute == ("hand",)


def test_the_command_says_what_goes_along(run, ours, tmp_path):
    status, out, _ = run(
        f"weights convert {ours('panda', 'so101')} {tmp_path / 'x'} --to lerobot --robot panda"
    )
    assert status == 0
    status, _, err = run(f"weights convert nowhere {tmp_path / 'x'} --to lerobot")
    assert (status, err.endswith("nothing is overwritten; remove it or choose another name\n")) == (2, True)
    assert out.splitlines()[-2].startswith("statistics: policy_preprocessor.json, of 'panda', delta actions")
