"""What changes the pace of training and nothing else: where frames come from, processes, threads."""

import dataclasses
import shutil

import av
import jax
import numpy as np
import pytest

from morph_vla.data import frames
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.recipes import recipe as config
from morph_vla.recipes.recipe import PACE_KEYS
from morph_vla.training import folder, loop
from morph_vla.training.source import Source

pytestmark = pytest.mark.filterwarnings("ignore")  # LeRobot's and FFmpeg's own


def paced(recipe, **keys):
    return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, **keys))


def same(one, other) -> bool:
    pairs = zip(jax.tree.leaves(tuple(one)), jax.tree.leaves(tuple(other)), strict=True)
    return all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["tiny_recipe", "mixed_recipe"])
def test_batches_are_the_same_wherever_frames_come_from(data, request, tmp_path):
    recipe = request.getfixturevalue(data)
    kept = Source(paced(recipe, frames="cache"), tmp_path / "kept")
    wanted = [kept.at(step) for step in range(5, 9)]
    held = kept.held_out()
    for workers, threads in ((1, 1), (2, 3)):
        video = Source(paced(recipe, frames="video", workers=workers), tmp_path / "none")
        result = list(video.batches(5, 9, threads))
        assert len(result) == 4
        assert all(same(one, other) for one, other in zip(result, wanted, strict=True))
        assert len(video.workers.pids) == workers
        assert all(same(held[name], batch) for name, batch in video.held_out().items())
        video.workers.close()
    assert not (tmp_path / "none").exists()


def test_auto_keeps_what_fits(tiny_recipe, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "morph_vla")
    source = Source(tiny_recipe, tmp_path)
    assert {type(one) for own in source.frames for one in own.values()} == {frames.Kept}
    assert any("decoding camera 'exterior' of" in text for text in caplog.messages)
    rows = source.parts[0].recordings.frames
    monkeypatch.setattr(frames, "CACHE_BYTES", 2 * rows * 24 * 24 * 3 - 1)
    source = Source(tiny_recipe, tmp_path)
    assert {type(one) for own in source.frames for one in own.values()} == {frames.Video}
    monkeypatch.setattr(frames, "CACHE_BYTES", 2 * rows * 24 * 24 * 3)
    assert {type(one) for own in Source(tiny_recipe, tmp_path).frames for one in own.values()} == {
        frames.Kept
    }


@pytest.mark.slow
def test_a_run_goes_on_with_another_pace_and_says_the_same(tiny_recipe, tiny_run, tmp_path):
    short = dataclasses.replace(tiny_recipe, training=dataclasses.replace(tiny_recipe.training, steps=6))
    first = loop.train(paced(short, frames="video", workers=1), tmp_path / "run")
    assert [line["loss"] for line in first.curve] == [line["loss"] for line in tiny_run.curve]
    shutil.rmtree(first.checkpoint)
    again = loop.train(paced(short, frames="cache", workers=2), tmp_path / "run")
    assert [line["loss"] for line in again.curve] == [line["loss"] for line in tiny_run.curve]
    assert {"data.frames", "data.workers"} <= PACE_KEYS
    with pytest.raises(MorphVlaError, match=r"holds a run of another recipe \(differs in data\.by\)"):
        loop.train(paced(short, workers=3, by="row"), tmp_path / "run")


@pytest.mark.slow
def test_a_run_goes_on_where_its_dataset_lies_now(tiny_recipe, tiny_run, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(tiny_recipe.data.dataset, here)
    recipe, run = paced(tiny_recipe, dataset=str(here)), tmp_path / "run"
    first = loop.train(recipe, run)
    shutil.rmtree(first.checkpoint)
    here.rename(there)
    command = rf"`morph-vla train RECIPE --resume -o {run} data\.dataset=FOLDER`"
    words = rf"^{here}: no such folder; where it lies now: {command}$"
    with pytest.raises(MorphVlaError, match=words):
        loop.train(recipe, run)
    again = loop.train(paced(recipe, dataset=str(there)), run)
    assert [line["loss"] for line in again.curve] == [line["loss"] for line in tiny_run.curve]
    assert config.of_run(run).data.dataset == str(there)  # `--resume` alone finds it
    other = shutil.copytree(there, tmp_path / "other")
    shutil.rmtree(again.checkpoint)
    table = next((other / "data").rglob("*.parquet"))
    change(table)
    with pytest.raises(MorphVlaError, match=r"was trained on other data .*its recordings"):
        loop.train(paced(recipe, dataset=str(other)), run)
    assert config.of_run(run).data.dataset == str(there)


def change(path) -> None:
    """The first action of a table is another."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(path)
    values = table["action"].to_pylist()
    values[0] = [value + 0.01 for value in values[0]]
    at = table.schema.get_field_index("action")
    parquet.write_table(
        table.set_column(at, "action", pa.array(values, table.schema.field("action").type)), path
    )


def test_the_dataset_of_a_list_that_differs_is_named(tmp_path):
    entries = [{"dataset": "a", "weight": 1.0}, {"dataset": "b", "weight": 2.0}]
    other = [entries[0], {"dataset": "b", "weight": 3.0}]
    old, new = ({"data": {"datasets": given}} for given in (entries, other))
    assert folder._changed(old, new) == ["data.datasets.1.weight"]
    assert folder._changed(old, {"data": {"datasets": entries[:1]}}) == ["data.datasets"]
    assert [
        bool(folder.PLACE.fullmatch(key))
        for key in ("data.dataset", "data.datasets.11.dataset", "data.datasets", "data.datasets.1.weight")
    ] == [True, True, False, False]


def test_a_frame_that_cannot_be_decoded_stops_training_with_its_place(tiny_recipe, tmp_path):
    copy = shutil.copytree(tiny_recipe.data.dataset, tmp_path / "copy")
    source = Source(paced(tiny_recipe, dataset=str(copy), frames="video", workers=1), tmp_path / "cache")
    (path,) = (copy / "videos" / "observation.images.exterior").rglob("*.mp4")
    with av.open(str(path)) as container:
        spans = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    with path.open("r+b") as file:  # what is in the frames goes, the index of the file stays
        for begin, length in spans:
            file.seek(begin)
            file.write(b"\xff" * length)
    with pytest.raises(MorphVlaError, match=rf"^{path}: episode \d, frame \d+ cannot be decoded: .+$"):
        list(source.batches(1, 60))
    source.workers.close()


def test_a_number_of_workers_that_cannot_be():
    with pytest.raises(ConfigError, match=r"data\.workers: must be at least 0, not -1"):
        config.load("panda_demo", ["data.dataset=there", "data.workers=-1"])
