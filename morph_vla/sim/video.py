"""Videos that browsers play."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from morph_vla.errors import require


def write_video(path: Path, frames: Sequence[np.ndarray], rate: float) -> None:
    """Write RGB frames [h w 3] as an H.264 MP4 that browsers play."""
    av = require("av", "sim")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished.mp4")
    with av.open(str(unfinished), "w") as container:
        stream = container.add_stream(
            "libx264", rate=round(rate), options={"crf": "24", "preset": "veryfast"}
        )
        height, width = frames[0].shape[:2]
        stream.width, stream.height, stream.pix_fmt = width // 2 * 2, height // 2 * 2, "yuv420p"
        for frame in frames:
            image = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[: stream.height, : stream.width]))
            container.mux(stream.encode(image))
        container.mux(stream.encode())
    unfinished.replace(path)
