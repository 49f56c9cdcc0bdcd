"""The same frames are the same bytes: a recording's videos do not depend on what else the machine does."""

import hashlib
import threading
from pathlib import Path

import numpy as np
import pytest

from morph_vla.demonstrations import lerobot_writer

av = pytest.importorskip("av")
pytest.importorskip("lerobot")

FRAMES, SIZE, THREADS, EACH = 43, 96, 4, 40


def frames() -> np.ndarray:
    """A dark square and a bright one, moving over a shaded table: uint8 [FRAMES, SIZE, SIZE, 3]."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    shade = 150 + 50 * np.sin(columns / 23) + 20 * np.cos(rows / 11)
    film = np.repeat(shade[None, :, :, None], FRAMES, 0) * np.array([1.0, 0.9, 0.7])
    for index in range(FRAMES):
        row, column = 10 + index, 70 - index
        film[index, row : row + 13, column : column + 11] = [180, 30, 40]
        film[index, 60 - index : 90 - index, 20:34] = [230, 230, 235]
    return film.clip(0, 255).astype(np.uint8)


def encode(film: np.ndarray, path: Path, options: dict[str, str]) -> str:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("h264", 15, options=options)
        stream.pix_fmt, stream.width, stream.height = "yuv420p", SIZE, SIZE
        for picture in film:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode())
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_same_frames_are_encoded_to_the_same_bytes_under_load(tmp_path):
    film, digests = frames(), []
    options = lerobot_writer._encoder().get_codec_options(1, as_strings=True)

    def work(thread: int) -> None:
        for index in range(EACH):
            digests.append(encode(film, tmp_path / f"{thread}_{index}.mp4", options))

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) == THREADS * EACH
    assert len(set(digests)) == 1
