"""Folders that were copied, merged or removed by half would act as other policies: each is a sentence."""

import dataclasses

import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.weights import lerobot, recognise, tensors


def test_a_trained_body_that_was_left_behind_is_missed(tmp_path, plugin, drawn):
    folder = weights.save_lerobot(tmp_path / "kept", drawn(plugin), plugin, keep_plugin=True)
    (folder / lerobot.PLUGIN_FILE).unlink()
    words = (
        r"kept was written with morphology\.safetensors, which is missing: without the trained body it would "
    )
    for place in (folder, folder / lerobot.FILE):
        with pytest.raises(MorphVlaError, match=words):
            weights.load(place, plugin)


def test_a_file_beside_an_index_of_others_is_not_chosen_for_anybody(tmp_path, params, host):
    """LeRobot reads the file alone, other programs the shards."""
    folder = weights.save_lerobot(tmp_path / "sharded", params, host, shard_bytes=20_000)
    one = weights.save_lerobot(tmp_path / "one", params, host)
    (one / lerobot.FILE).rename(folder / lerobot.FILE)
    words = (
        r"sharded has both model\.safetensors and an index of other files \(model\.safetensors\.index\.json\)"
    )
    with pytest.raises(MorphVlaError, match=words):
        weights.load(folder, host)
    (folder / lerobot.INDEX).unlink()
    assert len(weights.load(folder, host)[1].loaded) == 51


@pytest.mark.parametrize("name", recognise.ADAPTER)
@pytest.mark.parametrize("has_base", [False, True])
def test_an_adapter_is_not_passed_over(tmp_path, params, host, name, has_base):
    folder = weights.save_lerobot(tmp_path / "one", params, host)
    (folder / name).write_text("{}")
    if not has_base:
        (folder / lerobot.FILE).unlink()
    with pytest.raises(
        MorphVlaError, match=rf"one has a PEFT adapter \({name}\), which is not read, and its base"
    ):
        weights.open_checkpoint(folder)


def test_another_number_of_heads_is_refused_though_every_shape_fits(tmp_path, params, host):
    folder = weights.save_lerobot(tmp_path / "one", params, host)
    other = dataclasses.replace(host, vit=dataclasses.replace(host.vit, heads=5))
    with pytest.raises(MorphVlaError, match=r"vit\.heads is 3 in the checkpoint, 5 in the model"):
        weights.load(folder, other)
    weights.load(folder, host)


def test_of_lerobots_own_files_the_models_numbers_of_heads_are_taken(tmp_path, params, host):
    """They say none."""
    folder = weights.save_lerobot(tmp_path / "one", params, host)
    header, _ = tensors.read_header(folder / lerobot.FILE)
    arrays = {name: np.array(entry.read()) for name, entry in header.items()}
    drafts = {
        name: tensors.Draft(array.shape, array.dtype, lambda array=array: [array])
        for name, array in arrays.items()
    }
    tensors.write(folder / lerobot.FILE, drafts, {})
    assert len(weights.load(folder, host)[1].loaded) == 51


def test_an_average_that_is_half_there_is_not_passed_over(tmp_path, params):
    """What is not averaged acts otherwise."""
    folder = weights.save_openpi(tmp_path / "one", params)
    (folder / "averaged").mkdir()
    with pytest.raises(MorphVlaError, match=r"one/averaged is damaged: it has no _METADATA; copy it again"):
        weights.open_checkpoint(folder)
