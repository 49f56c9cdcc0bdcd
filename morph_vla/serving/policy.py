"""A checkpoint that answers observations with actions (`engines.engine` has keys, shapes and units).

Random numbers come from (seed, episode, step) of the observation, and a policy computes `batch` observations
at once, filled up by repetition where there are fewer. So an answer does not depend on which others it was
computed with, bit for bit (but with `any_size`). Two policies of another `batch` differ in the last bits,
because XLA orders the sums of a matrix product by its shape: with the demo's model on a CPU batches of 8, 10
and 16 give the same bits, and 1, 2 and 4 three others, up to 3e-7 apart.
"""

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from morph_vla import policies, weights
from morph_vla.data import space as spaces
from morph_vla.data.actions import restore, to_learn
from morph_vla.data.space import Space, check_width, poses_seen, tools_of
from morph_vla.data.space import relative as relative_of
from morph_vla.data.stats import Stats
from morph_vla.engines.engine import ENVIRONMENT
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.sampler import Sampler
from morph_vla.files import hub, remote, typed_yaml
from morph_vla.files.plain import as_typed
from morph_vla.morphology import Body, stack
from morph_vla.morphology.arrays import positions_of
from morph_vla.pi05 import Observation, Pi05Config, Previous, tokenizer
from morph_vla.pi05.observation import resize_with_pad
from morph_vla.policies.config import ModelConfig, StateConfig, joint_lags, reads_numbers, reads_poses
from morph_vla.policies.text import global_values
from morph_vla.recipes.keys import Recipe
from morph_vla.robots.robot import Robot
from morph_vla.robots.standpoint import Standpoint
from morph_vla.serving import foreign
from morph_vla.serving.foreign import Given, Loaded, is_foreign
from morph_vla.serving.history import History
from morph_vla.serving.observed import Expected
from morph_vla.serving.programs import prompts_of, shortened, sizes_up_to, tokens_of
from morph_vla.serving.requests import PROMPT
from morph_vla.serving.which_robot import warn_of_joints, which_robot
from morph_vla.training import checkpoint, meaning, restoring
from morph_vla.weights.load import returned_at_once

EVALUATION_BATCH = 10  # what 20 environments in two groups ask at once, an evaluation's default


class CheckpointPolicy:
    """The averaged parameters of a checkpoint, with the recipe's preprocessing, driving one of its robots."""

    def __init__(
        self,
        folder: Path,
        *,
        robot: str = "",
        batch: int = 1,
        any_size: bool = False,
        steps: int = Sampler.steps,
        noise: float = Sampler.noise,
        seed: int = 0,
        tokenizer_name: str = "",
        given: Given = Given(),  # noqa: B008 (frozen)
        loaded: Loaded | None = None,
        source: str = "",
        told: Robot | None = None,
    ):
        """Load the checkpoint at `folder`.

        `batch` observations are computed at once, whatever is asked (one compilation): 1 answers one robot
        soonest, EVALUATION_BATCH is what `morph-vla eval` has. With `any_size` fewer are computed where fewer
        are asked, 1, 2, 4, ..., and short prompts without their padding (a compilation each): sooner, and an
        answer then depends on its company by rounding, which it never does without.
        `steps` and `noise` are those of `evaluation.sampler.Sampler`.
        `robot` is needed only where the checkpoint was trained on several.
        `tokenizer_name` is where this machine has the tokenizer, when that is not where the recipe says.
        `given` is what a checkpoint of openpi or LeRobot does not say itself.
        `loaded` is that of another policy of this checkpoint, for a second robot: it is read once.
        `source` is the name of `folder`, or the address on the Hub that it was fetched from.
        `told` is another robot of as many joints, of which the model is told in place of its own: does it
        listen (`scripts/told.py`)?
        Raises MorphVlaError when it is not the tokenizer that the checkpoint was trained with, for a robot
        that it was not trained on unless `meaning.unseen` knows it, or whose poses of objects it does not
        know, and as `Sampler` and `foreign.read`.
        """
        self.sampler = dataclasses.asdict(Sampler(steps, float(noise)))
        if is_foreign(folder):
            loaded = foreign.read(folder, robot, given, tokenizer_name)
        about = checkpoint.about(folder) if loaded is None else loaded.about
        self.robot_name = which_robot(about, robot, source or folder)  # before gigabytes are read
        self.loaded = loaded = loaded or _own(folder)
        self.folder, self.source, self.about, self.batch = folder, source, loaded.about, batch
        self.sizes = sizes_up_to(batch) if any_size else (batch,)
        self.config, self.params = loaded.config, loaded.params
        self.robot, self.trained = _driven(self.about, self.robot_name, folder)
        check_poses(self.config, self.trained, f"{folder}: robot '{self.robot_name}'")
        self.cameras: dict[str, str] = self.trained["cameras"]  # the model's name -> the dataset's
        self.image_size = self.config.image_size
        self._stats = {
            kind: Stats(**{k: tuple(v) for k, v in self.trained[kind].items()})
            for kind in ("state_stats", "action_stats", "environment_stats")
            if kind in self.trained
        }
        self._tokenizer = tokenizer.load(tokenizer_name or loaded.tokenizer)
        tokenizer.check_same(self.about.get("tokenizer"), self._tokenizer, str(folder))
        self.prompts = prompts_of(self.config, self._tokenizer, self.trained, any_size)
        self._joints, self._values = len(self.trained["joints"]), len(self.trained["relative"])
        self._space: Space = self.trained.get("space", "joints")
        check_width(self.robot, self._space, self.config.action_dim)
        self._history = History(self._lags)
        family = policies.of(self.config)
        self.real_time = family.real_time(self.config)
        self._told = self.robot if told is None else _alike(told, self.robot)
        self._seed = seed
        body = family.body(self.config, self._told)
        self._bodies = {size: None if body is None else stack([body] * size) for size in self.sizes}
        self._sample = jax.jit(_sampler(self.config, self._values, steps, noise, seed))
        self._ahead = jax.jit(lambda params: family.ahead(self.config, params, steps))(self.params)

    @cached_property
    def _expected(self) -> Expected:
        """What an observation must hold."""
        poses, names = self.trained.get("environment") or (), (self.robot_name, self.robot.name)
        return Expected(tuple(self.cameras.values()), self.trained["joints"], poses, names)

    @property
    def _lags(self) -> tuple[int, ...]:
        """Control steps back that it is shown, the oldest first; none where it is shown the present alone."""
        return self.config.lags or joint_lags(self.config)

    @property
    def looks_back(self) -> bool:
        """Whether it is shown earlier steps of an episode, so that it has to know which step this is."""
        return bool(self._lags)

    def digest(self) -> str:
        """SHA-256 of parameters and statistics: two policies that share it act the same."""
        return self.loaded.sha256

    def describe(self) -> dict[str, Any]:
        """What a record says of this policy; by its digest, one trained anew in its place is another."""
        name = self.source.removeprefix("hf://").partition("@")[0] or self.folder.name
        body = _body_digest(self._told)
        return {
            "name": name if self._told.name == self.robot.name else f"{name}, told {self._told.name}",
            "checkpoint": self.source or as_typed(self.folder),
            "step": self.about["step"],
            "sha256": self.digest(),
            "sampler": self.sampler,
            "batch": self.batch,
            **({"seed": self._seed} if self._seed else {}),
            **({"told_sha256": body} if body != _body_digest(self.robot) else {}),
        }

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Actions [horizon, joints] for one observation, dataset units."""
        return self.infer_batch([observation])[0]

    def infer_batch(self, observations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Actions for several observations, in order.

        Those that go on from `previous_actions` are computed by a program of their own, apart from the
        others, so that none is computed by another program because of its company.
        """
        answers: list[dict[str, Any]] = [{}] * len(observations)
        for goes_on in (False, True):
            places = [
                place for place, row in enumerate(observations) if ("previous_actions" in row) == goes_on
            ]
            for start in range(0, len(places), self.batch):
                some = places[start : start + self.batch]
                computed = self._infer([observations[place] for place in some])
                for place, answer in zip(some, computed, strict=True):
                    answers[place] = answer
        return answers

    def _infer(self, observations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers; `policy_timing` has what their batch took: pictures and text, sampling, units."""
        real, times = len(observations), [time.perf_counter()]
        size = next(size for size in self.sizes if size >= real)
        rows = observations + [observations[-1]] * (size - real)
        moments = np.asarray([[row.get("episode", 0), row.get("step", 0)] for row in rows], np.uint32)
        prepared = shortened(self.prepare(rows), self.prompts)
        times.append(time.perf_counter())
        previous = self._previous(rows) if "previous_actions" in rows[0] else None
        sampled = np.asarray(self._sample(self.params, self._ahead, prepared, moments, previous))
        times.append(time.perf_counter())
        learnt = self._stats["action_stats"].restore(sampled[:real, :, : self._values])
        joints, relative = _states(observations), np.asarray(self.trained["relative"])
        states, at = self._told_values(self._seen(joints))
        absolute = restore(self.trained["actions"], learnt, states, relative, self.trained["control_rate"])
        if self._space != "joints":
            absolute = spaces.chunk_in_root(self.robot, absolute, at)
            absolute = tools_of(self.robot).joints(joints, absolute)
        times.append(time.perf_counter())
        parts = zip(("prepare_ms", "sample_ms", "restore_ms"), np.diff(times) * 1e3, strict=True)
        timing = {name: float(milliseconds) for name, milliseconds in parts}
        return [{"actions": chunk, "policy_timing": timing} for chunk in absolute]

    def prepare(self, rows: Sequence[dict[str, Any]]) -> Observation:
        """As many observations as one of `sizes`, as models take them. Raises MorphVlaError for others."""
        for row in rows:
            self._expected.check(row)
        if isinstance(self.config, StateConfig):
            return self._prepare_numbers(rows)
        size, most = self.config.image_size, self.config.max_tokens
        known = {PROMPT, *self.trained.get("tasks", ()), *self.prompts.values()}
        images = {
            model_name: np.stack([resize_with_pad(row[f"images/{name}"], size) for row in rows])
            for model_name, name in self.cameras.items()
        }
        seen = self._seen(_states(rows))
        states = self._stats["state_stats"].normalise(self._told_values(seen)[0])
        prompts = [
            tokens_of(self._tokenizer, row["prompt"], state, most, known)
            for row, state in zip(rows, states, strict=True)
        ]
        numbers = self._numbers(rows, seen, states) if reads_numbers(self.config) else ()
        return Observation(
            images,
            {name: np.ones(len(rows), bool) for name in images},
            np.stack([tokens for tokens, _ in prompts]),
            np.stack([mask for _, mask in prompts]),
            self._standing(rows),
            *numbers,
        )

    def _seen(self, joints: np.ndarray) -> np.ndarray:
        """Joint values as the model has them (`data.space`), in the root's frame."""
        return joints if self._space == "joints" else tools_of(self.robot).seen(joints)

    def _told_values(self, seen: np.ndarray) -> tuple[np.ndarray, Standpoint | None]:
        """The same as the model has them, and where they are told from."""
        at = spaces.standpoints(self.robot, self._space, seen)
        return spaces.values_told(self.robot, seen, at), at

    def _numbers(
        self, rows: Sequence[dict[str, Any]], state: np.ndarray, states: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Normalised states, padded, and poses as the body or its tool sees them, normalised."""
        poses = np.stack([np.asarray(row[ENVIRONMENT], np.float32) for row in rows])
        seen = poses_seen(self.robot, self._space, self.trained["environment"], poses, state)
        padded = np.pad(states, ((0, 0), (0, self.config.action_dim - states.shape[1])))
        return padded, self._stats["environment_stats"].normalise(seen)

    def _standing(self, rows: Sequence[dict[str, Any]]) -> Body | None:
        """The robot, and where its joints are and were if the model reads that."""
        body = self._bodies[len(rows)]
        if body is None:
            return None
        places = body.joint_mask.shape[-1]
        if reads_poses(self.config):
            states = np.stack([row["state"] for row in rows])
            body = dataclasses.replace(body, positions=positions_of(self._told, states, places))
        if joint_lags(self.config):
            past = self._stats["state_stats"].normalise(self._history.states(rows))
            padding = ((0, 0), (0, 0), (0, places - past.shape[2]))
            body = dataclasses.replace(body, history=np.pad(past, padding))
        return body

    def _prepare_numbers(self, rows: Sequence[dict[str, Any]]) -> Observation:
        """`prepare`, for a family that reads numbers in place of images and text."""
        config = self.config
        assert isinstance(config, StateConfig)
        mask = None
        if config.lags:
            states, poses, mask = self._history.windows(rows)
        else:
            states = np.stack([row["state"] for row in rows])
            poses = np.stack([np.asarray(row[ENVIRONMENT], np.float32) for row in rows])
        state = self._stats["state_stats"].normalise(states)
        poses = self._stats["environment_stats"].normalise(poses)
        texts = [row["prompt"] for row in rows for _ in config.lags or (0,)]
        values = global_values(poses.reshape(len(texts), -1), texts)
        places = [(0, 0)] * (state.ndim - 1) + [(0, config.action_dim - state.shape[-1])]
        return Observation(
            {},
            {},
            np.zeros((len(rows), 0), np.int32),
            np.zeros((len(rows), 0), bool),
            self._bodies[len(rows)],
            np.pad(state, places),
            values.reshape(*poses.shape[:-1], -1),
            mask,
        )

    def _previous(self, rows: Sequence[dict[str, Any]]) -> Previous:
        """The actions that are still to come, as the model has them: relative ones to the state of now."""
        trained, horizon = self.trained, self.config.horizon
        kind, relative, rate = trained["actions"], np.asarray(trained["relative"]), trained["control_rate"]
        actions = np.zeros((len(rows), horizon, self.config.action_dim), np.float32)
        counts = np.zeros(len(rows), np.int32)
        for index, row in enumerate(rows):
            left = np.asarray(row["previous_actions"], np.float32)[:horizon]
            counts[index] = len(left)
            if len(left):
                state, at = self._told_values(self._seen(np.asarray(row["state"], np.float32)))
                chunk = spaces.chunk_told(self.robot, self._seen(left), at)
                learnt = to_learn(kind, chunk, state, relative, rate)
                normal = self._stats["action_stats"].normalise(learnt)
                actions[index, : len(left), : self._values] = normal
        delays = np.asarray([row["inference_delay"] for row in rows], np.int32)
        smooth = np.zeros((len(rows), self.config.action_dim), bool)
        smooth[:, : self._values] = relative_of(self.robot, self._space)
        return Previous(actions, delays, counts, smooth)


def _states(rows: Sequence[dict[str, Any]]) -> np.ndarray:
    """Where the joints stand."""
    return np.stack([np.asarray(row["state"], np.float32) for row in rows])


def load(checkpoint: str | Path, *, refuse_unused: bool = False, **options: Any) -> CheckpointPolicy:
    """The policy of a checkpoint: its folder, `hf://OWNER/NAME[/FOLDER][@REVISION]`, or a name (`pi05-nano`).

    `options` are those of `CheckpointPolicy` (robot, noise, ...). With `refuse_unused` (a command's) those
    of the sampler are refused as in `check_sampler`; a grid asks the same of policies of several families.
    """
    folder, name = remote.folder_of(checkpoint), str(checkpoint)
    if refuse_unused and not is_foreign(folder):
        steps, noise = options.get("steps", Sampler.steps), options.get("noise", Sampler.noise)
        check_sampler(folder, Sampler(steps, float(noise)))
        options.get("given", Given()).refuse_beside(checkpoint)
    source = name if name in remote.NAMES else hub.pinned(name, folder)
    return CheckpointPolicy(folder, source=source, **options)


def check_sampler(folder: Path, sampler: Sampler) -> None:
    """Raise MorphVlaError where a checkpoint of ours answers the same whatever the sampler's options.

    Noise 0, one observation's one answer, is what a policy that draws nothing gives: it is no mistake.
    """
    checkpoint.about(folder)
    model = typed_yaml.read(folder / "about" / "recipe.json", Recipe).model
    of_numbers = isinstance(model, StateConfig)
    kind = f"of model.family '{model.family}'" if of_numbers else "with model.head"
    if sampler.steps != Sampler.steps and (of_numbers or model.head is not None):
        raise MorphVlaError(
            f"--sampler-steps {sampler.steps} has no effect: {folder} is a policy {kind}, which answers in "
            "one pass and integrates no flow; leave it out"
        )
    if of_numbers and not model.draws and sampler.noise not in (0, Sampler.noise):
        raise MorphVlaError(
            f"--noise {sampler.noise:g} has no effect: {folder} is a policy {kind}, which draws nothing and "
            "always gives one observation the same answer; leave it out"
        )


def _own(folder: Path) -> Loaded:
    """A checkpoint of ours, which says everything. Beside what is ready a leaf or a layer is held."""
    about, recipe = checkpoint.about(folder), typed_yaml.read(folder / "about" / "recipe.json", Recipe)
    model, sha256 = recipe.model, checkpoint.Digest(about)
    family = policies.of(model)
    types = partial(family.served_type, model)
    averaged = restoring.Averaged(folder, policies.shapes(model), types)
    leaves = sha256.through(averaged.leaves())
    if isinstance(model, Pi05Config) and model.lora is not None:
        leaves = weights.merging(leaves, model.lora, averaged.leaf)
        model = dataclasses.replace(model, lora=None)
    with returned_at_once():
        params = family.ready(model, leaves)
    return Loaded(model, params, recipe.tokenizer, about, sha256.hexdigest())


def _driven(about: dict[str, Any], name: str, folder: Path) -> tuple[Robot, dict[str, Any]]:
    """The robot as the checkpoint has it, and what training knew of it; or one that it never saw."""
    known = meaning.called(about["robots"], name)
    if known is None:
        robot, trained = meaning.unseen(about["robots"], name, folder)
        warn_of_joints(folder, about["robots"], robot, trained)
        return robot, trained
    trained = about["robots"][known]
    robot = checkpoint.robot(folder, known, trained)
    meaning.check_grippers(trained, robot, folder)
    meaning.check_order(trained, robot.name, folder)
    meaning.check_joints(trained, robot, folder)
    return robot, trained


def _alike(told: Robot, robot: Robot) -> Robot:
    """`told`. Raises MorphVlaError where it is no body that could stand in place of the robot's."""
    if len(told.joints) != len(robot.joints):
        raise MorphVlaError(
            f"robot '{told.name}' has {len(told.joints)} joints and '{robot.name}' {len(robot.joints)}: "
            "a policy that drives the one cannot be told the other"
        )
    return told


def _body_digest(robot: Robot) -> str:
    """SHA-256 of what a model is told of a body: a robot that was altered in memory keeps its name."""
    arrays = (robot.adjacency, robot.distances, robot.descriptors, robot.rest, robot.lower, robot.upper)
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def check_poses(config: ModelConfig, trained: dict[str, Any], where: str) -> None:
    """Raise MorphVlaError where a policy that reads poses of objects does not know which, or their scale."""
    if not reads_numbers(config):
        return
    names, stats = trained.get("environment", ()), trained.get("environment_stats")
    if len(names) != config.environment or not stats:
        raise MorphVlaError(
            f"{where} has {len(names)} values of {ENVIRONMENT} and {'their' if stats else 'no'} statistics "
            f"in about/policy.json; a policy of model.family '{config.family}' reads {config.environment} "
            "values, with statistics"
        )


def _sampler(config: ModelConfig, joints: int, steps: int, noise: float, seed: int) -> Any:
    """(params, what is ahead of them, observation, [b, 2] episode and step, previous) -> actions [b h a].

    The initial noise is standard normal, from (seed, episode, step), times `noise`. The first `joints` action
    values are the robot's, with or without a body; the others stay on the path that training had them on.
    """
    key, family = jax.random.key(seed), policies.of(config)

    def sample(
        params: dict[str, Any],
        ahead: Any,
        observation: Observation,
        moments: Any,
        previous: Previous | None = None,
    ) -> Any:
        """Actions [b h a]."""

        def draw(moment: Any) -> Any:
            """The noise of one episode's step [h a]."""
            its_key = jax.random.fold_in(jax.random.fold_in(key, moment[0]), moment[1])
            return noise * jax.random.normal(its_key, (config.horizon, config.action_dim))

        real = jnp.broadcast_to(jnp.arange(config.action_dim) < joints, (len(moments), config.action_dim))
        noises = jax.vmap(draw)(moments)
        asked = policies.Asked(observation, noises, real, previous)
        return family.act(config, params, ahead, asked, steps)

    return sample
