"""How checkpoints keep stacks of layers, so that a policy reads them layer by layer: the same bits."""

import logging
from functools import partial
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from morph_vla import policies
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.pi05.serving import is_stack, served_type
from morph_vla.training import checkpoint, restoring, saving
from morph_vla.weights import open_checkpoint


@pytest.fixture(params=["together", "apart"])
def folder(request, tiny_recipe, tmp_path, monkeypatch) -> Path:
    """A checkpoint's averaged parameters; large stacks stored as orbax likes, and layer by layer."""
    if request.param == "apart":
        monkeypatch.setattr(saving, "CHUNK", 128)  # bytes
    random = np.random.default_rng(3)

    def drawn(name: str, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        return random.standard_normal(leaf.shape, np.float32)

    tree = {"params": map_named(drawn, policies.shapes(tiny_recipe.model))}
    for item in ("averaged", "params"):
        ocp.PyTreeCheckpointer().save(tmp_path / item, tree, save_args=saving.stored_by_layers(tree))
    return tmp_path


def test_layers_are_read_one_by_one_and_are_those_that_were_saved(folder, tiny_recipe, request):
    model = tiny_recipe.model
    shapes, types = policies.shapes(model), partial(served_type, model)
    whole = by_name(restoring.load_params(folder, shapes, types=types))
    opened, sha256 = open_checkpoint(folder), checkpoint.Digest({})
    for name, leaf in sha256.through(restoring.Averaged(folder, shapes, types).leaves()):
        read = np.stack(list(leaf)) if is_stack(name) else leaf
        assert read.dtype == whole[name].dtype, name
        np.testing.assert_array_equal(read, whole[name], err_msg=name)
        if "apart" in request.node.name and is_stack(name) and read[0].nbytes >= 128:
            assert opened.block(name)[0] in (1, len(read)), name
    leaves = jax.tree.leaves(map_named(lambda name, _: whole[name], shapes))
    assert sha256.hexdigest() == checkpoint.digest({}, leaves)


def test_a_first_checkpoint_that_was_killed_half_way_is_cleared_before_orbax_looks(tmp_path):
    """It clears away its own in the background, while the next one is written to the same place."""
    for name in (saving.FROZEN, f"{saving.FROZEN}.orbax-checkpoint-tmp"):
        (tmp_path / name / "d").mkdir(parents=True)
    with saving.Saver(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_what_orbax_logs_is_logged_whatever_it_is(tmp_path, caplog):
    with saving.Saver(tmp_path):
        logging.getLogger("absl").error(ValueError("another topology"))
        logging.getLogger("absl").warning("Skipping merge: No per-process OCDBT checkpoint subdirs found")
    assert [record.getMessage() for record in caplog.records] == ["another topology"]


def test_a_layer_that_nobody_takes_is_a_mistake(folder, tiny_recipe):
    leaves = restoring.Averaged(folder, policies.shapes(tiny_recipe.model)).leaves()
    with pytest.raises(AssertionError, match="layers that nobody took"):
        dict(checkpoint.Digest({}).through(leaves))
