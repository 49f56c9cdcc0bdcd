"""Statistics that go with parameters into another format, in the files where its programs look for them.

    of a checkpoint of   in openpi's format, and ours     in LeRobot's
    ours                 assets/ROBOT/norm_stats.json     both processors, of one robot
    openpi               its own assets, byte for byte    none: they do not say which values are differences
    LeRobot              assets/lerobot/norm_stats.json   both processors

A checkpoint of ours stays whole in our own format.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from morph_vla import weights
from morph_vla.data.stats import Stats
from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.serving import foreign_stats
from morph_vla.training import checkpoint
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


@dataclasses.dataclass(frozen=True)
class Carried:
    """What goes with the parameters, and a line each on what it is, or on why there is nothing."""

    beside: Beside = dataclasses.field(default_factory=Beside)
    lines: tuple[str, ...] = ()


def of(source: str | Path, to: Format, robot: str = "", kind: Kind = "averaged") -> Carried:
    """What of `source` goes with its parameters; of a checkpoint of ours that of `robot` alone, or of all.

    Raises ConfigError for a robot where the checkpoint names none, MorphVlaError for an unknown one, for
    damaged statistics and as `weights.open_checkpoint`.
    """
    opened = weights.open_checkpoint(source, kind)
    if opened.format == "morph_vla" and (opened.path / "about" / "policy.json").is_file():
        return Carried() if to == "morph_vla" else _of_ours(opened, to, robot)
    if robot:
        raise ConfigError(f"--robot: {opened.path} does not say which robots it was trained on")
    if opened.format == "lerobot":
        return _of_lerobot(opened, to)
    return _of_openpi(opened, to)


def _of_ours(opened: Checkpoint, to: Format, robot: str) -> Carried:
    known: Mapping[str, Mapping[str, Any]] = checkpoint.about(opened.path)["robots"]
    if robot and robot not in known:
        known_ones = f"{nearest(robot, known)} ({', '.join(known)})"
        raise MorphVlaError(f"{opened.path} has no robot '{robot}'{known_ones}")
    chosen = {name: trained for name, trained in known.items() if robot in ("", name)}
    # Poses of tools are refused when they are converted.
    chosen = {name: trained for name, trained in chosen.items() if trained.get("space", "joints") == "joints"}
    if to == "openpi":
        files = {_asset(name): _norm_stats(_stats(trained)) for name, trained in chosen.items()}
        return Carried(Beside(files=files), tuple(_of_assets(chosen)))
    if len(chosen) != 1:
        why = f"LeRobot keeps those of one robot, and this is of {len(chosen)}: --robot NAME says which"
        return Carried(lines=(f"parameters alone, without statistics: {why}",))
    ((name, trained),) = chosen.items()
    words = f"of '{name}', {_actions(trained)}"
    return _processors(_stats(trained), trained["joints"], _relative(trained), words)


def _of_openpi(opened: Checkpoint, to: Format) -> Carried:
    folder = opened.path
    assets = sorted((folder / "assets").rglob(foreign_stats.OPENPI))
    if not assets:
        return Carried(lines=(NONE,))
    if to == "lerobot":
        why = "openpi's do not say which values are differences; LeRobot measures its own when it trains"
        return Carried(lines=(f"parameters alone, without statistics: {why}",))
    files = {}
    for file in assets:
        foreign_stats.read_json(file)  # raises for what is damaged or too large
        files[file.relative_to(folder).as_posix()] = file.read_bytes()
    return Carried(Beside(files=files), tuple(f"statistics: {name}, as it was" for name in files))


def _of_lerobot(opened: Checkpoint, to: Format) -> Carried:
    kept = foreign_stats.processor(opened.path)
    if kept.state is None or kept.action is None:
        return Carried(lines=(NONE,))
    stats = kept.state, kept.action
    if to != "lerobot":
        line = f"statistics: {_asset(THEIRS)}, {kept.actions} actions{_mask(kept.relative)}"
        return Carried(Beside(files={_asset(THEIRS): _norm_stats(stats)}), (line,))
    return _processors(stats, kept.names, kept.relative, f"{kept.actions} actions")


def _processors(
    stats: tuple[Stats, Stats], names: Sequence[str], relative: tuple[bool, ...] | None, words: str
) -> Carried:
    """LeRobot's, or why it cannot have them."""
    state, action = (dataclasses.asdict(feature) for feature in stats)
    try:
        robot = OneRobot(state, action, tuple(names), relative is not None, relative or ())
    except MorphVlaError as error:
        return Carried(lines=(f"parameters alone, without statistics: {error}",))
    return Carried(Beside(robot=robot), (f"statistics: policy_preprocessor.json, {words}",))


def _stats(trained: Mapping[str, Any]) -> tuple[Stats, Stats]:
    return Stats(**_columns(trained["state_stats"])), Stats(**_columns(trained["action_stats"]))


def _columns(kept: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {field.name: tuple(kept[field.name]) for field in dataclasses.fields(Stats)}


def _asset(name: str) -> str:
    """Where openpi looks for an asset's statistics. Raises MorphVlaError for a name that is no folder's."""
    if name != Path(name).name or name.startswith("."):
        raise MorphVlaError(f"robot '{name}' cannot be the name of a folder under assets")
    return f"assets/{name}/{foreign_stats.OPENPI}"


def _norm_stats(stats: tuple[Stats, Stats]) -> bytes:
    """A norm_stats.json (openpi: `shared/normalize.py`)."""
    state, actions = (dataclasses.asdict(feature) for feature in stats)
    return json.dumps({"norm_stats": {"state": state, "actions": actions}}, indent=2).encode()


def _of_assets(chosen: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if len(chosen) > FEW:
        yield f"statistics: assets/ROBOT/{foreign_stats.OPENPI} of {len(chosen)} robots"
        return
    for name, trained in chosen.items():
        yield f"statistics: {_asset(name)}, {_actions(trained)}"


def _actions(trained: Mapping[str, Any]) -> str:
    return f"{trained['actions']} actions{_mask(_relative(trained))}"


def _relative(trained: Mapping[str, Any]) -> tuple[bool, ...] | None:
    """Of which values a difference to the state is learnt; None where actions are no differences."""
    return tuple(trained["relative"]) if trained["actions"] == "delta" else None


def _mask(relative: tuple[bool, ...] | None) -> str:
    """How openpi's own configs say of which values a difference is taken (`transforms.make_bool_mask`)."""
    if relative is None:
        return ""
    runs = ((moves, len(list(run))) for moves, run in groupby(relative))
    return f" (openpi's make_bool_mask({', '.join(str(n if moves else -n) for moves, n in runs)}))"
