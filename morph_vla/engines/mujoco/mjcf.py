"""An MJCF file from a stranger, compiled: bounded, and with nothing read outside a folder.

MuJoCo opens every file that a model names. So the model and what it includes are first read as plain XML,
where document types are refused, and every name of a file is held against the folder.
"""

from collections.abc import Iterator
from pathlib import Path

from morph_vla.engines.mujoco.scene import MjModel, mujoco
from morph_vla.errors import MorphVlaError, reason
from morph_vla.robots.markup import MAX_BYTES, Node, parse_xml, walk

MAX_INCLUDES = 100
MAX_ASSETS = 512 << 20  # [bytes] of meshes and textures together; Menagerie's largest robot has a tenth
MAX_COUNT = 1000  # copies in one <replicate>, or points along one edge of a flex
_FOLDERS = ("meshdir", "texturedir", "assetdir")


def compiled(path: Path, within: Path | None = None) -> MjModel:
    """The model of the MJCF file at `path`; files it names must lie in `within` (default: its own folder).

    Raises MorphVlaError where a file is missing, too large, no MJCF, or outside, for copies without end, and
    with MuJoCo's own words where it does not compile; MissingExtraError without MuJoCo.
    """
    mj = mujoco()
    within = (within or path.parent).resolve()
    nodes = [node for root in _documents(path, within) for node in walk(root)]
    bases = {path.parent}
    for node in nodes:
        if node.tag == "compiler":
            bases |= {path.parent / node.attributes[key] for key in _FOLDERS if key in node.attributes}
    size = 0
    for node in nodes:
        for name in _files(node):
            files = [_inside(base / name, within, path, name) for base in sorted(bases)]
            size += max((file.stat().st_size for file in files if file.is_file()), default=0)
        if any(_whole(word) > MAX_COUNT for word in node.attributes.get("count", "").split()):
            raise MorphVlaError(f"{path}:{node.line}: <{node.tag}> makes more than {MAX_COUNT} copies")
    if size > MAX_ASSETS:
        raise MorphVlaError(f"{path}: its meshes and textures have more than {MAX_ASSETS >> 20} MiB")
    try:
        return mj.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise MorphVlaError(f"{path}: MuJoCo cannot compile it: {reason(error)}") from error


def _documents(path: Path, within: Path) -> Iterator[Node]:
    """The outermost elements of the model and of all that it includes, each file once."""
    waiting, seen = [path], set()
    while waiting:
        file = waiting.pop()
        if file.resolve() in seen:
            continue
        seen.add(file.resolve())
        if len(seen) > MAX_INCLUDES:
            raise MorphVlaError(f"{path}: it includes more than {MAX_INCLUDES} files")
        root = _root(file)
        yield root
        included = [node for node in walk(root) if node.tag in ("include", "model")]
        for name in [name for node in included for name in _files(node)]:
            waiting.append(_inside(path.parent / name, within, path, name))


def _root(file: Path) -> Node:
    try:
        with file.open("rb") as opened:
            document = parse_xml(opened.read(MAX_BYTES + 1), file.name)
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
    return int(word) if word.isdecimal() and len(word) < 10 else MAX_COUNT + 1
