"""Videos that browsers play, and still pictures of them."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from morph_vla.engines.engine import Frame
from morph_vla.errors import require
from morph_vla.files.writing import write_bytes

if TYPE_CHECKING:
    from av import VideoStream
    from av.container import OutputContainer


class VideoWriter:
    """An H.264 MP4 that browsers play, written as its frames come; it appears whole or not at all."""

    def __init__(self, path: Path, rate: float):
        """`rate` is in frames a second; the size of the video is that of its first frame, cut to even."""
        self.path, self._rate = path, round(rate)
        self.last: Frame | None = None  # the frame that was added last
        self._unfinished = path.with_suffix(".unfinished.mp4")
        self._open: tuple[OutputContainer, VideoStream] | None = None

    def add(self, frame: Frame) -> None:
        """Append an RGB frame [h w 3]."""
        av = require("av", "sim")
        if self._open is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            container = av.open(str(self._unfinished), "w")
            options = {"crf": "24", "preset": "veryfast"}
            stream = container.add_stream("libx264", rate=self._rate, options=options)
            height, width = frame.shape[:2]
            stream.width, stream.height = width // 2 * 2, height // 2 * 2
            stream.pix_fmt = "yuv420p"
            self._open = container, stream
        container, stream = self._open
        self.last = np.ascontiguousarray(frame[: stream.height, : stream.width])
        container.mux(stream.encode(av.VideoFrame.from_ndarray(self.last)))

    def finish(self) -> None:
        """Put the video in its place; nothing where no frame was added."""
        if self._open is not None:
            container, stream = self._open
            container.mux(stream.encode())
            container.close()
            self._unfinished.replace(self.path)

    def discard(self) -> None:
        """Remove what was written."""
        if self._open is not None:
            self._open[0].close()
            self._unfinished.unlink(missing_ok=True)


def write_picture(path: Path, frame: Frame) -> None:
    """Write an RGB frame [h w 3] as a JPEG."""
    av = require("av", "sim")
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = (side // 2 * 2 for side in frame.shape[:2])
    codec = av.CodecContext.create("mjpeg", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, "yuvj420p", Fraction(1)
    codec.options = {"qmin": "3", "qmax": "3"}
    image = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[:height, :width]))
    image = image.reformat(format="yuvj420p", dst_color_range="JPEG")
    packets = [*codec.encode(image), *codec.encode(None)]
    write_bytes(path, b"".join(bytes(packet) for packet in packets))
