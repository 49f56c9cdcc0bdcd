"""The folder of a run: which recipe it belongs to, and what `--overwrite` removes."""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from morph_vla import weights
from morph_vla.data import versions
from morph_vla.errors import MorphVlaError
from morph_vla.files.home import expanded
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import taken, write_text
from morph_vla.recipes import recipe as recipes
from morph_vla.recipes.keys import Recipe
from morph_vla.recipes.recipe import PACE_KEYS
from morph_vla.training import checkpoint, datasets
from morph_vla.training.progress import Curve

# recipe.json last: while it is there, a removal that was interrupted can be done again.
OF_A_RUN = ("log.jsonl", "checkpoints", "cache", "tensorboard", "wandb", "evaluations", "recipe.json")
LOCK = ".lock"
PLACE = re.compile(r"data(\.datasets\.\d+)?\.dataset")
"""Keys of where a dataset lies: in a run that goes on what is in it is compared"""


def claim(folder: Path, recipe: Recipe, first: bool = True) -> None:
    """Make `folder` this recipe's, or refuse; keys that change no parameter may differ.

    A recipe that was written before a key was known has that key's default: it is read as any recipe is, and
    what it means is compared. A run that ended before it logged a line or saved anything claims nothing.
    Of several processes the `first` says whose the folder is. Raises MorphVlaError, with the keys that
    differ, for a run of another recipe.
    """
    path, plain = folder / "recipe.json", to_plain(recipe)
    if first and not path.exists() and _trained(folder):
        raise MorphVlaError(
            f"{folder} holds what a run left and not its recipe (recipe.json is missing); give another folder"
        )
    if first and path.exists():
        _check_checkpoints(folder)
    if not path.exists() or (first and not _trained(folder)):
        write_text(path, json.dumps(plain, indent=2, sort_keys=True))
        return
    changed = [
        key
        for key in _changed(to_plain(recipes.of_run(folder)), plain)
        if not any(f"{key}.".startswith(f"{pace}.") for pace in PACE_KEYS)
        and not (PLACE.fullmatch(key) and _knows_its_data(folder))
    ]
    if changed:
        raise MorphVlaError(
            f"{folder} holds a run of another recipe (differs in {', '.join(changed)}); "
            "give another folder or remove it (--overwrite)"
        )


def _knows_its_data(folder: Path) -> bool:
    """Whether the newest checkpoint says what it was trained on: then datasets may lie elsewhere."""
    saved = checkpoint.steps(folder / "checkpoints")
    return bool(saved) and (folder / "checkpoints" / str(saved[-1]) / "about" / "data.json").is_file()


def check_places(folder: Path, recipe: Recipe) -> None:
    """Raise MorphVlaError where a dataset of a run that goes on lies there no more, with how to say where."""
    for index, source in enumerate(recipe.data.sources):
        key = f"data.datasets.{index}.dataset" if recipe.data.datasets else "data.dataset"
        if not expanded(source.dataset).exists() and not versions.is_hub_name(source.dataset):
            raise MorphVlaError(
                f"{source.dataset}: no such folder; where it lies now: `morph-vla train RECIPE --resume "
                f"-o {folder} {key}=FOLDER`"
            )


def moved(folder: Path, recipe: Recipe) -> None:
    """Note in the run's recipe where its datasets lie now, once they were found to be the same."""
    path = folder / "recipe.json"
    plain, new = json.loads(path.read_text(encoding="utf-8")), to_plain(recipe)["data"]
    data = plain["data"]
    before = json.dumps(data)
    data["dataset"] = new["dataset"]
    for old, source in zip(data.get("datasets") or (), new["datasets"], strict=True):
        old["dataset"] = source["dataset"]
    if json.dumps(data) != before:
        write_text(path, json.dumps(plain, indent=2, sort_keys=True))


def claim_alone(folder: Path, recipe: Recipe, first: bool) -> None:
    """The same before a run begins: not while another process trains there. Raises as `claim` and `alone`."""
    with alone(folder) if first else nullcontext():
        claim(folder, recipe, first)


def _trained(folder: Path) -> bool:
    """Whether a run left something to go on with, or to look at."""
    log = folder / "log.jsonl"
    return bool(checkpoint.steps(folder / "checkpoints")) or (log.exists() and log.stat().st_size > 0)


def _check_checkpoints(folder: Path) -> None:
    """Raise MorphVlaError where the log is of a run with checkpoints, and there is none: it would be cut off.

    One that was stopped before its first checkpoint begins anew.
    """
    if checkpoint.steps(folder / "checkpoints"):
        return
    lines = Curve(folder / "log.jsonl", sys.maxsize, writes=False).lines
    logged = max((line["step"] for line in lines), default=0)
    pace = recipes.of_run(folder).training
    if logged >= min(pace.checkpoint_every, pace.steps):
        raise MorphVlaError(
            f"{folder}: its log goes to step {logged}, and {folder / 'checkpoints'} has none; bring them "
            "back, give another folder, or begin anew (--overwrite)"
        )


def _changed(old: Any, new: Any, at: str = "") -> Sequence[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(set(old) | set(new))
        return [
            n for name in names for n in _changed(old.get(name), new.get(name), f"{at}.{name}".strip("."))
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [n for index, (then, now) in pairs for n in _changed(then, now, f"{at}.{index}")]
    return [] if old == new else [at]


def remove(folder: Path, recipe: Recipe | None = None) -> None:
    """Remove what a run left in its folder, and nothing else.

    Raises MorphVlaError for a folder that holds other things and no run, and as `alone`; and where `recipe`,
    which is trained there next, begins with what would be removed, or with what is not there.
    """
    if recipe is not None:
        _check_outside(folder, recipe)
    if not folder.exists() or not any(path.name != LOCK for path in folder.iterdir()):
        return
    if not (folder / "recipe.json").exists():
        raise MorphVlaError(f"{folder} holds no run (recipe.json is missing); nothing is removed")
    with alone(folder):
        for name in OF_A_RUN:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _check_outside(folder: Path, recipe: Recipe) -> None:
    """Raise MorphVlaError where the next run could not begin once this folder's is removed."""
    asked = [("weights", recipe.weights), ("data.statistics", recipe.data.statistics)]
    asked += [("data.dataset", str(source.dataset)) for source in recipe.data.sources]
    for key, value in asked:
        # A name of what is elsewhere, as `own` or `pi05-nano`, is no file of the current folder.
        is_path = value and "://" not in value and expanded(value).exists()
        if is_path and expanded(value).resolve().is_relative_to(folder.resolve()):
            raise MorphVlaError(
                f"{key}: {value} lies in {folder}, which --overwrite would remove first; give another folder"
            )
    datasets.check_there(recipe)
    if recipe.weights:
        weights.open_checkpoint(recipe.weights)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else trains in the folder within the block, or removes the run in it.

    Two that do would write the same checkpoints, and each clears away what the other has half written. Raises
    MorphVlaError where another process does.
    """
    with taken(folder / LOCK) as is_ours:
        if not is_ours:
            raise MorphVlaError(f"{folder}: another process trains in it; wait, or give another folder")
        yield
