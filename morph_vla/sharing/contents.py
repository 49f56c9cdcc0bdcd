"""What of a folder is shared: a checkpoint, the last one of a run, or a dataset.

    README.md                the card
    averaged.safetensors     a checkpoint's parameters, or those that are not its base's (`weights.packed`)
    about/                   recipe, statistics, tokenizer, versions, and the robots as they were
    evaluations/NAME/        record.json of every evaluation of this very policy

A dataset's files stay as they are.
"""

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla import policies
from morph_vla.data import layout as layouts
from morph_vla.errors import MorphVlaError
from morph_vla.files import typed_yaml
from morph_vla.files.home import expanded
from morph_vla.files.hub import Kind
from morph_vla.recipes.keys import Recipe
from morph_vla.results import record as records
from morph_vla.results.record import Record
from morph_vla.results.values import integer, mapping
from morph_vla.sharing import cards
from morph_vla.training import checkpoint
from morph_vla.weights import open_checkpoint, packed
from morph_vla.weights.checkpoint import Checkpoint

LOG = logging.getLogger(__name__)
POLICY, DATASET, RECORDING = Path("about/policy.json"), Path("meta/info.json"), "recording.json"
OF_A_DATASET = ("meta/", "data/", "videos/", "images/")


@dataclass(frozen=True)
class Contents:
    """What is uploaded."""

    kind: Kind
    files: Mapping[str, Path | bytes]
    """Name in the repository -> file, or its content"""
    owned: tuple[str, ...]
    """Folders of the repository in which nothing else remains"""
    tag: str = ""
    evaluations: int = 0
    sha256: str = ""
    """Of a policy: its digest"""

    @property
    def nbytes(self) -> int:
        """Size of all files in bytes."""
        sizes = (len(f) if isinstance(f, bytes) else f.stat().st_size for f in self.files.values())
        return sum(sizes)


@dataclass(frozen=True)
class Options:
    """What is made of a checkpoint."""

    more: Sequence[Path] = ()
    """Records, or folders of them, beside those below a run's folder"""
    base: str = ""
    """Parameters that equal those of this checkpoint are left out"""
    rounded: bool = False
    """Whether parameters are rounded to 16 bits"""
    made: Mapping[str, str] = field(default_factory=dict)
    """What the card says beside of how it was made"""
    revision: str = ""
    """The branch that it goes to; "" is the main one"""


def of(folder: Path, repository: str, staging: Path, options: Options = Options()) -> Contents:
    """What of `folder` goes into `repository`; what must be written for it is written into `staging`.

    Raises MorphVlaError for a folder that holds nothing of the three, and for one that is not complete.
    """
    if (folder / POLICY).is_file():
        return _of_checkpoint(folder, folder, repository, staging, options)
    if (folder / DATASET).is_file():
        if options.base:
            raise MorphVlaError(f"--base is for a checkpoint; {folder} is a dataset")
        if options.more:
            raise MorphVlaError(f"--record is for a checkpoint; {folder} is a dataset")
        return _of_dataset(folder, repository)
    for checkpoints in (folder / "checkpoints", folder / "train" / "checkpoints"):
        if steps := checkpoint.steps(checkpoints):
            return _of_checkpoint(checkpoints / str(steps[-1]), folder, repository, staging, options)
    raise MorphVlaError(
        f"{folder} is no checkpoint (about/policy.json), no run with one (checkpoints/), and no LeRobot "
        "dataset (meta/info.json)"
    )


def _of_checkpoint(folder: Path, run: Path, repository: str, staging: Path, options: Options) -> Contents:
    known, recipe = checkpoint.about(folder), typed_yaml.read(folder / "about" / "recipe.json", Recipe)
    if expanded(recipe.tokenizer).exists():
        LOG.warning("the tokenizer is a file of this machine (%s), and is not shared", recipe.tokenizer)
    weights = staging / packed.FILE
    whole, made = open_checkpoint(folder), {**_demonstrations(recipe), **options.made}
    packed.pack(whole, weights, options.base, open_checkpoint, rounded=options.rounded)
    opened = open_checkpoint(staging)
    sha256 = _digest(known, recipe, opened)
    before = _digest(known, recipe, whole) if options.rounded else ""
    if options.rounded:
        made[f"sha256 of {packed.FILE}"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    evaluations = _named(_evaluations([run, *options.more], {sha256, before or sha256}))
    versions = folder / "about" / "versions.json"
    card = cards.model_card(
        cards.Trained(
            repository,
            known.get("step", 0),
            sha256,
            sum(entry.nbytes // entry.dtype.itemsize for entry in opened.entries.values()),
            recipe,
            known["robots"],
            evaluations,
            _json(versions) if versions.is_file() else {},
            options.base,
            before if before != sha256 else "",
            made,
            options.revision,
        )
    )
    files: dict[str, Path | bytes] = {"README.md": card.encode(), packed.FILE: weights}
    for path in (folder / "about" / f"{name}.json" for name in ("policy", "recipe", "versions")):
        files |= {f"about/{path.name}": path} if path.is_file() else {}
    for name in known["robots"]:
        robot = checkpoint.robot(folder, name, known["robots"][name])
        files |= {f"about/robots/{robot.name}{path.suffix.lower()}": path for path in robot.files}
    for place, record in evaluations.items():
        files[f"{place}/{records.FILE_NAME}"] = json.dumps(record.to_json(), indent=1).encode()
    return Contents("model", files, ("about/", "evaluations/"), evaluations=len(evaluations), sha256=sha256)


def _demonstrations(recipe: Recipe) -> dict[str, str]:
    """What `morph-vla record` kept for the recipe's datasets, where all of them are here and of ours."""
    paths = [expanded(source.dataset) / RECORDING for source in recipe.data.sources]
    if not all(path.is_file() for path in paths):
        return {}
    every = [_json(path) for path in paths]
    counts = [[integer(each.get(key)) for key in ("episodes", "attempted", "frames")] for each in every]
    if any(count is None for each in counts for count in each):
        LOG.warning("a dataset's %s is damaged: the card does not say how much was recorded", RECORDING)
        return {}
    kept, tried, frames = (sum(count or 0 for count in counts_of) for counts_of in zip(*counts, strict=True))
    return {"demonstrations": f"{kept:,} of {tried:,} attempts of a scripted expert, {frames:,} frames"}


def _digest(known: Mapping[str, Any], recipe: Recipe, opened: Checkpoint) -> str:
    """The digest of a policy, in whose types parameters are: what a record says."""
    family = policies.of(recipe.model)
    names = sorted(opened.entries, key=lambda name: name.split("/"))
    types = {name: family.served_type(recipe.model, name) or opened.type_of(name) for name in names}
    return checkpoint.digest(known, (opened.read(name, (), np.dtype(types[name])) for name in names))


def _evaluations(places: Iterable[Path], digests: Collection[str]) -> list[Record]:
    """The finished evaluations of a policy at or below some places, each once and without its videos.

    A task of several, in a folder of its name below theirs, is a part of that.
    """
    chosen, others, wholes = {}, 0, dict[Path, Record]()
    paths = (path for place in places for path in ([place] if place.is_file() else _records(place)))
    for path in sorted(dict.fromkeys(paths), key=lambda path: len(path.parts)):
        record = records.load(path)
        if not isinstance(record, Record) or not record.trials or _is_part(path, record, wholes):
            continue
        wholes[path.parent] = record
        if record.policy.sha256 not in digests:
            others += 1
            continue
        trials = tuple(dataclasses.replace(trial, video=None) for trial in record.trials)
        bare = dataclasses.replace(record, trials=trials, attention=None, image_tokens=None)
        chosen.setdefault(json.dumps(bare.to_json(), sort_keys=True), bare)
    if others:
        LOG.info("left out: evaluations of other policies (%d)", others)
    return list(chosen.values())


def _is_part(path: Path, record: Record, wholes: Mapping[Path, Record]) -> bool:
    """Whether a record is of one task of an evaluation that is known whole."""
    whole, task = wholes.get(path.parent.parent), path.parent.name
    return whole is not None and task in whole.suite.tasks and record.policy.sha256 == whole.policy.sha256


def _records(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise MorphVlaError(f"{folder}: no such folder or file; expected a record")
    paths = {path.resolve(): path for path in folder.rglob(records.FILE_NAME)}
    known = set[str]()
    for root, below, files in os.walk(folder, followlinks=True):  # evaluations may lie on another disk
        if (real := os.path.realpath(root)) in known:
            below.clear()
            continue
        known.add(real)
        for path in (Path(root, name) for name in files if name == records.FILE_NAME):
            paths.setdefault(path.resolve(), path)  # by its own folder rather than by a link to it
    return sorted(paths.values())


def _named(evaluations: Sequence[Record]) -> dict[str, Record]:
    """Each evaluation by its folder in the repository: its suite's name, with a number from the second on."""
    named: dict[str, Record] = {}
    for record in evaluations:
        place = f"evaluations/{record.suite.name or 'suite'}"
        places = chain([place], (f"{place}-{number}" for number in count(2)))
        named[next(free for free in places if free not in named)] = record
    return named


def _json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; nothing of one that is damaged or holds something else."""
    try:
        return dict(mapping(json.loads(path.read_bytes())))
    except (ValueError, RecursionError):
        return {}


def _check_inside(folder: Path, name: str) -> None:
    """Raise MorphVlaError for a link that leads out: a stranger's dataset must not publish other files.

    The Hub's own cache keeps files in `blobs`, beside the snapshots that link to them.
    """
    homes = [folder.resolve()]
    if folder.resolve().parent.name == "snapshots":
        homes.append(folder.resolve().parent.parent / "blobs")
    if not any((folder / name).resolve().is_relative_to(home) for home in homes):
        raise MorphVlaError(f"{folder / name} is a link that leads out of the dataset; nothing is uploaded")


def _check_complete(dataset: layouts.Layout) -> None:
    """Raise MorphVlaError for a file of an episode that is not there or empty, and for a lacking video."""
    filmed = [camera for camera in dataset.cameras if camera not in dataset.pictures]
    for entry in dataset.episodes:
        if lacks := [camera for camera in filmed if camera not in entry.videos]:
            raise MorphVlaError(f"{dataset.root}: episode {entry.index} has no video of camera '{lacks[0]}'")
    videos = (video.path for entry in dataset.episodes for video in entry.videos.values())
    for path in dict.fromkeys([*dataset.files, *videos]):
        if not path.is_file() or not path.stat().st_size:
            raise MorphVlaError(f"{path} is not there, or is empty; nothing is uploaded")


def _of_dataset(folder: Path, repository: str) -> Contents:
    dataset, recording = layouts.read(folder), folder / RECORDING
    every = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    for name, path in every.items():  # what is in it would not be listed, and deleted where it was before
        if path.is_symlink() and path.is_dir() and f"{name}/".startswith(OF_A_DATASET):
            raise MorphVlaError(f"{path} is a link to a folder; nothing is uploaded: put its files there")
    names = [name for name, path in every.items() if path.is_file()]
    _check_complete(dataset)
    files: dict[str, Path | bytes] = {
        name: folder / name for name in names if name.startswith(OF_A_DATASET) and "/." not in name
    }
    for name in (*files, RECORDING):
        _check_inside(folder, name)
    recorded = {}
    if recording.is_file():
        files[RECORDING], recorded = recording, _json(recording)
        if not recorded:
            raise MorphVlaError(f"{recording}: not what a recording says of itself; mend or remove it")
    files["README.md"] = cards.dataset_card(repository, dataset, recorded).encode()
    return Contents("dataset", files, OF_A_DATASET, tag=dataset.version)
