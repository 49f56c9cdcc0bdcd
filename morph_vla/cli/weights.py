"""`morph-vla weights inspect | convert`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add, add_common, add_number, add_verbs, refuse
from morph_vla.cli.render import render

EXAMPLES = """
  morph-vla weights inspect pi05-nano
  morph-vla weights inspect runs/first/checkpoints/1400 --config panda_demo
  morph-vla weights convert hf://lerobot/pi05_base runs/pi05_openpi --to openpi
  morph-vla weights convert runs/first/checkpoints/1400 runs/plugin --to lerobot-plugin
  morph-vla weights convert runs/lora/checkpoints/3000 runs/merged --to lerobot --config my_lora_recipe
"""
PLUGIN = "lerobot-plugin"
AS_IT_IS = dict.fromkeys(("config", "horizon", "robot")) | {"keep_lora": False, "keep_plugin": False}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla weights`."""
    verbs = add_verbs(
        parser,
        {
            "inspect": ("show a checkpoint's format, sizes and types, and the recipes it fits", run_inspect),
            "convert": ("write a checkpoint in another format; every value stays the same", run_convert),
        },
    )  # fmt: skip
    for verb in verbs.values():
        add(verb, "source", "pi05-base, pi05-nano, a path, gs://BUCKET/FOLDER or hf://OWNER/NAME", "SOURCE")
        add(verb, "--config", "a recipe whose model the checkpoint should fit", "RECIPE")
        about = "for our own checkpoints: the averaged parameters (default) or those of the last step"
        verb.add_argument("--kind", choices=("averaged", "params"), default="averaged", help=about)
        add_common(verb)
    add(verbs["inspect"], "--hash", "read all values, and print their SHA-256")
    convert, formats = verbs["convert"], ("openpi", "lerobot", "morph_vla", PLUGIN)
    about = "the folder to write; it must not exist, or be a checkpoint's own for lerobot-plugin"
    add(convert, "target", about, "TARGET", type=Path)
    convert.add_argument("--to", choices=formats, required=True, help="the format to write")
    about = "without --config: actions per chunk, for LeRobot's config.json; else the recipe's own, or 50"
    add_number(convert, "--horizon", None, about, least=1)
    add(convert, "--robot", "of a checkpoint of ours: the robot whose statistics alone to write", "NAME")
    about = "for openpi and morph_vla: keep low-rank pairs (with alpha = rank, as in openpi) unmerged"
    add(convert, "--keep-lora", about)
    add(convert, "--keep-plugin", "for LeRobot: keep the plugin's parameters, in a file of their own")


def run_inspect(arguments: argparse.Namespace) -> int:
    """What is there; with --config, status 1 when it does not fit."""
    from morph_vla import weights
    from morph_vla.recipes.fitting import fitting, host
    from morph_vla.weights.inspect import inspect

    inspected = inspect(arguments.source, host(arguments.config, arguments.folders), arguments.kind)
    text, fits, more = str(inspected), [], {}
    if inspected.config is not None:
        fits = fitting(inspected.config, arguments.folders)
        text += f"\nfits: {', '.join(fits) or 'no recipe'}"
    if arguments.hash:
        params, _ = weights.load(arguments.source, dtype="stored", kind=arguments.kind)
        more = {"sha256": weights.digest(params)}
        text += f"\nsha256: {more['sha256']}"
    render(inspected, arguments.json, "parameters", "nbytes", text=text, fits=fits, **more)
    return int(bool(inspected.problems))


def run_convert(arguments: argparse.Namespace) -> None:
    """Write a checkpoint in another format, and say what was written."""
    target, to = arguments.target, arguments.to
    if to == PLUGIN:
        from morph_vla.hosts.lerobot import export

        refuse(arguments, f"--to {PLUGIN} names a checkpoint as it is", kind="averaged", **AS_IT_IS)
        export.write(arguments.source, target)
        facts = {"target": target, "to": to}
        render(facts, arguments.json, text=f"{target}: {to}, for lerobot-eval --policy.path")
        return
    from morph_vla.recipes.fitting import host
    from morph_vla.serving import carried
    from morph_vla.weights.checkpoint import new_folder
    from morph_vla.weights.convert import convert

    config = host(arguments.config, arguments.folders)
    new_folder(target)  # before a checkpoint is fetched
    kept = carried.of(arguments.source, to, arguments.robot or "", arguments.kind)
    digest, report = convert(
        arguments.source, target, to, config, kind=arguments.kind, horizon=arguments.horizon,
        keep_lora=arguments.keep_lora, keep_plugin=arguments.keep_plugin, beside=kept.beside,
    )  # fmt: skip
    facts = {"target": target, "to": to, "sha256": digest, "statistics": kept.lines}
    text = "\n".join([str(report), *kept.lines, f"{target}: {to}, sha256 {digest}"])
    render(facts | {"leaves": len(report.rows)}, arguments.json, text=text)
