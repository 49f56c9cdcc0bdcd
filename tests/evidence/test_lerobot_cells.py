"""Cells that LeRobot trains: what is checked before, what is kept, what a reader is told."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies import get_policy_class, make_policy_config, make_pre_post_processors

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.evidence import again, answer, theirs
from morph_vla.evidence import grid as grids
from morph_vla.evidence import run as runs
from morph_vla.evidence.check import check
from morph_vla.evidence.grid import Body, Cell, Grid, Split
from morph_vla.evidence.status import read_all, status
from morph_vla.findings import errors
from morph_vla.hosts.lerobot import options, training
from morph_vla.results import cells
from morph_vla.results.values import mapping
from morph_vla.training.datasets import read_parts

pytestmark = pytest.mark.slow

STAND_IN = Path(__file__).parents[1] / "lerobot_stand_in.py"
ACT = (
    "lerobot=act",
    "policy.dim_model=8",
    "policy.n_heads=2",
    "policy.chunk_size=4",
    "policy.n_action_steps=4",
)
ACT = (*ACT, "policy.dim_feedforward=8", "steps=4", "log_freq=2", "save_freq=2", "batch_size=2")
CELL = Cell(0, "alone", "act")


@pytest.fixture
def grid(study) -> Grid:
    """One robot; LeRobot's ACT beside a recipe of ours."""
    ours = grids.load(study / "grid.yaml")
    split = Split(("so101",), ("so101",), {"so101": 3})
    return dataclasses.replace(
        ours, conditions={"mix": (), "act": ACT}, splits={"alone": split}, hypotheses={}, primary=("alone",)
    )


@pytest.fixture(autouse=True)
def _as_if_installed(monkeypatch):
    monkeypatch.setattr(options, "find_spec", lambda name: name)


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    """An ACT of random parameters for the SO101, in a folder as lerobot-train writes it."""
    folder = tmp_path_factory.mktemp("act")
    inputs = {
        "observation.state": PolicyFeature(FeatureType.STATE, (6,)),
        "observation.environment_state": PolicyFeature(FeatureType.ENV, (14,)),
    }
    outputs = {"action": PolicyFeature(FeatureType.ACTION, (6,))}
    config = make_policy_config(
        "act", device="cpu", input_features=inputs, output_features=outputs, chunk_size=16, n_action_steps=16,
        dim_model=8, n_heads=2, dim_feedforward=8, n_encoder_layers=1, use_vae=False, push_to_hub=False,
        pretrained_backbone_weights=None,
    )  # fmt: skip
    torch.manual_seed(0)
    stats = {
        key: {"mean": torch.zeros(each.shape), "std": torch.ones(each.shape)}
        for key, each in (inputs | outputs).items()
    }
    get_policy_class("act")(config).save_pretrained(folder)
    for pipeline in make_pre_post_processors(config, dataset_stats=stats):
        pipeline.save_pretrained(folder)
    return folder


@pytest.fixture
def trainer(tmp_path, monkeypatch, policy):
    """A stand-in of lerobot-train that leaves a policy: tell it what else to do, see what it was asked."""
    plan = tmp_path / "plan.json"
    monkeypatch.setattr(training, "PROGRAM", (sys.executable, str(STAND_IN), str(plan)))

    def told(**what):
        plan.write_text(json.dumps({"policy": str(policy), **what}))

    told()
    told.asked = lambda: [json.loads(line) for line in plan.with_suffix(".calls").read_text().splitlines()]
    return told


def quiet(*_):
    from morph_vla.demo.job import Quiet

    return Quiet("", "")


def found(grid: Grid, study) -> dict[str, list[str]]:
    """Where -> the errors of `check`."""
    listed: dict[str, list[str]] = {}
    for finding in errors(check(grid, [study]).findings):
        listed.setdefault(str(finding.where), []).append(finding.found)
    return listed


# ------------------------------------------------------------------------------------------ before it is run


def test_a_sound_condition_is_counted_beside_the_others(grid, study):
    checked = check(grid, [study])
    assert not errors(checked.findings)
    assert [*checked.parameters] == ["mix", "act"]
    assert checked.parameters["act"] > 1000
    words = [finding.found for finding in checked.findings]
    assert any(
        text.startswith("overrides are of recipes: LeRobot is not told model={family") for text in words
    )


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (("lerobot=actt",), "LeRobot has no policy 'actt'; did you mean 'act'?"),
        (
            ("lerobot=act", "policy.dim_modl=8"),
            "lerobot-train has no option 'policy.dim_modl'; did you mean 'pol",
        ),
        (
            ("lerobot=act", "model.depth=2"),
            "model.depth is of our recipes, and LeRobot trains this one; expected",
        ),
        (
            ("lerobot=act", "policy.dim_model=9"),
            "LeRobot makes no 'act': embed_dim must be divisible by num_heads",
        ),
    ],
)
def test_what_lerobot_would_refuse(grid, study, items, words):
    asked = dataclasses.replace(grid, conditions={"mix": (), "act": items})
    (text,) = found(asked, study)["conditions.act"]
    assert text.startswith(words)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("tdmpc", "LeRobot's 'tdmpc' cannot be asked for a chunk from one observation: stack expects a non-"),
        ("gaussian_actor", "LeRobot makes no 'gaussian_actor': "),
    ],
)
def test_a_kind_that_cannot_be_asked_is_refused_before_it_is_trained(grid, study, kind, words):
    asked = dataclasses.replace(grid, conditions={"mix": (), "act": (f"lerobot={kind}",)})
    (text,) = found(asked, study)["conditions.act"]
    assert text.startswith(words)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (AssertionError(), "AssertionError"),  # as LeRobot's diffusion, which wants a row of observations
        (torch.zeros(1, 6), "the policy's actions have shape (6,); expected (horizon, 6)"),
    ],
)
def test_whatever_answers_no_chunk_is_refused_with_its_reason(grid, study, monkeypatch, answers, words):
    def predict_action_chunk(self, batch):
        if isinstance(answers, Exception):
            raise answers
        return answers

    monkeypatch.setattr(get_policy_class("act"), "predict_action_chunk", predict_action_chunk)
    (text,) = found(grid, study)["conditions.act"]
    before = "LeRobot's 'act' cannot be asked for a chunk from one observation: "
    assert text.startswith(before + words)
    assert text.endswith("; train another kind, as lerobot=act")


@pytest.mark.usefixtures("pip_installs")
def test_a_missing_package_is_said_before_hours_are_spent(grid, study, monkeypatch):
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    assert found(grid, study) == {
        "conditions.act": [
            "'accelerate' is not installed, and lerobot-train needs it; install LeRobot's extra: pip install "
            "'lerobot[training]'"
        ]
    }


def test_a_policy_without_a_body_is_of_one_robot(grid, study):
    several = Split(("panda", "so101"), ("so101",))
    other = Split(("so101",), ("so101", "panda"))
    of_robots = dataclasses.replace(grid, splits={"several": several, "other": other}, primary=("several",))
    problems = found(of_robots, study)
    assert problems["splits.several"] == [
        "LeRobot trains a policy of one robot, and the split has several: panda (panda), so101 (so101)"
    ]
    assert "a policy of LeRobot's drives 'so101' alone, and 'panda' is of 'panda'" in problems["splits.other"]


def test_recordings_that_are_no_one_dataset_and_shares_that_lerobot_does_not_know(grid, study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study / "so101", copy)
    path = copy / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"]["observation.environment_state"]["shape"] = [28]
    path.write_text(json.dumps({**info, "robot_type": "another"}))
    bodies = {**grid.bodies, "again": Body("small_so101", str(copy))}
    split = Split(("so101", "again"), ("so101",), weights={"again": 3.0})
    planned = grids.plan(dataclasses.replace(grid, bodies=bodies, splits={"alone": split}), [study])
    assert [finding.found for finding in theirs.unfit(planned, "act", "alone")] == [
        "LeRobot draws all frames alike and knows no weights; leave them out, or the condition",
        "LeRobot trains on one dataset, and the recordings of 'so101' and 'again' differ in robot_type, "
        "observation.environment_state",
    ]


def test_a_policy_that_is_not_told_the_task_is_warned_of(grid, study):
    bodies = {**grid.bodies, "again": Body("small_so101", str(study / "so101"))}
    split = Split(("so101", "again"), ("so101",))
    planned = grids.plan(dataclasses.replace(grid, bodies=bodies, splits={"alone": split}), [study])
    (finding,) = theirs.unfit(planned, "act", "alone")
    assert finding.severity == "warning"
    assert finding.found == (
        "LeRobot's 'act' is not told the task's text, and must see which of 2 it is at; "
        "say so beside its numbers"
    )


def test_a_camera_that_the_suite_has_not_and_an_episode_that_the_recording_has_not(grid, study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study / "so101", copy)
    path = copy / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"]["observation.images.front"] = {"dtype": "video", "shape": [3, 4, 4], "names": None}
    path.write_text(json.dumps(info))
    bodies = {**grid.bodies, "so101": Body("small_so101", str(copy))}
    planned = grids.plan(dataclasses.replace(grid, bodies=bodies), [study])
    assert [finding.found for finding in theirs.unfit(planned, "act", "alone")] == [
        "the recordings have a camera 'front', and the suite none"
    ]
    many = dataclasses.replace(grid, splits={"alone": Split(("so101",), ("so101",), {"so101": 400})})
    (finding,) = theirs.unfit(grids.plan(many, [study]), "act", "alone")
    assert finding.found.endswith("so101: no episode 3; its episodes are 0 to 2")


# ---------------------------------------------------------------------------------------- what it is and does


def test_the_episodes_are_those_that_a_recipe_of_ours_would_train_on(grid, study):
    planned = grids.plan(dataclasses.replace(grid, overrides=(*grid.overrides, "data.held_out=0.4")), [study])
    condition = planned.conditions["act"]
    assert isinstance(condition, options.Training)
    assert condition.held_out == 0.4
    (part,) = theirs.demonstrations(planned, condition, "alone")
    (ours,) = read_parts(planned.recipe(Cell(0, "alone", "mix")))
    assert set(part.episodes) < {0, 1, 2}
    assert part.total == 3
    assert {*part.episodes} == {*ours.recordings.episode_of()[ours.train_rows].tolist()}


def test_its_settings_are_all_that_its_numbers_depend_on(grid, study):
    planned = grids.plan(grid, [study])
    facts = planned.settings(CELL)
    assert facts["lerobot"] == {
        "options": ["policy.type=act", "policy.pretrained_backbone_weights=null", *ACT[1:]],
        "held_out": 0.05,
        "reads_text": False,
        "version": options.versions()["lerobot"],
        "datasets": [{"dataset": str(study / "so101"), "episodes": 3}],
        "share": 1.0,
    }
    assert (facts["seed"], facts["episodes"], facts["judge"]) == (0, 2, {"so101": "small_so101"})
    other = planned.settings(Cell(1, "alone", "act"))
    assert {key for key in facts if facts[key] != other[key]} == {"seed"}
    # A condition of LeRobot's leaves the settings of the others as they were.
    alone = grids.plan(dataclasses.replace(grid, conditions={"mix": ()}), [study])
    assert alone.settings(Cell(0, "alone", "mix")) == planned.settings(Cell(0, "alone", "mix"))


def test_a_cell_is_trained_by_lerobot_judged_by_us_and_measured_again(grid, study, tmp_path, trainer):
    settings = runs.Settings(tmp_path, "grid.yaml", only=[CELL.name], folders=[study])
    assert runs.run(grid, settings, quiet) == runs.Ran(1, 0, 0)
    record = read_all(tmp_path)[CELL.name]
    assert (record.parameters, record.loss, record.held_out_loss) == (1234, 0.25, None)
    (body,) = record.judged
    assert (body.body, body.seen, len(body.rows)) == ("so101", True, 2)
    assert record.seconds.keys() == {"train", "evaluate"}
    assert {"lerobot", "torch", "source"} <= record.versions.keys()
    assert mapping(record.settings["lerobot"])["reads_text"] is False
    assert record.command.startswith("morph-vla evidence run grid.yaml --only alone/act/0")
    (asked,) = trainer.asked()
    assert (asked["seed"], asked["dataset.episodes"]) == ("0", "[1,2]")  # 0 is held out, as by our recipes
    assert not (tmp_path / "work" / CELL.name).exists()
    stands = status(grid, tmp_path)
    assert [(row.condition, row.done, row.missing) for row in stands.rows] == [("mix", 0, 2), ("act", 1, 1)]
    (repeated,) = again.again(grid, dataclasses.replace(settings, only=()), [CELL.name], 1, quiet, print)
    assert str(repeated) == f"{CELL.name}: the same counts on 1 body, row by row; the same parameters"
    assert runs.run(grid, settings, quiet) == runs.Ran(0, 0, 1)


def test_a_record_of_other_options_is_refused_by_name(grid, study, tmp_path):
    planned = grids.plan(grid, [study])
    for seed in (0, 1):
        cell = Cell(seed, "alone", "act")
        facts = planned.settings(cell)
        body = cells.Judged("so101", "small_so101", True, "10")
        record = cells.CellRecord(
            **cell._asdict(), settings_sha256=grids.digest(facts), settings=facts, judged=(body,)
        )
        cells.write(record, tmp_path / "records" / f"{cell.name}.json")
    assert answer.answer(grid, [tmp_path]).done == 2  # of two seeds, and they differ in nothing else
    edited = dataclasses.replace(grid, conditions={"mix": (), "act": (*ACT, "steps=5")})
    words = (
        r"^alone/act/0 was measured under other settings than this grid's: lerobot.options was \['policy.type"
    )
    with pytest.raises(MorphVlaError, match=words):
        answer.answer(edited, [tmp_path])
    ours = dataclasses.replace(grid, conditions={"mix": (), "act": ("seed=3", "lerobot=act")})
    with pytest.raises(ConfigError, match="seed"):
        answer.answer(ours, [tmp_path])


def test_a_training_that_fails_is_a_failed_cell_and_the_next_run_goes_on(grid, study, tmp_path, trainer):
    trainer(die_after=3)
    settings = runs.Settings(tmp_path, "grid.yaml", only=[CELL.name], folders=[study])
    assert runs.run(grid, settings, quiet) == runs.Ran(0, 1, 0)
    why = status(grid, tmp_path).failures[CELL.name]
    assert why.startswith("lerobot-train ended with status 1: ValueError: out of luck (all of it: ")
    trainer()
    assert runs.run(grid, settings, quiet) == runs.Ran(1, 0, 0)
    assert trainer.asked()[1]["resume"] == "true"
