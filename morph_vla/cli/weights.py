"""`morph-vla weights inspect | convert`."""

import argparse
from pathlib import Path
from typing import Any

from morph_vla.cli.common import add_folders, add_json, add_verbs, print_json, print_table
from morph_vla.files.plain import to_plain

EXAMPLES = """
  morph-vla weights inspect pi05-base
  morph-vla weights inspect runs/demo/train/checkpoints/3000 --config panda_demo
  morph-vla weights convert hf://lerobot/pi05_base runs/pi05_openpi --to openpi
  morph-vla weights convert runs/lora/checkpoints/3000 runs/merged --to lerobot --config my_lora_recipe
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla weights`."""
    verbs = add_verbs(
        parser,
        {
            "inspect": ("format, sizes and types of a checkpoint, and what it fits", run_inspect),
            "convert": ("write a checkpoint in another format, bit by bit", run_convert),
        },
    )
    for verb in verbs.values():
        verb.add_argument(
            "source",
            metavar="SOURCE",
            help="pi05-base, a path, gs://BUCKET/FOLDER or hf://OWNER/NAME[@REVISION]",
        )
        verb.add_argument("--config", metavar="RECIPE", help="a recipe whose model it should fit")
        verb.add_argument(
            "--kind",
            choices=("averaged", "params"),
            default="averaged",
            help="of our own checkpoints: the average (default) or the parameters as they were trained",
        )
        add_folders(verb)
        add_json(verb)
    verbs["inspect"].add_argument("--hash", action="store_true", help="read it all, and print its SHA-256")
    convert = verbs["convert"]
    convert.add_argument(
        "target", type=Path, metavar="TARGET", help="the folder to be written; must not exist"
    )
    convert.add_argument("--to", choices=("openpi", "lerobot", "morph_vla"), required=True)
    convert.add_argument(
        "--horizon",
        type=int,
        default=50,
        help="actions per chunk, for LeRobot's config.json, without --config",
    )
    convert.add_argument(
        "--keep-lora",
        action="store_true",
        help="for openpi and morph_vla: low-rank pairs as they are (at alpha = rank, as openpi's variants), "
        "not merged into their weights",
    )
    convert.add_argument(
        "--keep-plugin", action="store_true", help="for LeRobot: the plugin's leaves in a file of their own"
    )


def run_inspect(arguments: argparse.Namespace) -> int:
    """What is there; with --config, status 1 when it does not fit."""
    from morph_vla import weights
    from morph_vla.recipes.fitting import fitting
    from morph_vla.weights.inspect import inspect

    inspected = inspect(arguments.source, _model(arguments), arguments.kind)
    fits = [] if inspected.config is None else fitting(inspected.config, arguments.folders)
    digest = ""
    if arguments.hash:
        digest = weights.digest(weights.load(arguments.source, dtype="stored", kind=arguments.kind)[0])
    if arguments.json:
        facts = {"parameters": inspected.parameters, "nbytes": inspected.nbytes, "fits": fits}
        print_json(to_plain(inspected) | facts | ({"sha256": digest} if digest else {}))
        return int(bool(inspected.problems))
    size = f"{inspected.parameters:,} values, {inspected.nbytes / 1e6:,.1f} MB"
    print(f"{inspected.path}: {inspected.format}, {size}")
    rows = [
        [part.name, part.entries, f"{part.parameters:,}", f"{part.nbytes / 1e6:,.1f}", ", ".join(part.types)]
        for part in inspected.parts
    ]
    print_table(["part", "arrays", "values", "MB", "type"], rows)
    if inspected.config is not None:
        print(f"sizes: {_sizes(inspected.config)}")
        print(f"fits: {', '.join(fits) or 'no recipe'}")
    if digest:
        print(f"sha256: {digest}")
    misfits = [problem.found for problem in inspected.problems]
    titles = {"new": inspected.new, "unused": inspected.unused, "does not fit": misfits}
    for title, lines in titles.items():
        for line in lines:
            print(f"{title}: {line}")
    return int(bool(inspected.problems))


def run_convert(arguments: argparse.Namespace) -> None:
    """Write a checkpoint in another format, and say what was written."""
    from morph_vla.weights.convert import convert

    digest, report = convert(
        arguments.source, arguments.target, arguments.to, _model(arguments), kind=arguments.kind,
        horizon=arguments.horizon, keep_lora=arguments.keep_lora, keep_plugin=arguments.keep_plugin,
    )  # fmt: skip
    facts = {"target": arguments.target, "to": arguments.to, "sha256": digest, "leaves": len(report.rows)}
    if arguments.json:
        print_json(facts)
    else:
        print(f"{report.table()}\n{arguments.target}: {arguments.to}, sha256 {digest}")


def _model(arguments: argparse.Namespace) -> Any:
    """The model of the recipe that was named, or None."""
    if arguments.config is None:
        return None
    from morph_vla.recipes import recipe as config

    return config.load(arguments.config, (), arguments.folders).model


def _sizes(config: Any) -> str:
    transformer = f"{config.depth} layers, {config.heads} heads of {config.head_dim}"
    widths = f"widths {config.prefix.width} and {config.expert.width}"
    rest = f"images {config.image_size}, actions {config.action_dim}, vocabulary {config.vocab}"
    return f"{transformer}, {widths}, {rest}"
