"""Several robots in one run: what a batch holds, and what a step makes of it."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from morph_vla import robots
from morph_vla.data import idle, mixture, transforms
from morph_vla.data.actions import restore
from morph_vla.data.phases import Shares
from morph_vla.errors import MorphVlaError
from morph_vla.morphology import body_of
from morph_vla.policies import pi05 as family
from morph_vla.recipes.keys import Dataset
from morph_vla.serving import policy as policies
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.training import checkpoint, datasets, loop, meaning, parameters
from morph_vla.training import step as steps
from morph_vla.training.datasets import read_parts
from morph_vla.training.source import Source
from morph_vla.training.source import _spread as spread


@pytest.fixture(scope="module")
def source(mixed_recipe, tmp_path_factory):
    return Source(mixed_recipe, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def run(mixed_recipe, tmp_path_factory):
    return loop.train(mixed_recipe, tmp_path_factory.mktemp("mixed") / "train")


def test_a_batch_mixes_rows_in_the_recipes_shares(source):
    batch = source.at(0)
    assert (batch.dataset == 0).sum() == 3
    assert (batch.dataset == 1).sum() == 2
    panda, so101 = (np.flatnonzero(batch.dataset == index) for index in (0, 1))
    assert batch.mask[panda].sum(axis=1).tolist() == [8] * 3
    assert batch.mask[so101].sum(axis=1).tolist() == [6] * 2
    assert (batch.actions[so101][..., 6:] == 0).all()
    assert batch.observation.body.joint_mask.sum(axis=1).tolist() == batch.mask.sum(axis=1).tolist()
    for name, mask in batch.observation.image_masks.items():
        assert mask[panda].all(), name
        assert not mask[so101].any(), name
    assert (batch.observation.body.adjacency[so101[0]] != batch.observation.body.adjacency[panda[0]]).any()


def test_no_entry_trains_on_what_another_entry_of_the_same_dataset_holds_out(mixed_recipe):
    """Which are held out goes by their places among the chosen."""
    panda = mixed_recipe.data.sources[0]
    rows = read_parts(mixed_recipe)[0].recordings
    count = len(rows.starts)
    later = dataclasses.replace(panda, episodes=tuple(range(1, count)))

    def asked(*entries, held_out):
        data = dataclasses.replace(mixed_recipe.data, datasets=entries, held_out=held_out)
        return dataclasses.replace(mixed_recipe, data=data)

    words = r"^data\.held_out: episode \d+ of .* is held out by one entry and trained on by another: "
    splits = {
        each: [mixture.held_out(n, each).tolist() for n in (count, count - 1)] for each in (0.3, 0.5, 0.7)
    }
    share = next(each for each, (whole, fewer) in splits.items() if whole[1:] != fewer)
    spelled = dataclasses.replace(later, dataset=f"{later.dataset}/../{Path(later.dataset).name}/")
    for other in (later, spelled):
        with pytest.raises(MorphVlaError, match=words):
            read_parts(asked(panda, other, held_out=share))
    read_parts(asked(panda, panda, held_out=0.5))
    read_parts(asked(panda, later, held_out=0.0))
    halves = [dataclasses.replace(panda, episodes=half) for half in ((0,), tuple(range(1, count)))]
    read_parts(asked(*halves, held_out=0.5))


def test_by_batch_each_step_is_of_one_robot(mixed_recipe, tmp_path):
    data = dataclasses.replace(mixed_recipe.data, by="batch")
    source = Source(dataclasses.replace(mixed_recipe, data=data), tmp_path)
    kinds = [np.unique(source.mixture.at(step)[0]) for step in range(10)]
    assert [len(kind) for kind in kinds] == [1] * 10
    assert sum(int(kind[0]) for kind in kinds) == 4  # two of five


def test_rows_in_which_nothing_moves_are_not_drawn_but_held_out_ones_stay(mixed_recipe):
    still = tuple(dataclasses.replace(entry, idle=1) for entry in mixed_recipe.data.datasets)
    recipe = dataclasses.replace(mixed_recipe, data=dataclasses.replace(mixed_recipe.data, datasets=still))
    for part, whole in zip(read_parts(recipe), read_parts(mixed_recipe), strict=True):
        recordings = whole.recordings
        moving = idle.moving(whole.robot, recordings.action, recordings.starts, 1)
        assert 0 < moving.sum() <= len(moving)
        np.testing.assert_array_equal(part.train_rows, whole.train_rows[moving[whole.train_rows]])
        np.testing.assert_array_equal(part.held_rows, whole.held_rows)


@pytest.mark.parametrize(("unit", "in_degrees"), [("robot", 1.0), ("radians", np.degrees(1))])
def test_a_recorded_step_is_in_radians_whatever_the_datasets_unit(
    mixed_recipe, so101_dataset, unit, in_degrees
):
    entry = Dataset(str(so101_dataset), "so101", recorded="steps", step=0.2, unit=unit)
    (steps,), (plain,) = (
        read_parts(
            dataclasses.replace(mixed_recipe, data=dataclasses.replace(mixed_recipe.data, datasets=(asked,)))
        )
        for asked in (entry, dataclasses.replace(entry, recorded="targets"))
    )
    state, action = (values[:, :5] for values in (plain.recordings.state, plain.recordings.action))
    moved = steps.recordings.action[:, :5] - state  # the robot's own degrees
    np.testing.assert_allclose(moved, np.degrees(0.2) * action / in_degrees, rtol=1e-3)


def test_threads_change_nothing(source):
    for threads in (1, 3):
        for step, batch in enumerate(source.batches(4, 9, threads), start=4):
            pairs = zip(jax.tree.leaves(tuple(batch)), jax.tree.leaves(tuple(source.at(step))), strict=True)
            assert all(np.array_equal(one, other) for one, other in pairs)
    assert list(source.batches(9, 9)) == []


def test_the_rows_of_a_batch_alone_are_tokenised(mixed_recipe, tmp_path, monkeypatch):
    tokens, rows = transforms.tokens, []

    def counted(recordings, wanted, *rest):
        rows.extend(wanted)
        return tokens(recordings, wanted, *rest)

    monkeypatch.setattr(transforms, "tokens", counted)
    source = Source(mixed_recipe, tmp_path)
    assert rows == []  # of a large dataset, all rows would take an hour at each start
    source.at(0)
    assert len(rows) == mixed_recipe.training.batch


@pytest.fixture(scope="module")
def buckets(mixed_recipe, tmp_path_factory):
    """A source whose prompts have room for 61 tokens, and the recipe with buckets of 8."""
    roomy = dataclasses.replace(mixed_recipe, model=dataclasses.replace(mixed_recipe.model, max_tokens=61))
    training = dataclasses.replace(roomy.training, prompt_bucket=8)
    return Source(roomy, tmp_path_factory.mktemp("roomy")), dataclasses.replace(roomy, training=training)


@pytest.mark.slow
def test_what_a_bucket_cuts_is_padding_in_every_row(buckets, tmp_path):
    """The longest prompt of the whole batch decides, for every process alike."""
    source, recipe = buckets
    short = Source(recipe, tmp_path)
    shares = [Source(recipe, tmp_path, process=process, processes=5) for process in range(5)]
    for step in range(4):
        whole, cut = source.at(step).observation, short.at(step).observation
        count, longest = cut.tokens.shape[1], int(whole.token_mask.sum(axis=1).max())
        assert longest <= count < min(longest + 8, 61)
        assert count % 8 == 0
        assert not whole.token_mask[:, count:].any()
        np.testing.assert_array_equal(cut.tokens, whole.tokens[:, :count])
        np.testing.assert_array_equal(cut.token_mask, whole.token_mask[:, :count])
        assert {share.at(step).observation.tokens.shape for share in shares} == {(1, count)}


@pytest.mark.slow
def test_a_bucket_changes_no_loss(buckets, tmp_path):
    """Masked keys weigh nothing and positions are counted over real tokens: rounding alone is left."""
    source, recipe = buckets
    optimizer = optax.identity()  # nothing of it is looked at, and the recipe's is half of what compiles
    step = steps.make_step(recipe.model, recipe.training, optimizer)
    params, metrics = parameters.fresh_params(recipe), []
    for read in (source, Source(recipe, tmp_path)):
        batch = read.at(1)
        state = steps.start(jax.tree.map(np.array, params), optimizer, recipe.training)
        metrics.append(step(state, batch.observation, batch.actions, batch.mask, jax.random.key(3))[1])
    one, other = metrics
    np.testing.assert_allclose(one["rows"], other["rows"], rtol=2e-6)
    for part, norm in one["gradient_norms"].items():
        np.testing.assert_allclose(norm, other["gradient_norms"][part], rtol=1e-4)


def test_the_shares_of_several_processes_joined_are_the_batch_of_one(source, mixed_recipe, tmp_path):
    shares = [Source(mixed_recipe, tmp_path, process=process, processes=5) for process in range(5)]
    for step in (0, 7):
        batch = source.at(step)
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[s.at(step) for s in shares])
        for one, other in zip(jax.tree.leaves(batch), jax.tree.leaves(joined), strict=True):
            np.testing.assert_array_equal(one, other)


def test_deltas_are_learnt_in_their_own_units_and_restored(source):
    part, result = source.parts[1], source.stats["so101"]
    rows = part.train_rows[:7]
    batch = source.batch(np.ones(7, np.int64), rows)
    learnt = result.action.restore(batch.actions[..., :6])
    absolute = restore("delta", learnt, part.recordings.state[rows], part.relative, 30.0)
    np.testing.assert_allclose(absolute[:, 0], part.recordings.action[rows], atol=1e-3)
    assert part.relative.tolist() == [True] * 5 + [False]
    # a delta's own range, not that of the absolute values: the walk moves by about 3, and stands about 20
    assert abs(result.action.mean[0]) < 10
    assert result.action.mean[5] == pytest.approx(part.recordings.action[:, 5].mean(), rel=0.2)


def test_the_shares_of_the_run_are_logged(mixed_recipe, tmp_path, caplog):
    caplog.set_level("INFO", "morph_vla")
    Source(mixed_recipe, tmp_path)
    words = [line for line in caplog.messages if line.startswith("mixture by row: ")]
    assert words[0].startswith("mixture by row: 60.00% of the run's rows are of panda, 18 rows, 0.")
    assert words[1].startswith("mixture by row: 40.00% of the run's rows are of so101, 12 rows, 0.")


def approaching(recipe, index=0, share=0.75, **keys):
    datasets = list(recipe.data.datasets)
    datasets[index] = dataclasses.replace(datasets[index], phases=Shares(grasp=share), **keys)
    return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, datasets=tuple(datasets)))


@pytest.mark.slow
def test_rows_before_a_grasp_are_drawn_as_often_as_the_recipe_wants(mixed_recipe, tmp_path):
    source = Source(approaching(mixed_recipe), tmp_path)
    part = source.parts[0]
    action = part.recordings.action[:, -1]  # 0 open, 1 closed
    later = [
        action[row] <= 0.5 and action[row : last + 1].max() > 0.5
        for row, last in enumerate(part.recordings.last_of(np.arange(len(action))))
    ]
    drawn = [row for step in range(800) for d, row in zip(*source.mixture.at(step), strict=True) if d == 0]
    assert np.mean([later[row] for row in drawn]) == pytest.approx(0.75, abs=0.03)
    assert set(drawn) <= set(part.train_rows)
    assert np.mean(later) < 0.6  # as recorded it is not


def test_a_dataset_that_grasps_nothing_has_no_rows_before_a_grasp(mixed_recipe, tmp_path):
    with pytest.raises(MorphVlaError, match=r"data\.phases: .*: no row lies before a grasp; leave it out$"):
        Source(approaching(mixed_recipe, index=1), tmp_path)


def test_held_out_rows_are_never_drawn(source):
    batches = source.held_out()
    assert list(batches) == ["panda", "so101"]
    drawn = {(d, r) for step in range(60) for d, r in zip(*source.mixture.at(step), strict=True)}
    for index, part in enumerate(source.parts):
        assert len(part.held_rows)
        assert not {(index, row) for row in part.held_rows} & drawn


@pytest.mark.slow
def test_one_compiled_step_serves_every_mixture(source, mixed_recipe):
    optimizer, _ = steps.make_optimizer(mixed_recipe.optimizer, 6)
    advance = steps.make_step(mixed_recipe.model, mixed_recipe.training, optimizer)
    state = steps.start(parameters.fresh_params(mixed_recipe), optimizer, mixed_recipe.training)
    for dataset in (np.zeros(5, np.int64), np.ones(5, np.int64), np.array([0, 1, 0, 1, 1])):
        rows = np.array([source.parts[d].train_rows[3] for d in dataset])
        batch = source.batch(dataset, rows)
        state, metrics = advance(state, batch.observation, batch.actions, batch.mask, jax.random.key(0))
        assert np.isfinite(metrics["loss"])
    assert advance._cache_size() == 1


@pytest.mark.slow
def test_the_log_has_the_loss_of_every_robot_and_joint(run):
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    for line in lines:
        assert set(line["robots"]) == {"panda", "so101"}
        assert 0 <= line["waiting"] <= 1
    last = lines[-1]["held_out"]
    assert set(last) == {"panda", "so101"}
    assert len(last["panda"]) == 9
    assert set(last["so101"]) == {"loss", "shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex",
                                  "wrist_roll", "gripper"}  # fmt: skip
    mean = np.mean([value for name, value in last["so101"].items() if name != "loss"])
    assert last["so101"]["loss"] == pytest.approx(mean, rel=1e-5)


def same_body(one, other) -> bool:
    """Whether two bodies are one, array by array."""
    return all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def bodies_are_their_robots(source) -> bool:
    """Whether every row of a batch has the body of its own robot."""
    batch = source.at(0)
    rows = [jax.tree.map(lambda x, row=row: x[row], batch.observation.body) for row in range(5)]
    wanted = [body_of(robots.load(name), 8) for name in ("panda", "so101")]
    assert not same_body(*wanted)
    return all(same_body(row, wanted[index]) for row, index in zip(rows, batch.dataset, strict=True))


def test_every_row_has_its_own_robots_body(source, monkeypatch):
    assert bodies_are_their_robots(source)
    first = [dataclasses.replace(part, body=source.parts[0].body) for part in source.parts]
    monkeypatch.setattr(source, "parts", first)
    assert not bodies_are_their_robots(source)


def served_is_trained(run, source, name: str) -> bool:
    """Whether a served policy has the body that its robot was trained with, in every row."""
    policy = CheckpointPolicy(run.checkpoint, robot=name, batch=2)
    (trained,) = [part.body for part in source.parts if part.asked.robot == name]
    rows = [jax.tree.map(lambda x, row=row: x[row], policy._bodies[2]) for row in range(2)]
    return all(same_body(row, trained) for row in rows)


@pytest.mark.slow
def test_a_served_body_is_the_trained_one(run, source, monkeypatch):
    assert served_is_trained(run, source, "panda")
    assert served_is_trained(run, source, "so101")

    def blind(robot, *given):
        body = body_of(robot, *given)
        return dataclasses.replace(body, descriptors=np.zeros_like(body.descriptors))

    monkeypatch.setattr(family, "body_of", blind)
    assert not served_is_trained(run, source, "so101")


@pytest.mark.slow
def test_a_served_policy_holds_the_values_that_its_robot_lacks(run, monkeypatch):
    """Six of eight, with a body and without one."""
    arm = CheckpointPolicy(run.checkpoint, robot="so101", batch=2)
    state = np.linspace(-3, 3, 6).astype(np.float32)
    rows = arm.prepare([{"state": state, "prompt": "wave"}] * 2)
    result = np.asarray(arm._sample(arm.params, arm._ahead, rows, np.zeros((2, 2), np.uint32)))
    assert result.shape == (2, 16, 8)
    assert (result[..., 6:] == 0).all()
    assert np.abs(result[..., :6]).min() > 0
    reports = []
    monkeypatch.setattr(
        family.sampling, "sample_actions", lambda *given: (reports.append(given[6]), given[3])[1]
    )
    bare = dataclasses.replace(arm.config, morphology=None)
    policies._sampler(bare, 6, 10, 1.0, 0)({}, arm._ahead, rows, np.zeros((2, 2), np.uint32))
    np.testing.assert_array_equal(reports[0], [[True] * 6 + [False] * 2] * 2)


def test_a_robot_is_looked_at_through_every_camera_that_any_of_its_datasets_has(mixed_recipe):
    part = read_parts(mixed_recipe)[0]
    (camera, name), *_ = part.asked.cameras.items()
    other = {"left_wrist_0_rgb": "wrist", camera: "another"}
    more = dataclasses.replace(part, asked=dataclasses.replace(part.asked, cameras=other))
    stats = {part.asked.robot: datasets.robot_stats(mixed_recipe, part.asked.robot, [part])}
    known = [
        meaning.of_parts(parts, stats, {part.asked.robot: None}) for parts in ([part, more], [more, part])
    ]
    first, second = (about[part.asked.robot]["cameras"] for about in known)
    assert first == {"left_wrist_0_rgb": "wrist"} | dict(part.asked.cameras)
    assert (second[camera], first[camera]) == ("another", name)


def test_no_camera_is_asked_for_twice(mixed_recipe):
    """Two entries of one robot that exchange a camera: the first one's slot is the camera's."""
    part = read_parts(mixed_recipe)[0]
    one = dataclasses.replace(part, asked=dataclasses.replace(part.asked, cameras={"base_0_rgb": "exterior"}))
    turned = {"base_0_rgb": "wrist", "left_wrist_0_rgb": "exterior"}
    other = dataclasses.replace(part, asked=dataclasses.replace(part.asked, cameras=turned))
    stats = {part.asked.robot: datasets.robot_stats(mixed_recipe, part.asked.robot, [part])}
    about = meaning.of_parts([one, other], stats, {part.asked.robot: None})
    assert about[part.asked.robot]["cameras"] == {"base_0_rgb": "exterior"}


@pytest.mark.parametrize("name", ["arm4", "arms/arm4.urdf", "/elsewhere/arm4.urdf"])
def test_a_robot_is_known_by_its_name_however_the_recipe_spells_it(name):
    assert meaning.called(["panda", "urdf_descriptors/arm4.urdf"], name) == "urdf_descriptors/arm4.urdf"
    assert meaning.called(["panda", "arm4"], name) == "arm4"
    assert meaning.called(["panda"], name) is None


def test_held_out_rows_are_of_every_dataset():
    pairs = [(0, row) for row in range(300)] + [(1, row) for row in range(211)]
    rows = spread(pairs, 256)
    assert len(rows) == 256
    assert np.bincount(rows[:, 0]).tolist() == [151, 105]
    assert spread(pairs[:13], 256).tolist() == [list(pair) for pair in pairs[:13]]
    assert spread(pairs[:8], 4)[:, 1].tolist() == [0, 2, 4, 6]


def test_a_policy_of_several_robots_drives_the_one_asked_for(run):
    arm = CheckpointPolicy(run.checkpoint, robot="so101", batch=2)
    state = np.linspace(-3, 3, 6).astype(np.float32)
    answer = arm.infer({"state": state, "prompt": "wave", "robot": "so101"})
    assert answer["actions"].shape == (16, 6)
    assert arm.cameras == {}
    with pytest.raises(
        MorphVlaError, match=r"was trained on 2 robots \(panda, so101\); name one of them with --robot$"
    ):
        CheckpointPolicy(run.checkpoint)
    with pytest.raises(MorphVlaError, match=r"was not trained on robot 'so10'; did you mean 'so101'\?"):
        CheckpointPolicy(run.checkpoint, robot="so10")


def test_a_checkpoint_of_before_is_said(run, tmp_path):
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "policy.json").write_text(checkpoint.text(run.checkpoint, "policy.json"))
    with pytest.raises(MorphVlaError, match="a checkpoint of an earlier morph_vla"):
        CheckpointPolicy(folder)


@pytest.mark.parametrize("actions", ["absolute", "delta"])
def test_a_state_is_one_value_a_joint_whatever_is_learnt_of_it(
    mixed_recipe, so101_dataset, tmp_path, actions
):
    """Such a checkpoint could be trained, and not be read: its statistics are not of its robot's joints."""
    wide = Dataset(str(so101_dataset), "so101", state=("observation.state", "action"), actions=actions)
    data = dataclasses.replace(mixed_recipe.data, datasets=(wide,))
    words = r": a state has 12 values, robot 'so101' has 6 joints \(shoulder_pan, "
    with pytest.raises(MorphVlaError, match=words):
        Source(dataclasses.replace(mixed_recipe, data=data), tmp_path)


def test_datasets_of_a_robot_have_one_rate(mixed_recipe, so101_dataset, monkeypatch):
    read, asked = datasets.lerobot.read, []

    def faster(*arguments, **options):
        asked.append(arguments)
        recordings = read(*arguments, **options)
        return dataclasses.replace(recordings, fps=recordings.fps * len(asked))

    monkeypatch.setattr(datasets.lerobot, "read", faster)
    both = (Dataset(str(so101_dataset), "so101"), Dataset(str(so101_dataset), "so101"))
    data = dataclasses.replace(mixed_recipe.data, datasets=both)
    words = r"is at \d+ Hz and .* at \d+ Hz, both of robot 'so101': a robot's actions have one pace"
    with pytest.raises(MorphVlaError, match=words):
        read_parts(dataclasses.replace(mixed_recipe, data=data))


def test_statistics_are_over_all_datasets_of_a_robot(mixed_recipe, so101_dataset, tmp_path):
    one = Dataset(str(so101_dataset), "so101")
    data = dataclasses.replace(mixed_recipe.data, datasets=(one, one))
    source = Source(dataclasses.replace(mixed_recipe, data=data), tmp_path)
    values = source.parts[0].recordings.action.astype(np.float64)
    np.testing.assert_allclose(source.stats["so101"].action.q99, np.quantile(np.r_[values, values], 0.99, 0))
