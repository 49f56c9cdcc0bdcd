"""Looking into the policies of a study: which cells, which bodies, what is written."""

import json

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.evidence import grid as grids
from morph_vla.evidence import inside
from morph_vla.evidence.status import record_of
from morph_vla.results import cells as results
from morph_vla.results.cells import CellRecord
from morph_vla.robots import screws
from morph_vla.serving.activations import Activations
from morph_vla.serving.policy import CheckpointPolicy

GRID = """
title: A small study
question: Does it listen?
recipe: pi05_poses
overrides:
  - "model.prefix={width: 12, mlp_dim: 20}"
  - "model.expert={width: 12, mlp_dim: 20}"
  - model.depth=2
  - model.heads=2
  - model.head_dim=6
  - training.steps=4
  - training.batch=6
  - training.checkpoint_every=2
  - training.log_every=1
  - data.held_out=0.3
conditions:
  h1: ["@table1.tokens-mix-film"]
  control: ["@table1.tokens", model.morphology.control=tokens]
  bare: [model.morphology=null]
bodies:
  panda: {suite: "small_panda:cube_in_bowl", dataset: FOLDER/panda}
  so101: {suite: small_so101, dataset: FOLDER/so101, cameras: {}}
splits:
  both: {train: [panda, so101], judge: [panda]}
seeds: [0]
episodes: 1
"""


@pytest.fixture
def ran(run, study, tmp_path, monkeypatch):
    """Every cell, with its weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID.replace("FOLDER", str(study)), encoding="utf-8")
    code, out, err = run(f"evidence run grid.yaml --folder {study} -o out --keep-weights")
    assert code == 0, out + err
    return tmp_path / "out"


@pytest.mark.long
@pytest.mark.slow
def test_every_body_of_the_split_is_played_and_the_numbers_are_kept(ran, run, study):
    code, out, err = run(f"evidence inside grid.yaml --folder {study} -o out")
    assert code == 0, err
    assert "both/h1/0: 2 bodies, 0 of them not trained on; asked" in out
    assert "both/control/0: 2 bodies" in out
    known = {
        name: json.loads((ran / "inside" / "both" / name / "0.json").read_text())
        for name in ("h1", "control")
    }
    assert known["h1"]["bodies"] == ["panda", "so101"]
    assert known["h1"]["observations"] >= 4
    assert known["h1"]["moved"] is None  # eight joints and six: none can stand in the other's place
    assert known["h1"]["scale"] > 0
    assert known["control"]["scale"] is None
    assert 0 < known["h1"]["film_by_body"] < 1
    assert len(known["h1"]["read"]) == len(known["h1"]["attention_by_body"]) == 2
    assert known["h1"]["gradients"]["morphology"] > 0
    of = [(probe["of"], probe["length"], len(probe["layers"])) for probe in known["h1"]["probes"]]
    joints = [("joint tokens", length, 3) for length in ("link_length", "tool_distance")]
    assert of == [*joints, ("action tokens", "reach", 2)]
    assert not (ran / "inside" / "both" / "bare").exists()
    code, _, err = run(f"evidence inside grid.yaml --folder {study} -o out --only both/bare/0")
    assert (code, err) == (2, "error: both/bare/0: this policy has no kinematic tokens to look at\n")
    # One cell alone, as JSON: the same numbers.
    code, out, _ = run(f"evidence inside grid.yaml --folder {study} -o out --only both/h1/0 --json")
    assert (code, json.loads(out)) == (0, [known["h1"]])


def test_cells_without_weights_are_named(run, study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID.replace("FOLDER", str(study)), encoding="utf-8")
    (tmp_path / "out" / "records").mkdir(parents=True)
    words = f"evidence inside grid.yaml --folder {study} -o out"
    code, _, err = run(words)
    assert code == 2
    assert "lacks the weights of all cells: `morph-vla evidence run --keep-weights` keeps them" in err
    assert "it trains no finished cell again, so give it another folder" in err
    code, _, err = run(f"{words} --only both/h1/0")
    assert "lacks the weights of both/h1/0" in err
    code, _, err = run(f"{words} --only both/h1/1")
    assert "this grid has no cell 'both/h1/1' (SPLIT/CONDITION/SEED); did you mean 'both/h1/0'?" in err
    code, _, err = run(f"evidence inside grid.yaml --folder {study} -o elsewhere")
    assert "elsewhere holds no cells of a study" in err


def test_weights_of_another_grid_are_not_looked_into(run, study, tmp_path, monkeypatch):
    """What was seen, and with which noise it was judged, would be told of the grid and not of the weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID.replace("FOLDER", str(study)), encoding="utf-8")
    grid, cell = grids.load(tmp_path / "grid.yaml"), grids.Cell(0, "both", "h1")
    other = CellRecord(**cell._asdict(), settings_sha256="x", judged=())
    results.write(other, record_of(tmp_path / "out", cell))
    monkeypatch.setattr(inside, "_newest", lambda folder, cell: folder / "weights")
    with pytest.raises(MorphVlaError, match="both/h1/0"):
        inside.look(grid, tmp_path / "out", ["both/h1/0"], folders=[study])


def test_the_other_body_is_the_next_with_as_many_joints():
    arms = {"a": ("r", 7), "b": ("s", 6), "c": ("t", 7), "d": ("r", 7), "e": ("u", 5)}
    others = {name: inside.next_alike(name, arms) for name in arms}
    assert others == {"a": "c", "b": None, "c": "d", "d": "c", "e": None}


def test_the_same_robot_at_another_task_is_no_other_body():
    """Told of itself a policy does not move, which would read as one that ignores its body."""
    arms = {"cube": ("panda", 8), "can": ("panda", 8), "banana": ("panda", 8)}
    assert {inside.next_alike(name, arms) for name in arms} == {None}
    panda = robots.load("panda")
    nothing = Activations(
        np.zeros((2, 3, 8, 5)), np.zeros((2, 2, 5)), np.zeros((2, 2, 8, 8)), None, 0.1, None,
        np.ones(8, bool), np.zeros((2, 7, 8)),
    )  # fmt: skip
    seen = {name: inside._Seen(panda, nothing, None) for name in ("cube", "can")}
    assert [*inside._probes(seen, ())] == []  # nor can one be read off the other
    seen["arm"] = inside._Seen(robots.load("so101"), nothing, None)
    assert [*inside._probes(seen, ())]


def test_lengths_are_in_metres():
    panda = robots.load("panda")
    metres = inside.in_metres(panda, "link_length")
    assert metres[1] == pytest.approx(0.316, abs=1e-5)  # shoulder to elbow
    assert inside.in_metres(panda, "tool_distance").max() < screws.screws(panda).reach


@pytest.mark.slow
def test_what_is_overheard_is_what_was_asked(tiny_run, tiny_suite):
    policy = CheckpointPolicy(tiny_run.checkpoint, batch=2)
    image = np.zeros((24, 24, 3), np.uint8)
    asked = [
        {
            "images/exterior": image, "images/wrist": image, "state": np.full(8, 0.1 * step, np.float32),
            "prompt": tiny_suite.task, "episode": 0, "step": step,
        }
        for step in range(3)
    ]  # fmt: skip
    heard = inside.Overheard(policy)
    answers = [*heard.infer_batch(asked[:2]), heard.infer(asked[2])]
    assert heard.observations == asked
    for answer, same in zip(answers, policy.infer_batch(asked), strict=True):
        np.testing.assert_array_equal(answer["actions"], same["actions"])


def test_a_policy_that_looks_back_is_refused(monkeypatch, tiny_run):
    policy = CheckpointPolicy(tiny_run.checkpoint)
    monkeypatch.setattr(CheckpointPolicy, "looks_back", True)
    with pytest.raises(MorphVlaError, match="a policy that looks back is not asked the same again"):
        inside.Overheard(policy)


def test_a_log_without_norms_says_nothing(tmp_path):
    assert inside._gradients(tmp_path) == {}
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2, "gradient_norms": {"morphology": 0.5}}\n')
    assert inside._gradients(tmp_path) == {"morphology": 0.5}
