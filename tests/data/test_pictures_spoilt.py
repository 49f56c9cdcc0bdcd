"""Encoded pictures that cannot be read, and paths that lead elsewhere: each is one sentence."""

import numpy as np
import pytest
from pictured import (
    BROKEN,
    COUNT,
    EXTERIOR,
    HEIGHT,
    SIZE,
    WIDTH,
    WRIST,
    cell_of,
    edit,
    encoded,
    files_of,
    wanted,
)

from morph_vla.data import frames, lerobot, pictures, pool
from morph_vla.errors import MorphVlaError

pytest.importorskip("lerobot", reason="lerobot is not installed; it needs Python 3.12")
pytestmark = pytest.mark.filterwarnings("ignore")  # LeRobot's own


# ---------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("name", BROKEN)
def test_a_picture_that_cannot_be_decoded_is_named(write, workers, tmp_path, name):
    make, sentence = BROKEN[name]
    root = write(group=4)
    path = files_of(root)[0]
    edit(path, WRIST, lambda place, cell: {"bytes": make(), "path": None} if place == 9 else cell)
    footage = lerobot.footage(lerobot.read(root), WRIST)
    told = rf"^{path}: camera 'wrist_image_left', episode 1, frame 2 cannot be decoded: {sentence}$"
    for decoders in (workers, pool.Here(SIZE)):
        reader = frames.opened(footage, decoders)
        with pytest.raises(MorphVlaError, match=told):
            reader.ask(np.array([3, 9, 11]))()
        np.testing.assert_array_equal(reader.ask(np.array([8]))(), wanted(WRIST)[8:9])  # it goes on
    with pytest.raises(MorphVlaError, match=told):
        frames.cached(footage, SIZE, tmp_path / "cache", None, workers)
    assert not list((tmp_path / "cache").glob("*.npy"))
    alone = lerobot.footage(lerobot.read(root, episodes=(1,)), WRIST)
    with pytest.raises(MorphVlaError, match=told):  # by the dataset's own number
        frames.opened(alone, workers).ask(np.array([2]))()


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_a_picture_may_be_a_file_of_the_dataset(write, tmp_path, version):
    root = write(version)
    (root / "images").mkdir()
    for path in files_of(root):
        edit(path, EXTERIOR, lambda _, cell: {"bytes": None, "path": f"images/{cell['path']}"})
    for row in range(COUNT):
        (root / "images" / f"frame_{row:06d}.png").write_bytes(cell_of(row, EXTERIOR)["bytes"])
    images = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    np.testing.assert_array_equal(images, wanted(EXTERIOR))


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
@pytest.mark.parametrize("way", ["absolute", "upward", "link"])
def test_a_path_that_leads_out_is_not_followed(write, tmp_path, way, version):
    root = write(version)
    secret = tmp_path / "secret.png"
    secret.write_bytes(cell_of(0, EXTERIOR)["bytes"])
    (root / "link.png").symlink_to(secret)
    name = {"absolute": str(secret), "upward": "../secret.png", "link": "link.png"}[way]
    path = files_of(root)[0]
    edit(path, EXTERIOR, lambda place, cell: {"bytes": None, "path": name} if place == 3 else cell)
    recordings = lerobot.read(root)
    why = f"path '{name}' leads out of the dataset; it is not followed"
    if (way, version) == ("link", "v2.1"):  # the copy has no such link
        why = f"file '{name}': No such file or directory"
    with pytest.raises(
        MorphVlaError,
        match=rf"\.parquet: camera '{EXTERIOR}', episode 0, frame 3 cannot be decoded: it has no bytes, and "
        rf"its {why}$",
    ):
        frames.cached(lerobot.footage(recordings, EXTERIOR), SIZE, tmp_path / "cache")


def test_a_name_beside_the_bytes_is_only_a_name(write, tmp_path):
    root = write()
    edit(files_of(root)[0], EXTERIOR, lambda _, cell: {**cell, "path": "/home/somebody/frame.png"})
    images = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    np.testing.assert_array_equal(images, wanted(EXTERIOR))


def test_the_hubs_links_to_its_own_files_are_followed(tmp_path):
    snapshot = tmp_path / "datasets--a--b" / "snapshots" / "1f"
    blob = tmp_path / "datasets--a--b" / "blobs" / "9c"
    for folder in (snapshot, blob.parent):
        folder.mkdir(parents=True)
    blob.write_bytes(b"7")
    (snapshot / "a.png").symlink_to(blob)
    assert pictures.data_of((None, "a.png"), snapshot) == b"7"
    with pytest.raises(
        pictures.MissingError, match=r"^it has no bytes, and its file 'b\.png': No such file or directory$"
    ):
        pictures.data_of((None, "b.png"), snapshot)


def test_columns_that_are_none_of_pictures(write, tmp_path):
    from pyarrow import parquet

    root = write()
    path = files_of(root)[0]
    table = parquet.read_table(path)
    footage = lerobot.footage(lerobot.read(root), EXTERIOR)
    for changed, sentence in (
        (table.rename_columns([f"{n}s" if n == EXTERIOR else n for n in table.column_names]),
         rf"no column '{EXTERIOR}'; did you mean '{EXTERIOR}s'\?"),
        (table.set_column(table.schema.get_field_index(EXTERIOR), EXTERIOR, table.column("index")),
         rf"'{EXTERIOR}' holds int64; expected pictures, {{bytes, path}}"),
    ):  # fmt: skip
        parquet.write_table(changed, path)
        with pytest.raises(MorphVlaError, match=rf"^{path}: {sentence}$"):
            frames.opened(footage, pool.Here(SIZE)).ask(np.array([1]))


def test_a_table_that_was_cut_since_it_was_read(write):
    from pyarrow import parquet

    root = write()
    path = files_of(root)[0]
    footage = lerobot.footage(lerobot.read(root), EXTERIOR)
    parquet.write_table(parquet.read_table(path).slice(0, 5), path)
    with pytest.raises(
        MorphVlaError,
        match=rf"^{path}: camera '{EXTERIOR}', episode 1, frame 2 cannot be decoded: no row 9; the "
        r"file has 5$",
    ):
        frames.opened(footage, pool.Here(SIZE)).ask(np.array([9]))()


def test_a_part_of_a_file_that_is_spoilt(write, tmp_path):
    from pyarrow import parquet

    root = write(group=5)
    path = files_of(root)[0]
    metadata = parquet.ParquetFile(path).metadata.row_group(1)
    column = next(
        metadata.column(i) for i in range(metadata.num_columns)
        if metadata.column(i).path_in_schema == f"{EXTERIOR}.bytes"
    )  # fmt: skip
    begin = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[begin : begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    with pytest.raises(
        MorphVlaError,
        match=rf"^{path}: camera '{EXTERIOR}', episode 0, frame 5 cannot be decoded: cannot be read as "
        r"parquet: \S",
    ):
        frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")


def test_a_mended_picture_is_decoded_anew(write, tmp_path):
    root = write()
    before = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    path = files_of(root)[1]
    black = {"bytes": encoded(np.zeros((HEIGHT, WIDTH, 3), np.uint8)), "path": None}
    black["bytes"] += b"\0" * (len(cell_of(13, EXTERIOR)["bytes"]) - len(black["bytes"]))
    edit(path, EXTERIOR, lambda place, cell: black if place == 1 else cell)
    after = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    assert not after[13].any()
    np.testing.assert_array_equal(np.delete(after, 13, axis=0), np.delete(before, 13, axis=0))
