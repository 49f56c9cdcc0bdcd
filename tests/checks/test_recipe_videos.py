"""Recipes held against their videos: which are missing, cut, too short, or of another rate."""

import json
from typing import Any

import numpy as np
import pytest
from recipe_checks import check_sentences, edit_info, edit_table, once, replaced

from morph_vla.data import frames, lerobot, pool
from morph_vla.errors import MorphVlaError


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_videos_that_are_missing_empty_cut_or_too_short(write, write_video, version):
    root = write(version)
    front, wrist = (sorted((root / "videos").rglob(f"*{name}*/**/*.mp4")) for name in ("front", "wrist"))
    front[0].write_bytes(b"")
    front[1].unlink()
    whole = wrist[0].read_bytes()
    wrist[0].write_bytes(whole[: len(whole) // 2])  # the box with the index stands at the end
    write_video(wrist[1], 3)
    lines = check_sentences(root)
    count = 3 if version == "v3.0" else 1
    remedy = r"fetch the videos, or leave out the episodes \(`episodes`\) or the camera"
    place = front[0].relative_to(root)
    assert once(
        lines,
        rf"error: {root}: episode 0: camera 'front': {count} of 5 episodes lack their video \({place} is "
        rf"empty\); {remedy}",
    )
    assert once(
        lines, rf"error: {root}: episode \d: camera 'front': \d of 5 episodes lack .* is missing\); {remedy}"
    )
    place = wrist[0].relative_to(root)
    assert once(
        lines,
        rf"error: {root}: episode 0: camera 'wrist': {place} cannot be opened \(.*\); an interrupted "
        "recording has no index at its end: fetch or record it again",
    )
    place = wrist[1].relative_to(root)
    assert once(
        lines,
        rf"error: {root}: episode \d: camera 'wrist': {place} has 3 frames and this episode's are 0 to "
        r"\d+; the video is shorter than the table: leave the episode out with `episodes`",
    )


def test_a_video_whose_index_stands_first_and_whose_pictures_are_cut(write):
    import av

    root = write("v2.1")
    path = sorted((root / "videos").rglob("*front*/**/*.mp4"))[3]
    moved = path.with_name("moved.mp4")
    with av.open(str(path)) as old, av.open(str(moved), "w", options={"movflags": "faststart"}) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    whole = moved.read_bytes()
    moved.unlink()
    path.write_bytes(whole[: whole.index(b"mdat") + (len(whole) - whole.index(b"mdat")) // 2])
    place = path.relative_to(root)
    assert once(
        check_sentences(root),
        rf"error: {root}: episode 3: camera 'front': {place} is cut: its header speaks of 0\.57 s, and "
        r"the file ends after 0\.\d\d s; fetch it again",
    )


def test_rates_that_do_not_agree(write):
    root = write()
    edit_info(root, fps=20)
    lines = check_sentences(root)
    assert once(
        lines,
        rf"error: {root}: info\.json says 20 Hz, and the time stamps are 30 Hz apart; correct fps in "
        r"meta/info\.json, or the time stamps",
    )
    assert once(
        lines,
        rf"error: {root}: episode 0: camera 'front': videos/\S+ runs at 30 Hz, and info\.json says 20 Hz "
        r"\(and 1 more videos like it\); pictures and values drift apart: correct fps, or make the "
        "videos anew",
    )
    assert once(
        lines,
        f"warning: {root}: recorded at 20 Hz, expected control_rate 30 Hz; a policy trained on it acts at .*",
    )


def test_a_camera_whose_pictures_should_be_in_the_table(write):
    root = write()
    features = json.loads((root / "meta/info.json").read_text())["features"]
    key = "observation.images.front"
    edit_info(root, features={**features, key: {**features[key], "dtype": "image"}})
    assert once(
        check_sentences(root),
        rf"error: {root}: camera 'front' in 2 files: {root}/data/chunk-000/file-000\.parquet: no column "
        rf"'{key}'; did you mean 'observation\.state'\?; write the dataset anew, or leave the camera out",
    )


def test_cameras_that_are_not_there(write):
    root = write()
    lines = check_sentences(root, "data.cameras={base_0_rgb: fromt}")
    assert once(
        lines,
        rf"error: {root}: no camera 'fromt'; did you mean 'front'\?; name the dataset's camera with "
        "`cameras`",
    )
    assert once(
        check_sentences(root, "data.cameras={}"),
        r"warning: data\.cameras: no camera of the dataset is used \(it has front, wrist\); name them "
        "with `cameras`; without one the policy is blind",
    )


@pytest.mark.parametrize(("moved", "code"), [(-4, "shows 3 frames"), (4, "has 11 frames")])
def test_an_episode_whose_part_of_a_film_is_not_as_long_as_its_table(write, moved, code):
    """The film goes on with the next episode's frames, so that its own length shows nothing."""
    root = write()  # episode 2 has 7 frames
    fps = json.loads((root / "meta/info.json").read_text())["fps"]
    (table,) = (root / "meta/episodes").rglob("*.parquet")
    name = "videos/observation.images.front/to_timestamp"

    def shift(rows):
        ends = rows.column(name).to_pylist()
        return replaced(rows, name, [*ends[:2], ends[2] + moved / fps, *ends[3:]])

    edit_table(table, shift)
    lines = [line for line in check_sentences(root) if "camera 'front'" in line]
    assert len(lines) == 1
    assert "episode 2: " in lines[0]
    assert code in lines[0]
    if moved < 0:
        words = "camera 'front' shows 3 frames of episode 2, which has 7; leave it out"
        with pytest.raises(MorphVlaError, match=words):
            lerobot.footage(lerobot.read(root), "front")
    else:
        assert lerobot.footage(lerobot.read(root), "front").files


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        ([-0.1, 11 / 30], "shows episode 0 from 3 frames before its file begins"),
        ([0.0, 0.0], "shows episode 1 from its file's frame 0 on, which is episode 0's"),
        ([0.0, 10 / 30], "shows episode 1 from its file's frame 10 on, which is episode 0's"),
    ],
)
def test_an_episode_without_frames_of_its_own_is_an_error_in_check_and_training(write, begins, words):
    """Frames are taken by their number: one below 0 would be one from the end of the file."""
    root = write()
    (table,) = (root / "meta/episodes").rglob("*.parquet")
    name = "videos/observation.images.front/from_timestamp"
    edit_table(table, lambda rows: replaced(rows, name, [*begins, *rows.column(name).to_pylist()[2:]]))
    lines = [line for line in check_sentences(root) if line.startswith("error") and "camera 'front'" in line]
    assert len(lines) == 1
    remedy = "(from_timestamp); correct from_timestamp in meta/episodes, or write the dataset anew"
    assert lines[0].endswith(f"{words} {remedy}")
    with pytest.raises(
        MorphVlaError, match=rf"camera 'front' {words} \(from_timestamp\); write the dataset anew"
    ):
        lerobot.footage(lerobot.read(root), "front")


def test_a_file_that_says_neither_frames_nor_length_is_counted(write):
    """Matroska, as some tools write it."""
    import av

    root = write("v2.1")
    path = sorted((root / "videos").rglob("*front*/**/*.mp4"))[1]
    remade = path.with_name("remade.mkv")
    with av.open(str(path)) as old, av.open(str(remade), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        packets = [packet for packet in old.demux(video=0) if packet.dts is not None]
        for packet in packets[:9]:
            packet.stream = stream
            new.mux(packet)
    remade.rename(path)
    (line,) = [line for line in check_sentences(root) if "episode 1: camera 'front'" in line]
    assert "has 9 frames and this episode's are 0 to 12" in line


def test_a_folder_with_a_colon_in_its_name_is_no_protocol(write, monkeypatch):
    root = write()
    place = root.parent / "a:b"
    place.mkdir()
    root.rename(place / root.name)
    monkeypatch.chdir(root.parent)
    relative = f"a:b/{root.name}"
    assert not [line for line in check_sentences(relative) if line.startswith("error")]
    footage = lerobot.footage(lerobot.read(relative), "front")
    assert frames.Video(footage, pool.Here(14)).ask(np.array([5]))().shape == (1, 14, 14, 3)


def test_files_of_other_widths_are_an_error_where_info_json_says_none(write):
    root = write("v2.1")
    info = json.loads((root / "meta/info.json").read_text())
    for name in ("action", "observation.state"):
        del info["features"][name]["shape"]
    edit_info(root, features=info["features"])
    path = sorted((root / "data").rglob("*.parquet"))[3]

    def narrow(rows):
        return replaced(rows, "action", [row[:5] for row in rows.column("action").to_pylist()])

    edit_table(path, narrow)
    (line,) = [line for line in check_sentences(root) if "values in episode_000003" in line]
    words = (
        "episode 3: 'action' has 6 values in episode_000000.parquet, and 5 values in episode_000003.parquet; "
    )
    assert line.startswith(f"error: {root}: {words}")


def write_depth(path, frames: int, size: int = 16):
    """Lossless video of 16 bits of grey, as depth cameras are kept."""
    import av

    remade = path.with_name("remade.mkv")
    with av.open(str(remade), "w") as out:
        stream: Any = out.add_stream("ffv1", rate=30)
        stream.width, stream.height, stream.pix_fmt = size, size, "gray16le"
        for number in range(frames):
            picture = np.full((size, size), 1000 + number, np.uint16)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="gray16le")))
        out.mux(stream.encode(None))
    remade.rename(path)


def test_depth_is_no_picture(write):
    """It would be taken for colours, all but its eight highest bits lost."""
    root = write("v3.0")
    path = min((root / "videos").rglob("*front*/**/*.mp4"))
    write_depth(path, 60)
    place = path.relative_to(root)
    assert once(
        check_sentences(root),
        rf"error: {root}: episode 0: camera 'front': {place} has 16 bits of grey: it shows depth, which is "
        r"no colour; leave the camera out \(`cameras`\): eight bits of it would be left, as grey",
    )
    video = frames.Video(lerobot.footage(lerobot.read(root), "front"), pool.Here(14))
    with pytest.raises(MorphVlaError, match=r"16 bits of grey: depth is no colour; leave the camera out"):
        video.ask(np.array([5]))()


def test_frames_of_another_size_than_said_or_than_other_videos(write, write_video):
    """Training scales each from its own size; what a suite must show is read from info.json."""
    root = write("v2.1")
    paths = sorted((root / "videos").rglob("*front*/**/*.mp4"))
    write_video(paths[2], 13, size=34)
    place = paths[2].relative_to(root)
    words = rf"episode 2: camera 'front': {place} has frames of 34 x 34 pixels, and {{}} 16 x 16; each is "
    words += r"scaled from its own size: correct the shape in meta/info.json"
    assert once(check_sentences(root), rf"warning: {root}: {words.format('info.json says')}")
    info = json.loads((root / "meta/info.json").read_text())
    del info["features"]["observation.images.front"]["shape"]
    edit_info(root, features=info["features"])
    assert once(check_sentences(root), rf"warning: {root}: {words.format('the first video has')}")
