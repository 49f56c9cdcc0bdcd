"""The demo that fine-tunes a base: what it does as it is, then fine-tuned, beside the same from scratch."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from demo_records import made_up
from policies import known_robot

from morph_vla import cli, process, robots
from morph_vla.demo import base, job, words
from morph_vla.demo.settings import WITH_BASE
from morph_vla.errors import MorphVlaError
from morph_vla.files.dropin import PATH_VARIABLE
from morph_vla.files.plain import to_plain
from morph_vla.pi05 import tokenizer
from morph_vla.recipes import recipe as recipes
from morph_vla.results import record as records
from morph_vla.results.record import Record, Study
from morph_vla.training import loop

SOURCE = "bases/7"
FACTS = {"source": SOURCE, "step": 7, "sha256": "ab", "unseen": True, "robots": 23}
TASKS = ("can_in_mug", "cube_in_bowl")


def evaluation(name: str, step: int, *won: int) -> Record:
    return made_up(name, step, dict(zip(TASKS, won, strict=True)), episodes=5, suite="panda")


def three() -> tuple[Record, ...]:
    return (
        evaluation("zero-shot", 7, 1, 0),
        evaluation("scratch", 11, 0, 0),
        evaluation("fine-tuned", 11, 5, 3),
    )


def study(folder: Path) -> Study:
    return Study(
        robot={"name": "arm"}, base=FACTS, evaluations=three(), folder=folder,
        training={"steps": 11, "seconds": 61.0}, scratch={"steps": 11, "seconds": 59.0},
        seconds_by_stage={"train": 61.0, "scratch": 59.0},
    )  # fmt: skip


def test_its_settings_are_those_of_a_suite_and_a_recipe_of_its_own(folder):
    settings = job.Settings(base=SOURCE, episodes=13)
    assert (settings.suite_name, settings.writes_suite, settings.rows) == ("panda", True, (13, 13))
    assert settings.stages == (
        "robot", "zero-shot", "record", "train", "scratch", "evaluate", "attention", "report",
    )  # fmt: skip
    assert settings.command == (
        f"morph-vla demo --base {SOURCE} --attempts 300 --episodes 13 --untrained-episodes 13"
    )
    named = job.Settings(base=SOURCE, suite="droid_panda", untrained_episodes=3)
    assert (named.suite_name, named.writes_suite, named.rows) == ("droid_panda", False, (3, 50))
    assert " --suite droid_panda --base " in named.command
    arm = job.Settings(base=SOURCE, robot=folder / "arm.urdf")
    assert (arm.suite_name, arm.writes_suite) == ("arm", True)
    # A base's model cannot be widened, and its robot is always said.
    assert job.of_robot({"name": "arm", "joints": [{}] * 11}, arm) == ["data.robot=arm"]
    assert job.of_robot({"name": "panda", "joints": [{}] * 8}, settings) == ["data.robot=panda"]


def test_scratch_takes_the_same_steps_with_rates_of_its_own(folder):
    settings = job.Settings(base=SOURCE, overrides=["training.steps=11"])
    robot = {"name": "panda", "joints": [{}] * 8}
    tuned = job._recipe(folder, settings, robot)
    scratch = job._recipe(folder, settings, robot, scratch=True)
    assert (tuned.weights, scratch.weights) == (SOURCE, "")
    assert (tuned.model, tuned.data, tuned.training) == (scratch.model, scratch.data, scratch.training)
    rates = recipes.load(job.RECIPE).optimizer
    assert (scratch.optimizer.peak_lr, scratch.optimizer.matrix_lr) == (rates.peak_lr, rates.matrix_lr)
    assert tuned.optimizer.peak_lr < scratch.optimizer.peak_lr
    asked = job.Settings(base=SOURCE, overrides=["optimizer.peak_lr=0.0017"])
    assert job._recipe(folder, asked, robot, scratch=True).optimizer.peak_lr == 0.0017
    with pytest.raises(
        MorphVlaError, match=r"^weights=\.\.\.: the demo takes what it fine-tunes from --base$"
    ):
        job._recipe(folder, job.Settings(overrides=["weights=pi05-base"]), robot)


def test_a_base_is_fine_tuned_in_its_own_space(folder):
    about = folder / "theirs" / "about"
    about.mkdir(parents=True)
    recipe = recipes.load("pi05_nano@ours.hand")
    (about / "recipe.json").write_text(json.dumps(to_plain(recipe)))
    settings = job.Settings(base=str(folder / "theirs"))
    for scratch in (False, True):
        tuned = job._recipe(folder, settings, {"name": "panda", "joints": [{}] * 8}, scratch=scratch)
        assert (tuned.data.space, tuned.model) == ("hand", recipe.model)
    assert base.variant("bases/nowhere") == base.variant(str(folder)) == ""
    proposed = words.next_commands(folder, "panda", three()[-1], 5, "", (), SOURCE, "nano_demo@ours.hand")
    assert any("morph-vla train nano_demo@ours.hand " in command for command, _ in proposed)


def test_the_recipe_of_a_base_is_that_of_pi05_nano():
    demo, nano = recipes.load("nano_demo"), recipes.load("pi05_nano")
    assert (demo.model, demo.tokenizer, demo.weights) == (nano.model, nano.tokenizer, "pi05-nano")
    for key in ("cameras", "actions", "statistics", "phases"):
        assert getattr(demo.data, key) == getattr(nano.data, key), key


def test_the_last_screen_has_three_rows_a_task_and_both_differences(folder):
    lines = "\n".join(words.lines(study(folder), folder / "x/report.html", "panda", 5)).splitlines()
    rows = [" ".join(line.split()) for line in lines[2:11]]
    assert rows[:4] == [
        "can_in_mug zero-shot 1 of 5 20.0% [3.6, 62.4] 2.0 s",
        "scratch 0 of 5 0.0% [0.0, 43.4] -",
        "fine-tuned 5 of 5 100.0% [56.6, 100.0] 4.0 s",
        "cube_in_bowl zero-shot 0 of 5 0.0% [0.0, 43.4] -",
    ]
    assert rows[6].startswith("all zero-shot 1 of 10 10.0%")
    assert lines[12:15] == [
        f"zero-shot: {SOURCE} as it is, trained on 23 robots; arm is not among them",
        "scratch: 11 steps from random weights, in 59 s",
        f"fine-tuned: 11 steps from {SOURCE}, in 1 min 01 s",
    ]
    assert lines[16].startswith("fine-tuned - zero-shot: +70.0 points [")
    assert lines[17].startswith("fine-tuned - scratch: +80.0 points [")
    assert all(line.endswith("(95%, Tango 1998, paired)") for line in lines[16:18])
    assert lines[18] == "2 min 00 s: train 1 min 01 s, scratch 59 s"


def test_the_commands_that_are_proposed_go_on_from_the_base(folder):
    proposed = words.next_commands(folder, "panda", three()[-1], 5, "", ["data.robot=panda"], SOURCE)
    for command, why in proposed:
        program, name, *rest = shlex.split(command)
        assert (program, bool(why)) == ("morph-vla", True)
        cli.build_parser(name).parse_args([name, *rest])
    (evaluated, _), (trained, _), (another, _) = proposed
    assert f"{folder}/train/checkpoints/11 --suite panda --episodes 5:10 --noise 0" in evaluated
    assert f"train nano_demo data.robot=panda data.dataset={folder}/dataset weights={SOURCE}" in trained
    assert "training.steps=22" in trained
    assert f"--base {SOURCE}" in another


def test_the_stages_make_one_record_that_is_read_back(folder, run, monkeypatch):
    zero_shot, *others = three()
    done = {
        "_robot": ({"name": "panda", "joints": [{}] * 8}, ()), "_zero_shot": ([zero_shot], FACTS),
        "_record": {"episodes": 3}, "_train": {"steps": 11}, "_evaluate": others, "_attention": {},
        "_report": folder / "x/report.html",
    }  # fmt: skip
    for name, value in done.items():
        monkeypatch.setattr(job, name, lambda *_, value=value: job.Done(value, "made"))
    monkeypatch.setattr(process, "prepare", lambda: None)
    monkeypatch.setattr(job, "require_gl", lambda: None)
    monkeypatch.setenv(PATH_VARIABLE, str(folder))
    status, out, _ = run(f"demo --base {SOURCE} --episodes 5 -o x")
    assert status == 0
    lines = [line for line in out.splitlines() if line[1:3] == "/8"]
    assert lines == [f"{n}/8  {stage:<9}  made  (0 s)" for n, stage in enumerate(WITH_BASE, start=1)]
    plain = json.loads((folder / "x/record.json").read_text())
    assert plain["base"] == FACTS
    assert plain["difference"]["difference"] == pytest.approx(0.7)
    assert plain["scratch"]["difference"]["difference"] == pytest.approx(0.8)
    assert plain["scratch"]["difference"]["a"] == "scratch"
    read = records.load(folder / "x")
    assert isinstance(read, Study)
    assert read.to_json() == plain
    assert list(read.origins) == ["zero-shot", "scratch", "fine-tuned"]
    assert "MORPH_VLA_PATH=x morph-vla eval x/train/checkpoints/11 --suite panda " in out


def made_base(folder: Path, recipe: recipes.Recipe, **changes: object) -> Path:
    """What a checkpoint says of itself, without parameters."""
    known = {
        "robots": {"cousin": known_robot()},
        "step": 3,
        "tokenizer": tokenizer.describe(tokenizer.load(recipe.tokenizer)),
    }
    (folder / "about").mkdir(parents=True)
    (folder / "about/policy.json").write_text(json.dumps(known | changes))
    (folder / "about/recipe.json").write_text(json.dumps(to_plain(recipe)))
    return folder


@pytest.mark.parametrize(
    ("overrides", "changes", "sentence"),
    [
        (["model.depth=3"], {}, r"is another model: model\.depth is 3 in the base, 4 in the recipe$"),
        (["model.morphology=null"], {}, r"model\.morphology\.max_joints is None in .*; and \d+ more$"),
        ([], {"family": "body"}, r": a policy of model\.family 'body'; the demo fine-tunes one of 'pi05'$"),
        (["tokenizer=bytes"], {}, r": trained with tokenizer 'bytes' .*; 'words' is another "),
        # What only training reads may be another: these parameters are looked for.
        (["training.steps=9", "model.remat=true"], {}, r"no checkpoint here \('averaged' is missing\)$"),
    ],
)  # fmt: skip
def test_a_base_that_does_not_fit_is_refused_in_a_sentence(folder, overrides, changes, sentence):
    made_base(folder / "given", recipes.load("nano_demo", overrides), **changes)
    recipe = recipes.load("nano_demo", ["weights=given"])
    with pytest.raises(MorphVlaError, match=sentence) as caught:
        base.load(recipe, "panda")
    assert str(caught.value).startswith(("base given", "given"))


def test_a_base_that_is_not_there_is_said_before_anything_is_recorded(folder, run, monkeypatch):
    monkeypatch.setattr(process, "prepare", lambda: None)
    monkeypatch.setattr(job, "require_gl", lambda: None)
    monkeypatch.setattr(job, "_record", lambda *_: pytest.fail("recorded"))
    monkeypatch.setenv(PATH_VARIABLE, str(folder))
    monkeypatch.setattr(job, "_robot", lambda *_: job.Done(({"name": "panda", "joints": []}, ()), "made"))
    monkeypatch.setattr(job, "_zero_shot", lambda _, __, recipe, *___: base.load(recipe, "panda"))
    (folder / "empty").mkdir()
    assert "no checkpoint here (about/policy.json is missing)" in run("demo --base empty -o x")[2]
    status, _, err = run("demo --base pi05-nono -o x")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "pi05-nono: there is no such file or folder" in err


TINY = [
    "model.image_size=24", "model.vit={width: 12, depth: 1, mlp_dim: 20, heads: 2, patch: 12}",
    "model.prefix={width: 20, mlp_dim: 28}", "model.expert={width: 16, mlp_dim: 28}", "model.depth=2",
    "model.heads=2", "model.head_dim=6", "training.steps=4", "training.batch=5", "training.log_every=2",
    "training.held_out_every=4", "training.checkpoint_every=2", "optimizer.warmup=2", "data.held_out=0.4",
    "data.phases={}", "training.noise_share=0", "model.max_tokens=40",
]  # fmt: skip


def drop_in(folder: Path, root: Path) -> None:
    """A suite of a Panda with small frames and short episodes, and a Panda by another name."""
    suite = yaml.safe_load((root / "eval/droid_panda.yaml").read_text())
    for camera in suite["cameras"].values():
        camera |= {"width": 24, "height": 24}
    suite |= {"episode_seconds": 7, "settle_seconds": 0.1}
    suite["tasks"] = {"cube_in_bowl": suite["tasks"]["cube_in_bowl"]}
    (folder / "eval").mkdir()
    (folder / "eval/tiny.yaml").write_text(yaml.safe_dump(suite))
    (folder / "urdf_descriptors").mkdir()
    panda = robots.load("panda")
    for path in panda.files:
        shutil.copy(path, folder / f"urdf_descriptors/cousin{path.suffix}")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "cousin"])
def test_the_whole_demo_at_a_tiny_size_and_again(folder, root, tiny_dataset, monkeypatch, kind):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(folder / "cache"))
    monkeypatch.setenv(PATH_VARIABLE, str(folder))
    drop_in(folder, root)
    source, overrides = "none", TINY
    if kind == "cousin":
        about = [*TINY, "weights=''", f"data.dataset={tiny_dataset}", "data.robot=cousin", "training.steps=2"]
        source = str(loop.train(recipes.load("nano_demo", about), folder / "bases").checkpoint)
    settings = job.Settings(suite="tiny", base=source, overrides=overrides, attempts=3, episodes=1)
    said: list[str] = []
    done = job.run(folder / "x", settings, said.append)
    assert len(said) == len(settings.stages)
    labels = [record.policy.label for record in done.evaluations]
    page = (folder / "x/report.html").read_text()
    if kind == "cousin":
        assert labels == ["zero-shot", "scratch", "fine-tuned"]
        assert done.base["unseen"] is True
        assert "panda is not among them" in page
        assert said[1].startswith(f"2/8  zero-shot  {source}, never trained on panda: ")
        assert (folder / "x/scratch/checkpoints/4").is_dir()
    else:
        assert labels == ["untrained", "trained"]
        assert not done.base
    again: list[str] = []
    job.run(folder / "x", settings, again.append)
    assert all("already there" in line for line in again[:-1])
