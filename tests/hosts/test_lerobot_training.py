"""What LeRobot may be asked to train, and how its trainer is run, gone on with and watched."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")

from morph_vla.demonstrations import recording
from morph_vla.errors import ConfigError, MissingExtraError, MorphVlaError
from morph_vla.hosts.lerobot import options, training
from morph_vla.hosts.lerobot.options import Training
from morph_vla.hosts.lerobot.training import Demonstrations
from morph_vla.suites import suite

STAND_IN = Path(__file__).parents[1] / "lerobot_stand_in.py"


@pytest.fixture(autouse=True)
def _as_if_installed(monkeypatch):
    """`lerobot[training]`: what of it is missing here is not needed to read options."""
    monkeypatch.setattr(options, "find_spec", lambda name: name)


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A stand-in of lerobot-train: tell it what to do, and see what it was asked."""
    plan = tmp_path / "plan.json"
    monkeypatch.setattr(training, "PROGRAM", (sys.executable, str(STAND_IN), str(plan)))

    def told(**what):
        plan.write_text(json.dumps(what))

    told()
    told.asked = lambda: [json.loads(line) for line in plan.with_suffix(".calls").read_text().splitlines()]
    return told


PARTS = [Demonstrations(Path("somewhere"), (0, 2), 3)]
TWELVE = options.parsed(["lerobot=act", "steps=12", "log_freq=2", "save_freq=4"])


def trained(folder: Path, asked: Training = TWELVE, reports: list | None = None, parts=PARTS):
    return training.train(asked, parts, 5, folder, lambda report: (reports or []).append(report))


# -------------------------------------------------------------------------------- what is asked for


def test_a_list_is_a_policy_and_options_and_the_last_of_a_key_counts():
    asked = options.parsed(["lerobot=act", "steps=3", "policy.dim_model=8", "steps=40"], held_out=0.1)
    assert (asked.policy, asked.steps, asked.held_out) == ("act", 40, 0.1)
    assert options.parsed(["lerobot=act"]).steps == 100_000
    assert options.is_theirs(["lerobot=act"])
    assert not options.is_theirs(["recipe=body_state"])
    assert not options.is_theirs([])


def test_no_parameters_of_a_backbone_are_fetched_unless_they_are_asked_for():
    assert options.parsed(["lerobot=act"]).words[1] == "policy.pretrained_backbone_weights=null"
    own = "policy.pretrained_backbone_weights=ResNet18_Weights.IMAGENET1K_V1"
    assert options.parsed(["lerobot=act", own]).words == ("policy.type=act", own)
    assert options.parsed(["lerobot=pi05"]).words == ("policy.type=pi05",)


def test_a_reader_is_told_whether_the_policy_knows_the_task():
    assert options.parsed(["lerobot=act"]).settings()["reads_text"] is False
    assert options.parsed(["lerobot=smolvla"]).settings()["reads_text"] is True


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("steps", "'steps': expected KEY=VALUE, an option of lerobot-train without its dashes"),
        ("--steps=3", "'--steps=3': expected KEY=VALUE, an option of lerobot-train without its dashes"),
        (
            "model.depth=3",
            "model.depth is of our recipes, and LeRobot trains this one; expected an option of lerobot-train",
        ),
        ("training.steps=3", "training.steps is of our recipes, and LeRobot trains this one; expected an"),
        ("@table1.tokens=", "@table1.tokens is of our recipes, and LeRobot trains this one; expected an"),
        ("seed=3", "seed is set by whoever runs the study; leave it out"),
        ("dataset.root=x", "dataset.root is set by whoever runs the study; leave it out"),
        ("wandb.enable=true", "wandb.enable is set by whoever runs the study; leave it out"),
        ("steps=many", "steps: expected a whole number of at least 1, not 'many'"),
        ("steps=0", "steps: expected a whole number of at least 1, not '0'"),
    ],
)
def test_what_is_no_option_of_a_training(item, words):
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        options.parsed(["lerobot=act", item])


def test_every_item_that_is_wrong_is_named_and_a_policy_is_needed():
    with pytest.raises(ConfigError) as error:
        options.parsed(["lerobot=", "seed=3", "model.x=1"])
    assert [line.partition(" ")[0] for line in str(error.value).splitlines()] == [
        "seed", "model.x", "'lerobot='",
    ]  # fmt: skip
    assert str(error.value).endswith("names no policy; expected one that LeRobot registers, as lerobot=act")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["lerobot=actt"], r"^LeRobot has no policy 'actt'; did you mean 'act'\? \(act, diffusion, "),
        (
            ["lerobot=act", "policy.dim_modl=8"],
            r"no option 'policy.dim_modl'; did you mean 'policy.dim_model'",
        ),
        (
            ["lerobot=act", "batchsize=8"],
            r"^lerobot-train has no option 'batchsize'; did you mean 'batch_size'",
        ),
        (["lerobot=act", "policy.dim_model=big"], r"^lerobot-train: .*Couldn't parse 'big' into an int"),
        (
            ["lerobot=act", "policy.n_action_steps=200"],
            r"^lerobot-train: .*ACTConfig.*: The chunk size is the upper bound for the number of",
        ),
        (["lerobot=act", "optimizer.lrr=1"], r"^lerobot-train: .*lrr"),
        (
            ["lerobot=diffusion"],
            r"^LeRobot's 'diffusion' looks at 2 observations at once, and only policies of one can be asked; "
            r"train another kind, as lerobot=act$",
        ),
        (
            ["lerobot=multi_task_dit", "policy.n_obs_steps=1"],
            r"^LeRobot's 'multi_task_dit' cannot be asked for a chunk from one observation: its chunks are "
            r"of queues that its select_action alone fills; train another kind, as lerobot=act$",
        ),
    ],
)
def test_what_lerobot_would_refuse_is_said_before_it_is_trained(items, words):
    with pytest.raises(MorphVlaError, match=words):
        options.check(options.parsed(items))


def test_a_condition_that_can_be_trained_is_sound():
    act = options.parsed(["lerobot=act", "policy.dim_model=64", "batch_size=4"])
    options.check(act)
    configured = options.configured(act)
    assert (configured.policy.type, configured.policy.dim_model, configured.batch_size) == ("act", 64, 4)
    # Whether another kind can be asked is seen where it is made for a recording.
    diffusion = options.parsed(["lerobot=diffusion", "policy.n_obs_steps=1"])
    assert options.configured(diffusion).policy.n_obs_steps == 1


@pytest.mark.usefixtures("pip_installs")
def test_a_package_that_is_missing_names_lerobots_extra(monkeypatch):
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    words = (
        r"^'accelerate' is not installed, and lerobot-train needs it; install LeRobot's extra: pip install "
    )
    with pytest.raises(MissingExtraError, match=words + r"'lerobot\[training\]'$"):
        options.check(TWELVE)


# ---------------------------------------------------------------------------------------------- how it is run


def test_a_training_is_one_process_and_its_lines_are_reported(trainer, tmp_path):
    reports = []
    result = training.train(TWELVE, PARTS, 5, tmp_path / "t", reports.append)
    assert [(r.step, r.steps, r.loss, r.lr, r.samples_per_s) for r in reports][-1] == (12, 12, 0.083, 1e-3, 9)
    assert [r.step for r in reports] == [2, 4, 6, 8, 10, 12]
    assert (result.parameters, result.loss) == (1234, 0.083)
    assert result.checkpoint == (tmp_path / "t/run/checkpoints/000012/pretrained_model").resolve()
    (asked,) = trainer.asked()
    expected = {
        "policy.type": "act", "seed": "5", "policy.push_to_hub": "false", "wandb.enable": "false",
        "num_workers": "0", "policy.pretrained_backbone_weights": "null", "dataset.episodes": "[0,2]",
        "dataset.root": str(Path("somewhere").resolve()), "output_dir": str((tmp_path / "t/run").resolve()),
    }  # fmt: skip
    assert expected.items() <= asked.items()
    assert "resume" not in asked
    assert "Training:" not in (tmp_path / "t" / "log.txt").read_text()
    # All of it is there: nothing is begun, and the same is said.
    assert trained(tmp_path / "t") == result
    assert len(trainer.asked()) == 1


def test_a_whole_recording_is_not_listed_episode_by_episode(trainer, tmp_path):
    trained(tmp_path / "t", parts=[Demonstrations(Path("somewhere"), (0, 1, 2), 3)])
    assert "dataset.episodes" not in trainer.asked()[0]


def test_a_training_that_ended_early_says_why_and_goes_on_from_its_newest_checkpoint(trainer, tmp_path):
    trainer(die_after=6)
    log = tmp_path / "t" / "log.txt"
    words = rf"^lerobot-train ended with status 1: ValueError: out of luck \(all of it: {log}\)$"
    with pytest.raises(MorphVlaError, match=words):
        trained(tmp_path / "t")
    trainer()
    reports = []
    result = training.train(TWELVE, PARTS, 5, tmp_path / "t", reports.append)
    again = trainer.asked()[1]
    assert again["resume"] == "true"
    assert again["config_path"].endswith("run/checkpoints/last/pretrained_model/train_config.json")
    assert [r.step for r in reports] == [6, 8, 10, 12]  # from 4, the newest that was kept
    assert result.loss == 0.083


def test_what_was_killed_before_its_first_checkpoint_begins_anew(trainer, tmp_path):
    trainer(die_after=3)
    with pytest.raises(MorphVlaError, match="out of luck"):
        trained(tmp_path / "t")
    (tmp_path / "t" / "run").mkdir(exist_ok=True)
    trainer()
    trained(tmp_path / "t")
    assert ["resume" in asked for asked in trainer.asked()] == [False, False]


def test_where_lerobot_cannot_go_on_it_begins_anew_and_says_so(trainer, tmp_path, caplog):
    trainer(die_after=6)
    with pytest.raises(MorphVlaError, match="out of luck"):
        trained(tmp_path / "t")
    trainer(refuse=True)
    assert trained(tmp_path / "t").loss == 0.083
    assert ["resume" in asked for asked in trainer.asked()] == [False, True, False]
    refused = tmp_path / "t/run.refused"
    assert (refused / "checkpoints/000004").is_dir()  # kept: it may have failed for another reason
    words = (
        f"LeRobot cannot go on from its checkpoint, which {refused} keeps, and begins anew: lerobot-train "
        "ended with status 1: "
    )
    assert [message.startswith(f"{words}RuntimeError: no opt") for message in caplog.messages] == [True]


@pytest.mark.parametrize("ends", [{"die_after": 5}, {"die_after": 9}, {"kill": True}])
def test_what_went_on_and_then_failed_keeps_its_checkpoints(trainer, tmp_path, ends):
    """Also before its first line of the log (5, and a line every 2 steps), and killed before a step."""
    trainer(die_after=6)
    with pytest.raises(MorphVlaError, match="out of luck"):
        trained(tmp_path / "t")
    trainer(**ends)
    with pytest.raises(MorphVlaError, match=r"^lerobot-train ended with status "):
        trained(tmp_path / "t")
    kept = sorted(path.name for path in (tmp_path / "t/run/checkpoints").iterdir())
    assert kept[0] == "000004"
    trainer()
    assert trained(tmp_path / "t").loss == 0.083
    asked = [call.get("config_path") for call in trainer.asked()]
    assert [path is not None for path in asked] == [False, True, True]


def test_a_loss_that_is_no_number_ends_it(trainer, tmp_path):
    trainer(loss="nan")
    with pytest.raises(MorphVlaError, match=r"^LeRobot's loss is nan at step 2; lower policy.optimizer_lr$"):
        trained(tmp_path / "t")


def test_a_process_has_as_many_threads_as_cores_that_it_may_use(trainer, tmp_path, monkeypatch):
    opened, environments = subprocess.Popen, []
    monkeypatch.setattr(training.os, "sched_getaffinity", lambda _: {3}, raising=False)
    monkeypatch.setattr(
        training.subprocess, "Popen", lambda *a, **k: environments.append(k["env"]) or opened(*a, **k)
    )
    for name in (*training.THREADS, *training.WAITING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # there LeRobot shows no bar, and steps are counted by it
    trained(tmp_path / "t")
    assert "SLURM_JOB_ID" not in environments[0]
    assert {environments[0][name] for name in training.THREADS} == {"1"}
    assert environments[0]["OMP_WAIT_POLICY"] == "PASSIVE"


def test_lines_are_read_whole_however_they_arrive() -> None:
    read, write = os.pipe()
    lines = training._lines(read)
    os.write(write, b"a bar 1/9\ranother\nhal")
    assert [next(lines), next(lines)] == ["a bar 1/9", "another"]
    os.write(write, b"f\r\n\xff, and no end")
    assert next(lines) == "half"
    os.close(write)
    assert list(lines) == ["\N{REPLACEMENT CHARACTER}, and no end"]
    os.close(read)


def test_sigterm_ends_both_and_the_next_run_goes_on(trainer, tmp_path):
    trainer(hang_after=5)
    begun = time.monotonic()

    def terminate():
        while not (tmp_path / "t/run/checkpoints/last").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "t")
    assert time.monotonic() - begun < 30
    trainer()
    assert trained(tmp_path / "t").loss == 0.083


def test_the_trainer_ends_with_whoever_started_it():
    code = "from morph_vla.hosts.lerobot import watched; watched.end_with_input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert child.stdin
    child.stdin.close()
    assert child.wait(timeout=30) == 1


# -------------------------------------------------------------------------------- lerobot itself


@pytest.fixture(scope="module")
def so101_poses(tmp_path_factory) -> Path:
    """Four demonstrations without cameras."""
    folder = tmp_path_factory.mktemp("poses") / "so101"
    task = suite.load("so101_pick_orange", ["cameras={}", "settle_seconds=0.1"])
    recording.record_part(task, folder, range(4))
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("accelerate"), reason="needs LeRobot's extra 'training'")
def test_lerobot_itself_trains_and_goes_on_to_the_same_parameters(so101_poses, tmp_path):
    """Of several recordings as one. With dropout they are others: LeRobot draws that anew."""
    words = "policy.dim_model=8 policy.n_heads=2 policy.dim_feedforward=8 policy.n_encoder_layers=1 "
    words += "policy.chunk_size=4 policy.n_action_steps=4 policy.use_vae=false policy.dropout=0 "
    words += "batch_size=2 log_freq=1 save_freq=1 steps=2"
    asked = options.parsed(["lerobot=act", *words.split()])
    parts = [Demonstrations(so101_poses, (1, 2), 4), Demonstrations(so101_poses, (0,), 4)]
    whole = trained(tmp_path / "whole", asked, parts=parts)
    last = tmp_path / "whole" / "run" / "checkpoints" / "last"
    last.unlink()
    last.symlink_to("000001")
    before = (whole.checkpoint / "model.safetensors").read_bytes()
    (whole.checkpoint / "model.safetensors").unlink()
    reports = []
    gone_on = training.train(asked, parts, 5, tmp_path / "whole", reports.append)
    assert [report.step for report in reports] == [2]
    assert gone_on == whole
    assert (whole.checkpoint / "model.safetensors").read_bytes() == before
    assert whole.parameters == options.parameters(asked, so101_poses)
