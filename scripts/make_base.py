"""Make a base like `pi05-nano`: bodies, demonstrations, training, packing, zero-shot evaluation, its card.

    python scripts/make_base.py -o runs/nano --base runs/nano/base
    python scripts/make_base.py -o runs/arms --base runs/arms/base --recipe pi05_arms
    python scripts/make_base.py -o runs/hand --recipe pi05_nano@ours.hand --extrapolation 12 --composition 6
    python scripts/make_base.py -o runs/small --bodies 2 --judged 1 --attempts 9 --episodes 2 training.steps=3
    python scripts/make_base.py -o runs/nano --only pack --run runs/nano/train --records runs/nano/eval

Each stage finds what an earlier run left: Ctrl-C stops it, and the same command goes on. make_base.json in
the folder has what every stage made, and its seconds. `--only pack` writes the base and its card alone, of
any run or checkpoint and any evaluations of it. What is evaluated is the packed base, in 16 bits.

`--also FOLDER` judges on the suites of a drop-in folder too, such as those of `suites new` for arms of other
makers. A recipe without cameras is given demonstrations without pictures.
"""

import argparse
import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from morph_vla import cli, process
from morph_vla.errors import MorphVlaError
from morph_vla.files.dropin import add_to_path
from morph_vla.files.writing import write_text
from morph_vla.wording import count, span

ROBOT = "panda"
SETS = ("interpolation", "extrapolation", "composition")
SEED, JUDGED_SEED = 3, 4  # of the bodies that are trained on, and judged on
OF_RECIPE: dict[str, dict[str, Any]] = {
    "pi05_arms": {
        "bodies": 24, "extrapolation": 12, "composition": 6, "attempts": 40, "itself": 400, "judged": 2,
        "tasks": "cube_in_bowl,can_in_mug,banana_in_bin,orange_on_plate",
    }
}  # fmt: skip
"""What is not as in Settings where a base is made of a recipe"""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How large it is."""

    overrides: tuple[str, ...] = ()
    """Changes to the recipe"""
    recipe: str = "pi05_nano"
    """What is trained, or a variant of it"""
    bodies: int = 36
    """Relatives of the Panda that are trained on, of the set `interpolation`"""
    extrapolation: int = 0
    """More of them, of that set: smaller and larger ones"""
    composition: int = 0
    """More of them, of that set: two changes of structure at once"""
    tasks: str = "cube_in_bowl,can_in_mug,banana_in_bin"
    """What every body does"""
    attempts: int = 30
    """Demonstrations to try on each"""
    itself: int = 0
    """Demonstrations to try on the Panda itself, which then is trained on too"""
    judged: int = 4
    """Relatives of another seed that are judged on, beside the Panda itself"""
    episodes: int = 100
    """Initial states of each task of each robot"""
    trials: int = 5
    """States in which the expert tries each task of a new suite"""
    also: str = ""
    """A drop-in folder whose suites are judged on too"""
    camera_side: str = "ahead"
    """Of the hand, where its camera is: `hand` (by its own x axis) in the bodies of shipped `pi05-nano`"""

    @classmethod
    def of(cls, recipe: str, overrides: Sequence[str] = (), **asked: Any) -> "Settings":
        """Those of a base of this recipe; what is None is left to it."""
        own = {key: value for key, value in asked.items() if value is not None}
        return cls(**{"recipe": recipe, **OF_RECIPE.get(recipe, {}), "overrides": tuple(overrides), **own})

    @property
    def name(self) -> str:
        """What the base is called: `pi05-nano`, `pi05-nano-hand` of `pi05_nano@ours.hand`."""
        recipe, _, variant = self.recipe.partition("@")
        return "-".join([recipe.replace("_", "-"), *variant.split(".")[1:]])

    @property
    def of_sets(self) -> tuple[int, ...]:
        """How many bodies of each of SETS are trained on."""
        return self.bodies, self.extrapolation, self.composition

    @property
    def command(self) -> str:
        """The command that does this, without what is its default."""
        place = f"runs/{self.name.removeprefix('pi05-')}"
        words = [*self.overrides, "-o", place, "--base", f"{place}/base"]
        if self.recipe != Settings.recipe:
            words += ["--recipe", self.recipe]
        for key, default in vars(Settings.of(self.recipe)).items():
            if key != "overrides" and getattr(self, key) != default:
                words += [f"--{key.replace('_', '-')}", str(getattr(self, key))]
        return f"python scripts/make_base.py {shlex.join(words)}"

    def drawn(self, of_set: str, seed: int, bodies: int) -> list[object]:
        """The command that draws bodies with suites."""
        words = ["robots", "vary", ROBOT, "--set", of_set, "--seed", seed, "--count", bodies]
        side = [] if self.camera_side == Settings.camera_side else ["--camera-side", self.camera_side]
        return [*words, "--suites", self.tasks, "--trials", self.trials, *side]


class Maker:
    """The stages, in the folder that they share."""

    def __init__(self, folder: Path, settings: Settings):
        self.folder, self.settings, self.facts = folder, settings, folder / "make_base.json"
        for place in (
            folder / "judged",
            folder / "bodies",
            *([Path(settings.also)] if settings.also else ()),
        ):
            add_to_path(place)

    def stage(self, name: str, work: Callable[[], str]) -> None:
        """Do a stage, say in a line what it made, and keep that with the seconds it took, of all runs."""
        began, kept = time.monotonic(), self.kept()
        print(f"{name} ...", flush=True)
        earlier = kept.get(name, {}).get("seconds", 0.0)
        words = ""
        try:
            words = work()
        finally:  # an interruption too: what it took so far counts
            seconds = round(earlier + time.monotonic() - began, 1)
            write_text(self.facts, json.dumps({**kept, name: {"made": words, "seconds": seconds}}, indent=1))
        print(f"{name}: {words}  ({span(time.monotonic() - began)})", flush=True)

    def kept(self) -> dict[str, dict[str, Any]]:
        """What earlier stages and runs made."""
        return json.loads(self.facts.read_text()) if self.facts.exists() else {}

    def bodies(self) -> str:
        """The relatives that are trained on, each with a suite that the expert can do."""
        asked = dict(zip(SETS, self.settings.of_sets, strict=True))
        for of_set, bodies in asked.items():
            if bodies:
                self._vary("bodies", of_set, SEED, bodies)
        if self.settings.itself:
            self._suite("bodies")
        return count(len(self._names("bodies")), "relative") + (
            f" and {ROBOT}" if self.settings.itself else ""
        )

    def record(self) -> str:
        """Demonstrations on every body."""
        blind = [] if self._recipe().model.cameras else ["cameras={}"]
        for name in self._trained():
            suite, dataset = self.folder / "bodies" / "eval" / f"{name}.yaml", self.folder / "data" / name
            attempts = self.settings.itself if name == ROBOT else self.settings.attempts
            run("record", suite, *blind, "-o", dataset, "--attempts", attempts)
        every = [json.loads(path.read_text()) for path in self.folder.glob("data/*/recording.json")]
        kept, tried = (sum(each[key] for each in every) for key in ("episodes", "attempted"))
        return f"{kept} of {tried} demonstrations"

    def train(self) -> str:
        """The recipe, with a dataset a body; its steps are resumed."""
        from morph_vla.cli.progress import Bars
        from morph_vla.recipes import recipe as recipes
        from morph_vla.serving import trials

        recipe = self._recipe()
        like = recipe.data.sources[0]
        datasets = [
            dataclasses.replace(like, dataset=str(self.folder / "data" / name), robot=name)
            for name in self._trained()
        ]
        recipe = recipes.on_datasets(recipe, datasets, by="row")
        recipes.check(recipe, self.settings.recipe)
        with Bars("training", "step") as bar:
            trained = trials.train(recipe, self.folder / "train", on_report=bar.trained)
        if trained.stopped:
            raise KeyboardInterrupt  # by SIGTERM
        losses = [line["held_out_loss"] for line in trained.curve if line.get("held_out_loss") is not None]
        held_out = f", held out {losses[-1]:.3f}" if losses else ""
        return f"{recipe.training.steps} steps of {trained.parameters:,} parameters{held_out}"

    def evaluate(self) -> str:
        """The packed base on the Panda itself, relatives of another seed, and the arms of `also`."""
        from morph_vla.results import record as records

        self._suite("judged")
        if self.settings.judged:
            self._vary("judged", SETS[0], JUDGED_SEED, self.settings.judged)
        names = [ROBOT, *(self._names("judged") if self.settings.judged else ())]
        suites, lines = [self.folder / "judged" / "eval" / f"{name}.yaml" for name in names], []
        if self.settings.also:
            suites += sorted((Path(self.settings.also) / "eval").glob("*.yaml"))
        for suite in suites:
            name, target = suite.stem, self.folder / "eval" / suite.stem
            words = ["--noise", 0, "--videos", 0, "--episodes", self.settings.episodes, "-o", target]
            run("eval", self.folder / "packed", "--suite", suite, *words)
            done = records.read(target).summary
            lines.append(f"{name} {done.successes} of {done.trials}")
        return ", ".join(lines)

    def pack(self, trained: Path, base: Path, places: Sequence[Path] = ()) -> str:
        """A run's last checkpoint in 16 bits, with a card of the evaluations at `places`."""
        from morph_vla.sharing import shipped

        return str(shipped.write(trained, base, self.settings.name, places, self._made() if places else {}))

    def _made(self) -> dict[str, str]:
        """What the card says beside of how the base was made."""
        asked = self.settings
        drawn = [
            shlex.join(["morph-vla", *map(str, asked.drawn(of_set, SEED, bodies))])
            for of_set, bodies in zip(SETS, asked.of_sets, strict=True)
            if bodies
        ]
        vary = "`, `".join(drawn)
        itself = f", and {ROBOT} itself" if asked.itself else ""
        also = f", and the suites of {Path(asked.also).name}" if asked.also else ""
        made = {
            "one like it is made by": f"`{asked.command}`",
            "bodies": f"{sum(asked.of_sets)} relatives of {ROBOT}{itself}, of seed {SEED}: `{vary}`",
            "judged on": f"{ROBOT}, and {asked.judged} relatives of it, of seed {JUDGED_SEED}{also}",
        }
        stages = ("bodies", "record", "train", "evaluate")
        spent = {name: self.kept().get(name, {}).get("seconds", 0.0) for name in stages}
        if all(spent.values()):
            made["took"] = ", ".join(f"{name} {span(spent[name])}" for name in stages)
        return made

    def _recipe(self):
        from morph_vla.recipes import recipe as recipes

        return recipes.load(self.settings.recipe, self.settings.overrides)

    def _suite(self, place: str) -> None:
        """The Panda's own suite."""
        if not (suite := self.folder / place / "eval" / f"{ROBOT}.yaml").exists():
            asked = ["--task", self.settings.tasks, "--trials", self.settings.trials]
            run("suites", "new", ROBOT, *asked, "-o", suite)

    def _vary(self, place: str, of_set: str, seed: int, bodies: int) -> None:
        """Draw relatives; a number that is left without a body (status 1) is left out."""
        if sum(f"_{of_set}{seed}_" in name for name in self._names(place)) < bodies:
            words = self.settings.drawn(of_set, seed, bodies)
            run(*words, "-o", self.folder / place, allowed=(0, 1))

    def _trained(self) -> list[str]:
        return [*([ROBOT] if self.settings.itself else ()), *self._names("bodies")]

    def _names(self, place: str) -> list[str]:
        listed = self.folder / place / "relatives.json"
        return [body["name"] for body in json.loads(listed.read_text())] if listed.exists() else []


def run(*words: object, allowed: Sequence[int] = (0,)) -> None:
    """A command of `morph-vla`; its other statuses end this one."""
    line = [str(word) for word in words]
    print(f"  morph-vla {shlex.join(line)}", flush=True)
    status = cli.main(line)
    if status not in allowed:
        sys.exit(status)


def main() -> None:
    """Do what is missing."""
    process.prepare()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="all that it makes"
    )
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="the packed base (default: in -o)")
    parser.add_argument("--recipe", default=Settings.recipe)
    names = [
        field.name for field in dataclasses.fields(Settings) if field.name not in ("overrides", "recipe")
    ]
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(getattr(Settings, name)))
    parser.add_argument("--only", choices=["pack"], help="write the base and its card alone")
    about = "of --only pack: a run or a checkpoint (default: train in -o)"
    parser.add_argument("--run", type=Path, metavar="FOLDER", help=about)
    about = "of --only pack: evaluations of it; may be given again (default: eval in -o)"
    parser.add_argument("--records", type=Path, action="append", metavar="FOLDER", help=about)
    given = parser.parse_args()
    chosen = {name: getattr(given, name) for name in names}
    maker = Maker(given.output, Settings.of(given.recipe, given.overrides, **chosen))
    train, records = given.run or given.output / "train", given.records or [given.output / "eval"]
    base = given.base or given.output / maker.settings.name.replace("-", "_")
    try:
        if not given.only:
            maker.stage("bodies", maker.bodies)
            maker.stage("record", maker.record)
            maker.stage("train", maker.train)
            maker.stage("pack", lambda: maker.pack(train, given.output / "packed"))
            maker.stage("evaluate", maker.evaluate)
        maker.stage("card", lambda: maker.pack(train, base, records))
    except MorphVlaError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is finished is kept; the same command goes on")


if __name__ == "__main__":
    main()
