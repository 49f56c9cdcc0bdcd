"""What goes on inside the policies of a grid's cells whose weights were kept (`evidence run --keep-weights`).

    FOLDER/inside/SPLIT/CONDITION/SEED.json    an `Inside`, numbers alone

The cell's policy plays a few episodes of every body of the split, trained on or judged, and what it was asked
is asked once more to see what is computed.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.evidence.asked import require_same
from morph_vla.evidence.grid import Cell, Grid, Plan, cells, is_seen, plan
from morph_vla.evidence.run import WORK
from morph_vla.evidence.status import read_all, require_study
from morph_vla.recipes.keys import Recipe
from morph_vla.results import insides
from morph_vla.results.insides import Inside, Probe
from morph_vla.robots import Robot, screws
from morph_vla.serving import activations
from morph_vla.serving import policy as policies
from morph_vla.serving.activations import Activations
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.training import checkpoint

INSIDE = "inside"
LENGTHS = ("link_length", "tool_distance")
"""What joint tokens are asked for, of `robots.screws.GEOMETRY`, in metres"""
OF_JOINTS, OF_ACTIONS, REACH = "joint tokens", "action tokens", "reach"


class Overheard(CheckpointPolicy):
    """A policy that keeps what it is asked."""

    def __init__(self, policy: CheckpointPolicy):
        """Of this policy, which it is in all else. Raises MorphVlaError for one that looks back: asked once
        more it would be shown an earlier step after a later one.
        """
        if policy.looks_back:
            raise MorphVlaError(f"{policy.folder}: a policy that looks back is not asked the same again")
        vars(self).update(vars(policy))
        self.observations: list[dict[str, Any]] = []

    def infer_batch(self, observations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The policy's answers."""
        self.observations.extend(observations)
        return super().infer_batch(observations)


class _Seen(NamedTuple):
    """One body."""

    robot: Robot
    inside: Activations
    misled: Float[np.ndarray, "n h a"] | None
    """What is answered when told of another body; None where no other has as many joints"""


def look(
    grid: Grid,
    folder: Path,
    only: Sequence[str] = (),
    episodes: int = 1,
    folders: Sequence[Path | str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Inside, ...]:
    """Look into the cells named, or into every finished one whose weights are there.

    Those without kinematic tokens are passed over. Raises MorphVlaError for a name that is no cell's, where
    weights are not there or were trained under other settings than the grid's, and where nothing that was
    asked for has kinematic tokens.
    """
    require_study(folder)
    records, every = read_all(folder), {cell.name: cell for cell in cells(grid)}
    if unknown := [name for name in only if name not in every]:
        near = nearest(unknown[0], every)
        raise MorphVlaError(f"this grid has no cell '{unknown[0]}' (SPLIT/CONDITION/SEED){near}")
    chosen = [every[name] for name in only or every if name in records]
    kept = {cell: path for cell in chosen if (path := _newest(folder, cell)) is not None}
    if lacking := [name for name in only if every[name] not in kept] or ([] if kept else ["all cells"]):
        raise MorphVlaError(
            f"{folder / WORK} lacks the weights of {', '.join(lacking)}: `morph-vla evidence run "
            "--keep-weights` keeps them; it trains no finished cell again, so give it another folder"
        )
    require_same(grid, [records[cell.name] for cell in kept])
    planned, results = plan(grid, folders), []
    bare = [cell for cell in kept if not _has_tokens(planned, cell)]
    if bare and (only or len(bare) == len(kept)):
        raise MorphVlaError(f"{bare[0].name}: this policy has no kinematic tokens to look at")
    for cell in (cell for cell in kept if cell not in bare):
        seen = _look(planned, cell, kept[cell], episodes, say)
        inside = summed(planned, cell, seen, _gradients(folder / WORK / cell.name / "train"))
        insides.write(inside, folder / INSIDE / f"{cell.name}.json")
        results.append(inside)
    return tuple(results)


def _look(
    planned: Plan, cell: Cell, path: Path, episodes: int, say: Callable[[str], None]
) -> dict[str, _Seen]:
    """Every body in turn, `episodes` of each."""
    grid, loaded, split = planned.grid, None, planned.grid.splits[cell.split]
    load = partial(
        policies.load, path, batch=policies.EVALUATION_BATCH, steps=grid.sampler_steps, noise=grid.noise
    )
    own: dict[str, CheckpointPolicy] = {}
    for name in dict.fromkeys((*split.train, *split.judge)):
        own[name] = load(robot=planned.tasks[name].robot, loaded=loaded)
        loaded = own[name].loaded
    arms, seen = {name: (policy.robot.name, len(policy.robot.joints)) for name, policy in own.items()}, {}
    for name, policy in own.items():
        heard, misled = Overheard(policy), None
        with tempfile.TemporaryDirectory() as folder:
            evaluate(heard, planned.tasks[name], folder=folder, episodes=episodes, videos=0)
        other = next_alike(name, arms)
        if other is not None:
            liar = load(robot=policy.robot_name, loaded=loaded, told=own[other].robot)
            misled = activations.answers(liar, heard.observations)
        seen[name] = _Seen(policy.robot, activations.of(policy, heard.observations), misled)
        say(f"{cell.name}: {name}")
    return seen


def _has_tokens(planned: Plan, cell: Cell) -> bool:
    """Whether a cell's policy has kinematic tokens; one that LeRobot trained has none."""
    condition = planned.conditions[cell.condition]
    return isinstance(condition, Recipe) and condition.model.morphology is not None


def next_alike(name: str, arms: Mapping[str, tuple[str, int]]) -> str | None:
    """The next body behind one whose robot is another of as many joints, round and round; None without one.

    `arms`: body -> its robot, and the number of joints. Bodies may be several tasks of one robot.
    """
    names, (robot, joints) = [*arms], arms[name]
    place = names.index(name)
    others = (arm for arm in names[place + 1 :] + names[:place] if arms[arm][0] != robot)
    return next((arm for arm in others if arms[arm][1] == joints), None)


def summed(planned: Plan, cell: Cell, seen: Mapping[str, _Seen], gradients: Mapping[str, float]) -> Inside:
    """The numbers of all bodies."""
    insides_of = [each.inside for each in seen.values()]
    groups = [name for name, each in seen.items() for _ in each.inside.actions]
    between = np.concatenate([each.between for each in insides_of])
    read = [each.read for each in insides_of if each.read is not None]
    pairs = [(each.inside.answers, each.misled) for each in seen.values() if each.misled is not None]
    film = _film(insides_of)
    unseen = tuple(name for name in seen if not is_seen(planned.grid, cell.split, name))
    return Inside(
        cell=cell.name,
        bodies=tuple(seen),
        unseen=unseen,
        observations=len(groups),
        read=tuple(np.concatenate(read).mean(axis=0).tolist()) if read else (),
        even=float(np.mean([each.even for each in insides_of])),
        attention_by_body=tuple(
            insides.by_group(between[:, layer], groups) for layer in range(between.shape[1])
        ),
        scale=film and film[0],
        shift=film and film[1],
        film_by_body=film and film[2],
        moved=float(np.mean([insides.moved(own, misled) for own, misled in pairs])) if pairs else None,
        gradients=dict(gradients),
        probes=tuple(_probes(seen, unseen)),
    )


def _film(seen: Sequence[Activations]) -> tuple[float, float, float] | None:
    """(size of the scale, of the shift over that of the tokens, the part that differs between bodies)."""
    if any(each.film is None for each in seen):
        return None
    film = np.stack([each.film for each in seen if each.film is not None])
    real = np.stack([each.real for each in seen])
    scale, shift = np.split(film, 2, axis=-1)
    tokens = np.concatenate([each.joints[:, 0, each.real].reshape(-1) for each in seen])
    size = np.sqrt(np.square(tokens).mean())
    sizes = [float(np.sqrt(np.square(part[real]).mean())) for part in (scale, shift)]
    return sizes[0], sizes[1] / float(size), insides.at_same_joint(film, real)


def _probes(seen: Mapping[str, _Seen], unseen: Sequence[str]) -> Iterator[Probe]:
    """Lengths of links from joint tokens, and the reach from action tokens; a robot's tasks count as one."""
    numbers = np.unique([each.robot.name for each in seen.values()], return_inverse=True)[1]
    if len(set(numbers.tolist())) < 2:
        return  # what the other robots tell of one: there is none
    asked = unseen or [*seen]
    rows = [
        (number, joint)
        for number, each in enumerate(seen.values())
        for joint in range(len(each.robot.joints))
    ]
    places, joints = (np.array(column) for column in zip(*rows, strict=True))
    bodies = numbers[places]
    counted = np.isin(places, [number for number, name in enumerate(seen) if name in asked])
    every = [*seen.values()]
    tokens = np.stack([every[body].inside.joints[:, :, joint].mean(axis=0) for body, joint in rows])
    for length in LENGTHS:
        metres = np.concatenate([in_metres(each.robot, length) for each in every])
        yield Probe(OF_JOINTS, length, tuple(_layers(tokens, metres, joints, bodies, counted)))
    of_actions = np.stack([each.inside.actions.mean(axis=0) for each in every])
    reaches = np.array([screws.screws(each.robot).reach for each in every])
    counted = np.array([name in asked for name in seen])
    alike = np.zeros(len(every), int)
    yield Probe(OF_ACTIONS, REACH, tuple(_layers(of_actions, reaches, alike, numbers, counted)))


def _layers(
    tokens: Float[np.ndarray, "n l d"],
    lengths: Float[np.ndarray, "n"],
    joints: Int[np.ndarray, "n"],
    bodies: Int[np.ndarray, "n"],
    counted: Bool[np.ndarray, "n"],
) -> Iterator[float]:
    for layer in range(tokens.shape[1]):
        by_token, by_number = insides.left_out(tokens[:, layer], lengths, joints, bodies)
        yield round(insides.known(lengths[counted], by_token[counted], by_number[counted]), 4)


def in_metres(robot: Robot, length: str) -> Float[np.ndarray, "j"]:
    """A length of each joint, of `robots.screws.GEOMETRY`."""
    column = screws.features(robot)[:, screws.GEOMETRY.index(length)]
    return column.astype(np.float64) * screws.screws(robot).reach


def _newest(folder: Path, cell: Cell) -> Path | None:
    checkpoints = folder / WORK / cell.name / "train" / "checkpoints"
    steps = checkpoint.steps(checkpoints) if checkpoints.is_dir() else []
    return checkpoints / str(steps[-1]) if steps else None


def _gradients(train: Path) -> dict[str, float]:
    """Norms by part, of the last line of a training's log."""
    log = train / "log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return json.loads(lines[-1]).get("gradient_norms", {}) if lines else {}
