"""`morph-vla demo --zero-shot`: a base acts on an arm as it is; nothing is recorded or trained."""

import json
import re
from pathlib import Path

import pytest
from demo_records import made_up

from morph_vla import robots
from morph_vla.demo import ARMS, AS_IT_IS, NO_BASE, arm, job, words
from morph_vla.demo.settings import WITHOUT_TRAINING
from morph_vla.errors import MorphVlaError
from morph_vla.files import remote
from morph_vla.results import record as records
from morph_vla.robots.text import urdf_text


def test_its_base_its_size_and_its_stages(folder):
    settings = job.Settings(robot=folder / "arm.urdf", zero_shot=True)
    assert (settings.source, settings.size, settings.stages) == (ARMS, AS_IT_IS, WITHOUT_TRAINING)
    assert (settings.suite_name, settings.writes_suite) == ("arm", True)
    assert job.Settings(zero_shot=True, base="runs/mine", episodes=7).size.episodes == 7
    settings.check_zero_shot()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"base": NO_BASE}, "--zero-shot: a base acts as it is; --base none names none"),
        (
            {"overrides": ["training.steps=3"]},
            "--zero-shot: nothing is recorded or trained, so leave out changes to a recipe",
        ),
        ({"suite": "droid_panda"}, "--robot gets a suite of its own: leave out --suite droid_panda"),
        ({"attempts": 30}, "--zero-shot: nothing is recorded or trained, so leave out --attempts"),
        (
            {"untrained_episodes": 3},
            "--zero-shot: nothing is recorded or trained, so leave out --untrained-episodes",
        ),
    ],
)
def test_what_only_a_training_has_is_refused_before_anything_is_written(folder, asked, sentence):
    settings = job.Settings(robot=folder / "arm.urdf", zero_shot=True, **asked)
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        job.act(folder / "x", settings)
    assert not (folder / "x").exists()


def test_the_last_screen_has_a_row_a_task_and_what_to_do_next(folder):
    record = made_up("zero-shot", None, {"cube": 4, "can": 2}, episodes=5, suite="arm")
    page = folder / "x/report.html"
    lines = "\n".join(words.of_zero_shot(record, page, ARMS, "arm", "MORPH_VLA_PATH=x ")).splitlines()
    rows = [" ".join(line.split()) for line in lines]
    assert rows[1] == "task successes 95% Wilson median time to success"
    assert rows[2].startswith("cube 4 of 5 80.0% [37.6, 96.4]")
    assert rows[4].startswith("all 6 of 10 60.0%")
    assert str(page) in "\n".join(lines)
    commands = [row for row in rows if "morph-vla " in row]
    assert commands[0] == f"MORPH_VLA_PATH=x morph-vla serve {ARMS} --robot {record.suite.robot or 'arm'}"
    assert commands[1].startswith("MORPH_VLA_PATH=x morph-vla record arm 'cameras={}' -o ")
    assert len(commands) == 3


def test_from_pictures_it_is_also_offered_what_is_exact():
    record = made_up("from-pictures", None, {"cube": 4}, episodes=5, suite="arm")
    page = Path("x/report.html")
    lines = words.of_zero_shot(record, page, ARMS, "arm", "MORPH_VLA_PATH=x ", "poses-exterior")
    commands = [line.strip().splitlines()[0] for line in lines if "morph-vla " in line]
    looks = "variation.distractors=2 --suite arm --noise 0 --poses-from poses-exterior -o x/looks"
    assert commands[0].startswith(f"MORPH_VLA_PATH=x morph-vla eval {ARMS} variation.colors=1 ")
    assert commands[0].endswith(looks)
    assert commands[1] == f"MORPH_VLA_PATH=x morph-vla eval {ARMS} --suite arm --noise 0 -o x/exact"
    served = f"MORPH_VLA_PATH=x morph-vla serve {ARMS} --robot {record.suite.robot or 'arm'}"
    assert commands[2] == f"{served} --poses-from poses-exterior --suite arm"
    another = "morph-vla demo --robot another_arm.urdf --zero-shot --poses-from poses-exterior -o"
    assert commands[-1].startswith(another)


def test_an_estimator_before_a_training_is_refused_before_anything_is_written(folder):
    settings = job.Settings(robot=folder / "arm.urdf", poses_from="poses-exterior")
    sentence = "--poses-from stands before a base that acts as it is: add --zero-shot"
    with pytest.raises(MorphVlaError, match=f"^{sentence}$"):
        job.run(folder / "x", settings)
    assert not (folder / "x").exists()


def test_an_estimator_that_is_not_there_is_said_before_anything_is_written(folder):
    settings = job.Settings(robot=folder / "arm.urdf", zero_shot=True, poses_from=str(folder / "none"))
    with pytest.raises(MorphVlaError, match=f"^{re.escape(str(folder / 'none'))} is no estimator of poses: "):
        job.act(folder / "x", settings)
    assert not (folder / "x").exists()


def test_a_robot_that_is_registered_is_asked_for_by_its_name(folder, run):
    """It is taken as it is, without a copy of its URDF."""
    status, out, err = run(f"demo --robot so10 --zero-shot -o {folder / 'x'}")
    assert (status, "so101" in out) == (2, False)
    assert "error: no robot 'so10'; did you mean 'so101'?" in err
    with arm.added(Path("panda"), folder / "y") as name:
        assert name == "panda"
    assert not (folder / "y").exists()


@pytest.mark.slow
def test_a_strangers_arm_is_driven_by_the_base_that_is_shipped(folder, run):
    """The Panda under another name, its hand and all, in a file of its own."""
    assert remote.resolve(ARMS).is_dir()
    panda = robots.load("panda").urdf
    file = folder / "my_arm.urdf"
    file.write_text(urdf_text(panda))
    target = folder / "x"
    status, out, err = run(f"demo --robot {file} --zero-shot --episodes 2 -o {target} --json")
    assert status == 0, err
    answer = json.loads(out)
    record = json.loads((target / "eval/zero-shot/record.json").read_text())
    assert answer["record"].endswith("eval/zero-shot/record.json")
    tasks = {trial["task"] for trial in record["trials"]}
    assert tasks == {"cube_in_bowl", "can_in_mug", "banana_in_bin", "orange_on_plate"}
    assert sum(trial["success"] for trial in record["trials"]) >= 6
    assert "2/3  zero-shot  pi05-arms, never trained on my_arm: " in err
    page = (target / "report.html").read_text()
    assert "video/mp4" in page
    assert not (target / "dataset").exists()


@pytest.mark.slow
def test_from_pictures_it_is_driven_too(folder, run):
    """The same arm: one camera's pictures in place of the simulator's poses."""
    file = folder / "my_arm.urdf"
    file.write_text(urdf_text(robots.load("panda").urdf))
    target = folder / "x"
    words_of_it = (
        f"demo --robot {file} --zero-shot --poses-from poses-exterior --episodes 2 -o {target} --json"
    )
    status, out, err = run(words_of_it)
    assert status == 0, err
    record = json.loads((target / "eval/from-pictures/record.json").read_text())
    assert json.loads(out)["record"].endswith("eval/from-pictures/record.json")
    assert record["policy"]["poses_from"] == "poses-exterior"
    assert sum(trial["success"] for trial in record["trials"]) >= 6
    assert (target / "report.html").exists()


def test_what_comes_next_can_be_pasted_for_a_name_with_a_space(folder):
    record = made_up("zero-shot", None, {"cube": 4}, episodes=5, suite="my arm")
    lines = "\n".join(words.of_zero_shot(record, folder / "my x/report.html", ARMS, "my arm"))
    assert "morph-vla record 'my arm' 'cameras={}' -o " in lines
    assert "my arm'" in lines.replace("--robot 'my arm'", "")


def test_the_record_of_a_demo_without_training_is_found_in_its_folder(folder):
    record = made_up("zero-shot", None, {"cube": 4}, episodes=5, suite="arm")
    records.write(record, folder / "x/eval/zero-shot/record.json")
    assert records.read(folder / "x").policy.label == record.policy.label
    records.write(record, folder / "x/eval/looks/record.json")
    with pytest.raises(MorphVlaError, match="several evaluations; name one of eval/looks, eval/zero-shot"):
        records.read(folder / "x")
