"""What goes on inside a checkpoint's policy, in files: the image tokens it keeps are those that it read."""

import base64
import dataclasses
import io
import json

import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import ImageTokens, Pi05Config
from morph_vla.pi05.kept import kept as weights_of
from morph_vla.results.record import EngineFacts, PolicyCard, Record, SuiteFacts
from morph_vla.results.trial import Trial
from morph_vla.serving import inside, kept
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.watched import Watched

pytestmark = pytest.mark.slow

RANKING = ImageTokens(keep=2, features="relu", width=3)


@pytest.fixture(scope="module")
def policy(tiny_run) -> CheckpointPolicy:
    """The trained policy, as if it had been trained with fewer image tokens."""
    policy = CheckpointPolicy(tiny_run.checkpoint, batch=3)
    assert isinstance(policy.config, Pi05Config)
    policy.config = dataclasses.replace(policy.config, image_tokens=RANKING)
    width = policy.config.prefix.width
    random = np.random.default_rng(3).normal(size=(2, width, 3)).astype(np.float32)
    policy.params = {**policy.params, "image_tokens": dict(zip(("query", "key"), random, strict=True))}
    return policy


def _picture(rng) -> np.ndarray:
    """Grey squares of twelve pixels, one a patch of the model's."""
    squares = rng.integers(0, 256, (2, 2, 1), np.uint8)
    return np.broadcast_to(squares.repeat(12, axis=0).repeat(12, axis=1), (24, 24, 3))


def watched(suite, count: int) -> Watched:
    rng = np.random.default_rng(count)
    seen = [
        {
            "images/exterior": _picture(rng),
            "images/wrist": _picture(rng),
            "state": np.zeros(8, np.float32), "prompt": suite.task, "episode": 3, "step": 8 * i,
        }
        for i in range(count)
    ]  # fmt: skip
    return Watched(suite, 3, seen, "time")


def test_the_file_has_each_cameras_picture_and_the_patches_that_the_model_reads(policy, tiny_suite):
    episode = watched(tiny_suite, 11)
    told = kept.of_episode(policy, episode)
    assert (told["how"], told["keep"], told["patches"]) == ("ranking", 2, 4)
    assert told["cameras"] == ["exterior", "wrist"]
    assert [moment["step"] for moment in told["steps"]] == [0, 16, 32, 48, 64, 80]
    assert told["episode"]["ended"] == "time"
    shown = [episode.observations[place] for place in (0, 2, 4)]
    read = np.asarray(weights_of(policy.config, policy.params, policy.prepare(shown)))
    drawn = np.asarray([[view["weights"] for view in m["cameras"]] for m in told["steps"]])
    np.testing.assert_array_equal(drawn[:3], read)
    assert drawn.sum(axis=2).tolist() == [[2, 2]] * 6
    from PIL import Image

    picture = told["steps"][1]["cameras"][0]["picture"]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))))
    assert pixels.shape == (24, 24, 3)
    grey = shown[1]["images/exterior"].astype(float)
    assert np.abs(pixels - grey).max() < 16  # as JPEG has it


def test_a_short_episode_has_each_moment_once(policy, tiny_suite):
    told = kept.of_episode(policy, watched(tiny_suite, 2))
    assert [moment["step"] for moment in told["steps"]] == [0, 8]


def test_a_policy_with_all_image_tokens_says_so_and_one_without_pictures_is_refused(policy, tiny_suite):
    every = inside_of(policy, config=dataclasses.replace(policy.config, image_tokens=None))
    assert inside.kinds(policy) == ["attention", "image_tokens"]
    assert inside.kinds(every) == ["attention"]
    told = kept.of_episode(every, watched(tiny_suite, 1))
    assert (told["how"], told["keep"]) == ("all", 4)
    words = "this policy sees no pictures, so it keeps no image tokens$"
    with pytest.raises(MorphVlaError, match=words):
        kept.of_episode(inside_of(policy, cameras={}), watched(tiny_suite, 1))


def inside_of(policy, **changes) -> CheckpointPolicy:
    other = object.__new__(CheckpointPolicy)
    other.__dict__.update({**policy.__dict__, **changes})
    return other


def test_an_episode_is_played_once_for_all_files_and_not_again(policy, tiny_suite, tmp_path, monkeypatch):
    played = []

    def watch(*_):
        played.append(1)
        return watched(tiny_suite, 3)

    monkeypatch.setattr(inside, "watch", watch)
    monkeypatch.setattr(inside.engines, "worlds", lambda *_: Worlds())
    both = inside.kinds(policy)
    files = {kind: f"{kind}.json" for kind in both}
    assert inside.write(tmp_path, policy, tiny_suite, 3, both) == (files, False)
    assert inside.write(tmp_path, policy, tiny_suite, 3, both) == (files, True)
    assert len(played) == 1
    assert not inside.write(tmp_path, policy, tiny_suite, 5, both).there
    told = json.loads((tmp_path / "attention.json").read_text())
    assert len(told["steps"]) == 3
    assert told["asked"]["episode"] == 5
    for damaged in (
        '{"asked": {"epi',
        "[]",
        "[" * 100_000,
    ):  # no answer: it is played once more
        (tmp_path / "attention.json").write_text(damaged)
        assert not inside.write(tmp_path, policy, tiny_suite, 5, both).there
    assert json.loads((tmp_path / "attention.json").read_text())["asked"]["episode"] == 5


class Dark:
    """Stands before a policy and shows it black pictures."""

    def __init__(self, policy, source, tasks):
        self.policy, self.source, self.tasks = policy, source, tasks
        self.cameras = policy.cameras

    def digest(self):
        return f"behind {self.source}"

    def infer(self, observation):
        return self.policy.infer(*self.told([observation]))

    def told(self, observations):
        return [
            {
                name: np.zeros_like(value) if name.startswith("images/") else value
                for name, value in row.items()
            }
            for row in observations
        ]


def test_a_policy_behind_another_is_looked_into_as_it_was_told(tiny_run, tiny_suite, tmp_path, monkeypatch):
    """The file says what it was told of, not what the simulator shows."""
    card = PolicyCard("x", str(tiny_run.checkpoint), sha256="behind eyes", others={"poses_from": "eyes"})
    record = dataclasses.replace(
        RECORD, policy=card, trials=(dataclasses.replace(RECORD.trials[0], task=tiny_suite.task_key),)
    )
    monkeypatch.setattr(inside.environment, "load_tasks", lambda *_: [tiny_suite])
    seen, told = [], inside.watch

    def watch(*asked):
        seen.append(told(*asked))
        return seen[-1]

    monkeypatch.setattr(inside, "watch", watch)
    files = inside.of_record(record, tiny_suite.task_key, 5, tmp_path, Dark).files
    assert json.loads((tmp_path / files["attention"]).read_text())["asked"]["policy"] == "behind eyes"
    (episode,) = seen
    assert len(episode.observations) > 1
    assert not any(row["images/exterior"].any() for row in episode.observations)


def test_files_are_named_in_a_record_and_all_else_stays(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"kind": "evaluation", "team_notes": "mine", "trials": [{"spilled": True}]}))
    inside.name_files(path, {"attention": "attention.json"})
    known = json.loads(path.read_text())
    assert known == {"kind": "evaluation", "team_notes": "mine", "trials": [{"spilled": True}],
                     "attention": "attention.json"}  # fmt: skip
    path.write_text(json.dumps({"kind": "demo", "evaluations": [], "pictures": {"joint_graph": "g.png"}}))
    inside.name_files(path, {"attention": "attention.json"})
    assert json.loads(path.read_text())["pictures"] == {"joint_graph": "g.png", "attention": "attention.json"}


class Worlds:
    """Of which nothing is asked."""

    def close(self) -> None:
        pass


RECORD = Record(
    suite=SuiteFacts("droid_panda"),
    policy=PolicyCard("first", "gone/7", sha256="ab"),
    engine=EngineFacts("mujoco", "4"),
    trials=tuple(Trial(task="cube_in_bowl", episode=i, success=False, ended="time") for i in (5, 6, 7)),
)


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        ({}, ("", 3), "the record has no episode 3 of task 'cube_in_bowl'; it has 5 to 7"),
        ({"trials": ()}, ("", 5), "the record holds no episodes, so none can be played again"),
        (
            {"latency": 8},
            ("", 5),
            r"the record's answers came late \(--latency or --real-time\); played again, an episode has them "
            "in time and would be another",
        ),
        ({}, ("can", 3), "the record has no episode 3 of task 'can'; it has none"),
        (
            {"policy": PolicyCard("served")},
            ("", 5),
            "the record names no checkpoint of ours, so its policy cannot be asked again",
        ),
        (
            {"trials": (Trial(task="", episode=5, success=False, ended="time"),)},
            ("", 5),
            "suite 'droid_panda' has no task '' that can be played again here",
        ),
    ],
)
def test_an_episode_that_cannot_be_played_again(changes, asked, words, tmp_path):
    task, episode = asked
    with pytest.raises(MorphVlaError, match=f"^{words}$"):
        inside.of_record(dataclasses.replace(RECORD, **changes), task, episode, tmp_path, Dark)


def test_a_checkpoint_that_was_trained_anew_is_another_policy(tiny_run, tmp_path):
    card = PolicyCard("first", str(tiny_run.checkpoint), sha256="ab")
    words = "is not the policy that was evaluated: it was trained anew$"
    with pytest.raises(MorphVlaError, match=words):
        inside.of_record(dataclasses.replace(RECORD, policy=card), "cube_in_bowl", 5, tmp_path, Dark)
    card = dataclasses.replace(card, others={"poses_from": "my_eyes"})
    with pytest.raises(MorphVlaError, match=f" behind my_eyes {words}"):
        inside.of_record(dataclasses.replace(RECORD, policy=card), "cube_in_bowl", 5, tmp_path, Dark)
