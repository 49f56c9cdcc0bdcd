"""What of a folder is uploaded, and that it is the same policy where it is fetched."""

import dataclasses
import json
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from made_run import Made

from morph_vla import robots, weights
from morph_vla.errors import MorphVlaError
from morph_vla.files import hub
from morph_vla.pi05 import Pi05Config
from morph_vla.pi05.parts import by_name
from morph_vla.pi05.serving import served_type
from morph_vla.recipes import recipe as recipes
from morph_vla.results import record as records
from morph_vla.results.record import PolicyCard, Record, SuiteFacts, TaskFacts
from morph_vla.results.trial import Trial
from morph_vla.serving import policy as policies
from morph_vla.sharing import contents, push
from morph_vla.training import checkpoint, restoring
from morph_vla.weights import names, packed, tensors

# The Hub's client uploads by a word of httpx that this is leaving.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def listed(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
def test_a_run_is_fetched_as_the_same_policy(made, hub_server, tmp_path):
    before = listed(made.folder)
    pushed = push.push(made.folder, "me/arm")
    assert (pushed.kind, pushed.evaluations, pushed.files) == ("model", 1, 8)
    assert str(pushed).endswith("others name it hf://me/arm")
    assert listed(made.folder) == before
    assert not list((tmp_path / "cache" / "push").iterdir())
    folder = hub.fetch("hf://me/arm")
    assert sorted(listed(folder)) == [
        "about/policy.json", "about/recipe.json", "about/robots/panda.urdf", "about/robots/panda.yaml",
        "about/versions.json", "averaged.safetensors", "evaluations/droid_panda/record.json",
    ]  # fmt: skip
    model = recipes.of_run(folder / "about").model
    assert isinstance(model, Pi05Config)
    loaded, report = weights.load("hf://me/arm", model, dtype="stored")
    assert (report.format, report.unused) == ("morph_vla", ())
    for name, leaf in by_name(made.params).items():
        np.testing.assert_array_equal(by_name(loaded)[name], leaf, strict=True)
    params = restoring.load_params(folder, made.params)
    assert checkpoint.digest(checkpoint.about(folder), by_name(params).values()) == made.sha256
    assert records.read(folder / "evaluations/droid_panda").policy.sha256 == made.sha256
    card = hub_server.repositories["models/me/arm"].files()["README.md"].decode()
    assert "| 4 of 5 | 80.0% [37.6, 96.4] |" in card
    again = push.push(folder, "me/fork")  # what was fetched is complete
    assert (again.files, again.evaluations) == (8, 1)


def test_the_parameters_of_the_last_step_stay_at_home(made, hub_server):
    push.push(made.last, "me/arm")
    with pytest.raises(MorphVlaError, match="holds the averaged parameters alone, not those"):
        weights.load("hf://me/arm", kind="params")


def test_an_evaluation_is_named_beside_a_checkpoint(made, hub_server):
    assert push.push(made.last, "me/arm").evaluations == 0
    assert "No evaluation of this checkpoint" in (
        hub_server.repositories["models/me/arm"].files()["README.md"].decode()
    )
    assert push.push(made.last, "me/arm", records=[made.folder / "eval"]).evaluations == 1
    with pytest.raises(MorphVlaError, match="nothing: no such folder or file; expected a record"):
        push.push(made.last, "me/arm", records=[made.folder / "nothing"])


def test_what_was_shared_is_compared_by_its_address(made, hub_server, run):
    push.push(made.folder, "me/arm")
    status, out, err = run(f"compare hf://me/arm {made.folder}/eval/mine --json")
    assert status == 0, err
    summaries = [each["summary"] for each in json.loads(out)["evaluations"]]
    assert [(each["successes"], each["trials"]) for each in summaries] == [(4, 5), (4, 5)]
    push.push(made.last, "me/two", records=[made.folder / "eval" / "mine", second_suite(made)])
    status, _, err = run(f"compare hf://me/two {made.folder}/eval/mine")
    assert status == 2
    assert "several evaluations; name one of evaluations/droid_panda, evaluations/droid_panda-2" in err
    assert run(f"compare hf://me/two/evaluations/droid_panda-2 {made.folder}/eval/mine")[0] == 0


def second_suite(made: Made) -> Path:
    """Another evaluation of the same policy."""
    record = records.read(made.folder / "eval" / "mine")
    folder = made.folder.parent / "second"
    records.write(dataclasses.replace(record, trials=record.trials[:3]), folder / "record.json")
    return folder


def test_each_evaluation_has_a_folder_of_its_own(made, tmp_path):
    record = records.read(made.folder / "eval" / "mine")
    names = ("arm-2", "arm", "arm", "arm-left", "arm-2")
    several = [
        dataclasses.replace(record, suite=dataclasses.replace(record.suite, name=name)) for name in names
    ]
    assert [place.partition("/")[2] for place in contents._named(several)] == [
        "arm-2", "arm", "arm-3", "arm-left", "arm-2-2",
    ]  # fmt: skip


def test_evaluations_on_another_disk_go_with_their_run(made, tmp_path):
    record = records.read(made.folder / "eval" / "mine")
    records.write(record, tmp_path / "disk" / "mine" / "record.json")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "eval").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "again").symlink_to(tmp_path / "disk")  # a circle
    assert len(contents._evaluations([tmp_path / "run"], {made.sha256})) == 1
    records.write(record, tmp_path / "run" / "full" / "cube" / "record.json")
    (tmp_path / "run" / "best").symlink_to(tmp_path / "run" / "full" / "cube")  # reached first, by name
    below = [path.relative_to(tmp_path / "run").as_posix() for path in contents._records(tmp_path / "run")]
    assert below == ["eval/mine/record.json", "full/cube/record.json"]


def test_an_evaluation_below_another_is_a_part_of_it_only_where_it_is_one_of_its_tasks(made, tmp_path):
    record = records.read(made.folder / "eval" / "mine")
    tasks = {"can": TaskFacts(), "cube": TaskFacts()}
    whole = dataclasses.replace(record, suite=dataclasses.replace(record.suite, tasks=tasks))
    mean = dataclasses.replace(record, trials=record.trials[:2])
    other = dataclasses.replace(record, policy=PolicyCard(name="9", sha256="of another"))
    placed = {
        ".": whole,
        "can": dataclasses.replace(record, trials=record.trials[:1]),
        "mean": mean,
        "cube": other,
    }
    for place, each in placed.items():
        records.write(each, tmp_path / "eval" / place / "record.json")
    kept = contents._evaluations([tmp_path / "eval"], {made.sha256})
    assert [len(each.trials) for each in kept] == [5, 2]


def test_the_evaluations_of_a_policy_that_is_served_rounded_go_with_it(made, hub_server, tmp_path):
    folder = shutil.copytree(made.last, tmp_path / "10")
    recipe = json.loads((folder / "about" / "recipe.json").read_text())
    recipe["model"]["dtype"] = "bfloat16"
    (folder / "about" / "recipe.json").write_text(json.dumps(recipe))
    model = recipes.of_run(folder / "about").model
    assert isinstance(model, Pi05Config)
    params = restoring.load_params(folder, made.params, types=partial(served_type, model))
    sha256 = checkpoint.digest(checkpoint.about(folder), by_name(params).values())
    assert sha256 != made.sha256
    trials = (Trial(task="can", episode=0, success=True),)
    card = PolicyCard(name="10", sha256=sha256)
    record = Record(suite=SuiteFacts(name="droid_panda", version=4), policy=card, trials=trials)
    records.write(record, tmp_path / "eval" / "record.json")
    assert push.push(folder, "me/arm", records=[tmp_path / "eval"]).evaluations == 1


@pytest.fixture
def trained(made, tmp_path) -> Path:
    """The checkpoint after its expert learnt, from a base that others can fetch."""
    leaves = by_name(made.params)
    weights.save_openpi(tmp_path / "base", made.params)
    learnt = {n: v + 1 if names.part_of(n) != "language model" else v for n, v in leaves.items()}
    folder = weights.save_morph_vla(tmp_path / "11", weights.nested(learnt))
    shutil.copytree(made.last / "about", folder / "about")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("form", ["openpi", "lerobot"])
def test_what_equals_a_base_stays_at_home(trained, hub_server, tmp_path, monkeypatch, form):
    model = recipes.of_run(trained / "about").model
    assert isinstance(model, Pi05Config)
    if form == "lerobot":
        bare, _ = weights.load(
            tmp_path / "base", dataclasses.replace(model, morphology=None), ignore=["morphology"]
        )
        weights.save_lerobot(tmp_path / "lerobot", bare, dataclasses.replace(model, morphology=None))
    place = tmp_path / ("base" if form == "openpi" else form)
    monkeypatch.setenv("MORPH_VLA_PI05_BASE", str(place))
    whole, less = push.push(trained, "me/whole"), push.push(trained, "me/less", base="pi05-base")
    files = hub_server.repositories["models/me/less"].files()
    assert less.nbytes < 0.9 * whole.nbytes
    assert b"PaliGemma/llm/embedder" not in files["averaged.safetensors"][:20_000].split(b'"base"')[0]
    assert "equal `pi05-base` are not in this repository" in files["README.md"].decode()
    every, _ = weights.load("hf://me/whole", model, dtype="stored")
    again, report = weights.load("hf://me/less", model, dtype="stored")
    assert (weights.digest(again), report.unused) == (weights.digest(every), ())
    folder = hub.fetch("hf://me/less")
    params = restoring.load_params(folder, every)
    assert weights.digest(params) == weights.digest(every)


@pytest.mark.slow
def test_a_base_that_is_another_one_is_refused(trained, hub_server, tmp_path, monkeypatch, made):
    monkeypatch.setenv("MORPH_VLA_PI05_BASE", str(tmp_path / "base"))
    push.push(trained, "me/less", base="pi05-base")
    other = {n: v * 2 for n, v in by_name(made.params).items()}
    monkeypatch.setenv(
        "MORPH_VLA_PI05_BASE", str(weights.save_openpi(tmp_path / "other", weights.nested(other)))
    )
    with pytest.raises(
        MorphVlaError, match=r"other is not the base that these parameters .*: PaliGemma/.* differs"
    ):
        weights.load("hf://me/less")
    with pytest.raises(MorphVlaError, match=r"no leaf of .*11 is that of pi05-base: push it without --base"):
        push.push(trained, "me/other", base="pi05-base")
    with pytest.raises(MorphVlaError, match="hf://me/less leaves out what is in pi05-base: name that one"):
        push.push(trained, "me/other", base="hf://me/less")
    with pytest.raises(
        MorphVlaError, match="'/etc' is not a checkpoint that others can fetch too: pi05-base"
    ):
        push.push(trained, "me/other", base="/etc")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("[]", "attribute"),
        ('{"a": ["float32", [2, 0], ""]}', "a shape of"),
        ('{"a": ["complex64", [2], ""]}', "complex64"),
        ('{"a": ["float32"]}', "not enough values"),
        ("[" * 50_000, "recursion"),
    ],
)
def test_what_a_stranger_says_of_a_base_is_data(tmp_path, text, why):
    tensors.write(tmp_path / packed.FILE, {}, {packed.BASE: "pi05-base", packed.LEAVES: text})
    with pytest.raises(MorphVlaError, match=f"what it says of its base cannot be read .*{why}"):
        weights.open_checkpoint(tmp_path)


def test_a_stranger_names_no_path_as_base(tmp_path):
    leaves = json.dumps({"a": ["float32", [2], "0"]})
    tensors.write(tmp_path / packed.FILE, {}, {packed.BASE: str(tmp_path), packed.LEAVES: leaves})
    opened = weights.open_checkpoint(tmp_path)
    assert opened.entries["a"].shape == opened.block("a") == (2,)
    with pytest.raises(MorphVlaError, match="is not a checkpoint that others can fetch too"):
        opened.read("a", (), np.dtype(np.float32))


def test_what_is_no_policy_is_said_in_a_sentence(made, tmp_path):
    about = tmp_path / "about"
    about.mkdir()
    for text, why in {
        "[]": "list indices",
        '{"robots": {}}': "no robot",
        '{"robots": {"panda": {"joints": []}}}': "no control_rate",
        "{": "Expecting property name",
        "[" * 100_000: "recursion",
    }.items():
        (about / "policy.json").write_text(text)
        with pytest.raises(MorphVlaError, match=f"about/policy.json is not a policy's .*{why}"):
            checkpoint.about(tmp_path)


STATS = {key: [0.0, 0.0] for key in ("q01", "q99", "mean", "std")}
ARM = {
    "joints": ["a", "b"], "control_rate": 15.0, "actions": "delta", "relative": [True, False],
    "cameras": {"base_0_rgb": "front"}, "state_stats": STATS, "action_stats": STATS,
}  # fmt: skip
STRANGE = {
    "actions are 'foo'; expected absolute, delta, velocity": {"actions": "foo"},
    "control_rate is no number": {"control_rate": 0},
    "control_rate is": {"control_rate": True},
    "joints are no list of names": {"joints": 6},
    "relative is no list": {"relative": [1, 0]},
    "relative is of 1 values, for 2 joints": {"relative": [True]},
    "state_stats are not of 3 values": {"relative": [True] * 3, "space": "tool"},
    "cameras is no table": {"cameras": ["front"]},
    "cameras are no names by names": {"cameras": {"base_0_rgb": 5}},
    "state_stats have no 'q99'": {"state_stats": {key: STATS[key] for key in ("q01", "mean", "std")}},
    "state_stats is no table": {"state_stats": [1, 2]},
    "state_stats are not of 2 values": {"state_stats": {key: [0.0] for key in STATS}},
    "action_stats are no statistics": {"action_stats": {**STATS, "q01": [float("nan"), 0.0]}},
    "action_stats are no statistics .*int too large": {"action_stats": {**STATS, "q01": [10**400, 0]}},
    "environment is no list of names": {"environment": 14},
    "affine are no two finite numbers of each of 2 joints": {"affine": "bogus"},
    "limits have a lower one above its upper one": {"limits": [[1.0, -1.0], [0.0, 1.0]]},
    "affine are no two finite": {"affine": [[float("inf"), 0.0], [1.0, 0.0]]},
    "affine are": {"affine": [[True, 0.0], [1.0, 0.0]]},
    "affine has a scale of 0": {"affine": [[0.0, 0.0], [1.0, 0.0]]},
    "limits are no two finite": {"limits": [[0.0, 1.0]]},
    "units are no list of texts": {"units": 5},
    "space is 'bogus'; expected joints, tool, hand": {"space": "bogus"},
    "space is None": {"space": None},
}


@pytest.mark.parametrize("why", STRANGE)
def test_what_a_robot_is_said_to_be_is_read_before_anything_moves_by_it(why, tmp_path):
    """Statistics would be stretched over the joints, another kind be taken for velocities."""
    (tmp_path / "about").mkdir()
    path = tmp_path / "about" / "policy.json"
    path.write_text(json.dumps({"robots": {"arm": ARM}, "step": 3, "tokenizer": None}))
    assert checkpoint.about(tmp_path)["step"] == 3
    path.write_text(json.dumps({"robots": {"arm": {**ARM, **STRANGE[why]}}, "step": 3}))
    with pytest.raises(MorphVlaError, match=f"about/policy.json is not a policy's .*{why}"):
        checkpoint.about(tmp_path)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "no 'step'"), ({"step": "x"}, "step is no number"),
        ({"step": 3, "tokenizer": "x"}, "tokenizer is no"),
        ({"step": 3, "tokenizer": {}}, "tokenizer: no name"),
    ],
)  # fmt: skip
def test_what_a_policy_says_beside_its_robots_is_read_too(more, why, tmp_path):
    (tmp_path / "about").mkdir()
    (tmp_path / "about" / "policy.json").write_text(json.dumps({"robots": {"arm": ARM}, **more}))
    with pytest.raises(MorphVlaError, match=f"about/policy.json is not a policy's .*{why}"):
        checkpoint.about(tmp_path)
    (tmp_path / "about" / "policy.json").write_bytes(b"\xff{}")
    with pytest.raises(MorphVlaError, match=r"about/policy.json is not a policy's .*utf-8"):
        checkpoint.about(tmp_path)


def test_a_dataset_goes_as_it_is_under_the_tag_of_its_format(write_dataset, hub_server):
    values = {"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}
    dataset = write_dataset("v3.0", [values, values])
    (dataset / "secrets.txt").write_text("mine")
    (dataset / "meta" / ".hidden").write_text("mine")
    (dataset / "recording.json").write_text('{"suite": "droid_panda", "episodes": 2, "attempted": 3}')
    pushed = push.push(dataset, "me/demonstrations")
    assert str(pushed).endswith("others name it data.dataset=me/demonstrations")
    repository = hub_server.repositories["datasets/me/demonstrations"]
    files, card = dict(repository.files()), repository.files()["README.md"].decode()
    assert "2 of 3 attempts succeeded" in card
    del files["README.md"]
    mine = ("secrets.txt", "meta/.hidden")
    assert files == {name: data for name, data in listed(dataset).items() if name not in mine}
    assert list(repository.tags) == ["v3.0"]


@pytest.mark.parametrize(
    ("option", "named"), [({"base": "x"}, "--base"), ({"more": (Path("x"),)}, "--record")]
)
def test_an_option_for_checkpoints_is_refused_for_a_dataset(write_dataset, tmp_path, option, named):
    values = {"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}
    dataset = write_dataset("v3.0", [values])
    with pytest.raises(MorphVlaError, match=f"^{named} is for a checkpoint; .* is a dataset$"):
        contents.of(dataset, "me/demonstrations", tmp_path, contents.Options(**option))


def test_a_link_out_of_a_dataset_publishes_nothing(write_dataset, tmp_path):
    values = {"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}
    dataset, secret = write_dataset("v3.0", [values]), tmp_path / "secret"
    secret.write_text("mine")
    (dataset / "meta" / "notes.json").symlink_to(secret)
    with pytest.raises(
        MorphVlaError, match=r"notes\.json is a link that leads out of the dataset; nothing is"
    ):
        contents.of(dataset, "me/demonstrations", tmp_path)
    (dataset / "meta" / "notes.json").unlink()
    (dataset / "meta" / "same.json").symlink_to(dataset / "meta" / "info.json")
    assert "meta/same.json" in contents.of(dataset, "me/demonstrations", tmp_path).files


def test_a_folder_that_is_a_link_publishes_nothing_and_deletes_nothing(write_dataset, tmp_path):
    """Its files are not listed: they would be missing, and deleted on the Hub where they were before."""
    dataset = write_dataset("v3.0", [{"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}])
    (dataset / "data").rename(tmp_path / "elsewhere")
    (dataset / "data").symlink_to(tmp_path / "elsewhere")
    words = r"data is a link to a folder; nothing is uploaded: put its files there$"
    with pytest.raises(MorphVlaError, match=words):
        contents.of(dataset, "me/demonstrations", tmp_path)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_dataset_that_lacks_a_file_is_not_published(write_dataset, tmp_path, damage):
    dataset = write_dataset("v3.0", [{"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}])
    (path,) = (dataset / "data").rglob("*.parquet")
    damage(path)
    with pytest.raises(MorphVlaError, match=r"parquet is not there, or is empty; nothing is uploaded$"):
        contents.of(dataset, "me/demonstrations", tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_damaged_summary_of_a_recording_is_one_sentence(write_dataset, tmp_path, text):
    values = {"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}
    dataset = write_dataset("v3.0", [values])
    (dataset / "recording.json").write_text(text)
    with pytest.raises(
        MorphVlaError, match=r"recording\.json: not what a recording says of itself; mend or rem"
    ):
        contents.of(dataset, "me/demonstrations", tmp_path)


def test_another_folder_is_refused(hub_server, tmp_path, run):
    with pytest.raises(MorphVlaError, match=r"is no checkpoint \(about/policy.json\), no run with one"):
        push.push(tmp_path, "me/arm")
    status, _, err = run(f"push {tmp_path} arm")
    assert (status, err) == (2, "error: 'arm' is no name of a repository; expected USER/NAME\n")
    assert not hub_server.repositories


def test_the_command_says_where_it_is(made, hub_server, run):
    status, out, err = run(f"push {made.last} me/arm --record {made.folder}/eval --json")
    assert status == 0, err
    answer = json.loads(out)
    assert re.fullmatch(rf"{hub_server.url}/me/arm/commit/[0-9a-f]{{40}}", answer["url"])
    assert (answer["kind"], answer["evaluations"]) == ("model", 1)


@pytest.mark.slow
def test_a_policy_answers_alike_wherever_it_is_fetched(tiny_run, hub_server):
    """The checkpoint of a real run: complete as it was trained, and the same bit for bit afterwards."""
    about = tiny_run.checkpoint / "about"
    for suffix in (".urdf", ".yaml"):
        kept = robots.load("panda").urdf_path.with_suffix(suffix).read_bytes()
        assert (about / "robots" / f"panda{suffix}").read_bytes() == kept
    assert "jax" in json.loads((about / "versions.json").read_text())
    url = push.push(tiny_run.folder, "me/arm").url
    here, there = policies.load(tiny_run.checkpoint), policies.load("hf://me/arm")
    described = there.describe()
    assert described["sha256"] == here.digest()
    assert (described["name"], described["checkpoint"]) == ("me/arm", f"hf://me/arm@{url[-40:]}")
    frame = np.zeros((24, 24, 3), np.uint8)
    seen = {
        "images/exterior": frame,
        "images/wrist": frame,
        "state": np.zeros(8, np.float32),
        "prompt": "wave",
    }
    answers = [policy.infer(seen)["actions"] for policy in (here, there)]
    np.testing.assert_array_equal(*answers)
