"""pi0.5 in the space of tools: it learns poses of the hand, and is asked and answers in joint values."""

import json

import numpy as np
import pytest

from morph_vla import robots, weights
from morph_vla.checks import recipe as check
from morph_vla.data import lerobot, space
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.evaluation import fit
from morph_vla.findings import Finding
from morph_vla.recipes import recipe as recipes
from morph_vla.robots.geometry import POSE
from morph_vla.robots.standpoint import of_chunk, root_values, standpoint
from morph_vla.robots.tool import listed, tool_space, unnamed
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites.suite import load
from morph_vla.training import begin_with, checkpoint, datasets, loop, meaning, resumed
from morph_vla.training.datasets import read_parts, robot_stats
from morph_vla.training.statistics import of_body, of_file
from morph_vla.weights.convert import convert

SMALL = [
    "model={vocab: 1288, cameras: [], environment: 14, image_size: 16, vit: {width: 8, depth: 1, mlp_dim: 8,"
    " heads: 1, patch: 16}, prefix: {width: 8, mlp_dim: 12}, expert: {width: 8, mlp_dim: 12}, depth: 2,"
    " heads: 2, head_dim: 4, action_dim: 11, horizon: 5, max_tokens: 24, dtype: float32, init: scratch}",
    "training={steps: 3, batch: 5, checkpoint_every: 3, held_out_every: 3}",
    "tokenizer=words", "data.cameras={}", "data.held_out=0.4", "data.actions=delta", "data.phases={}",
    "data.space=tool", "data.statistics=robot",
]  # fmt: skip


def changes(dataset, *more: str) -> list[str]:
    return [*SMALL, f"data.dataset={dataset}", *more]


@pytest.fixture(scope="module", params=["tool", "hand"])
def acts_in(request):
    return request.param


@pytest.fixture(scope="module")
def run(dataset, acts_in, tmp_path_factory):
    recipe = recipes.load("panda_demo", changes(dataset, f"data.space={acts_in}"))
    return loop.train(recipe, tmp_path_factory.mktemp("run"))


@pytest.fixture
def policy(run):
    return CheckpointPolicy(run.checkpoint, batch=2)


@pytest.mark.slow
def test_a_checkpoint_says_in_which_space_it_acts(run, policy, seen, acts_in):
    about = json.loads((run.checkpoint / "about" / "policy.json").read_text())["robots"]["panda"]
    assert (about["space"], len(about["joints"]), len(about["relative"])) == (acts_in, 8, 10)
    assert about["relative"] == [True] * 9 + [False]
    answer = policy.infer({**seen, "episode": 0, "step": 0})
    assert answer["actions"].shape == (5, 8)
    assert fit.check(policy, load("droid_panda:cube_in_bowl", ["cameras={}"])) == ()


@pytest.mark.slow
def test_the_log_has_the_loss_of_every_value_of_the_tool(run):
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    held = next(line["held_out"]["panda"] for line in lines if line.get("held_out"))
    assert set(held) == {"loss", *tool_space(robots.load("panda")).names}


@pytest.mark.slow
def test_a_robot_with_more_values_than_the_model_is_refused_before_it_moves(run, acts_in):
    words = f"robot 'aloha' has 20 values in data.space: {acts_in}, the model 11 action values"
    with pytest.raises(MorphVlaError, match=words):
        CheckpointPolicy(run.checkpoint, robot="aloha")


@pytest.mark.slow
def test_a_tool_that_was_moved_is_named_when_a_run_goes_on(run):
    known = checkpoint.about(run.checkpoint)
    moved = json.loads(json.dumps({**known, "data": {"panda": "0" * 64}}))
    moved["robots"]["panda"]["tools"]["panda_finger_joint1"][2][3] += 0.01
    words = r"was trained on other data \(panda: tools, its recordings, its objects' poses\)"
    with pytest.raises(MorphVlaError, match=words):
        resumed.check_same_data(run.checkpoint, moved)


def test_a_gripper_that_was_learnt_as_its_dataset_counts_it_is_refused(tmp_path):
    """Counted from 100 (open) to 0, the SO101's would be driven the wrong way round."""
    so101, panda = robots.load("so101"), robots.load("panda")
    words = r"'so101': 'gripper' was trained as its dataset counts it \(100 open, 0 closed\), and is told as"
    with pytest.raises(MorphVlaError, match=words):
        meaning.check_grippers({"space": "tool"}, so101, tmp_path)
    meaning.check_grippers({"space": "tool"}, panda, tmp_path)  # its dataset's 0 and 1 are the share
    meaning.check_grippers({}, so101, tmp_path)
    now = meaning.of_robot(so101, of_body(so101, "delta", "tool"), "tool")
    meaning.check_grippers(now, so101, tmp_path)


def test_tools_that_were_learnt_the_right_one_first_are_refused(tmp_path):
    robot = robots.load("g1_dex1")
    now = meaning.of_robot(robot, of_body(robot, "delta", "tool"), "tool")
    meaning.check_order(now, "g1_dex1", tmp_path)
    before = {key: value for key, value in now.items() if key != "order"}
    meaning.check_order(before, "g1_dex1", tmp_path)  # left first all the same
    turned = {**before, "tools": dict(reversed(before["tools"].items()))}
    words = r"robot 'g1_dex1' was trained with its tools as .*; the left one is the first now \(data\.space: "
    with pytest.raises(MorphVlaError, match=words):
        meaning.check_order(turned, "g1_dex1", tmp_path)
    with pytest.raises(MorphVlaError, match=words):
        meaning.check_order({**before, "joints": before["joints"][::-1]}, "g1_dex1", tmp_path)
    meaning.check_order({}, "g1_dex1", tmp_path)
    about = {**turned, "actions": "delta"}
    with pytest.raises(MorphVlaError, match="robot 'trained' was trained with its tools as"):
        meaning.unseen({"trained": about}, "aloha", tmp_path)


def test_nor_does_such_a_policy_drive_a_robot_that_it_has_not_seen(tmp_path):
    so101, panda = (
        {**meaning.of_robot(robot, of_body(robot, "delta", "tool"), "tool"), "actions": "delta"}
        for robot in (robots.load("so101"), robots.load("panda"))
    )
    for about in (so101, panda):
        meaning.unseen({"trained": about}, "g1_dex1", tmp_path)
        del about["grippers"]
    meaning.unseen({"trained": panda}, "so101", tmp_path)  # counted 0 to 1, as it would be now
    so101["state_stats"]["q99"] = (*so101["state_stats"]["q99"][:9], 100.0)
    words = (
        r"the gripper of 'trained' was trained as its dataset counts it \(0 to 100\), and that of an unseen"
    )
    with pytest.raises(MorphVlaError, match=words):
        meaning.unseen({"trained": so101}, "panda", tmp_path)


@pytest.mark.slow
def test_who_asks_for_no_motion_stays(policy, seen, monkeypatch):
    """A chunk of zeros is a pose that does not change and a gripper halfway, whatever the joints' values."""
    monkeypatch.setattr(policy, "_sample", lambda *_: np.zeros((2, 5, 11), np.float32))
    answer = policy.infer({**seen, "episode": 0, "step": 0})
    state = np.asarray(seen["state"], np.float32)
    np.testing.assert_allclose(answer["actions"][:, :7], np.tile(state[:7], (5, 1)), atol=2e-4)
    np.testing.assert_allclose(answer["actions"][:, 7], 0.5, atol=1e-5)


@pytest.mark.slow
def test_what_is_still_to_come_is_told_as_the_tool_will_move(policy, seen):
    state = np.asarray(seen["state"], np.float32)
    left = np.tile(state, (3, 1))
    rows = [{**seen, "previous_actions": left, "inference_delay": 1}] * 2
    previous = policy._previous(rows)
    assert previous.count.tolist() == [3, 3]
    np.testing.assert_allclose(previous.actions[:, :3, :9], 0, atol=1e-5)
    answer = policy.infer({**rows[0], "episode": 0, "step": 0})
    assert answer["actions"].shape == (5, 8)


@pytest.mark.slow
def test_a_robot_that_no_training_saw_is_driven_by_its_own_joints(run, seen, acts_in):
    policy = CheckpointPolicy(run.checkpoint, robot="so101", batch=1)
    state = policy.robot.to_dataset(policy.robot.rest).astype(np.float32)
    answer = policy.infer({**seen, "state": state, "robot": "so101", "episode": 0, "step": 0})
    assert answer["actions"].shape == (5, 6)
    assert policy.trained["space"] == acts_in


def test_one_motion_has_one_value_on_every_robot():
    made = {}
    for name in ("panda", "so101"):
        robot = robots.load(name)
        known = tool_space(robot)
        made[name] = of_body(robot, "delta", "tool")
        assert len(made[name].action.q99) == len(known.names)
    for kind in ("state", "action"):
        one, other = (getattr(made[name], kind) for name in made)
        assert one.q99[:9] == other.q99[:9]
        assert one.q01[:9] == other.q01[:9] == tuple(-value for value in one.q99[:9])


def test_places_of_objects_are_counted_from_the_tool():
    robot = robots.load("panda")
    names = [f"{what} {value}" for what in ("cup", "plate") for value in POSE]
    values = np.random.default_rng(5).normal(size=(3, 14)).astype(np.float32)
    state = space.tools_of(robot).seen(robot.to_dataset(np.tile(robot.rest, (3, 1))))
    seen = space.poses_seen(robot, "tool", names, values, state)
    for start in (0, 7):
        np.testing.assert_allclose(
            seen[:, start : start + 3] + state[:, :3], values[:, start : start + 3], atol=1e-6
        )
        np.testing.assert_array_equal(seen[:, start + 3 : start + 7], values[:, start + 3 : start + 7])
    points = space.poses_seen(robot, "tool", ["a x", "a y"], values[:, :2], state)
    np.testing.assert_array_equal(points, values[:, :2])


def test_chunks_are_learnt_from_where_the_hand_is(dataset):
    """What is learnt of a row, undone by hand, is the recorded pose; its state says only height and turn."""
    robot = robots.load("panda")
    known, rows = tool_space(robot), np.array([0, 3, 11])
    (part,) = read_parts(recipes.load("panda_demo", changes(dataset, "data.space=hand")))
    (plain,) = read_parts(recipes.load("panda_demo", changes(dataset)))
    np.testing.assert_allclose(part.recordings.state[:, :2], 0, atol=1e-6)
    np.testing.assert_array_equal(part.recordings.action, plain.recordings.action)
    learnt = (
        datasets.to_learn(part, rows, 5) + np.where(part.relative, part.recordings.state[rows], 0)[:, None]
    )
    at = standpoint(known, plain.recordings.state[rows])
    expected = (
        datasets.to_learn(plain, rows, 5) + np.where(plain.relative, plain.recordings.state[rows], 0)[:, None]
    )
    np.testing.assert_allclose(root_values(known, learnt, of_chunk(at)), expected, atol=1e-5)


def test_objects_are_told_from_where_the_hand_is():
    robot = robots.load("panda")
    names = [f"{what} {value}" for what in ("cup", "plate") for value in POSE]
    state = space.tools_of(robot).seen(robot.to_dataset(np.tile(robot.rest, (3, 1))))
    values = np.zeros((3, 14), np.float32)
    values[:, [3, 10]] = 1
    values[:, :3] = values[:, 7:10] = state[:, :3]
    values[:, 7] += 0.25  # ahead of the hand, as the base looks
    seen = space.poses_seen(robot, "hand", names, values, state)
    np.testing.assert_allclose(seen[:, :3], 0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(seen[:, 7:10], axis=1), 0.25, atol=1e-6)
    np.testing.assert_allclose(seen[:, 9], 0, atol=1e-6)


def test_measured_statistics_are_of_the_tool(dataset):
    recipe = recipes.load("panda_demo", changes(dataset, "data.statistics=own", "training.steps=7"))
    parts = read_parts(recipe)
    stats = robot_stats(recipe, "panda", parts)
    recorded = lerobot.read(dataset, ("observation.state",), ("action",), environment=True)
    x = tool_space(robots.load("panda")).seen(recorded.state)[:, 0]
    assert stats.state.q99[0] == pytest.approx(np.quantile(x, 0.99), abs=6e-3)
    assert len(stats.action.q01) == 10


@pytest.mark.slow
def test_another_program_is_not_given_what_it_would_take_for_joints(run, tmp_path, acts_in):
    words = f"trained with data.space: {acts_in}, and openpi's pi0.5 has no kinematics between poses"
    with pytest.raises(MorphVlaError, match=words):
        convert(run.checkpoint, tmp_path / "theirs", "openpi")


@pytest.mark.slow
def test_who_goes_on_in_another_space_is_told(run, dataset, caplog, acts_in):
    morphless = changes(dataset, f"weights={run.checkpoint}", f"data.space={acts_in}")
    opened = weights.open_checkpoint(str(run.checkpoint))
    begin_with.new_leaves(recipes.load("panda_demo", morphless), opened)
    assert not caplog.records
    begin_with.new_leaves(recipes.load("panda_demo", [*morphless, "data.space=joints"]), opened)
    assert f"trained with data.space: {acts_in}, the recipe has joints" in caplog.text


@pytest.mark.slow
def test_who_goes_on_with_other_actions_is_told(run, dataset, caplog, acts_in):
    morphless = changes(dataset, f"weights={run.checkpoint}", f"data.space={acts_in}")
    opened = weights.open_checkpoint(str(run.checkpoint))
    begin_with.new_leaves(recipes.load("panda_demo", [*morphless, "data.actions=absolute"]), opened)
    words = (
        "robot 'panda' was trained on delta actions, the recipe learns absolute ones: what it knows of them"
    )
    assert words in caplog.text


@pytest.mark.slow
def test_a_robot_without_tools_is_found_before_training(dataset, monkeypatch):
    def refused(_):
        raise MorphVlaError(
            "robot 'it' has no space of tools: joint 'rail' slides; choose data.space: joints"
        )

    assert errors(dataset) == []
    assert errors(dataset, "model.action_dim=9") == ["model-width"]
    (long,) = (
        str(problem) for problem in problems(dataset, "model.max_tokens=18") if "prompt" in problem.code
    )
    assert "takes 20 tokens, the model 18" in long
    monkeypatch.setattr(space, "tools_of", refused)
    assert errors(dataset) == ["no-tool"]


def test_poses_that_robots_do_not_count_alike_are_named(dataset):
    (own,) = (str(each) for each in problems(dataset, "data.statistics=own") if each.code == "tool-own")
    assert (
        "own counts one motion by another number on each robot, and an unseen robot cannot be driven" in own
    )
    assert own.endswith("choose data.statistics: robot")
    found = problems(dataset, "data.actions=absolute")
    (absolute,) = (str(problem) for problem in found if problem.code == "tool-absolute")
    assert "absolute poses (panda) are counted over 1 m either way, moves of a chunk over 0.2 m" in absolute
    assert absolute.endswith("choose delta")


def test_what_seems_to_be_a_gripper_and_is_not_named_as_one_is_said(tmp_path):
    """Without a side file the SO101's jaw is an arm's last joint."""
    so101 = robots.load("so101")
    (tmp_path / "bare.urdf").write_bytes(so101.urdf_path.read_bytes())
    bare, words = robots.load(tmp_path / "bare.urdf"), "if it closes a hand, name it as `gripper`"
    assert (unnamed(bare), unnamed(so101)) == (("gripper",), ())
    assert (words in listed(bare), words in listed(so101)) == (True, False)
    assert [problem.code for problem in check._tools(bare)] == ["tool-unnamed"]
    assert "tool-unnamed" not in [problem.code for problem in check._tools(so101)]


def test_pictures_of_several_sizes_ask_an_unseen_robot_for_none(tmp_path):
    about = {**meaning.of_robot(panda := robots.load("panda"), of_body(panda, "delta")), "actions": "delta"}
    small, large = ({**about, "sizes": {"front": [7 * n, 11 * n]}} for n in (1, 2))
    _, alike = meaning.unseen({"a": small, "b": small}, "so101", tmp_path)
    _, mixed = meaning.unseen({"a": small, "b": large}, "so101", tmp_path)
    assert (alike["sizes"], mixed["sizes"]) == ({"front": [7, 11]}, {})


def test_an_unseen_robot_may_be_seen_from_where_any_other_was(tmp_path):
    about = {**meaning.of_robot(panda := robots.load("panda"), of_body(panda, "delta")), "actions": "delta"}
    sides = [{**about, "views": {"wrist": [view]}} for view in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0])]
    _, both = meaning.unseen({"a": sides[0], "b": sides[1], "c": sides[0]}, "so101", tmp_path)
    _, some = meaning.unseen({"a": sides[0], "b": about}, "so101", tmp_path)
    assert both["views"] == {"wrist": [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]}
    assert "views" not in some


def test_a_state_that_does_not_say_where_joints_are_is_found(dataset):
    twice = "data.state=[observation.state, observation.state]"
    (found,) = (str(problem) for problem in problems(dataset, twice) if problem.code == "state-width")
    assert "a state has 16 values, robot 'panda' has 8 joints; name keys with `state` that" in found


def problems(dataset, *more: str) -> tuple[Finding, ...]:
    """What `recipes check` finds."""
    return check.check(recipes.load("panda_demo", changes(dataset, *more))).problems


def errors(dataset, *more: str) -> list[str]:
    """What it calls an error."""
    return [problem.code for problem in problems(dataset, *more) if problem.severity == "error"]


def test_statistics_of_a_tool_are_not_taken_for_joints(tmp_path):
    kept = {"joints": list(robots.load("panda").names), "actions": "delta", "space": "tool"}
    path = tmp_path / "stats.json"
    path.write_text(json.dumps({"robots": {"panda": kept}}))
    with pytest.raises(MorphVlaError, match=r"is of poses of tools \(data.space: tool\), not of joints"):
        of_file(path, "panda", "delta", robots.load("panda").names)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "model.morphology={max_joints: 8}",
            "has a token for every joint's action; set model.morphology: null",
        ),
        ("data.actions=velocity", "data.actions: velocity are of joints; choose delta or absolute"),
        ("data.statistics=dataset", "data.statistics: dataset are of joints; choose own or robot"),
        ("data.space=tools", "did you mean 'tool'"),
        (["data.space=hand", "data.statistics=own"], "own would say where that was; choose robot"),
    ],
)
def test_what_has_no_meaning_for_a_tool_is_refused(dataset, change, words):
    with pytest.raises(ConfigError, match=words):
        recipes.load("panda_demo", changes(dataset, *([change] if isinstance(change, str) else change)))


def test_a_family_on_numbers_acts_on_joints():
    with pytest.raises(ConfigError, match=r"model\.family 'body' does not know; choose pi05"):
        recipes.load("body_state", ["data.space=tool"])


def test_more_values_than_the_model_has_are_refused(dataset):
    recipe = recipes.load("panda_demo", changes(dataset, "model.action_dim=9"))
    with pytest.raises(
        MorphVlaError, match=r"10 values in data\.space: tool, the model 9 action values; raise"
    ):
        read_parts(recipe)
