"""A base that comes with the package: a checkpoint in 16 bits, with its card, and no path of this machine.

README.md                the card: data, seeds, commands, success of each robot, digests
averaged.safetensors     the averaged parameters in bfloat16, loaded as float32
about/                   recipe, statistics, tokenizer, versions, and the robots as they were
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.sharing import contents
from morph_vla.weights import packed
from morph_vla.wording import count

RECORDS = "evaluations/"  # stay at home: the card has their numbers


@dataclass(frozen=True)
class Shipped:
    """What was written."""

    folder: Path
    files: int
    nbytes: int
    evaluations: int
    """On the card"""
    sha256: str
    """The policy's digest"""

    def __str__(self) -> str:
        """What was written, and where."""
        evaluations = count(self.evaluations, "evaluation")
        return f"{self.folder}: {count(self.files, 'file')}, {self.nbytes / 1e6:.1f} MB, {evaluations}"


def write(
    checkpoint: Path | str,
    target: Path | str,
    name: str,
    records: Sequence[Path] = (),
    made: Mapping[str, str] | None = None,
) -> Shipped:
    """Write the checkpoint of ours, or the last one of a run, as the base `name` into the folder `target`.

    `records` are evaluations, or folders of them; of this very policy, before or after its parameters were
    rounded, they are on the card. `made` is what the card says beside of how it was made. An earlier base at
    `target` is replaced. Raises MorphVlaError where `target` is another folder, where none of the `records`
    is of this policy, for a file that names a path of this machine, and as `contents.of`.
    """
    target = Path(target)
    if (
        target.exists()
        and not (target / packed.FILE).is_file()
        and (target.is_file() or any(target.iterdir()))
    ):
        raise MorphVlaError(
            f"{target} is there and is no packed checkpoint; give another folder or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        staging, whole = Path(scratch) / "staging", Path(scratch) / target.name
        staging.mkdir()
        options = contents.Options(records, rounded=True, made=made or {})
        shared = contents.of(Path(checkpoint), name, staging, options)
        if records and not shared.evaluations:
            places = ", ".join(map(str, records))
            raise MorphVlaError(f"{places}: no evaluation is of {checkpoint}; `morph-vla eval` makes one")
        files = {at: file for at, file in shared.files.items() if not at.startswith(RECORDS)}
        for at, file in files.items():
            data = file if isinstance(file, bytes) else file.read_bytes()
            (whole / at).parent.mkdir(parents=True, exist_ok=True)
            (whole / at).write_bytes(_clean(at, data) if at.endswith(".json") else data)
        if target.exists():
            target.rename(Path(scratch) / "earlier")
        whole.rename(target)
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    return Shipped(target, len(sizes), sum(sizes), shared.evaluations, shared.sha256)


def _clean(name: str, data: bytes) -> bytes:
    """A JSON file without spaces, and a recipe's without the folders of this machine.

    Raises MorphVlaError for a path in another file, whose digest records name.
    """
    values = json.loads(data)
    if name.endswith("recipe.json"):
        values = _changed(values, lambda text: Path(text).name if Path(text).is_absolute() else text)
    elif paths := [text for text in _texts(values) if Path(text).is_absolute()]:
        raise MorphVlaError(
            f"{name} names a path of this machine ({paths[0]}): train by names, with MORPH_VLA_PATH"
        )
    return f"{json.dumps(values, separators=(',', ':'))}\n".encode()


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Plain values with their texts changed."""
    if isinstance(value, dict):
        return {key: _changed(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _texts(value: Any) -> Iterator[str]:
    """The texts among plain values, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(item)
