"""What the tests of encoded pictures share."""

import json
from pathlib import Path

import numpy as np
import pytest
from pictured import CELL, HEIGHT, KEYS, LENGTHS, SIZE, WIDTH, cell_of, files_of

from morph_vla.data import pool


@pytest.fixture
def write(write_dataset, tmp_path, monkeypatch):
    """A function that writes a dataset of three cameras within its tables."""
    import pyarrow as pa
    from pyarrow import parquet

    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "of_morph_vla"))

    def call(version: str = "v3.0", keys=KEYS, group: int | None = None, width: int = 3, **more) -> Path:
        random = np.random.default_rng(0)
        features = "observation.state", "action"
        values = [{name: random.normal(size=(n, width)) for name in features} for n in LENGTHS]
        root, row = write_dataset(version, values, **more), 0
        for path in files_of(root):
            table = parquet.read_table(path)
            for key in keys:
                cells = [cell_of(row + place, key) for place in range(len(table))]
                table = table.append_column(key, pa.array(cells, CELL()))
            row += len(table)
            parquet.write_table(table, path, row_group_size=group)
        info = json.loads((root / "meta/info.json").read_text())
        of_camera = {"dtype": "image", "shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channel"]}
        info["features"] |= dict.fromkeys(keys, of_camera)
        (root / "meta/info.json").write_text(json.dumps(info))
        return root

    return call


@pytest.fixture(scope="module")
def workers():
    two = pool.Pool(2, SIZE)
    yield two
    two.close()
