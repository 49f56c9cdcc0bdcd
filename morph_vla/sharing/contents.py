"""What of a folder is shared: a checkpoint, the last one of a run, or a dataset.

    README.md                the card
    averaged.safetensors     a checkpoint's parameters, or those that are not its base's (`weights.packed`)
    about/                   recipe, statistics, tokenizer, versions, and the robots as they were
    evaluations/NAME/        record.json of every evaluation of this very policy

A dataset's files stay as they are.
"""

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from morph_vla import policies
from morph_vla.data import layout as layouts
from morph_vla.errors import MorphVlaError
from morph_vla.files import typed_yaml
from morph_vla.files.hub import Kind
from morph_vla.recipes.recipe import Recipe
from morph_vla.results import record as records
from morph_vla.results.record import Record
from morph_vla.sharing import cards
from morph_vla.training import checkpoint
from morph_vla.weights import open_checkpoint, packed

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

    @property
    def nbytes(self) -> int:
        """Size of all files in bytes."""
        sizes = (len(f) if isinstance(f, bytes) else f.stat().st_size for f in self.files.values())
        return sum(sizes)


def of(folder: Path, repository: str, staging: Path, more: Sequence[Path] = (), base: str = "") -> Contents:
    """What of `folder` goes into `repository`; what must be written for it is written into `staging`.

    `more` are records, or folders of them, beside those below a run's folder; parameters that equal those of
    `base` are left out. Raises MorphVlaError for a
    folder that holds nothing of the three, and for one that is not complete.
    """
    if (folder / POLICY).is_file():
        return _of_checkpoint(folder, repository, staging, [folder, *more], base)
    if (folder / DATASET).is_file():
        if base:
            raise MorphVlaError(f"--base is for a checkpoint; {folder} is a dataset")
        return _of_dataset(folder, repository)
    for checkpoints in (folder / "checkpoints", folder / "train" / "checkpoints"):
        if steps := checkpoint.steps(checkpoints):
            return _of_checkpoint(checkpoints / str(steps[-1]), repository, staging, [folder, *more], base)
    raise MorphVlaError(
        f"{folder} is no checkpoint (about/policy.json), no run with one (checkpoints/), and no LeRobot "
        "dataset (meta/info.json)"
    )


def _of_checkpoint(
    folder: Path, repository: str, staging: Path, places: Sequence[Path], base: str
) -> Contents:
    known, recipe = checkpoint.about(folder), typed_yaml.read(folder / "about" / "recipe.json", Recipe)
    if Path(recipe.tokenizer).expanduser().exists():
        LOG.warning("the tokenizer is a file of this machine (%s), and is not shared", recipe.tokenizer)
    weights = staging / packed.FILE
    packed.pack(open_checkpoint(folder), weights, base, open_checkpoint)
    opened = open_checkpoint(staging)
    # As a policy has them, which a record's digest is of.
    family = policies.of(recipe.model)
    types = {
        name: family.served_type(recipe.model, name) or entry.dtype for name, entry in opened.entries.items()
    }
    arrays = (opened.read(name, (), np.dtype(dtype)) for name, dtype in types.items())
    sha256 = checkpoint.digest(known, arrays)
    evaluations = _named(_evaluations(places, sha256))
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
            json.loads(versions.read_bytes()) if versions.is_file() else {},
            base,
        )
    )
    files: dict[str, Path | bytes] = {"README.md": card.encode(), packed.FILE: weights}
    for path in (folder / "about" / f"{name}.json" for name in ("policy", "recipe", "versions")):
        files |= {f"about/{path.name}": path} if path.is_file() else {}
    for name in known["robots"]:
        robot = checkpoint.robot(folder, name)
        files |= {f"about/robots/{robot.name}{path.suffix.lower()}": path for path in robot.files}
    for place, record in evaluations.items():
        files[f"{place}/{records.FILE_NAME}"] = json.dumps(record.to_json(), indent=1).encode()
    return Contents("model", files, ("about/", "evaluations/"), evaluations=len(evaluations))


def _evaluations(places: Iterable[Path], sha256: str) -> list[Record]:
    """The finished evaluations of a policy at or below some places, each once and without its videos."""
    chosen, others = {}, 0
    paths = (path for place in places for path in ([place] if place.is_file() else _records(place)))
    for path in dict.fromkeys(paths):
        record = records.load(path)
        if not isinstance(record, Record) or not record.trials:
            continue
        if record.policy.sha256 != sha256:
            others += 1
            continue
        trials = tuple(dataclasses.replace(trial, video=None) for trial in record.trials)
        bare = dataclasses.replace(record, trials=trials, attention=None)
        chosen.setdefault(json.dumps(bare.to_json(), sort_keys=True), bare)
    if others:
        LOG.info("left out: evaluations of other policies (%d)", others)
    return list(chosen.values())


def _records(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise MorphVlaError(f"{folder}: no such folder or file; expected a record")
    return sorted(folder.rglob(records.FILE_NAME))


def _named(evaluations: Sequence[Record]) -> dict[str, Record]:
    """Each evaluation by its folder in the repository: its suite's name, with a number from the second on."""
    named: dict[str, Record] = {}
    for record in evaluations:
        place = f"evaluations/{record.suite.name or 'suite'}"
        same = sum(name == place or name.startswith(f"{place}-") for name in named)
        named[f"{place}-{same + 1}" if same else place] = record
    return named


def _of_dataset(folder: Path, repository: str) -> Contents:
    dataset, recording = layouts.read(folder), folder / RECORDING
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files: dict[str, Path | bytes] = {
        name: folder / name for name in names if name.startswith(OF_A_DATASET) and "/." not in name
    }
    recorded = {}
    if recording.is_file():
        files[RECORDING], recorded = recording, json.loads(recording.read_bytes())
    files["README.md"] = cards.dataset_card(repository, dataset, recorded).encode()
    return Contents("dataset", files, OF_A_DATASET, tag=dataset.version)
