"""Openpi checkpoints whose arrays are not what their metadata claims: one sentence, and no traceback."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.weights.openpi import OrbaxCheckpoint


def claim_words(openpi: Path, copy: Path, words: int) -> Path:
    """A copy whose few bytes of metadata claim so large a vocabulary; its chunks are not there."""
    import tensorstore as ts

    shutil.copytree(openpi, copy)
    base = {"driver": "file", "path": f"{copy / 'params'}/"}
    store = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    (key,) = (key for key in store.list().result() if b"input_embedding" in key and key.endswith(b".zarray"))
    array = json.loads(store.read(key).result().value)
    array["shape"][0] = words
    store.write(key, json.dumps(array).encode()).result()
    return copy


def test_an_array_longer_than_jax_counts_is_no_traceback(openpi, tmp_path):
    words = r"cannot be read off it \(.*/input_embedding \(1000000000000, \d+\) is longer than the 2,147"
    with pytest.raises(MorphVlaError, match=words):
        weights.load(claim_words(openpi, tmp_path / "copy", 10**12))


def test_an_array_that_no_memory_holds_is_named(openpi, tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError("Unable to allocate 768. GiB")

    copy = claim_words(openpi, tmp_path / "copy", 2**31 - 1)
    monkeypatch.setattr(sys.modules["morph_vla.weights.load"], "assembled", full)
    words = r"no memory left for .* of float32 \(Unable to allocate 768. GiB\)$"
    with pytest.raises(MorphVlaError, match=words):
        weights.load(copy)


def test_a_chunk_that_is_not_there_is_damage_and_no_zeros(tmp_path):
    """Of an item whose arrays lie in files of their own, as orbax writes it without OCDBT."""
    import orbax.checkpoint as ocp

    item, values = tmp_path / "params", np.arange(6, dtype=np.float32).reshape(2, 3)
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(item, {"a": {"w": values}})

    def read() -> np.ndarray:
        opened = OrbaxCheckpoint(item, "openpi", item)
        return opened.read("a/w", (slice(None), slice(None)), np.dtype(np.float32))

    np.testing.assert_array_equal(read(), values)
    for chunk in item.glob("a.w/0*"):
        chunk.unlink()
    with pytest.raises(MorphVlaError, match="array 'a/w' is damaged"):
        read()
