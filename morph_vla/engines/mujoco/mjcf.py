"""An MJCF file from a stranger, compiled: bounded, and with nothing read outside a folder.

MuJoCo opens every file that a model names. So the model and what it includes are first read as plain XML,
where document types are refused, and every name of a file is held against the folder.
"""

import math
import os.path
from collections.abc import Iterator
from pathlib import Path

from morph_vla.engines.mujoco.scene import MjModel, mujoco
from morph_vla.errors import MorphVlaError, reason
from morph_vla.robots.markup import MAX_BYTES, Node, parse_xml

MAX_INCLUDES = 100
MAX_ASSETS = 512 << 20  # [bytes] of meshes and textures together; Menagerie's largest robot has a tenth
MAX_COPIED = 10_000  # elements that <replicate>, <attach>, and the counts of composites and flexes add
_FOLDERS = ("meshdir", "texturedir", "assetdir")


def compiled(path: Path, within: Path | None = None) -> MjModel:
    """The model of the MJCF file at `path`; files it names must lie in `within` (default: its own folder).

    Raises MorphVlaError where a file is missing, too large, no MJCF, or outside, for copies without end, and
    with MuJoCo's own words where it does not compile; MissingExtraError without MuJoCo.
    """
    mj = mujoco()
    within = (within or path.parent).resolve()
    copies = [found for root, times in _documents(path, within) for found in _copied(root, times)]
    if sum(times - 1 for _, times in copies) > MAX_COPIED:
        raise _too_many(path)
    nodes = [node for node, _ in copies]
    bases = {path.parent}
    for node in nodes:
        if node.tag == "compiler":
            bases |= {path.parent / node.attributes[key] for key in _FOLDERS if key in node.attributes}
    size = 0
    for node in nodes:
        for name in _files(node):
            files = [_inside(base / name, within, path, name) for base in sorted(bases)]
            # `Path.is_file` raises where a name is too long for a file.
            there = filter(os.path.isfile, files)
            size += max((file.stat().st_size for file in there), default=0)
    if size > MAX_ASSETS:
        raise MorphVlaError(f"{path}: its meshes and textures have more than {MAX_ASSETS >> 20} MiB")
    try:
        return mj.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise MorphVlaError(f"{path}: MuJoCo cannot compile it: {reason(error)}") from error


def _documents(path: Path, within: Path) -> Iterator[tuple[Node, int]]:
    """The outermost elements of the model and of all that it includes, and how often each is there.

    A model that a file attaches is there as often as everything that this file attaches together. A file that
    several others name comes once for each way that makes more of it than those before.
    """
    waiting, seen = [(path, 1)], dict[Path, int]()
    while waiting:
        file, times = waiting.pop()
        if times <= seen.get(file.resolve(), 0):
            continue
        seen[file.resolve()] = times
        if len(seen) > MAX_INCLUDES:
            raise MorphVlaError(f"{path}: it includes more than {MAX_INCLUDES} files")
        if times > MAX_COPIED:  # files that attach each other would go on for ever
            raise _too_many(path)
        root = _root(file)
        yield root, times
        copies = list(_copied(root, times))
        attached = sum(often for node, often in copies if node.tag == "attach")
        for node, often in copies:
            if node.tag in ("include", "model"):
                often = max(attached, 1) if node.tag == "model" else often
                for name in _files(node):
                    waiting.append((_inside(path.parent / name, within, path, name), often))


def _too_many(path: Path) -> MorphVlaError:
    return MorphVlaError(f"{path}: its copies add more than {MAX_COPIED} elements")


def _copied(root: Node, times: int) -> Iterator[tuple[Node, int]]:
    """Every element, in document order, and how often it will be there."""
    stack = [(root, times)]
    while stack:
        node, often = stack.pop()
        often *= math.prod(max(1, _whole(word)) for word in node.attributes.get("count", "").split())
        yield node, often
        stack += [(child, often) for child in reversed(node.children)]


def _root(file: Path) -> Node:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        content.decode()
        document = parse_xml(content, file.name)
    except UnicodeDecodeError as error:
        raise MorphVlaError(f"{file}: is not in UTF-8, which is all that MuJoCo reads; save it so") from error
    except OSError as error:
        raise MorphVlaError(f"{file}: cannot be read: {error.strerror}") from error
    if document.problems:
        raise MorphVlaError("\n".join(map(str, document.problems)))
    if document.root is None or document.root.tag not in ("mujoco", "mujocoinclude"):
        tag = document.root.tag if document.root else "nothing"
        raise MorphVlaError(f"{file}: the outermost element is <{tag}>; expected <mujoco>")
    return document.root


def _files(node: Node) -> list[str]:
    """The files an element names: `file`, and a texture's `fileright` and so on."""
    return [value for key, value in node.attributes.items() if key.startswith("file") and value]


def _inside(file: Path, within: Path, path: Path, name: str) -> Path:
    if not file.resolve().is_relative_to(within):
        raise MorphVlaError(f"{path}: it names the file '{name}', which is outside of {within}")
    return file


def _whole(word: str) -> int:
    """A number of copies; too many where it is none."""
    return int(word) if word.isdecimal() and len(word) < 10 else 2 * MAX_COPIED
