"""Cameras whose pictures are encoded within the tables: pillow's pixels, and what is said of the others."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictured import (
    BROKEN,
    CELL,
    COUNT,
    EXTERIOR,
    FRONT,
    HEIGHT,
    KEYS,
    LENGTHS,
    SIZE,
    WIDTH,
    WRIST,
    cell_of,
    edit,
    encoded,
    files_of,
    pillow,
    pixels,
    wanted,
)

from morph_vla.data import frames, lerobot, pictures, pool
from morph_vla.errors import MorphVlaError
from morph_vla.pixels import resize_with_pad

pytest.importorskip("lerobot", reason="lerobot is not installed; it needs Python 3.12")
pytestmark = pytest.mark.filterwarnings("ignore")  # LeRobot's own


# ------------------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("PNG", mode) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")),
        *(("JPEG", mode) for mode in ("RGB", "L", "CMYK")),
    ],
)
def test_a_picture_has_the_pixels_that_pillow_decodes(kind, mode):
    data = encoded(pixels(1, "x", (11, 7, 3)), kind, mode)
    images = pictures.decode(data)
    assert (images.shape, images.dtype) == ((11, 7, 3), np.uint8)
    np.testing.assert_array_equal(images, pillow(data))


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_picture_is_one_sentence(name, tmp_path):
    make, sentence = BROKEN[name]
    with pytest.raises(pictures.PictureError, match=rf"^{sentence}$"):
        pictures.decode(pictures.data_of((make(), None), tmp_path))


def test_a_picture_of_many_bytes_is_not_opened(monkeypatch):
    monkeypatch.setattr(pictures, "MAX_BYTES", 2 << 20)
    with pytest.raises(pictures.PictureError, match=r"^it has 2097153 bytes, more than 2 MiB$"):
        pictures.decode(bytes(2097153))


# --------------------------------------------------------------------------------------------- both modes


@pytest.mark.parametrize("version", ["v3.0", "v2.1", "v2.0"])
def test_both_modes_give_the_pixels_that_pillow_decodes(write, workers, tmp_path, version):
    root = write(version)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    recordings = lerobot.read(root)
    assert recordings.cameras == (EXTERIOR, WRIST, "front")
    for key in KEYS:
        footage = lerobot.footage(recordings, key)
        every = wanted(key)
        np.testing.assert_array_equal(frames.cached(footage, SIZE, tmp_path / "cache", None, workers), every)
        ask = frames.opened(footage, workers).ask
        np.testing.assert_array_equal(ask(np.arange(COUNT)[::-1])(), every[::-1])
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("group", [1, 2, 5, None])
def test_any_rows_in_any_order_have_those_pixels(write, monkeypatch, group):
    monkeypatch.setattr(pictures, "PART", 3)
    footage = lerobot.footage(lerobot.read(write(group=group)), WRIST)
    reader, every = frames.opened(footage, pool.Here(SIZE)), wanted(WRIST)

    @settings(max_examples=20)
    @given(rows=st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=31))
    def law(rows):
        np.testing.assert_array_equal(reader.ask(np.array(rows))(), every[rows])

    law()


@pytest.mark.parametrize("group", [1, 2, 5, None])
@pytest.mark.parametrize("most", [3, 8192])
def test_the_cache_reads_every_row_group_once(write, tmp_path, monkeypatch, group, most):
    monkeypatch.setattr(frames, "RUN", 4)
    monkeypatch.setattr(frames, "MOST", most)
    begun = []
    begin = pictures.Table._begin
    monkeypatch.setattr(
        pictures.Table, "_begin", lambda self, group: begun.append((self.path, group)) or begin(self, group)
    )
    footage = lerobot.footage(lerobot.read(write(group=group)), "front")
    runs = list(frames.opened(footage, pool.Here(SIZE)).runs())
    assert sorted(np.concatenate(runs).tolist()) == list(range(COUNT))
    assert all(len(set(footage.file_of[run])) == 1 for run in runs)
    np.testing.assert_array_equal(frames.cached(footage, SIZE, tmp_path / "cache"), wanted(FRONT))
    assert len(begun) == len(set(begun))


@settings(max_examples=40)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from((0, 1)), st.sampled_from(KEYS), st.integers(0, 2)), min_size=1, max_size=20
    ),
    most=st.integers(1, 3),
)
def test_no_more_tables_are_open_than_allowed_and_one_holds_pictures(two_files, asked, most):
    open_tables = pictures.Tables(most)
    for file, key, row in asked:
        (pixels,) = open_tables.pictures(str(two_files[file]), key, str(two_files[file].parent), [row])
        np.testing.assert_array_equal(pixels, pillow(cell_of(row + 5 * file, key)["bytes"]))
        assert len(open_tables) <= most
        assert sum(bool(table._part) for table in open_tables._open.values()) == 1
    open_tables.close()
    assert len(open_tables) == 0


@pytest.fixture(scope="module")
def two_files(tmp_path_factory) -> list[Path]:
    import pyarrow as pa
    from pyarrow import parquet

    folder, made = tmp_path_factory.mktemp("tables"), []
    for file in (0, 1):
        columns = {key: pa.array([cell_of(row + 5 * file, key) for row in range(3)], CELL()) for key in KEYS}
        made.append(folder / f"{file}.parquet")
        parquet.write_table(pa.table(columns), made[-1])
    return made


def test_a_column_of_bytes_alone_is_read_too(write, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    root = write()
    for path in files_of(root):
        table = parquet.read_table(path)
        at = table.schema.get_field_index(EXTERIOR)
        flat = pa.array([cell["bytes"] for cell in table.column(at).to_pylist()], pa.large_binary())
        parquet.write_table(table.set_column(at, EXTERIOR, flat), path)
    images = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    np.testing.assert_array_equal(images, wanted(EXTERIOR))


def test_some_episodes_have_their_own_pictures(write, tmp_path):
    for version in ("v3.0", "v2.1"):
        some = lerobot.read(write(version, folder=version), episodes=(0, 2))
        images = frames.cached(lerobot.footage(some, EXTERIOR), SIZE, tmp_path / "cache")
        np.testing.assert_array_equal(images, np.delete(wanted(EXTERIOR), range(7, 12), axis=0))


@pytest.mark.parametrize("version", ["v3.0", "v2.0"])
def test_videos_and_pictures_go_together(write, tmp_path, version):
    recordings = lerobot.read(write(version, keys=(EXTERIOR,), cameras=("front",)))
    assert set(recordings.cameras) == {EXTERIOR, "front"}
    kept = {
        one: frames.cached(lerobot.footage(recordings, one), SIZE, tmp_path / "cache")
        for one in recordings.cameras
    }
    np.testing.assert_array_equal(kept[EXTERIOR], wanted(EXTERIOR))
    assert (np.diff(kept["front"][:7].mean(axis=(1, 2, 3))) > 4).all()  # `encode_video` grows brighter


def test_what_lerobots_own_writer_leaves(tmp_path, workers):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root = tmp_path / "written"
    vector = {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]}
    image = {"dtype": "image", "shape": (HEIGHT, WIDTH, 3), "names": ["height", "width", "channel"]}
    features = {"observation.state": vector, "action": vector, EXTERIOR: image, FRONT: image}
    data = LeRobotDataset.create("local/written", 15, features, root=root, use_videos=False)
    row = 0
    for length in LENGTHS:
        for _ in range(length):
            value = np.full(3, row, np.float32)
            pair = {key: pixels(row, key) for key in (EXTERIOR, FRONT)}
            data.add_frame({**pair, "observation.state": value, "action": value, "task": "wave"})
            row += 1
        data.save_episode()
    data.finalize()
    recordings = lerobot.read(root)
    for key in (EXTERIOR, FRONT):
        footage = lerobot.footage(recordings, key)
        every = np.stack([resize_with_pad(pixels(row, key), SIZE) for row in range(COUNT)])
        np.testing.assert_array_equal(frames.cached(footage, SIZE, tmp_path / "cache"), every)
        np.testing.assert_array_equal(frames.opened(footage, workers).ask(np.arange(COUNT))(), every)
    theirs: Any = LeRobotDataset("local/written", root=root)
    ours = pictures.Tables().pictures(str(footage.files[0]), EXTERIOR, str(root), range(COUNT))
    for row, picture in enumerate(ours):
        theirs_picture = np.asarray(theirs[row][EXTERIOR].permute(1, 2, 0) * 255).round().astype(np.uint8)
        np.testing.assert_array_equal(picture, theirs_picture)


def test_lerobots_own_loader_takes_the_copy_of_an_older_one(write):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    made = lerobot.read(write("v2.1"))
    data: Any = LeRobotDataset("local/copy", root=made.root)
    assert len(data) == COUNT
    result = np.asarray(data[9][EXTERIOR].permute(1, 2, 0) * 255).round().astype(np.uint8)
    np.testing.assert_array_equal(result, pixels(9, EXTERIOR))


def test_statistics_of_pictures_are_kept_in_a_copy(write):
    root = write("v2.1")
    one = {key: [[[0.25]], [[0.5]], [[0.75]]] for key in ("min", "max", "mean", "std")}
    lines = [
        {"episode_index": index, "stats": {WRIST: {**one, "count": [n]}}} for index, n in enumerate(LENGTHS)
    ]
    (root / "meta/episodes_stats.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    stats = json.loads((lerobot.read(root).root / "meta/stats.json").read_text())
    assert stats[WRIST]["mean"] == one["mean"]


def test_a_copy_has_small_row_groups(write, monkeypatch):
    from pyarrow import parquet

    monkeypatch.setattr(pictures, "GROUP", 4)
    made = lerobot.read(write("v2.1"))
    (path,) = files_of(made.root)
    metadata = parquet.ParquetFile(path).metadata
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert (max(sizes), sum(sizes)) == (4, COUNT)


# -------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("prefix", ["", "observation.images."])
def test_a_camera_is_found_with_its_prefix_and_without(write, prefix):
    recordings = lerobot.read(write())
    for camera in (EXTERIOR, WRIST, "front"):
        assert lerobot.footage(recordings, prefix + camera).camera == camera


def test_a_camera_of_a_video_is_found_by_its_whole_key(write_dataset):
    values = [{"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}]
    recordings = lerobot.read(write_dataset("v3.0", values, cameras=("front",)))
    assert lerobot.footage(recordings, "observation.images.front").camera == "front"


def test_two_features_of_one_short_name_stay_apart(write, tmp_path):
    recordings = lerobot.read(write(keys=(FRONT, "front")))
    assert recordings.cameras == (FRONT, "front")
    for key in recordings.cameras:
        kept = frames.cached(lerobot.footage(recordings, key), SIZE, tmp_path / "cache")
        np.testing.assert_array_equal(kept, wanted(key))


def test_the_nearest_camera_is_named(write):
    recordings = lerobot.read(write())
    with pytest.raises(
        MorphVlaError,
        match=rf"^{recordings.root}: no camera 'wrist_image_lfet'; did you mean 'wrist_image_left'\?$",
    ):
        lerobot.footage(recordings, "wrist_image_lfet")
    with pytest.raises(
        MorphVlaError,
        match=rf"^{recordings.root}: no camera 'observation\.images\.frnt'; did you mean 'front'\?$",
    ):
        lerobot.footage(recordings, "observation.images.frnt")


# ----------------------------------------------------------------------------------- training, and its check


def recipe_of(root: Path, *overrides: str):
    from morph_vla.recipes import recipe as config

    given = [
        f"data.dataset={root}", "data.robot=so101", "model.max_tokens=61", "data.held_out=0.4",
        f"data.cameras={{base_0_rgb: {EXTERIOR}, left_wrist_0_rgb: observation.images.front}}",
        "model.image_size=19", "model.vit.patch=19", "training.batch=5", "data.phases={}",
    ]  # fmt: skip
    return config.load("panda_demo", [*given, *overrides])


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_a_batch_has_the_pictures_of_its_rows_in_both_modes(write, tmp_path, version):
    from morph_vla.training.source import Source

    root = write(version, width=6)
    for mode in ("cache", "video"):
        source = Source(recipe_of(root, f"data.frames={mode}", "data.workers=1"), tmp_path / "cache")
        assert source.parts[0].asked.cameras == {"base_0_rgb": EXTERIOR, "left_wrist_0_rgb": "front"}
        rows = np.array([11, 2, 7])
        batch = source.batch(np.zeros(3, np.int64), rows)
        np.testing.assert_array_equal(batch.observation.images["base_0_rgb"], wanted(EXTERIOR)[rows])
        np.testing.assert_array_equal(batch.observation.images["left_wrist_0_rgb"], wanted(FRONT)[rows])


def check_sentences(root: Path, *overrides: str) -> list[str]:
    from morph_vla.checks import recipe as check

    report = check.check(recipe_of(root, *overrides))
    return [str(problem) for problem in report.problems if "camera" in str(problem)]


@pytest.mark.parametrize("version", ["v3.0", "v2.1", "v2.0"])
def test_nothing_is_said_of_pictures_as_they_should_be(write, version):
    assert check_sentences(write(version, width=6)) == []


@pytest.mark.parametrize("name", BROKEN)
def test_check_names_a_picture_that_is_none(write, name):
    import re

    make, sentence = BROKEN[name]
    root = write(width=6)
    path = files_of(root)[0]
    edit(path, EXTERIOR, lambda place, cell: {"bytes": make(), "path": None} if place == 7 else cell)
    place = r"data/chunk-000/file-000\.parquet"
    what = rf"in {place} cannot be decoded: {sentence}"
    if name == "no bytes":
        what = rf"is missing in {place}: {sentence}"
    (line,) = check_sentences(root)
    assert re.fullmatch(
        rf"error: {root}: episode 1, frame 0: camera '{EXTERIOR}': its picture {what}; fetch or write the "
        r"dataset anew, or leave the episode out with `episodes`",
        line,
    ), line


def test_check_finds_the_one_row_without_bytes_by_the_footer(write):
    root = write(width=6, group=2)
    edit(
        files_of(root)[0], EXTERIOR, lambda place, cell: {"bytes": None, "path": None} if place == 5 else cell
    )
    assert check_sentences(root) == [
        f"error: {root}: episode 0, frame 5: camera '{EXTERIOR}': its picture is missing in "
        "data/chunk-000/file-000.parquet: it has no bytes; fetch or write the dataset anew, or leave the "
        "episode out with `episodes`"
    ]
    assert check_sentences(root, "data.episodes=[1, 2]") == []


@pytest.mark.parametrize(
    ("shape", "names", "says"),
    [
        ([HEIGHT, WIDTH + 2, 3], ["height", "width", "channel"], "13 x 25"),
        ([3, HEIGHT, WIDTH], ["channels", "height", "width"], None),
        ([3, HEIGHT, WIDTH], None, None),
        ([1, HEIGHT, WIDTH], None, None),
        ([HEIGHT, WIDTH, 1], None, None),
        ([WIDTH, HEIGHT, 3], None, "23 x 13"),
        ([HEIGHT], None, None),
    ],
)
def test_check_holds_sizes_against_info_json(write, shape, names, says):
    root = write(width=6)
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"][EXTERIOR] = {"dtype": "image", "shape": shape, "names": names}
    path.write_text(json.dumps(info))
    wanted_words = [
        f"warning: {root}: episode 0, frame 0: camera '{EXTERIOR}': its picture has 13 x 23 pixels, "
        f"and info.json says {says}; each is scaled from its own size: "
        "correct the shape in meta/info.json"
    ]
    assert check_sentences(root) == (wanted_words if says else [])
    trained_on = lerobot.read(root).sizes.get(EXTERIOR, (HEIGHT, WIDTH))
    assert "{} x {}".format(*trained_on) == (
        says or f"{HEIGHT} x {WIDTH}"
    )  # training reads what the check reads


def test_check_names_columns_that_are_not_there_and_cameras(write):
    from pyarrow import parquet

    root = write(width=6)
    for path in files_of(root):
        table = parquet.read_table(path)
        parquet.write_table(table.drop_columns([EXTERIOR]), path)
    first = files_of(root)[0]
    assert check_sentences(root) == [
        f"error: {root}: camera '{EXTERIOR}' in 2 files: {first}: no column '{EXTERIOR}'; did you mean "
        f"'{WRIST}'?; write the dataset anew, or leave the camera out"
    ]
    assert check_sentences(root, "data.cameras={base_0_rgb: observation.images.frnt}") == [
        f"error: {root}: no camera 'observation.images.frnt'; did you mean 'front'?; name the dataset's "
        "camera with `cameras`"
    ]


def test_check_tells_of_large_row_groups_where_the_dataset_is_read_in_place(write, monkeypatch):
    from morph_vla.checks import cameras as picture_problems

    monkeypatch.setattr(picture_problems, "FAR", 7000)
    lines = check_sentences(write(width=6))
    assert len(lines) == 2
    assert lines[0].endswith(
        f"camera '{EXTERIOR}': data/chunk-000/file-000.parquet has up to 0 MiB of pictures in one row group; "
        "data.frames=cache reads each once; data.frames=video one for each picture"
    )
    assert check_sentences(write("v2.1", width=6, folder="older")) == []


def test_a_picture_beside_the_table_that_was_mended_is_converted_again(write, tmp_path):
    root = write("v2.1", keys=("observation.images.front",))
    files = [f"images/{number}.png" for number in range(COUNT)]
    (root / "images").mkdir()
    rows = iter(range(COUNT))
    for path in files_of(root):

        def outside(place, cell):
            number = next(rows)
            (root / files[number]).write_bytes(cell["bytes"])
            return {"bytes": None, "path": files[number]}

        edit(path, "observation.images.front", outside)
    shown = frames.cached(lerobot.footage(lerobot.read(root), "front"), SIZE, tmp_path / "one")
    np.testing.assert_array_equal(shown, wanted("observation.images.front"))
    (root / files[3]).write_bytes((root / files[4]).read_bytes())
    again = frames.cached(lerobot.footage(lerobot.read(root), "front"), SIZE, tmp_path / "two")
    np.testing.assert_array_equal(again[3], shown[4])
    np.testing.assert_array_equal(np.delete(again, 3, axis=0), np.delete(shown, 3, axis=0))


@pytest.mark.parametrize("kind", ["no path", "binary"])
def test_pictures_without_paths_name_no_file_beside_them(tmp_path, kind):
    """v2.x tables of cells {bytes}, which are read as they are."""
    import pyarrow as pa
    from pyarrow import parquet

    cells = [{"bytes": b"1"}, {"bytes": b"2"}] if kind == "no path" else [b"1", b"2"]
    parquet.write_table(pa.table({"front": pa.array(cells)}), tmp_path / "one.parquet")
    assert pictures.beside(tmp_path / "one.parquet", "front", tmp_path) == []
    assert pictures.beside(tmp_path / "one.parquet", "wrist", tmp_path) == []
