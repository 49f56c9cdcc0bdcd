"""Frames decoded when asked for: the same pixels as from the front, and what is said when it fails."""

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import time
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.data import decoding, frames, pool
from morph_vla.errors import MorphVlaError
from morph_vla.pixels import resize_with_pad

av = pytest.importorskip("av", reason="PyAV is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # FFmpeg's own

SIZE = 19
# per file: codec, its options, whether frames refer to later ones, frames of its episodes
FILES = {
    "front/a.mp4": ("libx264", {"g": "2", "preset": "veryfast"}, (7, 11)),
    "front/b.mp4": ("libx264", {"g": "13", "bf": "3", "preset": "veryfast"}, (29,)),
    "front/c.mp4": ("libx264", {"g": "250", "bf": "2", "x264-params": "open-gop=1:keyint=12"}, (5, 31, 3)),
    "front/d.mp4": ("libsvtav1", {"g": "10", "preset": "12"}, (23, 2)),
}


def write(path: Path, codec: str, options: dict[str, str], count: int, seed: int) -> None:
    """Moving noise: every frame differs from its neighbours."""
    random = np.random.default_rng(seed)
    scene = random.integers(0, 256, (12, 16 + count, 3), np.uint8).repeat(6, axis=0).repeat(6, axis=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=10, options=options)
        stream.width, stream.height, stream.pix_fmt = 96, 72, "yuv420p"
        for number in range(count):
            picture = np.ascontiguousarray(scene[:, 5 * number : 5 * number + 96])
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))


def whole(path: Path) -> list[np.ndarray]:
    """All frames, read from the front."""
    with av.open(str(path)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return [resize_with_pad(picture, SIZE) for picture in pictures]


def footage_of(root: Path, files: dict[str, tuple[int, ...]]) -> frames.Footage:
    """Files whose episodes lie one after another; the rows are in that order."""
    lengths = [length for episodes in files.values() for length in episodes]
    ends = np.cumsum(lengths)
    return frames.Footage(
        root=root,
        camera="front",
        content=hashlib.sha256(repr(files).encode()).hexdigest()[:16],
        files=tuple(root / name for name in files),
        file_of=np.repeat(np.arange(len(files)), [sum(episodes) for episodes in files.values()]),
        number=np.concatenate([np.arange(sum(episodes)) for episodes in files.values()]),
        starts=ends - lengths,
        ends=ends,
    )


@pytest.fixture(scope="module")
def footage(tmp_path_factory) -> frames.Footage:
    """Four files, eight episodes, GOPs of 2, 10, 13 and open ones; frames that refer to later ones."""
    root = tmp_path_factory.mktemp("footage")
    for seed, (name, (codec, options, episodes)) in enumerate(FILES.items()):
        write(root / name, codec, options, sum(episodes), seed)
    return footage_of(root, {name: episodes for name, (_, _, episodes) in FILES.items()})


@pytest.fixture(scope="module")
def pixels(footage) -> np.ndarray:
    return np.stack([picture for path in footage.files for picture in whole(path)])


@pytest.fixture(scope="module")
def workers():
    two = pool.Pool(2, SIZE)
    yield two
    two.close()


def test_the_files_have_what_makes_random_access_hard(footage):
    late, keys = {}, {}
    for path in footage.files:
        with av.open(str(path)) as container:
            packets = [packet for packet in container.demux(video=0) if packet.size]
        late[path.name] = any(one.pts > other.pts for one, other in itertools.pairwise(packets))
        keys[path.name] = sum(packet.is_keyframe for packet in packets)
    assert late == {"a.mp4": False, "b.mp4": True, "c.mp4": True, "d.mp4": False}
    assert keys["a.mp4"] == 9
    assert all(1 < keys[name] < 9 for name in ("b.mp4", "c.mp4", "d.mp4"))


def test_every_row_alone_has_the_pixels_of_reading_from_the_front(footage, pixels, workers):
    video = frames.Video(footage, workers)
    for row in (*range(footage.rows), *range(footage.rows - 1, -1, -1)):
        np.testing.assert_array_equal(video.ask(np.array([row]))()[0], pixels[row], err_msg=str(row))


@given(rows=st.lists(st.integers(0, 110), min_size=1, max_size=40))
def test_any_rows_in_any_order_have_those_pixels(footage, pixels, workers, rows):
    video = frames.Video(footage, workers)
    np.testing.assert_array_equal(video.ask(np.array(rows))(), pixels[rows])


@pytest.mark.slow
@given(rows=st.lists(st.integers(0, 110), min_size=1, max_size=30), most=st.integers(1, 3))
def test_no_more_files_are_open_than_allowed_and_the_pixels_stay(footage, pixels, rows, most):
    films = decoding.Films(most)
    video = frames.Video(footage, pool.Here(SIZE))
    wanted = [decoding.Wanted(*video.locate(np.array([row]))[0]) for row in rows]
    for row, picture in zip(rows, films.pictures(wanted), strict=True):
        assert len(films) <= most
        np.testing.assert_array_equal(resize_with_pad(picture, SIZE), pixels[row])
    films.close()
    assert len(films) == 0


@pytest.mark.parametrize("small", [0, 10**6], ids=["workers", "here"])
def test_the_cache_has_those_pixels_whoever_decodes(footage, pixels, workers, tmp_path, monkeypatch, small):
    monkeypatch.setattr(frames, "SMALL", small)
    reports = []
    images = frames.cached(footage, SIZE, tmp_path, lambda *at: reports.append(at), workers)
    np.testing.assert_array_equal(images, pixels)
    assert reports[0] == (0, 111)
    assert reports[-1] == (111, 111)
    assert reports == sorted(reports)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_a_whole_file_is_decoded_in_parts_that_begin_where_decoding_can(footage, monkeypatch):
    monkeypatch.setattr(frames, "RUN", 5)
    video = frames.Video(footage, pool.Here(SIZE))
    runs = list(video.runs())
    assert sorted(row for run in runs for row in run.tolist()) == list(range(111))
    assert len(runs) > len(footage.files)
    for run in runs:
        assert len(set(footage.file_of[run])) == 1
        first = video.locate(run[:1])[0]
        assert first[1] == first[2]  # its first frame needs none before it


def test_recorded_videos_with_frames_that_need_hundreds(shared, workers):
    """GR1's are h264 with one place in 250 to begin at and frames that refer to later ones; G1's are AV1."""
    for pattern in (
        "gr1_sim_picknplace_v20/videos/**/*.mp4",
        "g1_inspire_v21/videos/**/*.mp4",
    ):
        path = min((shared / "lerobot_data").glob(pattern))
        pixels = whole(path)
        count = len(pixels)
        one = footage_of(path.parent, {path.name: (count,)})
        rows = np.array([count - 1, 0, 1, count // 2, 251, 249, 250, 3, count - 2])
        images = frames.Video(one, workers).ask(rows)()
        np.testing.assert_array_equal(images, np.stack([pixels[row] for row in rows]))


# ---------------------------------------------------------------------------------------- what goes wrong


def test_a_frame_that_cannot_be_decoded_is_named(footage, tmp_path, workers):
    path = tmp_path / "b.mp4"
    spoilt = bytearray((footage.root / "front/b.mp4").read_bytes())
    with av.open(str(footage.root / "front/b.mp4")) as container:
        last = max((p for p in container.demux(video=0) if p.is_keyframe and p.size), key=lambda p: p.pts)
        start, end = last.pos, last.pos + last.size
    spoilt[start:end] = b"\xff" * (end - start)
    path.write_bytes(spoilt)
    video = frames.Video(footage_of(tmp_path, {"b.mp4": (10, 19)}), workers)
    video.ask(np.array([3]))()
    with pytest.raises(MorphVlaError, match=rf"^{path}: episode 1, frame 18 cannot be decoded: \S"):
        video.ask(np.array([2, 28]))()
    video.ask(np.array([4]))()  # the worker goes on


def test_a_video_that_ends_early_and_one_that_is_not_there(footage, tmp_path, workers):
    path = tmp_path / "a.mp4"
    path.write_bytes((footage.root / "front/a.mp4").read_bytes())
    video = frames.Video(footage_of(tmp_path, {"a.mp4": (7, 11, 5)}), workers)
    with pytest.raises(
        MorphVlaError,
        match=rf"^{path}: the video ends before episode 2 does \(5 frames are missing\); the file is "
        r"truncated$",
    ):
        video.ask(np.array([19]))
    gone = frames.Video(footage_of(tmp_path, {"e.mp4": (3,)}), workers)
    with pytest.raises(
        MorphVlaError, match=rf"^{tmp_path}/e\.mp4: the video cannot be decoded: .*No such file"
    ):
        gone.ask(np.array([1]))
    path.write_bytes(b"")
    empty = frames.Video(footage_of(tmp_path, {"a.mp4": (3,)}), workers)
    with pytest.raises(MorphVlaError, match=rf"^{path}: the video cannot be decoded: \S"):
        empty.ask(np.array([1]))


def test_a_file_without_video_is_named(tmp_path):
    path = tmp_path / "sound.wav"
    with wave.open(str(path), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(1600))
    with pytest.raises(MorphVlaError, match=rf"^{path}: the file has no video stream$"):
        decoding.index(str(path))


def test_a_worker_that_is_killed_ends_in_a_sentence(footage):
    two = pool.Pool(2, SIZE)
    video = frames.Video(footage, two)
    video.ask(np.arange(20))()
    for number in two.pids:
        os.kill(number, signal.SIGKILL)
    sentence = (
        rf"^a worker that decodes video ended \(killed by SIGKILL\) while it read {footage.root}/front/\w"
        r"\.mp4; a machine out of memory does that: try fewer data\.workers\. The same command goes on$"
    )
    for _ in range(2):
        with pytest.raises(MorphVlaError, match=sentence):
            video.ask(np.arange(40))()
    two.close()
    with pytest.raises(MorphVlaError, match=sentence):
        video.ask(np.arange(40))()


def test_closed_workers_say_so(footage):
    one = pool.Pool(1, SIZE)
    frames.Video(footage, one).ask(np.arange(3))()
    one.close()
    with pytest.raises(MorphVlaError, match=r"^the workers that decode video were closed$"):
        frames.Video(footage, one).ask(np.arange(3))()


def ended(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{number}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


PARENT = """
import os, signal, sys, numpy as np
from morph_vla.data import pool
two = pool.Pool(2, 5)
two.submit({"index": "none"}).result()
print(*two.pids, "jax" in sys.modules, flush=True)
if sys.argv[1] == "exception":
    raise ValueError
if sys.argv[1] == "signal":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["end", "exception", "signal"])
def test_workers_end_with_their_parent_however_it_ends(how):
    done = subprocess.run([sys.executable, "-c", PARENT, how], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:9]) == {
        "end": (0, ""), "exception": (1, "Traceback"), "signal": (-signal.SIGKILL, ""),
    }[how]  # fmt: skip
    *numbers, jax = done.stdout.split()
    assert (len(numbers), jax) == (2, "False")
    limit = time.monotonic() + 10
    while not all(ended(int(number)) for number in numbers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert all(ended(int(number)) for number in numbers)


def test_workers_end_with_the_last_reference(footage):
    one = pool.Pool(1, SIZE)
    frames.Video(footage, one).ask(np.arange(3))()
    (number,) = one.pids
    del one
    assert ended(number)


def test_a_worker_knows_no_jax_and_no_lerobot():
    code = (
        "import sys, morph_vla.data.decoding; print({'jax', 'lerobot', 'torch', 'grain'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_too_little_room_is_said_before_decoding(footage, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        MorphVlaError,
        match=rf"^{tmp_path}: no room for 0\.00 GB of decoded frames \([\d.]+ GB are free: No space left on "
        r"device\); data\.frames=video needs none$",
    ):
        frames.cached(footage, SIZE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_who_comes_while_another_decodes_waits(footage, pixels, tmp_path, monkeypatch):
    import threading

    first, go = threading.Event(), threading.Event()
    fill, filled = frames._fill, []

    def slowly(*arguments):
        filled.append(1)
        first.set()
        go.wait(10)
        fill(*arguments)

    monkeypatch.setattr(frames, "_fill", slowly)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(frames.cached(footage, SIZE, tmp_path)))
        for _ in range(2)
    ]
    threads[0].start()
    assert first.wait(10)
    threads[1].start()
    time.sleep(0.2)
    go.set()
    for thread in threads:
        thread.join()
    assert filled == [1]
    for one in results:
        np.testing.assert_array_equal(one, pixels)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_progress_has_rate_and_time_left(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(frames.time, "monotonic", lambda: now[0])
    progress = frames.telling("decoding camera 'front'")
    with caplog.at_level("INFO", "morph_vla"):
        for passed, done in ((1, 50), (10, 200), (15, 300), (20, 400)):
            now[0] = 100.0 + passed
            progress(done, 1000)
    assert caplog.messages == [
        "decoding camera 'front': 200 of 1000 frames, 20/s, 40 s left",
        "decoding camera 'front': 400 of 1000 frames, 20/s, 30 s left",
    ]


def test_what_auto_keeps(footage):
    assert frames.fit([footage], 224)
    assert not frames.fit([footage], 5100)  # 111 frames of 78 MB
