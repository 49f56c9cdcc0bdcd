"""`suites new`: an arm whose meshes are not at hand, from its file to a suite that its expert can do."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from morph_vla import cli, robots
from morph_vla.demonstrations import new_suite, recording
from morph_vla.demonstrations.check import Check, Outcome
from morph_vla.engines.mujoco.scene import build_spec
from morph_vla.errors import MorphVlaError
from morph_vla.robots import adding
from morph_vla.robots.records import Geometry, Link, Pose, Shape
from morph_vla.robots.text import urdf_text
from morph_vla.suites import new, on_robot, workspace
from morph_vla.suites.suite import load_tasks


def stranger(path: Path, collides: bool = True) -> Path:
    """A file as many are: the Panda's joints, no hand, its shapes in meshes that nobody has."""
    panda = robots.load("panda").urdf
    mesh = Shape(Geometry("mesh", (1.0, 1.0, 1.0), "package://nowhere/a.stl"), Pose(), None, 0)
    arm = {f"panda_link{index}" for index in range(9)}
    links = tuple(
        Link(link.name, link.inertial, (mesh,), (mesh,) * collides, None, 0)
        for link in panda.links
        if link.name in arm
    )
    joints = tuple(joint for joint in panda.joints if joint.child in arm)
    path.write_text(urdf_text(robots.Urdf("stranger", "s.urdf", links, joints, (), (), ())))
    return path


@pytest.mark.slow
def test_a_strangers_arm_gets_a_suite_that_its_expert_can_do(folder: Path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    file = stranger(folder / "downloaded.urdf")
    command = ["suites", "new", "mine", "--robot", str(file), "--task", "cube_in_bowl,orange_on_plate"]
    assert cli.main([*command, "--trials", "2", "--workers", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["suite"] == "eval/mine.yaml"
    assert answer["left_out"] == []
    assert [len(done["outcomes"]) for done in answer["kept"]] == [2, 2]
    robot = robots.load("mine")  # added under the suite's name
    assert robot.names[-1] == "parallel_jaw_joint"
    assert len(robot.names) == 8
    assert "attach: parallel_jaw" in (folder / "urdf_descriptors" / "mine.yaml").read_text()
    with pytest.raises(MorphVlaError, match=r"^eval/mine.yaml exists; give .* \(--overwrite\)$"):
        new_suite.make("mine", robot)
    assert cli.main([*command[:3], "--trials", "0", "--task", "cube_in_bowl", "--overwrite"]) == 0
    assert "orange_on_plate" not in (folder / "eval/mine.yaml").read_text()


@pytest.mark.parametrize("name", ["saw:x", "../esc", "", ".hidden"])
def test_a_suites_name_is_no_path(folder: Path, name):
    words = rf"^the suite's name is '{name}'; expected one without '/', ':' or a dot before it$"
    with pytest.raises(MorphVlaError, match=words):
        new_suite.make(name, robots.load("panda"), trials=0)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_suite_elsewhere_is_called_by_its_file_in_what_comes_next(folder: Path, tmp_path):
    made = new_suite.make("zz", robots.load("panda"), path=tmp_path / "elsewhere" / "zz.yaml", trials=0)
    assert f"`morph-vla suites check {made.path}`" in str(made)
    assert "next: `morph-vla suites check zz`" in str(new_suite.make("zz", robots.load("panda"), trials=0))
    with pytest.raises(MorphVlaError, match=r"^the suite's name is 'a:b'; expected one without"):
        new_suite.make("zz", robots.load("panda"), path=tmp_path / "a:b.yaml", trials=0)


def test_an_arm_that_is_refused_leaves_nothing_and_is_taken_once_mended(folder: Path, monkeypatch, capsys):
    monkeypatch.setattr(
        new_suite.new, "plan", lambda robot, table, **_: (_ for _ in ()).throw(MorphVlaError("no place"))
    )
    file = stranger(folder / "downloaded.urdf")
    command = ["suites", "new", "mine", "--robot", str(file)]
    assert cli.main(command) != 0
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: mine: ")  # of its meshes, which are not there
    assert error == "error: no place"
    assert not (folder / "urdf_descriptors").exists() or list((folder / "urdf_descriptors").iterdir()) == []
    file.write_text(file.read_text().replace("stranger", "mended"))
    assert cli.main(command) != 0
    assert capsys.readouterr().err.endswith("error: no place\n")  # and not: is another file


def test_the_reason_of_an_arm_that_fails_is_a_clause_or_an_error_in_words():
    failed = [Outcome(0, "lifted", 1.0), Outcome(1, "lifted", 1.0), Outcome(2, None, 1.0)]
    ended = [Outcome(episode, "error", 0.0, "the physics diverged") for episode in range(3)]
    worse, better = Check("arm:can", tuple(ended)), Check("arm:cube", tuple(failed))
    assert new_suite._nearest([worse, better]) == "in arm:cube 2 of 3 attempts failed at 'lifted'"
    assert new_suite._nearest([worse]) == "in arm:can 3 of 3 attempts ended so: the physics diverged"


@pytest.mark.slow
def test_an_object_is_not_called_as_a_link_of_the_robot(folder: Path):
    text = urdf_text(robots.load("panda").urdf).replace("panda_link7", "cube")
    (folder / "named.urdf").write_text(text)
    robot = adding.add_arm(folder / "named.urdf", "named2").robot
    path = new_suite.make("named", robot, ["cube_in_bowl"], trials=0).path
    (task,) = load_tasks(path)
    sentence = "objects.cube: robot 'named2' has a link of that name; call the object otherwise"
    assert sentence in [*on_robot.problems(task, robot)]
    unused = dataclasses.replace(
        task, objects={"bowl": task.objects["bowl"]}, distractors={"cube": task.objects["cube"]}
    )
    assert sentence not in [*on_robot.problems(unused, robot)]  # no body of that name is built


@pytest.mark.slow
def test_a_root_link_called_world_holds_no_table_up(folder: Path):
    """MuJoCo takes such a link for its own world; with a mass contacts were looked for elsewhere."""
    text = urdf_text(robots.load("panda").urdf).replace("panda_link0", "world")
    (folder / "onworld.urdf").write_text(text)
    assert robots.load(folder / "onworld.urdf").urdf.links[0].name == "world"
    robot = adding.add_arm(folder / "onworld.urdf").robot
    path = new_suite.make("onworld", robot, ["cube_in_bowl"], trials=0).path
    model = build_spec(robot, load_tasks(path)[0]).compile()
    assert model.body_ipos[0].tolist() == [0, 0, 0]
    assert model.body_mass[0] == 0


@pytest.mark.slow
def test_a_table_beside_the_base_is_turned_with_all_that_lies_on_it(folder: Path, monkeypatch):
    """What an arm that reaches no table ahead of its base is given: the Panda, which reaches this one too."""
    monkeypatch.setattr(workspace, "HEADINGS", (np.pi / 2,))
    robot = robots.load("panda")
    path, tasks = folder / "turned.yaml", ("banana_in_bin", "push")
    made = new_suite.make("turned", robot, tasks, path, trials=2, workers=1)
    assert [done.successes for done in made.kept] == [2, 2], made.dropped
    field = made.plan.field
    assert field.heading == pytest.approx(np.pi / 2)
    banana = load_tasks(made.path)[0]
    assert banana.expert.heading == pytest.approx(field.heading, abs=1e-4)
    assert '"heading"' in recording._identity([banana], 3)
    # A recording from before there was one is the same.
    assert '"heading"' not in recording._identity([load_tasks("droid_panda")[0]], 3)
    places = banana.placement
    assert places["banana"].yaw == pytest.approx((field.heading - 0.5, field.heading + 0.5), abs=1e-4)
    assert places["bin"].yaw == pytest.approx((field.heading,) * 2, abs=1e-4)
    chain = new.reach.chain(robot, made.plan.names, made.plan.tool.link, made.plan.tool.link_from_frame)
    pose, *_ = chain.forward(field.rest[None])
    assert np.abs(pose[0, :3, 1]) == pytest.approx([1.0, 0.0, 0.0], abs=0.03)  # across the way to the table


@pytest.mark.slow
def test_a_mesh_at_hand_is_looked_at_and_a_capsule_touched(folder: Path):
    (folder / "nowhere").mkdir()
    corners = [(0.1, 0.0, 0.0), (0.0, 0.1, 0.0), (0.0, 0.0, 0.1), (0.0, 0.0, 0.0)]
    faces = np.array(
        [[corners[i] for i in face] for face in ((0, 1, 2), (0, 3, 1), (1, 3, 2), (2, 3, 0))], "<f4"
    )
    triangles = b"".join(bytes(12) + face.tobytes() + bytes(2) for face in faces)
    (folder / "nowhere" / "a.stl").write_bytes(bytes(80) + np.uint32(4).tobytes() + triangles)
    file = stranger(folder / "arm.urdf", collides=False)
    robot = adding.add_arm(file, folder=folder / "nowhere").robot
    made = new_suite.make("a", robot, ("orange_on_plate",), folder / "a.yaml", trials=0)
    (suite,) = load_tasks(made.path)
    model = build_spec(robot, suite).compile()
    geoms = [model.geom(index) for index in range(model.ngeom)]
    arm = [geom for geom in geoms if model.body(geom.bodyid[0]).name == "panda_link3"]
    seen = sorted((int(geom.contype[0]), int(geom.group[0]) < 3) for geom in arm)
    assert seen == [(0, True), (1, False)]  # the mesh, and a capsule that is not drawn


@pytest.fixture(scope="module")
def plan() -> new.Plan:
    """The Panda's, which takes seconds."""
    return new.plan(robots.load("panda"))


@pytest.mark.slow
def test_tasks_in_which_the_expert_fails_are_left_out(folder: Path, monkeypatch, plan):
    def failing(task, trials, workers):
        won = None if task.task_name == "stack" else "lifted"
        return Check(task.label, tuple(Outcome(i, won, 3.0) for i in range(trials)))

    monkeypatch.setattr(new_suite, "check", failing)
    monkeypatch.setattr(new, "plan", lambda robot, table, **_: plan)
    panda, path = plan.robot, folder / "a.yaml"
    made = new_suite.make("a", panda, ("stack", "can_in_mug"), path, trials=3)
    assert [done.suite for done in made.kept] == ["a:stack"]
    assert "left out: a:can_in_mug: the expert succeeded in 0 of 3 initial states" in str(made)
    assert "can_in_mug" not in path.read_text()
    ready = "or without a demonstration: `morph-vla eval pi05-arms --suite"
    assert ready in str(made)
    of_two = dataclasses.replace(made.plan, robot=robots.load("aloha"))  # that base drives one hand
    assert ready not in str(dataclasses.replace(made, plan=of_two))
    with pytest.raises(MorphVlaError, match=r"the expert fails every task; in b 3 of 3 attempts failed"):
        new_suite.make("b", panda, ("can_in_mug",), folder / "b.yaml", trials=3)
    assert not (folder / "b.yaml").exists()


def test_a_suite_is_there_once_it_has_been_tried(folder: Path, monkeypatch, plan):
    panda, path = plan.robot, folder / "eval" / "a.yaml"
    monkeypatch.setattr(new, "plan", lambda robot, table, **_: plan)

    def killed(task, trials, workers):
        assert (task.label, task.path.is_file(), path.exists()) == ("a", True, False)
        raise KeyboardInterrupt

    monkeypatch.setattr(new_suite, "check", killed)
    with pytest.raises(KeyboardInterrupt):
        new_suite.make("a", panda, ("stack",), path, trials=3)
    assert list((folder / "eval").iterdir()) == []
    with pytest.raises(MorphVlaError, match=r"^eval/a.yml: a suite's file must end in .yaml$"):
        new_suite.make("a", panda, ("stack",), Path("eval/a.yml"))


def test_robots_of_a_folder_are_found_by_other_processes(folder: Path, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_PATH", "")
    adding.add_arm(stranger(folder / "far.urdf"), folder=folder / "mine" / "urdf_descriptors")

    def elsewhere(name, robot, *rest, **options):
        code = "from morph_vla import robots; print(robots.load('far').name)"
        answer = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert answer.stdout == "far\n", answer.stderr
        raise MorphVlaError(f"{robot.name} was found")

    monkeypatch.setattr(new_suite, "make", elsewhere)
    assert cli.main(["suites", "new", "far", "--folder", "mine"]) == 2
    (entry,) = os.environ["MORPH_VLA_PATH"].split(os.pathsep)
    assert Path(entry) == (folder / "mine").resolve()


@pytest.mark.parametrize(
    ("height", "words"),
    [("high", "not high"), ("nan", "not nan"), ("11", "not 11"), ("-10.5", r"not -10\.5")],
)
def test_a_tables_height_is_a_number_that_makes_sense(folder: Path, capsys, height, words):
    assert cli.main(["suites", "new", "panda", f"--table={height}"]) == 2
    said = capsys.readouterr().err
    assert re.search(rf"--table must be metres, at most 10 above or below the root, {words}", said)


def test_a_tables_height_reaches_the_plan_and_is_printed(folder: Path, monkeypatch, capsys, plan):
    asked = []
    origin = np.array([0.0, 0.0, 0.71])
    raised = dataclasses.replace(plan, field=dataclasses.replace(plan.field, origin=origin))
    monkeypatch.setattr(
        new, "plan", lambda robot, table, level, camera_side: asked.append((table, camera_side)) or raised
    )
    command = ["suites", "new", "panda", "--table", "0.71", "--trials", "0"]
    assert cli.main(command) == 0
    assert cli.main([*command, "--camera-side", "hand", "--overwrite"]) == 0
    assert asked == [(0.71, "ahead"), (0.71, "hand")]
    assert "m of a table whose top is 0.71 m above the robot's root, objects" in capsys.readouterr().out
    assert "table: {height: 0.71" in (folder / "eval" / "panda.yaml").read_text()
