"""Values of one episode: the three versions read alike, and what is said of every broken dataset."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from morph_vla.data import info, layout, tables, values
from morph_vla.errors import MorphVlaError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

VERSIONS = ("v2.0", "v2.1", "v3.0")
LENGTHS = (7, 5, 11, 3)


def rows(count: int, width: int, start: int) -> np.ndarray:
    return start + np.arange(count * width, dtype=np.float64).reshape(count, width)


def episodes() -> list[dict]:
    return [
        {"action": rows(count, 3, 100 * index), "observation.state": rows(count, 2, -100 * index)}
        for index, count in enumerate(LENGTHS)
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("index", range(len(LENGTHS)))
def test_an_episode_is_what_was_written(write_dataset, version, index):
    names = {"action": ["a", "b", "c"], "observation.state": {"motors": ["d", "e"]}}
    root = write_dataset(version, episodes(), names=names, fps=20)
    read = values.read(root, index)
    assert (read.version, read.index, read.fps, read.robot_type) == (version, index, 20.0, "tiny")
    assert read.frames == LENGTHS[index]
    for name, wanted in episodes()[index].items():
        np.testing.assert_array_equal(read.values[name], wanted)
    assert read.names == {"action": ("a", "b", "c"), "observation.state": ("d", "e")}
    assert read.timestamps is not None
    np.testing.assert_allclose(np.diff(read.timestamps), 1 / 20, rtol=1e-5)


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (["a", "b", "c"], ("a", "b", "c")),
        ([["a", "b", "c"]], ("a", "b", "c")),
        ({"motors": ["a", "b", "c"]}, ("a", "b", "c")),
        ({"a": 0, "b": 1, "c": 2}, ("a", "b", "c")),
        (None, ()),
        ("abc", ()),
        ([1, 2, 3], ()),
    ],
)
def test_names_as_the_converters_write_them(write_dataset, found, names):
    root = write_dataset("v2.1", [{"action": rows(3, 3, 0)}], names={"action": found})
    assert values.read(root).names["action"] == names


def test_one_of_action_and_state_is_enough_and_others_can_be_asked_for(write_dataset):
    root = write_dataset("v2.1", [{"observation.state": rows(5, 2, 0), "effort": rows(5, 3, 7)}])
    assert set(values.read(root).values) == {"observation.state"}
    asked = values.read(root, 0, ["effort"]).values
    np.testing.assert_array_equal(asked["effort"], rows(5, 3, 7))


def test_a_value_that_is_missing_or_not_finite_is_kept(write_dataset):
    wrong = rows(5, 3, 0)
    wrong[2, 1] = np.nan
    root = write_dataset("v3.0", [{"action": wrong}])
    np.testing.assert_array_equal(values.read(root).values["action"], wrong)


def test_a_chunk_other_than_the_template_says(write_dataset):
    root = write_dataset(
        "v2.0",
        episodes(),
        info={"data_path": "data/chunk-{episode_index:03d}/episode_{episode_index:06d}.parquet"},
    )
    np.testing.assert_array_equal(values.read(root, 3).values["action"], episodes()[3]["action"])


# --------------------------------------------------------------------------------------- broken datasets


def refused(sentence: str):
    return pytest.raises(MorphVlaError, match=re.escape(sentence))


def edit(root: Path, **keys) -> Path:
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | keys))
    return root


def test_what_is_no_dataset(tmp_path):
    with refused("nowhere: no such folder"):
        values.read(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with refused("file: not a folder"):
        values.read(tmp_path / "file")
    with refused("no LeRobot dataset here (meta/info.json is missing)"):
        values.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"{", "info.json: not JSON: "),
        (b"\xff\xfe", "info.json: not JSON: "),
        (b"[" * 100_000, "info.json: not JSON: "),
        (b"[]", "info.json: expected an object that has 'features'"),
        (b'{"features": []}', "info.json: expected an object that has 'features'"),
        (b"{}", "a LeRobot dataset without codebase_version; expected v2.0, v2.1 or v3.0"),
        (b'{"codebase_version": "v1.6"}', "a LeRobot dataset v1.6; expected v2.0, v2.1 or v3.0"),
        (b'{"codebase_version": 3}', "a LeRobot dataset 3; expected v2.0, v2.1 or v3.0"),
        (
            b'{"codebase_version": "v2.1", "fps": 30, "features": {"reward": {}}}',
            "has neither 'action' nor 'observation.state' (there are 'reward')",
        ),
    ],
)
def test_a_broken_info(tmp_path, text, sentence):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_bytes(text)
    with refused(sentence):
        values.read(tmp_path)


def test_a_huge_info_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text("{}" + " " * 2_000)
    monkeypatch.setattr(info, "MAX_INFO", 1_000)
    with refused("info.json: larger than 0 MiB"):
        values.read(tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there_is_named(write_dataset, version):
    root = write_dataset(version, episodes())
    with refused("no feature 'actoin'; did you mean 'action'?"):
        values.read(root, 0, ["actoin"])
    with refused("no episode 4; its episodes are 0 to 3"):
        values.read(root, 4)
    with refused("no episode -1; its episodes are 0 to 3"):
        values.read(root, -1)
    edit(root, fps=0)
    with refused("info.json: fps is 0; expected frames per second"):
        values.read(root)


def test_a_missing_file(write_dataset):
    root = write_dataset("v2.1", episodes())
    (root / "data/chunk-001/episode_000003.parquet").unlink()
    with refused("the file of episode 3 is missing (data/chunk-001/episode_000003.parquet)"):
        values.read(root, 3)
    other = write_dataset("v3.0", episodes(), folder="other")
    (other / "data/chunk-000/file-001.parquet").unlink()
    with refused("the file of episode 3 is missing (data/chunk-000/file-001.parquet)"):
        values.read(other, 3)
    (other / "meta/episodes/chunk-000/file-000.parquet").unlink()
    with refused("v3.0 without the table of its episodes (meta/episodes is missing)"):
        values.read(other, 3)


def test_an_episode_that_the_tables_do_not_hold(write_dataset):
    root = edit(write_dataset("v3.0", episodes()), total_episodes=9)
    with refused("no episode 7; its episodes are 0 to 3"):
        values.read(root, 7)
    table = {"episode_index": [7], "data/chunk_index": [0], "data/file_index": [0]}
    parquet.write_table(pyarrow.table(table), root / "meta/episodes/chunk-000/file-001.parquet")
    with refused("file-000.parquet: holds no frame of episode 7"):
        values.read(root, 7)
    old = write_dataset("v2.1", episodes(), folder="old")
    (old / "data/chunk-000/episode_000000.parquet").replace(old / "data/chunk-000/episode_000001.parquet")
    with refused("episode_000001.parquet: holds no frame of episode 1"):
        values.read(old, 1)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("../../etc/episode_{episode_index:06d}.parquet", "leads out of the dataset; it is not followed"),
        ("/etc/{episode_index}", "leads out of the dataset; it is not followed"),
        ("data/{episode_index.__class__}", "expected fields such as {episode_index:06d}"),
        ("data/{episode_index:999999999d}", "expected fields such as {episode_index:06d}"),
        ("data/{file}", "unknown field {file}"),
        (7, "data_path is 7; expected a path with {episode_index}"),
    ],
)
def test_a_template_is_only_data(write_dataset, template, sentence):
    root = edit(write_dataset("v2.1", episodes()), data_path=template)
    with refused(sentence):
        values.read(root)


def put(root: Path, column) -> Path:
    table = pyarrow.table({"action": column, "episode_index": [0] * len(column)})
    parquet.write_table(table, root / "data/chunk-000/episode_000000.parquet")
    return root


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([[1.0, 2.0], [1.0]], "'action' has 1 values in frame 1 and 2 in frame 0"),
        ([[1.0, 2.0], None], "'action' has nothing in frame 1"),
        (["a", "b"], "'action' holds string; expected a list of numbers per frame"),
        ([[[1.0]], [[2.0]]], "expected a list of numbers per frame"),
        ([[], []], "expected a list of numbers per frame"),
        ([{"a": 1.0}], "expected a list of numbers per frame"),
    ],
)
def test_a_column_that_is_no_matrix(write_dataset, column, sentence):
    root = put(write_dataset("v2.1", [{"action": rows(2, 2, 0)}]), column)
    with refused(sentence):
        values.read(root)


@pytest.mark.parametrize(
    ("episode", "holds"), [(["0", "0"], "string"), ([[0], [0]], r"list<\w+: int64>"), ([0, None], "int64")]
)
def test_an_episode_index_that_is_no_number(write_dataset, episode, holds):
    root = write_dataset("v2.1", [{"action": rows(2, 2, 0)}])
    table = pyarrow.table({"action": [[1.0], [2.0]], "episode_index": episode})
    parquet.write_table(table, root / "data/chunk-000/episode_000000.parquet")
    with pytest.raises(MorphVlaError, match=f"'episode_index' holds {holds}; expected whole numbers$"):
        values.read(root)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("data/chunk_index", None, "data/chunk_index of episode 0 is None"),
        ("data/file_index", "0", "data/file_index of episode 0 is '0'"),
        ("episode_index", None, "episode_index is None"),
        ("episode_index", -1, "episode_index is -1"),
    ],
)
def test_a_table_of_episodes_that_lacks_a_number(write_dataset, column, value, words):
    root = write_dataset("v3.0", episodes()[:1])
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.set_column(table.column_names.index(column), column, [[value]]), path)
    with refused(f"{path}: {words}; expected a whole number from 0"):
        values.read(root)


@pytest.mark.parametrize("letter", ["\u2028", "\u0085"])
def test_a_line_of_json_ends_where_the_line_does(tmp_path, letter):
    path = tmp_path / "tasks.jsonl"
    lines = [{"task_index": 0, "task": f"lift{letter}the cube"}, {"task_index": 1, "task": "drop"}]
    path.write_bytes("\r\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode())
    assert layout.lines_of(path) == lines


def test_a_column_of_single_numbers_and_one_with_a_gap(write_dataset):
    root = put(write_dataset("v2.1", [{"action": rows(2, 2, 0)}]), [1, 2, 3])
    np.testing.assert_array_equal(values.read(root).values["action"], [[1], [2], [3]])
    put(root, [[1.0, None], [3.0, 4.0]])
    np.testing.assert_array_equal(values.read(root).values["action"], [[1, np.nan], [3, 4]])


def test_a_file_that_is_no_parquet_or_lacks_a_column(write_dataset):
    root = write_dataset("v2.1", [{"action": rows(2, 2, 0)}])
    path = root / "data/chunk-000/episode_000000.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refused("episode_000000.parquet: cannot be read as parquet: "):
        values.read(root)
    parquet.write_table(pyarrow.table({"actions": [[1.0]]}), path)
    with refused("no column 'action'; did you mean 'actions'?"):
        values.read(root)
    empty = {"action": pyarrow.array([], pyarrow.list_(pyarrow.float32()))}
    parquet.write_table(pyarrow.table({**empty, "episode_index": pyarrow.array([], pyarrow.int64())}), path)
    with pytest.raises(MorphVlaError, match=r"holds no (rows|frame)"):
        values.read(root)


def test_what_is_read_is_bounded(write_dataset, monkeypatch):
    root = write_dataset("v2.1", episodes())
    monkeypatch.setattr(tables, "MAX_FRAMES", 6)
    with refused("more than 6 rows for one episode"):
        values.read(root)
    monkeypatch.setattr(tables, "MAX_BYTES", 10)
    with refused("GiB of values in one part of the file"):
        values.read(root)


@pytest.mark.parametrize(
    ("shape", "names", "size"),
    [
        ([1, 480, 640], None, (480, 640)),
        ([1, 480, 640], ["channels", "height", "width"], (480, 640)),
        ([3, 480, 640], ["channel", "h", "w"], (480, 640)),
        ([480, 640, 1], None, (480, 640)),
        ([480, 640, 4], {"axes": []}, (480, 640)),
        ([3, 640, 480], ["channels", "width", "height"], (480, 640)),
        ([3, 480, 3], None, (3, 480)),
        ([480, 640], None, None),
        ([480, 640, "3"], None, None),
    ],
)
def test_the_axis_of_the_colours(shape, names, size):
    assert layout.size_of({"shape": shape, "names": names}) == size


# ---------------------------------------------------------------------------------------- public datasets


@pytest.mark.parametrize(
    ("folder", "version", "frames", "widths", "first"),
    [
        ("so101_record_test_v30", "v3.0", 1492, (6, 6), "shoulder_pan.pos"),
        ("g1_inspire_v21", "v2.1", None, (26, 26), "kLeftShoulderPitch"),
        ("gr1_sim_picknplace_v20", "v2.0", 2096, (44, 44), "motor_0"),
        ("piper_act_v30", "v3.0", None, (6, 7), "shoulder_pan.pos"),
    ],
)
def test_public_datasets(shared, folder, version, frames, widths, first):
    root = shared / "lerobot_data" / folder
    if not root.is_dir():
        pytest.skip("shared/lerobot_data is not beside this checkout")
    total = json.loads((root / "meta/info.json").read_text())["total_episodes"]
    read = [values.read(root, index) for index in (range(total) if frames else (0, total - 1))]
    assert {episode.version for episode in read} == {version}
    assert frames is None or sum(episode.frames for episode in read) == frames
    assert tuple(read[0].values[name].shape[1] for name in values.FEATURES) == widths
    assert read[0].names["action"][0] == first
