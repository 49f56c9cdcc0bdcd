"""Whether the meta files say which frames of a video file show which episode."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from morph_vla.data.layout import Video


def unclear(videos: Mapping[int, Video], lengths: Mapping[int, int], fps: float) -> tuple[int, str] | None:
    """The first episode without frames of its own in its file, and what the camera does there; None for none.

    `videos` are one camera's, `lengths` the frames of each episode in the tables. Of a file of two episodes:

        clear      0 0 0 0 1 1 1       each has its own, from the file's first frame on
        unclear    0 0 * * 1           two are shown as both
    """
    files: dict[Path, list[int]] = {}
    for index, video in videos.items():
        files.setdefault(video.path, []).append(index)
    for indices in files.values():
        unsaid = [index for index in indices if videos[index].begin is None]
        if unsaid and len(indices) > 1:
            return unsaid[0], (
                "shows several episodes in one file, and meta/episodes does not say where episode "
                f"{unsaid[0]} begins (from_timestamp)"
            )
        begins = [(round((videos[index].begin or 0.0) * fps), index) for index in indices]
        if wrong := _overlapping(sorted(begins), lengths):
            return wrong
    return None


def _overlapping(begins: Sequence[tuple[int, int]], lengths: Mapping[int, int]) -> tuple[int, str] | None:
    """Of one file's episodes in their order, each with its first frame."""
    end, before = 0, -1
    for first, index in begins:
        if first < 0:
            return (
                index,
                f"shows episode {index} from {-first} frames before its file begins (from_timestamp)",
            )
        if first < end:
            shared = f"from its file's frame {first} on, which is episode {before}'s (from_timestamp)"
            return index, f"shows episode {index} {shared}"
        end, before = first + lengths.get(index, 0), index
    return None
