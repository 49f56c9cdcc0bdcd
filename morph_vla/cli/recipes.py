"""`morph-vla recipes list | show | check | scale | variants | presets`."""

import argparse
from typing import TYPE_CHECKING, Any

from morph_vla.cli import files, recipes_scale, variants
from morph_vla.cli.common import print_json
from morph_vla.cli.robots_check import count

if TYPE_CHECKING:
    from morph_vla.checks.recipe import Checked, Report

EXAMPLES = """
  morph-vla recipes list
  morph-vla recipes show panda_demo
  morph-vla recipes show panda_demo training.steps=200 --json
  morph-vla recipes variants pi05_droid
  morph-vla recipes show panda_demo@table1.tokens-mix-film
  morph-vla recipes variants panda_demo --names   # one a line; configs/README.md trains the whole grid
  morph-vla recipes show panda_demo training.kind=expert 'model={morphology: {}}'   (counts at full size)
  morph-vla recipes check panda_demo data.dataset=runs/demos
  morph-vla recipes scale pi05_g1_dex1 training.mesh.fsdp=8
  morph-vla recipes presets
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla recipes`."""
    summary = "everything wrong with a recipe and its datasets, before training; status 1 on an error"
    said = "the paper's Tables 1 to 5 and 11 as changes to a recipe: NAME@VARIANT"
    verbs = files.configure(
        parser,
        "recipes",
        "morph_vla.recipes.recipe:load",
        "morph_vla.cli.counts",
        more={
            "check": (summary, run_check),
            "scale": ("a step's time against the number of devices, on paper", recipes_scale.run),
        },
        alone={
            "variants": (said, variants.run),
            "presets": ("what a dataset entry's `preset` fills in", run_presets),
        },
    )
    variants.configure(verbs["variants"])


def run_presets(arguments: argparse.Namespace) -> None:
    """Every preset, with its robot, cameras, keys and units."""
    from morph_vla.data.presets import PRESETS
    from morph_vla.files.plain import to_plain

    if arguments.json:
        print_json(PRESETS)
        return
    for name, preset in PRESETS.items():
        print(f"{name}: {preset.about}")
        for key, value in to_plain(preset).items():
            if key != "about" and value not in ([], ""):
                shown = (
                    value if not isinstance(value, dict) else ", ".join(f"{k}: {v}" for k, v in value.items())
                )
                print(f"  {key:<9} {shown if not isinstance(value, list) else ', '.join(map(str, value))}")


def run_check(arguments: argparse.Namespace) -> int:
    """Print every problem, errors first; no video is decoded and nothing is fetched."""
    from morph_vla.checks import recipe as check
    from morph_vla.recipes import recipe as config

    recipe = config.load(arguments.name, arguments.overrides, arguments.folders)
    report = check.check(recipe)
    if arguments.json:
        print_json(_plain(report))
    else:
        for one in report.datasets:
            print(_line(one))
        if report.problems:
            print()
        for problem in report.problems:
            print(problem)
        print(f"\n{', '.join(count(number, word[:-1]) for word, number in _counts(report).items())}")
    return 1 if report.count("error") else 0


def _counts(report: "Report") -> dict[str, int]:
    return {f"{word}s": report.count(word) for word in ("error", "warning", "note")}


def _plain(report: "Report") -> dict[str, Any]:
    from morph_vla.files.plain import to_plain

    return {**to_plain(report), **_counts(report)}


def _line(one: "Checked") -> str:
    if not one.version:
        return f"{one.key}: {one.dataset}: not read; robot {one.robot}"
    recorded = f", recorded on '{one.recorded_on}'" if one.recorded_on else ""
    size = f"{one.episodes} episodes ({one.held_out} held out), {one.frames} frames at {one.fps:g} Hz"
    return f"{one.key}: {one.dataset}: LeRobot {one.version}, {size}{recorded}; robot {one.robot}"
