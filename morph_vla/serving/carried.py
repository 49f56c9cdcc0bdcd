"""Statistics that go with parameters into another format, in the files where its programs look for them.

    of a checkpoint of   in openpi's format, and ours     in LeRobot's
    ours                 assets/ROBOT/norm_stats.json     both processors, of one robot
    openpi               its own assets, byte for byte    none: they do not say which values are differences
    LeRobot              assets/lerobot/norm_stats.json   its own processors and config.json

A checkpoint of ours stays whole in our own format. Values are in the robot's units, whatever those of its
datasets were. Statistics that cannot be carried are a line that says why, and no error: parameters go alone.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from morph_vla import weights
from morph_vla.data import stats as measured
from morph_vla.data.stats import Stats
from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.files import dropin
from morph_vla.serving import foreign_stats
from morph_vla.serving.foreign import TOKENIZER
from morph_vla.training import checkpoint, meaning
from morph_vla.weights import lerobot_processors
from morph_vla.weights.checkpoint import Checkpoint
from morph_vla.weights.convert import Beside, Format
from morph_vla.weights.lerobot_processors import OneRobot
from morph_vla.weights.recognise import Kind

FEW = 6  # robots that are said one by one
THEIRS = "lerobot"  # the asset of a checkpoint that names no robot
NONE = (
    "parameters alone, without statistics (norm_stats.json, a preprocessor): `morph-vla stats RECIPE "
    "--output FILE` measures them, for `serve --statistics FILE`"
)
Trained = Mapping[str, Any]
"""A robot's entry in policy.json"""


@dataclasses.dataclass(frozen=True)
class Carried:
    """What goes with the parameters, and a line each on what it is, or on why there is nothing."""

    beside: Beside = dataclasses.field(default_factory=Beside)
    lines: tuple[str, ...] = ()


def of(source: str | Path, to: Format, robot: str = "", kind: Kind = "averaged") -> Carried:
    """What of `source` goes with its parameters; of a checkpoint of ours that of `robot` alone, or of all.

    Raises ConfigError for a robot where none can be chosen, MorphVlaError for an unknown one, for a damaged
    policy.json, and as `weights.open_checkpoint`.
    """
    opened = weights.open_checkpoint(source, kind)
    if robot and to == "morph_vla":
        raise ConfigError("--robot: our own format keeps the statistics of every robot")
    if opened.format == "morph_vla" and (opened.path / "about" / "policy.json").is_file():
        return Carried() if to == "morph_vla" else _of_ours(opened, to, robot)
    if robot:
        raise ConfigError(f"--robot: {opened.path} does not say which robots it was trained on")
    # A file, or openpi's params alone: what goes with it lies beside it.
    bare = opened.path.is_file() or opened.path.name == "params"
    folder = opened.path.parent if bare else opened.path
    if opened.format == "lerobot":
        return _of_lerobot(folder, to)
    return _of_openpi(folder, to)


def _alone(why: object) -> Carried:
    return Carried(lines=(f"parameters alone, without statistics: {why}",))


def _of_ours(opened: Checkpoint, to: Format, robot: str) -> Carried:
    about = checkpoint.about(opened.path)
    known: Mapping[str, Trained] = about["robots"]
    if robot:
        called = meaning.called(known, robot)
        if called is None:
            others = f"{nearest(robot, known)} ({', '.join(known)})"
            raise MorphVlaError(f"{opened.path} has no robot '{robot}'{others}")
        robot = called
    chosen = {name: trained for name, trained in known.items() if robot in ("", name)}
    # Poses of tools are refused when they are converted.
    chosen = {name: trained for name, trained in chosen.items() if trained.get("space", "joints") == "joints"}
    if to == "openpi":
        files = {_asset(name): _norm_stats(_stats(trained)) for name, trained in chosen.items()}
        return Carried(Beside(files=files), tuple(_of_assets(chosen)))
    if any(name.startswith("morphology/") for name in opened.entries):
        return _alone("LeRobot's pi0.5 would act without the plugin; --to lerobot-plugin acts with it")
    # LeRobot's pi0.5 has openpi's alone.
    if (about.get("tokenizer") or {}).get("name", TOKENIZER) != TOKENIZER:
        return _alone(f"LeRobot's pi0.5 reads texts by {TOKENIZER}'s tokenizer, and this by another")
    if len(chosen) != 1:
        return _alone(f"LeRobot has room for one robot, this is of {len(chosen)}: --robot NAME says which")
    return _one_of_ours(*next(iter(chosen.items())))


def _one_of_ours(name: str, trained: Trained) -> Carried:
    """LeRobot's processors of one robot, or why it cannot have them."""
    if trained["actions"] == "velocity":
        return _alone(f"'{name}' learnt velocities, which LeRobot would take for positions")
    state, action = (dataclasses.asdict(feature) for feature in _stats(trained))
    try:
        robot = OneRobot(state, action, tuple(trained["joints"]), _relative(trained))
    except MorphVlaError as error:
        return _alone(error)
    line = f"statistics: {lerobot_processors.PREPROCESSOR}, of '{name}', {_actions(trained)}"
    return Carried(Beside(robot=robot), (line,))


def _of_openpi(folder: Path, to: Format) -> Carried:
    assets = sorted((folder / "assets").rglob(foreign_stats.OPENPI))
    if not assets:
        return Carried(lines=(NONE,))
    if to == "lerobot":
        return _alone("openpi's do not say which values are differences; LeRobot measures its own")
    files, lines = {}, []
    for file in assets:
        name = file.relative_to(folder).as_posix()
        try:
            foreign_stats.read_json(file)
        except MorphVlaError as error:
            lines.append(f"left out: {error}")
            continue
        files[name] = file.read_bytes()
        lines.append(f"statistics: {name}, as it was")
    return Carried(Beside(files=files), tuple(lines))


def _of_lerobot(folder: Path, to: Format) -> Carried:
    try:
        if to == "lerobot":
            files, config = foreign_stats.processor_files(folder), foreign_stats.kept_settings(folder)
            line = f"statistics: {lerobot_processors.PREPROCESSOR}, as it was" if files else NONE
            return Carried(Beside(files=files, config=config), (line,))
        known = foreign_stats.processor(folder)
    except MorphVlaError as error:
        return _alone(error)
    if known.state is None or known.action is None:
        return _of_openpi(folder, to)  # as beside openpi's PyTorch checkpoints
    relative = known.relative
    if relative is not None:  # a difference is taken of all that follow
        count = len(known.action.q01)
        relative = (*relative, *(True,) * count)[:count]
    line = f"statistics: {_asset(THEIRS)}, {known.actions} actions{_mask(relative)}"
    return Carried(Beside(files={_asset(THEIRS): _norm_stats((known.state, known.action))}), (line,))


def _stats(trained: Trained) -> tuple[Stats, Stats]:
    return measured.from_plain(trained["state_stats"]), measured.from_plain(trained["action_stats"])


def _asset(robot: str) -> str:
    """Where openpi looks for an asset's statistics; a robot may be called by its URDF's path.

    Raises MorphVlaError for a name that is no folder's.
    """
    name = dropin.name_of("robots", robot)
    if name != Path(name).name or name in ("", "..") or "\\" in name:
        raise MorphVlaError(f"robot '{robot}' cannot be the name of a folder under assets")
    return f"assets/{name}/{foreign_stats.OPENPI}"


def _norm_stats(stats: tuple[Stats, Stats]) -> bytes:
    """A norm_stats.json (openpi: `shared/normalize.py`)."""
    state, actions = (dataclasses.asdict(feature) for feature in stats)
    return json.dumps({"norm_stats": {"state": state, "actions": actions}}, indent=2).encode()


def _of_assets(chosen: Mapping[str, Trained]) -> Iterator[str]:
    if len(chosen) > FEW:
        yield f"statistics: assets/ROBOT/{foreign_stats.OPENPI} of {len(chosen)} robots"
        return
    for name, trained in chosen.items():
        yield f"statistics: {_asset(name)}, {_actions(trained)}"


def _actions(trained: Trained) -> str:
    units = f" [{'; '.join(dict.fromkeys(trained['units']))}]" if trained.get("units") else ""
    return f"{trained['actions']} actions{units}{_mask(_relative(trained))}"


def _relative(trained: Trained) -> tuple[bool, ...] | None:
    """Of which values a difference to the state is learnt; None where actions are no differences."""
    return tuple(trained["relative"]) if trained["actions"] == "delta" else None


def _mask(relative: tuple[bool, ...] | None) -> str:
    """How openpi's own configs say of which values a difference is taken (`transforms.make_bool_mask`)."""
    if relative is None:
        return ""
    runs = ((moves, len(list(run))) for moves, run in groupby(relative))
    return f" (openpi's make_bool_mask({', '.join(str(n if moves else -n) for moves, n in runs)}))"
