"""A recipe's data, ready for the model: one dataset or several robots', as batches by step.

Every dataset keeps its own robot, tokens, frames and statistics' units; what a batch mixes is arrays of one
shape: actions padded to the model's values with a mask of the real ones, cameras that a robot lacks masked,
bodies padded to the model's joints. So one compiled step serves every mixture.
"""

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla import policies, robots
from morph_vla.data import actions, frames, idle, layout, lerobot, mixture, phases, pool, presets, transforms
from morph_vla.data.stats import Stats, of_environment
from morph_vla.errors import MorphVlaError
from morph_vla.morphology.arrays import Body, positions_of
from morph_vla.pi05 import Observation, tokenizer
from morph_vla.policies.config import StateConfig, reads_poses
from morph_vla.policies.text import TEXT, global_values
from morph_vla.recipes.recipe import Dataset, Recipe
from morph_vla.robots.robot import Robot
from morph_vla.training import statistics
from morph_vla.training.statistics import RobotStats

LOG = logging.getLogger(__name__)
HELD_OUT_ROWS = 256  # frames of a robot's held-out episodes on which its held-out loss is measured


class Batch(NamedTuple):
    """What one step is given."""

    observation: Observation
    actions: Float[np.ndarray | Array, "b h a"]
    mask: Bool[np.ndarray | Array, "b a"]  # which action values are the robot's
    dataset: Int[np.ndarray | Array, "b"]  # which dataset each row is from


@dataclasses.dataclass(frozen=True)
class Part:
    """One dataset, with its robot and everything of its rows but their order."""

    asked: Dataset
    robot: Robot
    recordings: lerobot.Recordings
    relative: Bool[np.ndarray, "n"]  # which joints a delta or a velocity is taken of
    body: Body | None
    train_rows: Int[np.ndarray, "_"]
    held_rows: Int[np.ndarray, "_"]
    converted: bool = False  # whether values were brought from the dataset's units to the robot's


class Source:
    """The batches of a recipe, and its held-out rows."""

    def __init__(self, recipe: Recipe, cache: Path, process: int = 0, processes: int = 1):
        """Read and decode; what is being done is logged.

        Of several processes that train together each has its share of every batch: number `process` of
        `processes`.

        Raises MorphVlaError for a dataset that does not fit its robot or the model.
        """
        self.recipe, self.process, self.processes = recipe, process, processes
        self.tokenizer = tokenizer.load(recipe.tokenizer)
        if not isinstance(recipe.model, StateConfig):
            tokenizer.check_vocab(self.tokenizer, recipe.model.vocab)
        LOG.info("reading values")
        self.parts = read_parts(recipe)
        self.stats = {name: robot_stats(recipe, name, self.parts) for name in self.robots}
        self.poses = {name: pose_stats(name, self.parts) for name in self.robots}
        for name, known in self.stats.items():
            for sentence in statistics.sentences(name, known):
                LOG.info("%s", sentence)
        self.workers = pool.Pool(recipe.data.workers or pool.default_workers(), recipe.model.image_size)
        self.frames = self._frames(cache)
        training = recipe.training
        self.mixture = mixture.mix(
            [_drawn(part) for part in self.parts],
            [part.asked.weight for part in self.parts],
            training.batch,
            training.seed,
            recipe.data.by,
        )
        rows = mixture.row_counts(self.mixture, training.steps) if len(self.parts) > 1 else ()
        for part, count in zip(self.parts, rows, strict=False):
            share, passes = f"{count / sum(rows):.2%}", f"{count / len(part.train_rows):.2f}"
            LOG.info(
                "mixture by %s: %s of the run's rows are of %s, %d rows, %s passes over %s",
                self.mixture.by, share, part.asked.robot, count, passes, part.asked.dataset,
            )  # fmt: skip

    @property
    def robots(self) -> dict[str, Robot]:
        """The robots by name, in the recipe's order."""
        return {part.asked.robot: part.robot for part in self.parts}

    @property
    def cameras(self) -> tuple[str, ...]:
        """The model's cameras that at least one dataset has, in the model's order."""
        given = {name for part in self.parts for name in part.asked.cameras}
        return tuple(name for name in self.recipe.model.cameras if name in given)

    def _frames(self, cache: Path) -> list[dict[str, frames.Kept | frames.Video]]:
        """Of each dataset, by the model's names of its cameras: frames in `cache`, or decoded when asked."""
        mode, size = self.recipe.data.frames, self.recipe.model.image_size
        footage = [
            {name: lerobot.footage(part.recordings, camera) for name, camera in part.asked.cameras.items()}
            for part in self.parts
        ]
        if mode == "auto":
            films = [film for cameras in footage for film in cameras.values()]
            mode = "cache" if frames.fit(films, size) else "video"
        opened: list[dict[str, frames.Kept | frames.Video]] = [{} for _ in footage]
        for part, cameras, ready in zip(self.parts, footage, opened, strict=True):
            for name, film in cameras.items():
                if mode == "video":
                    ready[name] = frames.opened(film, self.workers)
                    continue
                what = f"decoding camera '{film.camera}' of {part.asked.dataset}"
                LOG.info("%s (%d frames)", what, film.rows)
                progress = frames.telling(what)
                ready[name] = frames.Kept(frames.cached(film, size, cache, progress, self.workers))
        if mode != "video":
            self.workers.close()
        return opened

    def _numbers(
        self, part: Part, rows: Int[np.ndarray, "b"]
    ) -> tuple[Float[np.ndarray, "b a"], Float[np.ndarray, "b g"]]:
        """State and environment of the given rows, for the families that act on numbers."""
        recordings, known = part.recordings, self.poses[part.asked.robot]
        assert recordings.environment is not None
        assert known is not None
        state = self.stats[part.asked.robot].state.normalise(recordings.state[rows])
        texts = [recordings.tasks[task] for task in recordings.task_of[rows]]
        poses = known.normalise(recordings.environment[rows])
        width = self.recipe.model.action_dim
        return np.pad(state, ((0, 0), (0, width - state.shape[1]))), global_values(poses, texts)

    def _tokens(self, part: Part, rows: Int[np.ndarray, "b"]) -> tuple[np.ndarray, np.ndarray]:
        state, most = self.stats[part.asked.robot].state, self.recipe.model.max_tokens
        return transforms.tokens(part.recordings, rows, state, self.tokenizer, most)

    def batch(self, dataset: Int[np.ndarray, "b"], rows: Int[np.ndarray, "b"]) -> Batch:
        """The given rows of the given datasets."""
        model, count = self.recipe.model, len(rows)
        size = (count, model.image_size, model.image_size, 3)
        images = {name: np.zeros(size, np.uint8) for name in self.cameras}
        image_masks = {name: np.zeros(count, bool) for name in self.cameras}
        tokens = np.zeros((count, model.max_tokens), np.int32)
        token_mask = np.zeros((count, model.max_tokens), bool)
        learnt = np.zeros((count, model.horizon, model.action_dim), np.float32)
        mask = np.zeros((count, model.action_dim), bool)
        numbers: list[np.ndarray] = []
        if isinstance(model, StateConfig):
            widths = (model.action_dim, model.environment + TEXT)
            numbers = [np.zeros((count, width), np.float32) for width in widths]
        pending = []
        for index in np.unique(dataset):
            part, here = self.parts[index], np.flatnonzero(dataset == index)
            its_rows, width = rows[here], len(part.robot.joints)
            for name, pictures in self.frames[index].items():
                pending.append((images[name], here, pictures.ask(its_rows)))
                image_masks[name][here] = True
            if not numbers:
                tokens[here], token_mask[here] = self._tokens(part, its_rows)
            else:
                for out, values in zip(numbers, self._numbers(part, its_rows), strict=True):
                    out[here] = values
            chunks = _learnt(part, its_rows, model.horizon)
            learnt[here, :, :width] = self.stats[part.asked.robot].action.normalise(chunks)
            mask[here, :width] = True
        for out, here, wait in pending:
            out[here] = wait()
        bodies = self._bodies(dataset, rows)
        observation = Observation(images, image_masks, tokens, token_mask, bodies, *numbers)
        return Batch(observation, learnt, mask, dataset)

    def _bodies(self, dataset: Int[np.ndarray, "b"], rows: Int[np.ndarray, "b"]) -> Body | None:
        if any(part.body is None for part in self.parts):
            return None
        bodies = [part.body for part in self.parts]
        body = jax.tree.map(lambda *leaves: np.stack(leaves)[dataset], *bodies)
        if not reads_poses(self.recipe.model):
            return body
        places = body.joint_mask.shape[-1]
        positions = np.zeros((len(rows), places), np.float32)
        for index in np.unique(dataset):
            part, here = self.parts[index], dataset == index
            positions[here] = positions_of(part.robot, part.recordings.state[rows[here]], places)
        return dataclasses.replace(body, positions=positions)

    def at(self, step: int) -> Batch:
        """This process's share of a step's batch: a pure function of the recipe's seed and the step."""
        batch = self.batch(*self.mixture.at(step, self.process, self.processes))
        bucket, seen = self.recipe.training.prompt_bucket, batch.observation
        if not bucket:
            return batch
        # All processes run one program: the longest prompt is that of the whole batch.
        masks = [seen.token_mask] if self.processes == 1 else self._masks(*self.mixture.at(step))
        longest = max(int(mask.sum(axis=1).max()) for mask in masks)
        count = transforms.bucketed(longest, bucket, self.recipe.model.max_tokens)
        cut = dataclasses.replace(seen, tokens=seen.tokens[:, :count], token_mask=seen.token_mask[:, :count])
        return batch._replace(observation=cut)

    def _masks(self, dataset: Int[np.ndarray, "b"], rows: Int[np.ndarray, "b"]) -> list[np.ndarray]:
        """Which tokens of these rows are no padding, dataset by dataset."""
        return [self._tokens(self.parts[index], rows[dataset == index])[1] for index in np.unique(dataset)]

    def held_out(self) -> dict[str, Batch]:
        """Held-out rows of every robot that has some, always the same."""
        held: dict[str, list[tuple[int, int]]] = {}
        for index, part in enumerate(self.parts):
            held.setdefault(part.asked.robot, []).extend((index, row) for row in part.held_rows.tolist())
        every = {name: max(1, len(pairs) // HELD_OUT_ROWS) for name, pairs in held.items()}
        return {
            name: self.batch(*np.array(pairs[:: every[name]][:HELD_OUT_ROWS], np.int64).T)
            for name, pairs in held.items()
            if pairs
        }

    def batches(self, start: int, steps: int, threads: int = 4) -> Iterator[Batch]:
        """The batches from step `start` to `steps` - 1 in order, made ahead by `threads` of grain's threads.

        So many are under way at once, which keeps the processes that decode video busy, and twice as many
        may lie ready. Threads and processes change nothing but the pace.
        """
        return mixture.ahead(self.at, start, steps, threads)


def read_parts(recipe: Recipe) -> list[Part]:
    """The recipe's datasets, values alone, each held against its robot and the model."""
    return [_part(recipe, asked) for asked in recipe.data.sources]


def _part(recipe: Recipe, asked: Dataset) -> Part:
    """A dataset's values held against its robot and the model."""
    robot = robots.load(asked.robot)
    features = robot.side.features
    keys = asked.state or features.state, asked.action or features.action
    on_numbers = isinstance(recipe.model, StateConfig)
    recorded = lerobot.read(
        asked.dataset, *keys, episodes=asked.episodes, share=asked.share, environment=on_numbers
    )
    units = presets.as_recorded(robot, asked.unit, asked.gripper)
    targets = presets.targets(robot, asked.recorded, asked.step, recorded.state, recorded.action)
    state, action = (presets.brought(robot, units, values) for values in (recorded.state, targets))
    recordings = dataclasses.replace(recorded, state=state, action=action)
    names, width = robot.names, action.shape[1]
    if width != len(names):
        raise MorphVlaError(
            f"{asked.dataset}: actions have {width} values, robot '{robot.name}' has {len(names)} "
            f"joints ({', '.join(names)})"
        )
    if width > recipe.model.action_dim:
        raise MorphVlaError(
            f"robot '{robot.name}' has {width} joints, the model {recipe.model.action_dim} action "
            "values; raise model.action_dim"
        )
    if asked.actions != "absolute" and state.shape[1] != width:
        raise MorphVlaError(
            f"{asked.dataset}: {asked.actions} actions are differences from the state, which has "
            f"{state.shape[1]} values where an action has {width}"
        )
    if reads_poses(recipe.model) and state.shape[1] != width:
        raise MorphVlaError(
            f"{asked.dataset}: the model reads where each joint is (model.morphology.poses: present), but a "
            f"state has {state.shape[1]} values where robot '{robot.name}' has {width} joints"
        )
    held = mixture.held_out(len(recordings.starts), recipe.data.held_out)[recordings.episode_of()]
    drawn = ~held & _moving(asked, robot, recordings)
    if isinstance(recipe.model, StateConfig):
        _check_numbers(asked, recipe.model, state, recorded.environment)
    cameras = {name: layout.named(own, recordings.cameras) for name, own in asked.cameras.items()}
    return Part(
        dataclasses.replace(asked, cameras=cameras),
        robot,
        recordings,
        np.array([not joint.is_gripper for joint in robot.joints]),
        policies.of(recipe.model).body(recipe.model, robot),
        np.flatnonzero(drawn),
        np.flatnonzero(held),
        units is not robot or targets is not recorded.action,
    )


def _check_numbers(
    asked: Dataset, model: StateConfig, state: Float[np.ndarray, "n s"], environment: np.ndarray | None
) -> None:
    """Raise MorphVlaError where a dataset's numbers are not those that the model reads."""
    assert environment is not None
    if state.shape[1] > model.action_dim:
        raise MorphVlaError(
            f"{asked.dataset}: the state has {state.shape[1]} values, the model a place for "
            f"{model.action_dim}; raise model.action_dim"
        )
    if environment.shape[1] != model.environment:
        raise MorphVlaError(
            f"{asked.dataset}: '{lerobot.ENVIRONMENT}' has {environment.shape[1]} values; set "
            f"model.environment, which is {model.environment}"
        )


def _moving(asked: Dataset, robot: Robot, recordings: lerobot.Recordings) -> Bool[np.ndarray, "n"]:
    """The rows that are left where those in which nothing moves are left out; held-out ones stay."""
    if not asked.idle:
        return np.ones(recordings.frames, bool)
    moving = idle.moving(robot, recordings.action, recordings.starts, asked.idle)
    count = recordings.frames - int(moving.sum())
    LOG.info("%s: nothing moves in %d of %d rows: left out", asked.dataset, count, recordings.frames)
    return moving


def _drawn(part: Part) -> Int[np.ndarray, "_"]:
    """The rows of one pass over a dataset, those before a grasp or a release in the recipe's shares.

    Raises MorphVlaError where that is asked of a robot or a dataset that grasps nothing.
    """
    rows, shares, recordings = part.train_rows, part.asked.phases, part.recordings
    if shares == phases.AS_RECORDED:
        return rows
    last = recordings.last_of(np.arange(recordings.frames))
    try:
        ahead = phases.of_robot(part.robot, recordings.action, last)
        return phases.drawn(rows, ahead, shares)
    except MorphVlaError as error:
        raise MorphVlaError(f"data.phases: {part.asked.dataset}: {error}; leave it out") from error


def _learnt(part: Part, rows: Int[np.ndarray, "b"], horizon: int) -> Float[np.ndarray, "b h n"]:
    """The actions from each row on, as the model learns them, in dataset units."""
    recorded = transforms.chunks(part.recordings, rows, horizon)
    state = part.recordings.state[rows]
    return actions.to_learn(part.asked.actions, recorded, state, part.relative, part.recordings.fps)


def robot_stats(recipe: Recipe, name: str, parts: Sequence[Part]) -> RobotStats:
    """The statistics of one robot over all its datasets, as the recipe wants them."""
    robot = next(part.robot for part in parts if part.asked.robot == name)
    features = robot.side.features
    recorded = [
        statistics.Recorded(
            part.asked.dataset,
            part.recordings,
            part.asked.actions,
            part.relative,
            part.converted,
            part.asked.state or features.state,
            part.asked.action or features.action,
        )
        for part in parts
        if part.asked.robot == name
    ]
    return statistics.of_robot(
        name,
        robot.names,
        recorded,
        recipe.model.horizon,
        statistics=recipe.data.statistics,
        degenerate=recipe.data.degenerate,
        before=recipe.weights,
    )


def pose_stats(name: str, parts: Sequence[Part]) -> Stats | None:
    """The statistics of the poses of objects in one robot's datasets; None where none are read."""
    of_robot = [part.recordings.environment for part in parts if part.asked.robot == name]
    poses = [values for values in of_robot if values is not None]
    return of_environment(np.concatenate(poses)) if poses else None


def statistics_of(recipe: Recipe) -> dict[str, tuple[tuple[str, ...], actions.Kind, RobotStats]]:
    """Of every robot of a recipe: its joints' names, what of actions is learnt, and the statistics."""
    parts = read_parts(recipe)
    # What is learnt of a robot's actions is the same in all its datasets.
    of_robot = {part.asked.robot: part for part in parts}
    return {
        name: (part.robot.names, part.asked.actions, robot_stats(recipe, name, parts))
        for name, part in of_robot.items()
    }
