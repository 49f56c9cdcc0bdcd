"""`morph-vla weights inspect | convert`."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from morph_vla.cli.common import add_folders, add_json, add_verbs, print_json, print_table

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
    from morph_vla.files.plain import to_plain
    from morph_vla.weights.inspect import inspect

    found = inspect(arguments.source, _config(arguments), arguments.kind)
    fits = [] if found.config is None else _fitting(found.config, arguments.folders)
    digest = None
    if arguments.hash:
        digest = weights.digest(weights.load(arguments.source, dtype="stored", kind=arguments.kind)[0])
    if arguments.json:
        plain = to_plain(found) | {"parameters": found.parameters, "nbytes": found.nbytes, "fits": fits}
        print_json(plain | ({"sha256": digest} if digest else {}))
        return int(bool(found.problems))
    print(f"{found.path}: {found.format}, {found.parameters:,} values, {found.nbytes / 1e6:,.1f} MB")
    rows = [
        [p.name, p.entries, f"{p.parameters:,}", f"{p.nbytes / 1e6:,.1f}", ", ".join(p.types)]
        for p in found.parts
    ]
    print_table(["part", "arrays", "values", "MB", "type"], rows)
    if found.config is not None:
        print(f"sizes: {_sizes(found.config)}")
        print(f"fits: {', '.join(fits) or 'no recipe'}")
    if digest:
        print(f"sha256: {digest}")
    for title, lines in (("new", found.new), ("unused", found.unused), ("does not fit", found.problems)):
        for line in lines:
            print(f"{title}: {line}")
    return int(bool(found.problems))


def run_convert(arguments: argparse.Namespace) -> None:
    """Load strictly, merge low-rank pairs into their weights, write, and say what was written."""
    from morph_vla import weights

    config = _config(arguments)
    params, report = weights.load(arguments.source, config, dtype="stored", kind=arguments.kind)
    params = _paired(params, arguments, config)
    if arguments.to == "openpi":
        weights.save_openpi(arguments.target, params)
    elif arguments.to == "morph_vla":
        weights.save_morph_vla(arguments.target, params)
    else:
        if config is None:
            stored = weights.open_checkpoint(arguments.source, arguments.kind).config()
            config = dataclasses.replace(stored, horizon=arguments.horizon)
        weights.save_lerobot(arguments.target, params, config, keep_plugin=arguments.keep_plugin)
    digest = weights.digest(params)
    if arguments.json:
        print_json(
            {
                "target": str(arguments.target),
                "to": arguments.to,
                "sha256": digest,
                "leaves": len(report.rows),
            }
        )
    else:
        print(f"{report.table()}\n{arguments.target}: {arguments.to}, sha256 {digest}")


def _paired(params: Any, arguments: argparse.Namespace, config: Any) -> Any:
    """The parameters with their low-rank pairs merged, or kept at a factor of one."""
    from morph_vla import weights
    from morph_vla.errors import ConfigError

    opened = weights.open_checkpoint(arguments.source, arguments.kind)
    lora = weights.lora_of(opened) if config is None else config.lora
    if lora is None:
        return params
    if not arguments.keep_lora:
        return weights.merge_lora(params, lora)
    if arguments.to == "lerobot":
        raise ConfigError("--keep-lora: LeRobot's pi0.5 has no low-rank pairs; leave it out, they are merged")
    return weights.with_unit_scale(params, lora)


def _config(arguments: argparse.Namespace) -> Any:
    if arguments.config is None:
        return None
    from morph_vla.recipes import recipe as config

    return config.load(arguments.config, (), arguments.folders).model


def _fitting(stored: Any, folders: list[str]) -> list[str]:
    """The full model, and the recipes, whose host has these sizes."""
    from morph_vla.errors import MorphVlaError
    from morph_vla.files import dropin
    from morph_vla.pi05 import Pi05Config
    from morph_vla.recipes import recipe as config
    from morph_vla.weights.load import differences

    found = [] if differences(stored, Pi05Config()) else ["pi0.5 at full size"]
    for name in dropin.available("recipes", folders):
        try:
            model = config.load(name, (), folders).model
        except MorphVlaError:
            continue  # `morph-vla recipes show` says what is wrong with it
        if not differences(stored, model):
            found.append(name)
    return found


def _sizes(config: Any) -> str:
    transformer = f"{config.depth} layers, {config.heads} heads of {config.head_dim}"
    widths = f"widths {config.prefix.width} and {config.expert.width}"
    rest = f"images {config.image_size}, actions {config.action_dim}, vocabulary {config.vocab}"
    return f"{transformer}, {widths}, {rest}"
