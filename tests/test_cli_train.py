"""`morph-vla train`: a folder's own recipe, beginning anew, several processes, suites on the way."""

import dataclasses
import json

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.recipes import keys
from morph_vla.recipes import recipe as config
from morph_vla.serving import trials
from morph_vla.training import folder as run_folder


def test_without_a_recipe_it_says_what_to_name(run):
    status, _, err = run("train -o nowhere")
    assert (status, err) == (2, "error: name a recipe, or continue a run: --resume -o FOLDER\n")


def test_resume_wants_a_run(run, folder):
    status, _, err = run("train --resume -o empty")
    assert (status, err) == (2, "error: empty: no run to go on with (recipe.json is missing)\n")


@pytest.mark.slow
def test_resume_alone_finds_the_finished_run(run, tiny_run):
    status, out, _ = run(f"train --resume -o {tiny_run.folder} --json")
    assert status == 0
    assert json.loads(out[out.index("{") :])["checkpoint"] == str(tiny_run.checkpoint)


def test_resume_and_overwrite_do_not_go_together(run):
    _, _, err = run("train --resume --overwrite -o here")
    assert "--resume continues a run and --overwrite removes it; give only one of them" in err


def test_overwrite_removes_a_run_and_nothing_else(tmp_path):
    for name in ("recipe.json", "log.jsonl", "notes.txt"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    (tmp_path / "cache").symlink_to(outside)
    run_folder.remove(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", run_folder.LOCK}
    assert outside.is_dir()


def test_overwrite_leaves_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(MorphVlaError, match=r"holds no run .*; nothing is removed"):
        run_folder.remove(tmp_path)


def test_a_part_of_where_processes_meet_is_not_enough(run):
    _, _, err = run("train panda_demo -o here --processes 2")
    assert "--coordinator, --processes and --process go together; --coordinator, --process missing" in err


def test_a_run_that_goes_on_may_use_other_devices_but_no_other_seed(tiny_recipe, tiny_run):
    from morph_vla.training import loop

    mesh = dataclasses.replace(tiny_recipe.training, mesh=keys.Mesh(1, 1), keep=5)
    again = loop.train(dataclasses.replace(tiny_recipe, training=mesh), tiny_run.folder)
    assert again.checkpoint == tiny_run.checkpoint


def test_a_run_from_before_a_key_was_known_goes_on(tiny_recipe, tmp_path):
    """What its recipe.json lacks is a default there; a key that is not the default is another recipe."""
    recipe = to_plain(tiny_recipe)
    assert recipe["training"].pop("keep_every") == recipe["optimizer"].pop("plugin_lr_share") - 1 == 0
    assert recipe["optimizer"].pop("warmup") != keys.Optimizer.warmup
    assert recipe["data"].pop("phases")
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe))
    (tmp_path / "log.jsonl").write_text("{}\n")
    with pytest.raises(MorphVlaError, match=r"another recipe \(differs in optimizer\.warmup\); give another"):
        run_folder.claim(tmp_path, tiny_recipe)
    recipe["optimizer"]["warmup"] = tiny_recipe.optimizer.warmup
    path.write_text(json.dumps(recipe))
    run_folder.claim(tmp_path, tiny_recipe)
    assert json.loads(path.read_text()) == recipe  # left as it was written


def test_a_start_that_failed_claims_no_folder(run, folder, tiny_recipe):
    """What is wrong is corrected, and the same folder is used: there is nothing in it to lose."""
    for dataset in ("not_there", "nor_there"):
        status, _, err = run(f"train panda_demo data.dataset={dataset} -o X")
        assert status == 2
        assert f"error: {dataset}: no such folder" in err
    run_folder.claim(folder / "X", tiny_recipe)
    assert to_plain(config.of_run(folder / "X")) == to_plain(tiny_recipe)
    with pytest.raises(MorphVlaError, match="holds a run of another recipe"):  # a process beside the first
        run_folder.claim(folder / "X", config.load("panda_demo"), first=False)
    (folder / "X/checkpoints/3").mkdir(parents=True)
    other = dataclasses.replace(tiny_recipe, training=dataclasses.replace(tiny_recipe.training, seed=7))
    with pytest.raises(MorphVlaError, match=r"X holds a run of another recipe \(differs in training\.seed\)"):
        run_folder.claim(folder / "X", other)


def test_a_runs_own_recipe_comes_back_as_it_was(tiny_recipe, tiny_run):
    assert to_plain(config.of_run(tiny_run.folder)) == to_plain(tiny_recipe)


@pytest.mark.slow
@pytest.mark.gl
def test_suites_are_tried_at_their_steps_and_once(tiny_recipe, tmp_path, monkeypatch):
    from morph_vla.suites import suite

    small = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]
    load = suite.load_tasks
    monkeypatch.setattr(
        suite,
        "load_tasks",
        lambda name, *rest: load(name, [*small, "episode_seconds=1", "settle_seconds=0.1"]),
    )
    asked = keys.Evaluation(("droid_panda:cube_in_bowl",), every=3, episodes=2)
    recipe = dataclasses.replace(tiny_recipe, evaluation=asked)
    tried: list[tuple[str, str | None]] = []
    for _ in range(2):  # the second finds the records there
        trials.train(
            recipe, tmp_path, on_record=lambda suite, record: tried.append((suite, record.policy.name))
        )
    assert tried == [("droid_panda:cube_in_bowl", f"step {step}") for step in (3, 6, 6)]
    places = sorted(path.name for path in (tmp_path / "evaluations").iterdir())
    assert places == ["3-droid_panda-cube_in_bowl", "6-droid_panda-cube_in_bowl"]
    record = json.loads((tmp_path / "evaluations" / "6-droid_panda-cube_in_bowl" / "record.json").read_text())
    assert record["summary"]["trials"] == 2


def test_a_suite_that_cannot_be_tried_is_said_before_training(tiny_recipe, tmp_path, root):
    def asked(name):
        return dataclasses.replace(tiny_recipe, evaluation=keys.Evaluation((name,)))

    words = "evaluation.suites: 'so101_pick_orange' is of robot 'so101'; this recipe trains panda"
    with pytest.raises(MorphVlaError, match=words):
        trials.check_suites(asked("so101_pick_orange"), ())
    with pytest.raises(MorphVlaError, match="did you mean 'droid_panda'"):
        trials.check_suites(asked("droid_pandas"), ())
    trials.check_suites(asked("droid_panda:cube_in_bowl"), ())
    by_file = dataclasses.replace(tiny_recipe.data, robot="arms/panda.urdf")
    trials.check_suites(dataclasses.replace(asked("droid_panda:cube_in_bowl"), data=by_file), ())
    two = tmp_path / "two.yaml"
    text = (root / "eval" / "droid_panda.yaml").read_text()
    two.write_text(text.replace("  can_in_mug:\n", "  can_in_mug:\n    robot: so101\n"))
    assert two.read_text() != text
    with pytest.raises(MorphVlaError, match="is of robot 'so101'; this recipe trains panda"):
        trials.check_suites(asked(str(two)), ())


def test_recipes_scale_prints_an_estimate_that_says_so(run):
    status, out, _ = run("recipes scale pi05_droid")
    assert status == 0
    assert out.startswith("an estimate, nothing was run: H200, eight to a host, 502 TFLOP/s each\n")
    rows = json.loads(run("recipes scale pi05_droid --json")[1])
    assert [row["devices"] for row in rows] == [1, 2, 4, 8, 16, 32]
    assert all(row["least"] <= row["most"] for row in rows)
