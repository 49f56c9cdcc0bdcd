"""A recipe's data, ready for the model: one dataset or several robots', as batches by step.

Every dataset keeps its own robot, tokens, frames and statistics' units; what a batch mixes is arrays of one
shape: actions padded to the model's values with a mask of the real ones, cameras that a robot lacks masked,
bodies padded to the model's joints. So one compiled step serves every mixture.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla.data import frames, lerobot, mixture, pool, transforms
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Observation, tokenizer
from morph_vla.policies import Pairs
from morph_vla.policies.config import ModelConfig, StateConfig, reads_numbers
from morph_vla.policies.text import TEXT, global_values
from morph_vla.recipes.keys import Recipe
from morph_vla.robots.robot import Robot
from morph_vla.training import part as part_of
from morph_vla.training import statistics
from morph_vla.training.datasets import (
    Angle,
    drawn_rows,
    environment_of,
    pose_stats,
    read_parts,
    robot_stats,
    state_of,
    to_learn,
)
from morph_vla.training.part import Part

LOG = logging.getLogger(__name__)
HELD_OUT_ROWS = 256  # frames of a robot's held-out episodes on which its held-out loss is measured


class Batch(NamedTuple):
    """What one step is given."""

    observation: Observation
    actions: Float[np.ndarray | Array, "b h a"]
    mask: Bool[np.ndarray | Array, "b a"]  # which action values are the robot's
    dataset: Int[np.ndarray | Array, "b"]  # which dataset each row is from


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
        self.poses = {name: pose_stats(recipe, name, self.parts) for name in self.robots}
        for name, known in self.stats.items():
            for sentence in statistics.sentences(name, known):
                LOG.info("%s", sentence)
        self.workers = pool.Pool(recipe.data.workers or pool.default_workers(), recipe.model.image_size)
        self.frames = self._frames(cache)
        training = recipe.training
        for part in self.parts:
            if not len(drawn_rows(part)):
                raise MorphVlaError(
                    f"{part.asked.dataset}: no row is left to train on; see data.held_out, share and idle"
                )
        self.mixture = mixture.mix(
            [drawn_rows(part) for part in self.parts],
            [part.asked.weight for part in self.parts],
            training.batch,
            training.seed,
            recipe.data.by,
        )
        rows = mixture.row_counts(self.mixture, training.steps) if len(self.parts) > 1 else ()
        for part, count in zip(self.parts, rows, strict=False):
            share, passes = f"{count / sum(rows):.2%}", f"{count / len(drawn_rows(part)):.2f}"
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
        self, model: ModelConfig, part: Part, rows: Int[np.ndarray, "b"], angle_rad: Angle
    ) -> tuple[np.ndarray, ...]:
        """Of the given rows `state`, `environment` and, of windows, `window_mask` of an `Observation`."""
        if not model.lags:
            return self._values(model, part, rows, angle_rad)
        windows, mask = transforms.window(part.recordings, rows, np.asarray(model.lags))
        turns = None if angle_rad is None else np.repeat(angle_rad, windows.shape[1])
        values = self._values(model, part, windows.reshape(-1), turns)
        return *(array.reshape(*windows.shape, -1) for array in values), mask

    def _values(
        self, model: ModelConfig, part: Part, rows: Int[np.ndarray, "b"], angle_rad: Angle
    ) -> tuple[Float[np.ndarray, "b a"], Float[np.ndarray, "b g"]]:
        """State and environment of the given rows, for the models that read numbers."""
        recordings, known = part.recordings, self.poses[part.asked.robot]
        assert known is not None
        state = self.stats[part.asked.robot].state.normalise(state_of(part, rows, angle_rad))
        poses = known.normalise(environment_of(part, rows, angle_rad))
        if isinstance(model, StateConfig):  # others read the text as such
            poses = global_values(poses, [recordings.tasks[task] for task in recordings.task_of[rows]])
        return np.pad(state, ((0, 0), (0, model.action_dim - state.shape[1]))), poses

    def _tokens(
        self, part: Part, rows: Int[np.ndarray, "b"], angle_rad: Angle
    ) -> tuple[np.ndarray, np.ndarray]:
        state = self.stats[part.asked.robot].state.normalise(state_of(part, rows, angle_rad))
        return transforms.tokens(part.recordings, rows, state, self.tokenizer, self.recipe.model.max_tokens)

    def batch(
        self, dataset: Int[np.ndarray, "b"], rows: Int[np.ndarray, "b"], angle_rad: Angle = None
    ) -> Batch:
        """The given rows of the given datasets, each turned about the vertical by its angle."""
        model, count = self.recipe.model, len(rows)
        size = (count, model.image_size, model.image_size, 3)
        images = {name: np.zeros(size, np.uint8) for name in self.cameras}
        image_masks = {name: np.zeros(count, bool) for name in self.cameras}
        tokens = np.zeros((count, model.max_tokens), np.int32)
        token_mask = np.zeros((count, model.max_tokens), bool)
        learnt, mask = self.learnt(dataset, rows, angle_rad)
        numbers = _blank_numbers(model, count)
        pending = []
        for index in np.unique(dataset):
            part, here = self.parts[index], np.flatnonzero(dataset == index)
            its_rows, turns = rows[here], None if angle_rad is None else angle_rad[here]
            for name, pictures in self.frames[index].items():
                pending.append((images[name], here, pictures.ask(its_rows)))
                image_masks[name][here] = True
            if not isinstance(model, StateConfig):
                tokens[here], token_mask[here] = self._tokens(part, its_rows, turns)
            if numbers:
                for out, values in zip(numbers, self._numbers(model, part, its_rows, turns), strict=True):
                    out[here] = values
        for out, here, wait in pending:
            out[here] = wait()
        bodies = part_of.bodies(model, self.parts, self.stats, dataset, rows)
        observation = Observation(images, image_masks, tokens, token_mask, bodies, *numbers)
        return Batch(observation, learnt, mask, dataset)

    def learnt(
        self, dataset: Int[np.ndarray, "b"], rows: Int[np.ndarray, "b"], angle_rad: Angle = None
    ) -> tuple[Float[np.ndarray, "b h a"], Bool[np.ndarray, "b a"]]:
        """The normalised action chunks of the given rows, and which values each row's robot has."""
        model, count = self.recipe.model, len(rows)
        learnt = np.zeros((count, model.horizon, model.action_dim), np.float32)
        mask = np.zeros((count, model.action_dim), bool)
        for index in np.unique(dataset):
            part, here = self.parts[index], np.flatnonzero(dataset == index)
            width, turns = len(part.relative), None if angle_rad is None else angle_rad[here]
            chunks = to_learn(part, rows[here], model.horizon, turns)
            learnt[here, :, :width] = self.stats[part.asked.robot].action.normalise(chunks)
            mask[here, :width] = True
        return learnt, mask

    def chunks(self, most: int) -> tuple[Float[np.ndarray, "n h a"], Bool[np.ndarray, "n a"]]:
        """`policies.Recorded`: those of the run's first steps, of `most` rows or of one pass."""
        rows = min(most, sum(len(part.train_rows) for part in self.parts))
        steps = range(max(1, rows // self.mixture.batch))
        dataset, drawn = (np.concatenate(each) for each in zip(*map(self.mixture.at, steps), strict=True))
        turns = [angle_rad for angle_rad in map(self.angles, steps) if angle_rad is not None]
        return self.learnt(dataset, drawn, np.concatenate(turns) if turns else None)

    def pairs(self, most: int) -> Pairs:
        """`policies.Recorded`: those of one pass, from the first dataset's first to the last one's last."""
        rows = [(index, row) for index, part in enumerate(self.parts) for row in drawn_rows(part).tolist()]
        dataset, chosen = _spread(rows, most).T
        batch = self.batch(dataset, chosen)
        state, environment = batch.observation.state, batch.observation.environment
        assert state is not None
        assert environment is not None  # of a model that reads numbers
        state, environment, actions, mask = map(np.asarray, (state, environment, batch.actions, batch.mask))
        return Pairs(state, environment, actions, mask, len(rows))

    def at(self, step: int) -> Batch:
        """This process's share of a step's batch: a pure function of the recipe's seed and the step."""
        dataset, rows = self.mixture.at(step, self.process, self.processes)
        angle_rad = self.angles(step)
        if angle_rad is not None:
            angle_rad = np.split(angle_rad, self.processes)[self.process]
        batch = self.batch(dataset, rows, angle_rad)
        bucket, seen = self.recipe.training.prompt_bucket, batch.observation
        if not bucket:
            return batch
        # All processes run one program: the longest prompt is that of the whole batch.
        masks = [seen.token_mask] if self.processes == 1 else self._masks(step)
        longest = max(int(mask.sum(axis=1).max()) for mask in masks)
        count = transforms.bucketed(longest, bucket, self.recipe.model.max_tokens)
        return batch._replace(observation=transforms.cut(seen, count))

    def angles(self, step: int) -> Angle:
        """By how much the rows of a step's whole batch are turned (`training.turn_degrees`)."""
        training = self.recipe.training
        if not training.turn_degrees:
            return None
        most = np.radians(training.turn_degrees)
        return np.random.default_rng([training.seed, step]).uniform(-most, most, training.batch)

    def _masks(self, step: int) -> list[np.ndarray]:
        """Which tokens of a step's whole batch are no padding, dataset by dataset."""
        dataset, rows = self.mixture.at(step)
        angle_rad, masks = self.angles(step), []
        for index in np.unique(dataset):
            its = dataset == index
            turns = None if angle_rad is None else angle_rad[its]
            masks.append(self._tokens(self.parts[index], rows[its], turns)[1])
        return masks

    def held_out(self) -> dict[str, Batch]:
        """Held-out rows of every robot that has some, always the same."""
        held: dict[str, list[tuple[int, int]]] = {}
        for index, part in enumerate(self.parts):
            held.setdefault(part.asked.robot, []).extend((index, row) for row in part.held_rows.tolist())
        return {name: self.batch(*_spread(pairs, HELD_OUT_ROWS).T) for name, pairs in held.items() if pairs}

    def batches(self, start: int, steps: int, threads: int = 4) -> Iterator[Batch]:
        """The batches from step `start` to `steps` - 1 in order, made ahead by `threads` of grain's threads.

        So many are under way at once, which keeps the processes that decode video busy, and twice as many
        may lie ready. Threads and processes change nothing but the pace.
        """
        return mixture.ahead(self.at, start, steps, threads)


def _spread(pairs: Sequence[tuple[int, int]], most: int) -> Int[np.ndarray, "n 2"]:
    """So many of the pairs at most, evenly from the first to the last: of every dataset and episode some."""
    count = min(most, len(pairs))
    return np.array(pairs, np.int64)[np.arange(count) * len(pairs) // count]


def _blank_numbers(model: ModelConfig, count: int) -> list[np.ndarray]:
    """Of `count` rows `state`, `environment` and, of windows, `window_mask` of an `Observation`, all zero.

    None for a model that reads no numbers.
    """
    if not reads_numbers(model):
        return []
    rows = (count, len(model.lags)) if model.lags else (count,)
    widths = (model.action_dim, model.environment + (TEXT if isinstance(model, StateConfig) else 0))
    masks = [np.zeros(rows, bool)] if model.lags else []
    return [*(np.zeros((*rows, width), np.float32) for width in widths), *masks]
