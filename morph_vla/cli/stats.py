"""`morph-vla stats DATASET | RECIPE`."""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla.cli.common import add_folders, add_json, print_json, print_table
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text

if TYPE_CHECKING:
    from morph_vla.data.stats import Stats
    from morph_vla.training.measured import Feature

EXAMPLES = """
  morph-vla stats runs/demo/dataset
  morph-vla stats runs/demo/dataset --json
  morph-vla stats panda_demo data.dataset=runs/demos data.actions=delta --output stats.json
"""

HEADER = ["feature", "value", "name", "q01", "q99", "mean", "std"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla stats`."""
    parser.add_argument(
        "source",
        metavar="DATASET|RECIPE",
        help="a LeRobot dataset of any version (a folder, or USER/NAME on the Hub), as it is recorded; or a "
        "recipe: what each of its robots learns, over all its datasets",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write them as JSON, for data.statistics")
    add_folders(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Quantiles, mean and standard deviation of states and actions; no video is decoded."""
    given = Path(arguments.source).expanduser()
    named = "/" in arguments.source and given.suffix not in (".yaml", ".yml")
    if given.is_dir() or named:
        if arguments.overrides:
            raise MorphVlaError(f"{arguments.overrides[0]}: KEY=VALUE goes with a recipe, not with a dataset")
        _of_dataset(arguments)
    else:
        _of_recipe(arguments)


def _write(output: Path | None, plain: dict[str, Any]) -> None:
    if output is not None:
        write_text(output, json.dumps(plain, indent=2))


def _rows(feature: str, stats: "Stats", names: tuple[str, ...]) -> list[list[Any]]:
    named = names if len(names) == len(stats.mean) else ("",) * len(stats.mean)
    numbers = zip(stats.q01, stats.q99, stats.mean, stats.std, strict=True)
    return [[feature, d, named[d], *row] for d, row in enumerate(numbers)]


def _of_dataset(arguments: argparse.Namespace) -> None:
    from morph_vla.data import stats
    from morph_vla.training.measured import measure

    begun = time.perf_counter()
    dataset = measure(arguments.source)
    _write(arguments.output, dataset.plain())
    if arguments.json:
        print_json(dataset.plain())
        return
    size = f"{dataset.episodes} episodes, {dataset.frames} frames, {dataset.fps:g} Hz"
    print(f"{dataset.root}: LeRobot {dataset.version}, {size}")
    features = dataset.features
    print_table(HEADER, [row for word, one in features.items() for row in _rows(word, one.stats, one.names)])
    if not dataset.has_own:
        print("the dataset brings no statistics of its own (meta/stats.json)")
    for word, feature in features.items() if dataset.has_own else ():
        _compare(word, feature)
    for word, feature in features.items():
        for d in stats.narrow(feature.stats):
            rule = f"training widens its range to {stats.MIN_SPAN:g}, or refuses it (data.degenerate)"
            print(f"{word} '{feature.name(d)}' hardly moves: {rule}")
    print(f"measured in {time.perf_counter() - begun:.1f} s, and no pixel was decoded")


def _compare(word: str, feature: "Feature") -> None:
    """What the dataset's own statistics say otherwise."""
    own = feature.own
    if own is None:
        print(f"the dataset's own statistics have no q01 and q99 of '{feature.key}'")
        return
    for d in feature.apart:
        ends = f"{own.q01[d]:.4g} .. {own.q99[d]:.4g}"
        print(f"{word} '{feature.name(d)}': the dataset's own statistics have {ends}")
    if not feature.apart:
        agree = "agree (no end differs by a quarter of the range)"
        print(f"the dataset's own statistics of '{feature.key}' {agree}")


def _of_recipe(arguments: argparse.Namespace) -> None:
    from morph_vla.recipes import recipe as config
    from morph_vla.training import source, statistics

    begun = time.perf_counter()
    recipe = config.load(arguments.source, arguments.overrides, arguments.folders)
    robots = source.statistics_of(recipe)
    plain = statistics.plain(robots)
    _write(arguments.output, plain)
    if arguments.json:
        print_json(plain)
        return
    for name, (joints, kind, known) in robots.items():
        print()
        statistics.tell(name, known, print)
        print(f"{name}: {kind} actions, chunks of {recipe.model.horizon}, {known.frames} frames")
        print_table(HEADER, [*_rows("state", known.state, joints), *_rows("action", known.action, joints)])
    print(f"\nmeasured in {time.perf_counter() - begun:.1f} s, and no pixel was decoded")
