"""openpi's scripts, unmodified, with our configurations in its list."""

import argparse
import importlib
import importlib.util
import os
import runpy
import sys
from pathlib import Path

from morph_vla.errors import MissingExtraError, MorphVlaError, nearest
from morph_vla.files import dropin
from morph_vla.hosts.openpi import recipes

DATASET = "--data.repo-id"
OF_THE_FILE = (
    "--model.morphology", "--model.action-horizon", "--model.discrete-state-input", "--data.robot",
    "--data.cameras", "--data.grippers", "--model.max-token-len", "--data.assets",
)  # fmt: skip
"""Options that change what a model computes, or from which statistics, and not the shape of a parameter"""
SCRIPTS = {"train": "train.py", "serve": "serve_policy.py", "norm-stats": "compute_norm_stats.py"}
USAGE = """usage: python -m morph_vla.hosts.openpi VERB ...

  list                      the configurations with a body
  train NAME [OPTIONS]      openpi's scripts/train.py
  serve [OPTIONS]           openpi's scripts/serve_policy.py
  norm-stats [OPTIONS]      openpi's scripts/compute_norm_stats.py

Options are openpi's (`train NAME --help` lists them). norm-stats and serve take --data.repo-id too: they
find statistics by the dataset's name, unless the configuration's file says it. What a model is told of a
robot stands in the file alone, for serve reads that: copy it for another bias or robot.

examples:
  python -m morph_vla.hosts.openpi train pi05_morph_debug --exp-name first
  python -m morph_vla.hosts.openpi train pi05_morph_droid --exp-name first --data.repo-id me/my_droid
  python -m morph_vla.hosts.openpi norm-stats --config-name pi05_morph_so101 --data.repo-id me/my_so101
  python -m morph_vla.hosts.openpi train pi05_morph_so101 --exp-name first --data.repo-id me/my_so101
  python -m morph_vla.hosts.openpi serve policy:checkpoint --policy.config pi05_morph_debug \\
      --policy.dir checkpoints/pi05_morph_debug/first/9
"""


def find_scripts() -> Path:
    """The folder of openpi's scripts. Raises MissingExtraError when openpi cannot be imported."""
    try:
        module = importlib.util.find_spec("openpi.training.config")
    except ModuleNotFoundError:  # no openpi, or the empty package of that name
        module = None
    if module is None or module.origin is None:
        raise MissingExtraError(
            "openpi cannot be imported: check out github.com/Physical-Intelligence/openpi and run this in "
            "its environment, or put its folders src and packages/openpi-client/src on PYTHONPATH"
        )
    folder = Path(module.origin).parents[3] / "scripts"
    if not (folder / "train.py").is_file():
        raise MorphVlaError(f"openpi's scripts are not at {folder}; use a checkout, not an installed copy")
    return folder


def config_name(verb: str, words: list[str]) -> str | None:
    """The configuration that the words name, if they do."""
    if verb == "train":
        return words[0] if words and not words[0].startswith("-") else None
    option = {"serve": "--policy.config", "norm-stats": "--config-name"}[verb]
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def dataset_of(words: list[str]) -> tuple[str, list[str]]:
    """The dataset that the words name, and the other words: two of openpi's scripts have no such option."""
    known = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    known.add_argument(DATASET, DATASET.replace("-id", "_id"), default="", dest="dataset")
    try:
        given, left = known.parse_known_args(words)
    except argparse.ArgumentError:
        raise MorphVlaError(f"{DATASET} expects a dataset's name, such as me/mine") from None
    return given.dataset, left


def check_options(name: str, words: list[str]) -> None:
    """Raise MorphVlaError for options of a training that serving would not know of, and not miss either."""
    for word in words:
        plain = word.replace("_", "-").replace(".no-", ".")  # tyro turns a switch off by `.no-NAME`
        if plain.startswith(OF_THE_FILE):
            raise MorphVlaError(
                f"{word.partition('=')[0]}: serve would not know of it and answer as {name}'s file says; "
                "copy that into configs/openpi/ under a name of your own, and say it there"
            )


def check_statistics(name: str) -> None:
    """Raise MorphVlaError for a configuration whose training would not read the dataset's statistics."""
    data = recipes.load(name).data
    if data != "lerobot":
        source = f"{recipes.BASE}/assets" if data == "droid" else "no dataset, made up"
        raise MorphVlaError(
            f"{name}: its statistics are those of {source}, and a training would not read others; train "
            "right away, or name data: lerobot in a configuration of your own"
        )


def run(words: list[str]) -> None:
    """Run a verb. Raises MorphVlaError for an unknown verb, configuration or robot."""
    verb, rest = (words or ["--help"])[0], words[1:]
    if verb in ("-h", "--help"):
        print(USAGE, end="")
        return
    if verb == "list":
        for name, path in recipes.available().items():
            print(f"{name:18} {dropin.about(path)}")
        return
    if verb not in SCRIPTS:
        raise MorphVlaError(
            f"no verb '{verb}'{nearest(verb, [*SCRIPTS, 'list'])} ({', '.join(SCRIPTS)}, list)"
        )
    script = find_scripts() / SCRIPTS[verb]
    name, datasets = config_name(verb, rest), {}
    if name in recipes.available():
        if verb == "norm-stats":
            check_statistics(name)
        if verb == "train":
            check_options(name, rest)
        else:
            dataset, rest = dataset_of(rest)
            datasets = {name: dataset} if dataset else {}
    known = importlib.import_module("morph_vla.hosts.openpi.configs").register(datasets)
    if name is not None:
        recipes.check_name(name, known)
    sys.argv = [script.name, *rest]
    runpy.run_path(str(script), run_name="__main__")


def main(words: list[str] | None = None) -> int:
    """The command line; 2 for an error of the user's, which is printed."""
    words = sys.argv[1:] if words is None else words
    try:
        run(words)
        sys.stdout.flush()
    except MorphVlaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        if words[:1] != ["list"]:  # a script's own, of a server
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `list | head -1`
    return 0


if __name__ == "__main__":
    sys.exit(main())
