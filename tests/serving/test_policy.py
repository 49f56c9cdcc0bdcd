"""A checkpoint as a policy: what it was trained with is what it asks for; answers stand on their own."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import fit
from morph_vla.pi05 import tokenizer
from morph_vla.policies import shapes
from morph_vla.serving.attention import between_joints, of_episode
from morph_vla.serving.policy import EVALUATION_BATCH, CheckpointPolicy, sizes_up_to
from morph_vla.serving.watched import watch
from morph_vla.training import checkpoint, restoring
from morph_vla.training.restoring import load_params


@pytest.fixture(scope="module")
def policy(tiny_run) -> CheckpointPolicy:
    return CheckpointPolicy(tiny_run.checkpoint, batch=3)


def observation(episode: int = 0, step: int = 0) -> dict:
    rng = np.random.default_rng(episode)
    return {
        "images/exterior": rng.integers(0, 256, (24, 24, 3), dtype=np.uint8),
        "images/wrist": rng.integers(0, 256, (31, 24, 3), dtype=np.uint8),
        "state": rng.normal(size=8).astype(np.float32),
        "prompt": "put the cube in the bowl",
        "robot": "panda",
        "episode": episode,
        "step": step,
    }


def test_actions_come_in_the_robots_order_and_units(policy):
    actions = policy.infer(observation())["actions"]
    assert actions.shape == (16, 8)
    assert actions.dtype == np.float32
    assert np.isfinite(actions).all()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4, EVALUATION_BATCH])
def test_an_answer_does_not_depend_on_what_is_asked_beside_it_bit_for_bit(tiny_run, batch):
    """Asked alone, among 6 and among 20, first or last, by `infer` or by `infer_batch`."""
    policy = CheckpointPolicy(tiny_run.checkpoint, batch=batch)
    seen = [observation(i) for i in range(20)]
    every = [answer["actions"] for answer in policy.infer_batch(seen)]
    for few in (seen[:1], seen[3:9], seen[19:], seen[::-1]):
        for asked, answer in zip(few, policy.infer_batch(few), strict=True):
            assert np.array_equal(answer["actions"], every[asked["episode"]])
    assert np.array_equal(policy.infer(seen[7])["actions"], every[7])


@pytest.mark.slow
def test_a_policy_computes_as_many_rows_as_its_batch_and_one_unless_told_otherwise(tiny_run, monkeypatch):
    """For one robot nothing is computed that is thrown away; several are computed in whole batches."""
    one, four = CheckpointPolicy(tiny_run.checkpoint), CheckpointPolicy(tiny_run.checkpoint, batch=4)
    rows: list[int] = []
    for policy in (one, four):
        prepare = policy.prepare
        monkeypatch.setattr(policy, "prepare", lambda few, do=prepare: (rows.append(len(few)), do(few))[1])
    one.infer(observation())
    one.infer_batch([observation(i) for i in range(3)])
    four.infer_batch([observation(i) for i in range(6)])
    assert rows == [1, 1, 1, 1, 4, 4]
    assert one.describe()["batch"] == 1


@pytest.mark.slow
def test_batches_of_another_size_answer_alike_but_for_rounding(tiny_run):
    """Why an evaluation has one size: XLA orders the sums of a matrix product by its shape."""
    one, ten = (CheckpointPolicy(tiny_run.checkpoint, batch=batch) for batch in (1, EVALUATION_BATCH))
    seen = [observation(i) for i in range(2)]
    for answer, other in zip(one.infer_batch(seen), ten.infer_batch(seen), strict=True):
        np.testing.assert_allclose(answer["actions"], other["actions"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("batch", "sizes"), [(1, (1,)), (2, (1, 2)), (5, (1, 2, 4, 5)), (8, (1, 2, 4, 8)), (10, (1, 2, 4, 8, 10))]
)
def test_sizes_are_the_powers_of_two_up_to_the_batch(batch, sizes):
    assert sizes_up_to(batch) == sizes


@pytest.mark.slow
def test_a_policy_of_any_size_computes_no_more_than_holds_what_is_asked(tiny_run, monkeypatch):
    """Sooner where few ask; the answers are those of a fixed batch but for rounding."""
    any_size = CheckpointPolicy(tiny_run.checkpoint, batch=5, any_size=True)
    fixed = CheckpointPolicy(tiny_run.checkpoint, batch=5)
    assert (any_size.sizes, fixed.sizes) == ((1, 2, 4, 5), (5,))
    rows, prepare = [], any_size.prepare
    monkeypatch.setattr(any_size, "prepare", lambda few: (rows.append(len(few)), prepare(few))[1])
    seen = [observation(i) for i in range(8)]
    for asked in (seen[:1], seen[1:3], seen[3:6], seen):
        for answer, other in zip(any_size.infer_batch(asked), fixed.infer_batch(asked), strict=True):
            np.testing.assert_allclose(answer["actions"], other["actions"], rtol=1e-3, atol=1e-4)
    assert rows == [1, 2, 4, 5, 4]


def test_noise_comes_from_episode_and_step(policy):
    one, again, later = (policy.infer(observation(2, step))["actions"] for step in (0, 0, 8))
    assert np.array_equal(one, again)
    assert not np.allclose(one, later)


@pytest.mark.slow
def test_noise_zero_gives_one_answer_and_one_is_the_default(policy, tiny_run):
    mean = CheckpointPolicy(tiny_run.checkpoint, batch=3, noise=0.0)
    half = CheckpointPolicy(tiny_run.checkpoint, batch=3, noise=0.5)
    again = CheckpointPolicy(tiny_run.checkpoint, batch=3, noise=1.0)
    here, later = ({**observation(2), "step": step} for step in (0, 8))
    assert np.array_equal(mean.infer(here)["actions"], mean.infer(later)["actions"])
    assert np.array_equal(again.infer(here)["actions"], policy.infer(here)["actions"])
    answers = [one.infer(here)["actions"] for one in (mean, half, policy)]
    distances = [float(np.abs(answers[0] - answer).max()) for answer in answers]
    assert distances[0] < distances[1] < distances[2]
    assert (mean.sampler, policy.sampler) == ({"steps": 10, "noise": 0.0}, {"steps": 10, "noise": 1.0})


@pytest.mark.slow
def test_the_number_of_sampler_steps_changes_the_answer(policy, tiny_run):
    coarse = CheckpointPolicy(tiny_run.checkpoint, batch=3, steps=3)
    assert coarse.sampler == {"steps": 3, "noise": 1.0}
    assert not np.array_equal(
        coarse.infer(observation(1))["actions"], policy.infer(observation(1))["actions"]
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "the sampler's steps must be at least 1, not 0"),
        ({"noise": -0.5}, r"the sampler's noise must be a finite number of at least 0, not -0\.5"),
        ({"noise": float("nan")}, "the sampler's noise must be a finite number of at least 0, not nan"),
    ],
)
def test_a_sampler_that_cannot_be_is_refused_in_words(tiny_run, change, words):
    with pytest.raises(MorphVlaError, match=f"^{words}$"):
        CheckpointPolicy(tiny_run.checkpoint, **change)


def test_a_reloaded_checkpoint_acts_the_same(policy, tiny_run):
    other = CheckpointPolicy(tiny_run.checkpoint, batch=3)
    assert np.array_equal(other.infer(observation(4))["actions"], policy.infer(observation(4))["actions"])


def test_the_digest_tells_checkpoints_apart(policy, tiny_run):
    same = CheckpointPolicy(tiny_run.checkpoint, batch=2)
    first = CheckpointPolicy(tiny_run.folder / "checkpoints" / "0", batch=2)
    assert same.digest() == policy.digest() != first.digest()
    leaves = load_params(tiny_run.checkpoint, shapes(policy.config))
    assert policy.digest() == checkpoint.digest(policy.about, jax.tree.leaves(leaves))


def test_one_observation_is_computed_as_one_row(policy, tiny_run):
    assert CheckpointPolicy(tiny_run.checkpoint, loaded=policy.loaded).sizes == (1,)


def test_what_is_loaded_serves_another_policy_of_the_checkpoint(policy, tiny_run, monkeypatch):
    monkeypatch.setattr(restoring, "Averaged", None)
    other = CheckpointPolicy(tiny_run.checkpoint, batch=2, loaded=policy.loaded)
    assert other.params is policy.params
    assert other.digest() == policy.digest()


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    with pytest.raises(MorphVlaError, match=r"no checkpoint here \('averaged' is missing\)"):
        restoring.Averaged(tmp_path, {})


def test_a_checkpoint_refuses_another_tokenizer(policy, tiny_run, tmp_path):
    assert policy.about["tokenizer"] == tokenizer.describe(tokenizer.BytesTokenizer())
    moved = tmp_path / "moved"
    shutil.copytree(tiny_run.checkpoint, moved)
    about = json.loads((moved / "about" / "policy.json").read_text())
    about["tokenizer"] = {"name": "paligemma:a/file", "sha256": "12" * 32, "vocab": 257_152}
    (moved / "about" / "policy.json").write_text(json.dumps(about))
    with pytest.raises(
        MorphVlaError,
        match=rf"^{moved}: trained with tokenizer 'paligemma:a/file' \(sha256 121212121212, 257152 tokens\); "
        r"'bytes' is another \(sha256 [0-9a-f]{12}, 520 tokens\)$",
    ):
        CheckpointPolicy(moved, batch=1)
    with pytest.raises(MorphVlaError, match=r"^tokenizer: no tokenizer at '/nowhere': no such file"):
        CheckpointPolicy(moved, batch=1, tokenizer_name="paligemma:/nowhere")


def test_a_missing_camera_is_named_with_both_sides(policy):
    lacking = observation()
    del lacking["images/wrist"]
    with pytest.raises(
        MorphVlaError, match=r"lacks images/wrist; this policy was trained with images/exterior"
    ):
        policy.infer(lacking)


def test_a_state_of_another_width_is_refused(policy):
    with pytest.raises(MorphVlaError, match="state has 6 values; this policy was trained with 8"):
        policy.infer({**observation(), "state": np.zeros(6, np.float32)})


def test_a_suite_that_does_not_fit_is_named_with_both_sides(policy, tiny_suite):
    assert fit.check(policy, tiny_suite) == ()
    cameras = {"wrist": tiny_suite.cameras["wrist"]}
    other = dataclasses.replace(tiny_suite, robot="so101", control_rate=30.0, cameras=cameras)
    found = "; ".join(map(fit.sentence, fit.check(policy, other)))
    assert "the suite has 'so101', the policy drives 'panda'" in found
    assert "the suite runs at 30 Hz, the policy was trained at 15 Hz" in found
    assert "the suite has wrist, the policy needs 'exterior'" in found


def test_an_episode_that_is_watched_executes_as_much_of_an_answer_as_an_evaluation(policy, tiny_suite):
    from morph_vla.engines.mujoco.engine import MujocoEngine
    from morph_vla.suites.suite import initial_state

    suite = dataclasses.replace(tiny_suite, control_rate=30.0)
    engine = MujocoEngine(policy.robot, suite)
    watched = watch(policy, engine, initial_state(suite, 3, 8))
    engine.close()
    assert [moment["step"] for moment in watched.moments][:2] == [0, 16]


def test_attention_is_recorded_each_time_the_policy_is_asked_and_obeys_the_mask(policy, tiny_suite):
    from morph_vla.engines.mujoco.engine import MujocoEngine
    from morph_vla.suites.suite import initial_state

    engine = MujocoEngine(policy.robot, tiny_suite)
    found = of_episode(policy, watch(policy, engine, initial_state(tiny_suite, 3, 8), open_loop=7))
    engine.close()
    assert [step["step"] for step in found["steps"]] == [0, 7, 14, 21, 28]
    assert found["steps"][1]["time_s"] == pytest.approx(7 / 15, abs=1e-3)
    assert found["episode"] == {
        "suite": "droid_panda:cube_in_bowl",
        "task": "put the cube in the bowl",
        "task_key": "cube_in_bowl",
        "episode": 3,
        "ended": "time",
    }
    steps = np.asarray([step["layers"] for step in found["steps"]])
    assert steps.shape == (5, 2, 8, 8)
    assert np.ptp(steps, axis=0).max() > 0  # it changes as the arm moves
    mean = [layer["matrix"] for layer in found["layers"]]
    np.testing.assert_allclose(steps.mean(axis=0), mean, atol=2e-5)
    # Masked layers give no weight to joints that are not neighbours.
    assert [layer["masked"] for layer in found["layers"]] == [True, False]
    far = ~policy.robot.adjacency
    masked, free = map(np.asarray, mean)
    assert (masked[far] == 0).all()
    assert (masked[~far] > 0).all()
    assert (free > 0).all()


def test_attention_sums_over_key_chunks_and_averages_over_query_chunks():
    weights = np.zeros((1, 1, 1, 1, 6, 7))
    weights[..., -4:, -4:] = np.arange(16.0).reshape(4, 4)  # two chunks of two joints
    expected = np.array(
        [[(0 + 2 + 8 + 10) / 2, (1 + 3 + 9 + 11) / 2], [(4 + 6 + 12 + 14) / 2, (5 + 7 + 13 + 15) / 2]]
    )
    np.testing.assert_allclose(between_joints(weights, 2, 2)[0], expected)


def test_a_policy_that_is_told_another_body_answers_otherwise_and_says_so(tiny_run, policy):
    """As far as it has learnt to read one, which is little after a few steps; told its own, it is itself."""
    panda = policy.robot
    other = dataclasses.replace(panda, name="mirror", descriptors=1e4 * panda.descriptors[::-1])
    same, mirrored = (
        CheckpointPolicy(tiny_run.checkpoint, batch=3, loaded=policy.loaded, told=robot)
        for robot in (panda, other)
    )
    actions = policy.infer(observation())["actions"]
    np.testing.assert_array_equal(same.infer(observation())["actions"], actions)
    assert not np.array_equal(mirrored.infer(observation())["actions"], actions)
    assert same.describe() == policy.describe()
    assert mirrored.describe()["name"] == f"{policy.describe()['name']}, told mirror"
    assert mirrored.describe()["told_sha256"] != policy.describe().get("told_sha256")
    # In memory a body may be altered under its own name, and random numbers may begin elsewhere.
    nameless = dataclasses.replace(panda, descriptors=0 * panda.descriptors)
    altered = CheckpointPolicy(tiny_run.checkpoint, batch=3, loaded=policy.loaded, told=nameless, seed=3)
    assert altered.describe()["name"] == policy.describe()["name"]
    assert {*altered.describe()} - {*policy.describe()} == {"told_sha256", "seed"}
    few = dataclasses.replace(panda, name="few", joints=panda.joints[:5])
    with pytest.raises(
        MorphVlaError, match="robot 'few' has 5 joints and 'panda' 8: a policy that drives the"
    ):
        CheckpointPolicy(tiny_run.checkpoint, loaded=policy.loaded, told=few)
