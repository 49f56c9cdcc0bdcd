"""`morph-vla stats DATASET | RECIPE`."""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla.cli.common import add_folders, add_json, print_json, print_table
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.data.layout import Layout
    from morph_vla.data.stats import Stats

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
        import json

        from morph_vla.files.writing import write_text

        write_text(output, json.dumps(plain, indent=2))


def _rows(feature: str, found: "Stats", names: tuple[str, ...]) -> list[list[Any]]:
    named = names if len(names) == len(found.mean) else ("",) * len(found.mean)
    numbers = zip(found.q01, found.q99, found.mean, found.std, strict=True)
    return [[feature, d, named[d], *row] for d, row in enumerate(numbers)]


# ----------------------------------------------------------------------------------------------- a dataset


def _of_dataset(arguments: argparse.Namespace) -> None:
    from morph_vla.data import layout, stats, versions

    begun = time.perf_counter()
    say = (lambda _: None) if arguments.json else print
    found = layout.read(versions.located(arguments.source, say))
    keys = {"state": "observation.state", "action": "action"}
    rows = layout.all_rows(found, tuple(keys.values()))
    both = {word: stats.measure(rows.values[key]) for word, key in keys.items()}
    plain = {word: asdict(one) for word, one in both.items()}
    _write(arguments.output, plain)
    if arguments.json:
        print_json(plain)
        return
    size = f"{len(found.episodes)} episodes, {len(rows.episode)} frames, {found.fps:g} Hz"
    print(f"{found.root}: LeRobot {found.version}, {size}")
    names = {word: found.names((key,)) for word, key in keys.items()}
    print_table(HEADER, [row for word in keys for row in _rows(word, both[word], names[word])])
    _compare(found, both, keys)
    for word in keys:
        for d in stats.narrow(both[word]):
            name = names[word][d] if names[word] else f"value {d}"
            rule = f"training widens its range to {stats.MIN_SPAN:g}, or refuses it (data.degenerate)"
            print(f"{word} '{name}' hardly moves: {rule}")
    print(f"measured in {time.perf_counter() - begun:.1f} s, and no pixel was decoded")


def _compare(found: "Layout", both: dict[str, "Stats"], keys: dict[str, str]) -> None:
    """What the dataset's own meta/stats.json says otherwise."""
    import json

    from morph_vla.data import stats
    from morph_vla.training.statistics import different

    path = found.root / "meta" / "stats.json"
    if not path.is_file():
        print("the dataset brings no statistics of its own (meta/stats.json)")
        return
    for word, key in keys.items():
        try:
            own = stats.from_plain(json.loads(path.read_text(encoding="utf-8"))[key])
        except (ValueError, KeyError, TypeError, AttributeError):
            print(f"the dataset's own statistics have no q01 and q99 of '{key}'")
            continue
        apart = different(own, both[word]) if len(own.q01) == len(both[word].q01) else []
        for d in apart:
            name = (found.names((key,)) or {d: f"value {d}"})[d]
            print(f"{word} '{name}': the dataset's own statistics have {own.q01[d]:.4g} .. {own.q99[d]:.4g}")
        if not apart:
            print(f"the dataset's own statistics of '{key}' agree (no end differs by a quarter of the range)")


# ------------------------------------------------------------------------------------------------ a recipe


def _of_recipe(arguments: argparse.Namespace) -> None:
    from morph_vla.recipes import recipe as config
    from morph_vla.training import source, statistics

    begun = time.perf_counter()
    say = (lambda _: None) if arguments.json else print
    recipe = config.load(arguments.source, arguments.overrides, arguments.folders)
    parts = source.read_parts(recipe, say)
    found = {}
    for name in dict.fromkeys(part.asked.robot for part in parts):
        first = next(part for part in parts if part.asked.robot == name)
        known = source.robot_stats(recipe, name, parts)
        found[name] = (first.robot.names, first.asked.actions, known)
    plain = statistics.plain(found)
    _write(arguments.output, plain)
    if arguments.json:
        print_json(plain)
        return
    for name, (joints, kind, known) in found.items():
        print()
        statistics.tell(name, known, print)
        print(f"{name}: {kind} actions, chunks of {recipe.model.horizon}, {known.frames} frames")
        print_table(HEADER, [*_rows("state", known.state, joints), *_rows("action", known.action, joints)])
    print(f"\nmeasured in {time.perf_counter() - begun:.1f} s, and no pixel was decoded")
