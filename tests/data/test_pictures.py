"""Cameras whose pictures are encoded within the tables: pillow's pixels, and what is said of the others."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.data import frames, lerobot, pictures, pool
from morph_vla.errors import MorphVlaError
from morph_vla.pixels import resize_with_pad

pytest.importorskip("lerobot", reason="lerobot is not installed; it needs Python 3.12")
pytestmark = pytest.mark.filterwarnings("ignore")  # LeRobot's own

SIZE, HEIGHT, WIDTH = 19, 13, 23
LENGTHS = (7, 5, 3)
COUNT = sum(LENGTHS)
EXTERIOR, WRIST, FRONT = "exterior_image_1_left", "wrist_image_left", "observation.images.front"
KEYS = (EXTERIOR, WRIST, FRONT)


def pixels(row: int, key: str, size: tuple[int, ...] = (HEIGHT, WIDTH, 3)) -> np.ndarray:
    return np.random.default_rng([row, len(key)]).integers(0, 256, size, np.uint8)


def encoded(array: np.ndarray, kind: str = "PNG", mode: str = "RGB") -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(array).convert(mode).save(out, kind)
    return out.getvalue()


def cell_of(row: int, key: str) -> dict[str, Any]:
    """What openpi's conversion leaves in the table: the bytes, and the name they once had."""
    kind = "JPEG" if key == WRIST else "PNG"
    return {"bytes": encoded(pixels(row, key), kind), "path": f"frame_{row:06d}.png"}


def pillow(data: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def wanted(key: str, size: int = SIZE) -> np.ndarray:
    """All frames, by pillow alone."""
    return np.stack([resize_with_pad(pillow(cell_of(row, key)["bytes"]), size) for row in range(COUNT)])


def files_of(root: Path) -> list[Path]:
    return sorted((root / "data").rglob("*.parquet"))


def edit(path: Path, key: str, change, group: int | None = None) -> None:
    """Write a table anew with each cell of a column as `change(place in file, cell)` has it."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(path)
    at = table.schema.get_field_index(key)
    cells = [change(place, cell) for place, cell in enumerate(table.column(at).to_pylist())]
    parquet.write_table(table.set_column(at, key, pa.array(cells, CELL())), path, row_group_size=group)


def CELL():
    import pyarrow as pa

    return pa.struct({"bytes": pa.binary(), "path": pa.string()})


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
    found = pictures.decode(data)
    assert (found.shape, found.dtype) == ((11, 7, 3), np.uint8)
    np.testing.assert_array_equal(found, pillow(data))


def bomb() -> bytes:
    """A small PNG whose header speaks of 8209 x 4099 pixels."""
    import struct
    import zlib

    data = bytearray(encoded(pixels(0, "x")))
    data[16:24] = struct.pack(">II", 8209, 4099)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


def deep() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.full((5, 7), 30000, np.uint16)).save(out, "PNG")
    return out.getvalue()


def gif() -> bytes:
    return encoded(pixels(0, "x"), "GIF")


BROKEN = {
    "junk": (lambda: b"\x80\x04K*.", r"its 5 bytes are neither PNG nor JPEG"),
    "another format": (gif, r"its \d+ bytes are neither PNG nor JPEG"),
    "cut PNG": (lambda: encoded(pixels(0, "x"))[:299], r"image file is truncated.*"),
    "cut JPEG": (lambda: encoded(pixels(0, "x"), "JPEG")[:-99], r"image file is truncated.*"),
    "bomb": (bomb, r"it has 8209 x 4099 pixels, more than 32 million"),
    "depth": (deep, r"its pixels are I;16; expected colours of eight bits"),
    "no bytes": (lambda: b"", r"it has no bytes"),
}


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
    found = lerobot.read(root)
    assert found.cameras == (EXTERIOR, WRIST, "front")
    for key in KEYS:
        footage = lerobot.footage(found, key)
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
        (found,) = open_tables.pictures(str(two_files[file]), key, str(two_files[file].parent), [row])
        np.testing.assert_array_equal(found, pillow(cell_of(row + 5 * file, key)["bytes"]))
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
    found = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    np.testing.assert_array_equal(found, wanted(EXTERIOR))


def test_some_episodes_have_their_own_pictures(write, tmp_path):
    for version in ("v3.0", "v2.1"):
        some = lerobot.read(write(version, folder=version), episodes=(0, 2))
        found = frames.cached(lerobot.footage(some, EXTERIOR), SIZE, tmp_path / "cache")
        np.testing.assert_array_equal(found, np.delete(wanted(EXTERIOR), range(7, 12), axis=0))


@pytest.mark.parametrize("version", ["v3.0", "v2.0"])
def test_videos_and_pictures_go_together(write, tmp_path, version):
    found = lerobot.read(write(version, keys=(EXTERIOR,), cameras=("front",)))
    assert set(found.cameras) == {EXTERIOR, "front"}
    kept = {
        one: frames.cached(lerobot.footage(found, one), SIZE, tmp_path / "cache") for one in found.cameras
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
    found = lerobot.read(root)
    for key in (EXTERIOR, FRONT):
        footage = lerobot.footage(found, key)
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
    found = np.asarray(data[9][EXTERIOR].permute(1, 2, 0) * 255).round().astype(np.uint8)
    np.testing.assert_array_equal(found, pixels(9, EXTERIOR))


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
    found = lerobot.read(write())
    for camera in (EXTERIOR, WRIST, "front"):
        assert lerobot.footage(found, prefix + camera).camera == camera


def test_a_camera_of_a_video_is_found_by_its_whole_key(write_dataset):
    values = [{"observation.state": np.ones((3, 2)), "action": np.ones((3, 2))}]
    found = lerobot.read(write_dataset("v3.0", values, cameras=("front",)))
    assert lerobot.footage(found, "observation.images.front").camera == "front"


def test_two_features_of_one_short_name_stay_apart(write, tmp_path):
    found = lerobot.read(write(keys=(FRONT, "front")))
    assert found.cameras == (FRONT, "front")
    for key in found.cameras:
        kept = frames.cached(lerobot.footage(found, key), SIZE, tmp_path / "cache")
        np.testing.assert_array_equal(kept, wanted(key))


def test_the_nearest_camera_is_named(write):
    found = lerobot.read(write())
    with pytest.raises(
        MorphVlaError,
        match=rf"^{found.root}: no camera 'wrist_image_lfet'; did you mean 'wrist_image_left'\?$",
    ):
        lerobot.footage(found, "wrist_image_lfet")
    with pytest.raises(
        MorphVlaError,
        match=rf"^{found.root}: no camera 'observation\.images\.frnt'; did you mean 'front'\?$",
    ):
        lerobot.footage(found, "observation.images.frnt")


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
    found = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    np.testing.assert_array_equal(found, wanted(EXTERIOR))


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
    found = lerobot.read(root)
    why = f"path '{name}' leads out of the dataset; it is not followed"
    if (way, version) == ("link", "v2.1"):  # the copy has no such link
        why = f"file '{name}': No such file or directory"
    with pytest.raises(
        MorphVlaError,
        match=rf"\.parquet: camera '{EXTERIOR}', episode 0, frame 3 cannot be decoded: it has no bytes, and "
        rf"its {why}$",
    ):
        frames.cached(lerobot.footage(found, EXTERIOR), SIZE, tmp_path / "cache")


def test_a_name_beside_the_bytes_is_only_a_name(write, tmp_path):
    root = write()
    edit(files_of(root)[0], EXTERIOR, lambda _, cell: {**cell, "path": "/home/somebody/frame.png"})
    found = frames.cached(lerobot.footage(lerobot.read(root), EXTERIOR), SIZE, tmp_path / "cache")
    np.testing.assert_array_equal(found, wanted(EXTERIOR))


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


def said(root: Path, *overrides: str) -> list[str]:
    from morph_vla.checks import recipe as check

    report = check.check(recipe_of(root, *overrides))
    return [str(problem) for problem in report.problems if "camera" in str(problem)]


@pytest.mark.parametrize("version", ["v3.0", "v2.1", "v2.0"])
def test_nothing_is_said_of_pictures_as_they_should_be(write, version):
    assert said(write(version, width=6)) == []


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
    (found,) = said(root)
    assert re.fullmatch(
        rf"error: {root}: episode 1, frame 0: camera '{EXTERIOR}': its picture {what}; fetch or write the "
        r"dataset anew, or leave the episode out with `episodes`",
        found,
    ), found


def test_check_finds_the_one_row_without_bytes_by_the_footer(write):
    root = write(width=6, group=2)
    edit(
        files_of(root)[0], EXTERIOR, lambda place, cell: {"bytes": None, "path": None} if place == 5 else cell
    )
    assert said(root) == [
        f"error: {root}: episode 0, frame 5: camera '{EXTERIOR}': its picture is missing in "
        "data/chunk-000/file-000.parquet: it has no bytes; fetch or write the dataset anew, or leave the "
        "episode out with `episodes`"
    ]
    assert said(root, "data.episodes=[1, 2]") == []


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
    assert said(root) == (wanted_words if says else [])
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
    assert said(root) == [
        f"error: {root}: camera '{EXTERIOR}' in 2 files: {first}: no column '{EXTERIOR}'; did you mean "
        f"'{WRIST}'?; write the dataset anew, or leave the camera out"
    ]
    assert said(root, "data.cameras={base_0_rgb: observation.images.frnt}") == [
        f"error: {root}: no camera 'observation.images.frnt'; did you mean 'front'?; name the dataset's "
        "camera with `cameras`"
    ]


def test_check_tells_of_large_row_groups_where_the_dataset_is_read_in_place(write, monkeypatch):
    from morph_vla.checks import cameras as picture_problems

    monkeypatch.setattr(picture_problems, "FAR", 7000)
    found = said(write(width=6))
    assert len(found) == 2
    assert found[0].endswith(
        f"camera '{EXTERIOR}': data/chunk-000/file-000.parquet has up to 0 MiB of pictures in one row group; "
        "data.frames=cache reads each once; data.frames=video one for each picture"
    )
    assert said(write("v2.1", width=6, folder="older")) == []
