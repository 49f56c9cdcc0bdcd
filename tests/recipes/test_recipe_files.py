"""Recipes: what is read, and every sentence about what is wrong."""

import ast
import dataclasses
import json
import re
import textwrap
from pathlib import Path

import pytest

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files import dropin
from morph_vla.files.plain import to_plain
from morph_vla.pi05 import Pi05Config
from morph_vla.recipes import keys
from morph_vla.recipes import recipe as config

RECIPE = """\
data:
  dataset: runs/demo/dataset
  robot: panda
  cameras:
    base_0_rgb: front
model:
  vocab: 521
  image_size: 21
  vit: {width: 15, depth: 2, mlp_dim: 13, heads: 3, patch: 7}
  action_dim: 11
  horizon: 6
  morphology: {max_joints: 11, chunks: 3, bias: mix}
training:
  steps: 997
optimizer:
  peak_lr: 1e-4
"""


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_is_read_typed_and_whole(recipe):
    loaded = config.load(recipe)
    assert loaded.data == config.Data("runs/demo/dataset", "panda", {"base_0_rgb": "front"})
    assert loaded.model.morphology is not None
    assert (loaded.model.morphology.chunks, loaded.model.vit.patch, loaded.model.vocab) == (3, 7, 521)
    assert loaded.training == config.Training(steps=997)
    assert loaded.optimizer.peak_lr == 1e-4
    assert loaded.tokenizer == "bytes"


def test_overrides_come_last(recipe):
    loaded = config.load(recipe, ["training.steps=7", "model.morphology=null", "tokenizer=paligemma:here"])
    assert loaded.training.steps == 7
    assert loaded.model.morphology is None
    assert loaded.tokenizer == "paligemma:here"


def test_a_recipe_is_found_by_name_in_a_folder(recipe):
    assert config.load("recipe", folders=[recipe.parent]) == config.load(recipe)
    with pytest.raises(MorphVlaError, match=r"^no recipe 'recip'; did you mean 'recipe'\?"):
        config.load("recip", folders=[recipe.parent])


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("steps: 997", "stpes: 997", 14, r"training\.stpes: no such key; did you mean 'steps'\?"),
        ("  peak_lr", "  peak_rl", 16, r"optimizer\.peak_rl: no such key; did you mean 'peak_lr'\?"),
        ("optimizer:", "optimiser:", 15, r"optimiser: no such key; did you mean 'optimizer'\?"),
        (
            "bias: mix",
            "bias: mixed",
            12,
            r"model\.morphology\.bias: .*'mix'.*, got \"mixed\"; did you mean 'mix'\?",
        ),
        (
            "steps: 997",
            "augmentation: opanpi",
            14,
            r"training\.augmentation: .*'openpi'.*, got \"opanpi\"; did you mean 'openpi'\?",
        ),
        ("horizon: 6", "horizon: six", 11, r"model\.horizon: expected .*integer, got \"six\""),
    ],
)
def test_a_wrong_key_or_type_is_named_with_its_line(recipe, old, new, line, sentence):
    recipe.write_text(RECIPE.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        config.load(recipe)
    import re

    lines = str(caught.value).splitlines()
    assert any(re.fullmatch(rf"{recipe}:{line}: {sentence}", result) for result in lines), lines


def test_every_problem_is_said_at_once(recipe):
    recipe.write_text(
        RECIPE.replace("steps: 997", "steps: many\n  btach: 3").replace("robot: panda", "robto: panda")
    )
    with pytest.raises(ConfigError) as caught:
        config.load(recipe)
    text = str(caught.value)
    for part in ("data.robto: no such key; did you mean 'robot'?", "training.steps:",
                 "training.btach: no such key; did you mean 'batch'?"):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("model.horizon=7", r"morphology\.chunks: 3 does not divide the horizon 7; choose one of 1, 7"),
        (
            "model.morphology.max_joints=13",
            r"morphology\.max_joints: 13 must lie between 1 and the model's 11 .*",
        ),
        ("model.image_size=22", r"model\.image_size: 22 is not a multiple of model\.vit\.patch 7"),
        (
            "data.cameras={base_0_rbg: front}",
            r"data\.cameras: 'base_0_rbg' is not one of the model's cameras base_0_rgb, left_wrist_0_rgb, "
            r"right_wrist_0_rgb; did you mean 'base_0_rgb'\?",
        ),
        ("data.held_out=1.0", r"data\.held_out: must lie in \[0, 1\), not 1"),
        ("data.held_out=-0.1", r"data\.held_out: must lie in \[0, 1\), not -0\.1"),
        (
            "training={steps: 5, augmentation: openpi, shift_pixels: 3}",
            r"training\.shift_pixels: 3 says how far training\.augmentation 'shift' goes; it means nothing "
            r"to 'openpi'",
        ),
        (
            "training={steps: 5, augmentation: none, brightness: 0.2}",
            r"training\.brightness: 0\.2 says how far training\.augmentation 'shift' goes; it means nothing "
            r"to 'none'",
        ),
        ("optimizer.plugin_lr_share=0", r"optimizer\.plugin_lr_share: must be more than 0, not 0"),
        ("optimizer.peak_lr=-0.001", r"optimizer\.peak_lr: must be more than 0, not -0\.001"),
        ("optimizer.matrix_lr=.inf", r"optimizer\.matrix_lr: must be more than 0, not inf"),
        ("optimizer.eps=0.0", r"optimizer\.eps: must be more than 0, not 0"),
        ("optimizer.weight_decay=-1.0", r"optimizer\.weight_decay: must be at least 0, not -1"),
        ("optimizer.final_lr_share=.nan", r"optimizer\.final_lr_share: must be at least 0, not nan"),
        ("optimizer.clip=0", r"optimizer\.clip: must be more than 0, not 0; \.inf scales no gradient down"),
        ("optimizer.clip=.nan", r"optimizer\.clip: must be more than 0, not nan; \.inf .*"),
        ("optimizer.b2=1.0", r"optimizer\.b2: must lie in \[0, 1\), not 1"),
        ("optimizer.warmup=-5", r"optimizer\.warmup: must be at least 0, not -5"),
        ("data.share=0", r"data\.share: must lie in \(0, 1\], not 0"),
        ("data.share=1.5", r"data\.share: must lie in \(0, 1\], not 1\.5"),
        ("data.idle=-1", r"data\.idle: must be at least 0, not -1"),
        (
            "data.phases={grasp: 0.7, release: 0.3}",
            r"data\.phases: grasp 0\.7 and release 0\.3 must be shares whose sum is below 1",
        ),
        ("training={steps: 5, noise_share: 1}", r"training\.noise_share: must lie in \[0, 1\), not 1"),
        ("model.vocab=519", r"model\.vocab: 519 rows are too few for the 520 tokens of tokenizer 'bytes'"),
        ("training.shift_pixels=-1", r"training\.shift_pixels: must be at least 0, not -1"),
        ("training.brightness=.nan", r"training\.brightness: must be at least 0, not nan"),
        ("training.seed=99999999999999999999", r"training\.seed: must lie in \[0, 2\*\*32\), not 9+"),
        ("training.seed=-1", r"training\.seed: must lie in \[0, 2\*\*32\), not -1"),
        (
            "training.mesh.whole_below_mib=.inf",
            r"training\.mesh\.whole_below_mib: must be at least 0, not inf",
        ),
        (
            "data.phases={grasp: .nan}",
            r"data\.phases: grasp nan and release 0 must be shares whose sum is below 1",
        ),
        ("training.ema=1.0", r"training\.ema: must lie in \[0, 1\), not 1"),
        *(
            (f"training.{key}=0", rf"training\.{key}: must be at least 1, not 0")
            for key in ("steps", "batch", "flow_samples", "log_every", "held_out_every", "checkpoint_every")
        ),
    ],
)
def test_parts_that_do_not_fit_together(recipe, override, sentence):
    where = re.escape(f"{recipe} with {override}")
    with pytest.raises(ConfigError, match=rf"^{where}: {sentence}$"):
        config.load(recipe, [override])


def test_a_grippers_ends_are_finite(recipe):
    with pytest.raises(ConfigError, match=r"data: gripper is \[nan, 0.0\]; expected the dataset's values"):
        config.load(recipe, ["data.gripper=[.nan, 0]"])


SEVERAL = """\
data:
  by: row
  datasets:
    - {dataset: runs/a, robot: panda, weight: 8, cameras: {base_0_rgb: exterior}}
    - {dataset: runs/b, robot: so101, weight: 2, actions: delta, action: [left, right]}
"""


def several(recipe: Path, changed: str = SEVERAL) -> config.Recipe:
    recipe.write_text(changed + RECIPE[RECIPE.index("model:") :])
    return config.load(recipe)


def test_several_datasets_are_a_list(recipe):
    one = config.load(recipe).data
    assert [source.robot for source in one.sources] == ["panda"]
    assert one.sources[0].cameras == one.cameras
    assert config.load(recipe, ["data.share=0.125"]).data.sources[0].share == 0.125
    data = several(recipe).data
    assert (data.by, [source.weight for source in data.sources]) == ("row", [8, 2])
    assert (data.sources[1].actions, data.sources[1].action) == ("delta", ("left", "right"))


def test_an_override_that_none_of_several_datasets_hears_is_refused_also_where_it_is_the_default(recipe):
    several(recipe)
    for key, value in (("actions", "absolute"), ("weight", "1.0")):
        words = rf"data\.{key}: there are several datasets, and none hears it; say it of one of them "
        with pytest.raises(ConfigError, match=words):
            config.load(recipe, [f"data.{key}={value}"])


def test_two_robots_of_one_name_are_refused(recipe):
    """Statistics and checkpoints know a robot by its name: the second one's would be the first one's."""
    words = r"data\.datasets: 'other/so101\.urdf' and 'so101' are both called 'so101'; spell one robot alike"
    several(recipe)
    with pytest.raises(ConfigError, match=words):
        config.load(recipe, ["data.datasets.0.robot=other/so101.urdf"])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "training.augmentation=openpi",
            "training.augmentation: 'openpi' changes pictures, and model.cameras has none",
        ),
        (
            "model.morphology.max_distance=5",
            "model.morphology.max_distance: 5 has no effect with bias: mix; set it to 8",
        ),
        (
            "model.morphology.theta_max=.nan",
            "model.morphology.theta_max: nan has no effect with bias: mix; set it to 3",
        ),
        (
            "training={keep_every: 300, checkpoint_every: 250, steps: 1000}",
            "training.keep_every: no checkpoint of 1000 steps would be kept by 300: they are written every",
        ),
        ("data.step=0.2", "step: 0.2 has no effect without recorded: steps"),
    ],
)
def test_what_a_recipe_asks_for_and_nothing_reads_is_refused(override, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        config.load("pi05_poses", [override])


def test_a_word_whose_tag_says_number_is_refused(recipe):
    with pytest.raises(ConfigError, match=r"'abc' is no number, and its tag says so"):
        config.load(recipe, ["training.steps=!!int abc"])


def test_a_robots_name_has_dots_and_its_file_a_suffix():
    data = [f"{{dataset: x, robot: {robot}}}" for robot in ("panda.v2", "arms/panda.v1.urdf")]
    plugin = "model.morphology={max_joints: 8, descriptors: robot}"
    recipe = config.load("pi05_poses", [f"data={{datasets: [{', '.join(data)}]}}", plugin])
    assert recipe.model.morphology is not None
    assert recipe.model.morphology.robots == ("panda.v2", "panda.v1")


def test_checkpoints_are_kept_at_steps_that_two_periods_share():
    kept = config.load("pi05_poses", ["training={keep_every: 600, checkpoint_every: 400, steps: 2400}"])
    assert kept.training.keep_every == 600


def test_a_run_that_began_with_a_key_that_nobody_hears_goes_on(recipe, tmp_path):
    plain = to_plain(several(recipe))
    plain["data"]["actions"] = "delta"  # as `three_robots@ours.tool` had it
    (tmp_path / "recipe.json").write_text(json.dumps(plain))
    assert config.of_run(tmp_path).data.unused == ("actions",)
    plain["data"]["datasets"][0]["step"] = 0.1  # without recorded: steps
    (tmp_path / "recipe.json").write_text(json.dumps(plain))
    assert config.of_run(tmp_path).data.sources[0].step == 0.1


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("robot: so101", "robt: so101", r"data\.datasets\.1\.robt: no such key; did you mean 'robot'\?"),
        ("weight: 2", "weight: 0", r"data\.datasets\.1\.weight: must be more than 0, not 0"),
        ("base_0_rgb", "base", r"data\.datasets\.0\.cameras: 'base' is not one of the model's cameras"),
        ("by: row", "by: rows", r"data\.by: expected 'batch' or 'row', got \"rows\"; did you mean 'row'\?"),
        *(
            (
                "by: row",
                f"{key}: {value}",
                rf"data: has both datasets and .* its own( \({key}\))?; put it",
            )
            for key, value in {
                "share": "0.5",
                "robot": "panda",
                "actions": "delta",
                "unit": "degrees",
                "gripper": "[0, 1]",
                "recorded": "steps",
                "step": "0.2",
                "weight": "5",
            }.items()
        ),
        ("actions: delta", "actions: deltas", r"actions: expected 'absolute', 'delta' or 'velocity'"),
        (
            "robot: so101",
            "robot: panda",
            "data.datasets: 'panda' learns absolute actions from one dataset and delta ones from another",
        ),
    ],
)
def test_several_datasets_that_do_not_fit(recipe, old, new, sentence):
    with pytest.raises(ConfigError, match=sentence):
        several(recipe, SEVERAL.replace(old, new))


def test_no_dataset_is_said(recipe):
    recipe.write_text("data: {robot: panda}\n" + RECIPE[RECIPE.index("model:") :])
    with pytest.raises(
        ConfigError, match="data: dataset is missing; expected dataset and robot, or a preset"
    ):
        config.load(recipe)


def test_the_recipe_in_this_file_is_the_one_the_lines_count():
    assert textwrap.dedent(RECIPE).splitlines()[13] == "  steps: 997"


@pytest.mark.parametrize(
    ("name", "kind", "batch", "horizon", "steps"),
    [  # the paper's Table 7
        ("pi05_droid", "expert", 32, 16, 100_000),
        ("pi05_g1_dex1", "full", 8, 32, 60_000),
        ("pi05_droid_so101", "expert", 32, 16, 125_000),
    ],
)
def test_the_papers_recipes(name, kind, batch, horizon, steps):
    loaded = config.load(name)
    training = loaded.training
    assert isinstance(loaded.model, Pi05Config)
    assert (training.kind, training.batch, loaded.model.horizon, training.steps) == (
        kind,
        batch,
        horizon,
        steps,
    )
    assert (loaded.weights, loaded.tokenizer, loaded.model.vocab) == ("pi05-base", "paligemma", 257_152)
    joints = [len(robots.load(source.robot).joints) for source in loaded.data.sources]
    assert loaded.model.morphology is not None
    assert max(joints) == loaded.model.morphology.max_joints  # more places cost time, and nothing fills them
    assert max(joints) <= loaded.model.action_dim
    # DROID's operators pause often; openpi leaves still rows out.
    assert all(source.idle == (7 if source.preset == "droid" else 0) for source in loaded.data.sources)
    if name == "pi05_droid_so101":
        assert [source.weight for source in loaded.data.sources] == [8, 2]
        assert loaded.data.by == "batch"


@pytest.mark.parametrize(
    ("name", "base", "changes"),
    [
        ("pi05_droid_tokens", "pi05_droid", ["model.image_tokens={keep: 64, how: average}"]),
        (
            "pi05_poses_bins",
            "pi05_poses",
            ["model.head={bins: 24, gamma: 2}", "training.flow_samples=1", "training.noise_share=0"],
        ),
    ],
)
def test_a_recipe_beside_its_control_differs_in_what_it_asks_about(name, base, changes):
    assert config.load(name) == config.load(base, changes)
    assert config.load(name) != config.load(base)


def test_every_shipped_recipe_is_read_and_says_what_it_is_for():
    shipped = dropin.available("recipes")
    assert len(shipped) >= 4
    for name, path in shipped.items():
        config.load(name)
        head = path.read_text(encoding="utf-8").split("\n\n")[0]
        for word in ("What for:", "After:", "Hardware:", "Expected:", f"morph-vla train {name}"):
            assert word in head, (name, word)


def test_every_key_is_read_by_somebody():
    """A key that nothing reads is accepted, and changes nothing."""
    room = Path(keys.__file__).parents[1]
    read = {
        node.attr
        for path in room.rglob("*.py")
        if path != Path(keys.__file__)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    schemas = [
        each for each in vars(keys).values() if isinstance(each, type) and dataclasses.is_dataclass(each)
    ]
    names = {field.name for schema in schemas for field in dataclasses.fields(schema)}
    assert {"steps", "held_out", "peak_lr"} < names
    unread = names - read
    assert not unread, unread


def test_what_data_say_of_all_their_datasets_is_what_one_does_not_say():
    """A key that is in neither would be dropped in every cell of a study."""
    assert {"by", "held_out", "statistics", "space"} < set(config.OF_ALL)
    of_one = {field.name for field in dataclasses.fields(keys.Dataset)}
    of_data = {field.name for field in dataclasses.fields(keys.Data)}
    assert of_data == {*of_one, *config.OF_ALL, "datasets"}


def test_a_change_of_one_camera_leaves_the_presets_others():
    """As in a recipe that spells its cameras out: a wrist's picture was lost without a word."""
    changes = ["data.dataset=so", "data.cameras.base_0_rgb=top"]
    both = {"base_0_rgb": "top", "left_wrist_0_rgb": "wrist"}
    assert config.load("pi05_so101", changes).data.cameras == both
    assert config.load("pi05_so101", changes[::-1]).data.cameras == both
    alone = ["data.dataset=so", "data.cameras={base_0_rgb: top}"]
    assert config.load("pi05_so101", alone).data.cameras == {"base_0_rgb": "top"}
    right = [*alone, "data.cameras.right_wrist_0_rgb=hand"]
    assert config.load("pi05_so101", right).data.cameras == {"base_0_rgb": "top", "right_wrist_0_rgb": "hand"}
    list_of_two = "data.datasets=[{preset: so101, dataset: a}, {preset: droid, dataset: b}]"
    several = config.load(
        "pi05_droid_so101", [list_of_two, "data.datasets.1.cameras.base_0_rgb=side"]
    ).data.datasets
    assert [source.cameras["base_0_rgb"] for source in several] == ["front", "side"]
    assert all(len(source.cameras) == 2 for source in several)


def test_what_is_said_beside_a_file_is_named_with_it():
    with pytest.raises(
        ConfigError,
        match=r"panda_demo\.yaml with training\.steps=7 training\.held_out_every=0: training\.held_out",
    ):
        config.load("panda_demo", ["training.steps=7", "training.held_out_every=0"])


def test_a_value_of_the_file_is_said_of_the_file(tmp_path, root):
    text = (root / "configs/panda_demo.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("  log_every: ", "  log_every: 0  # "))
    with pytest.raises(ConfigError, match=r"mine\.yaml: training\.log_every: must be at least 1, not 0$"):
        config.load(tmp_path / "mine.yaml")
