"""Meta files and columns that a stranger wrote: what they cannot mean ends in one sentence."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from morph_vla.data import layout
from morph_vla.data.stats import from_plain
from morph_vla.errors import MorphVlaError

EPISODES = "meta/episodes/chunk-000/file-000.parquet"


def episodes() -> list[dict]:
    return [{"observation.state": np.ones((rows, 3)), "action": np.ones((rows, 3))} for rows in (7, 5, 11)]


@pytest.fixture
def write(write_dataset):
    def call(version: str = "v3.0") -> Path:
        return write_dataset(version, episodes(), cameras=("front",))

    return call


def edit(path: Path, **columns) -> None:
    table = parquet.read_table(path)
    for name, values in columns.items():
        name = name.replace("__", "/")
        column = pa.array(values)
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, column) if at >= 0 else table.append_column(name, column)
    parquet.write_table(table, path)


@pytest.mark.parametrize(
    ("numbers", "texts", "words"),
    [
        ([0], [None], r"task 0 is None; expected a text$"),
        ([0], [b"\xff"], r"task 0 is b'\\xff'; expected a text$"),
        ([0], [["pick", "place"]], r"task 0 is \['pick', 'place'\]; expected a text$"),
        ([0, 0], ["wave", "nod"], "lists task 0 twice, as 'wave' and 'nod'$"),
    ],
)
def test_a_task_is_one_text(write, numbers, texts, words):
    root = write()
    parquet.write_table(pa.table({"task_index": numbers, "task": texts}), root / "meta/tasks.parquet")
    with pytest.raises(MorphVlaError, match=rf"meta/tasks\.parquet: {words}"):
        layout.read(root)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"task_index": 0, "task": None}], r"task 0 is None; expected a text$"),
        ([{"task_index": 0}], r"task 0 is None; expected a text$"),
        (
            [{"task_index": 0, "task": "wave"}, {"task_index": 0, "task": "nod"}],
            "lists task 0 twice, as 'wave' and 'nod'$",
        ),
    ],
)
def test_so_it_is_in_earlier_versions(write, lines, words):
    root = write("v2.1")
    (root / "meta/tasks.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(MorphVlaError, match=rf"meta/tasks\.jsonl: {words}"):
        layout.read(root)


def test_a_task_that_is_listed_twice_alike_is_one(write):
    root = write()
    parquet.write_table(pa.table({"task_index": [0, 0], "task": ["wave"] * 2}), root / "meta/tasks.parquet")
    assert layout.read(root).tasks == {0: "wave"}


def test_lengths_of_pandas_are_lengths(write):
    root = write()
    edit(root / EPISODES, length=[7.0, 99.0, 11.0])
    assert [entry.length for entry in layout.read(root).episodes] == [7, 99, 11]
    edit(root / EPISODES, length=[7.0, None, 11.0])
    assert [entry.length for entry in layout.read(root).episodes] == [7, None, 11]
    edit(root / EPISODES, length=[7.0, 5.5, 11.0])
    with pytest.raises(MorphVlaError, match=r"length of episode 1 is 5\.5; expected a whole number from 0$"):
        layout.read(root)


@pytest.mark.parametrize("word", ["from_timestamp", "to_timestamp"])
def test_a_time_of_a_billion_seconds_is_none(write, word):
    root = write()
    key = f"videos__observation.images.front__{word}"
    edit(root / EPISODES, **{key: [0.0, 1e308, 2.0]})
    with pytest.raises(MorphVlaError, match=rf"front/{word} of episode 1 is 1e\+308 s$"):
        layout.read(root)


@pytest.mark.parametrize("shape", [[10**300] * 5000, [3] * 9, [-1], [True], [2_000_000]])
def test_a_shape_that_no_feature_has_says_no_width(shape):
    assert layout.width_of({"shape": shape}) is None
    assert layout.width_of({"shape": [3, 5]}) == 15


def test_a_column_that_is_there_twice_is_named(write):
    root = write()
    path = root / EPISODES
    table = parquet.read_table(path)
    parquet.write_table(table.append_column("length", table.column("length")), path)
    with pytest.raises(MorphVlaError, match=r"has 2 columns 'length'$"):
        layout.read(root)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q01": [1.0, 0.0], "q99": [0.0, 1.0]}, "q99 of value 0, 0, is below its q01, 1$"),
        ({"std": [1.0, -0.5]}, "std of value 1 is -0.5$"),
        ({"q99": [1e300, 1.0]}, r"1e\+300 is no value of a robot's$"),
    ],
)
def test_statistics_that_no_values_have_are_refused(changes, words):
    plain = {"q01": [0.0, 0.0], "q99": [1.0, 1.0], "mean": [0.5, 0.5], "std": [0.3, 0.3]}
    assert from_plain(plain).q99 == (1.0, 1.0)
    with pytest.raises(ValueError, match=words):
        from_plain({**plain, **changes})
