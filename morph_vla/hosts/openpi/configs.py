"""openpi's TrainConfigs of the recipes, and how they get into openpi's list of configurations."""

import dataclasses
import functools
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import numpy as np
import openpi.models.model as _model
import openpi.policies.droid_policy as _droid_policy
import openpi.shared.download as _download
import openpi.shared.nnx_utils as _nnx_utils
import openpi.shared.normalize as _normalize
import openpi.training.config as _config
import openpi.transforms as _transforms
from flax import nnx

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.hosts.openpi import pipeline as ours
from morph_vla.hosts.openpi import recipes
from morph_vla.hosts.openpi.model import MorphPi0Config
from morph_vla.pi05 import Pi05Config, VitConfig
from morph_vla.pi05.parts import part_of
from morph_vla.weights.load import leaf_shapes

DROID_VALUES = 8
"""Seven joints and the gripper"""
# What action-expert fine-tuning freezes: the image encoder, and of the transformer all but the expert's own.
AP_FT = nnx.All(
    _nnx_utils.PathRegex("PaliGemma/.*"), nnx.Not(_nnx_utils.PathRegex("PaliGemma/llm/.*_1(/.*)?"))
)


@functools.cache
def _of_prefix() -> tuple[tuple[str, ...], ...]:
    """The paths of all leaves before the action expert, which are the same at every size."""
    names = leaf_shapes(Pi05Config())
    before = ("vision encoder", "language model")
    return tuple(tuple(name.split("/")) for name in names if part_of(name) in before)


@dataclasses.dataclass(frozen=True)
class MorphWeightLoader:
    """pi0.5's parameters from a checkpoint of openpi's; `morphology/...` stays fresh where there is none.

    `params_path` is a folder `params`, here or at `gs://`, as openpi's own loader takes it.
    """

    params_path: str

    def load(self, params: Any) -> Any:
        """Raises MorphVlaError, naming leaves, when one is missing, left over, or of another shape."""
        stored = _model.restore_params(_download.maybe_download(self.params_path), restore_type=np.ndarray)
        return self.merge(stored, params)

    def merge(self, stored: Any, params: Any) -> Any:
        """Every leaf of `params`: the checkpoint's, in the model's type, or, for the plugin's, as it is."""
        loaded: dict[str, Any] = flax.traverse_util.flatten_dict(stored, sep="/")
        wanted: dict[str, Any] = flax.traverse_util.flatten_dict(params, sep="/")
        new = {name for name in wanted if name.startswith("morphology/")} - set(loaded)
        problems = [f"no {name}" for name in sorted(set(wanted) - set(loaded) - new)]
        problems += [f"{name} is nothing of the model's" for name in sorted(set(loaded) - set(wanted))]
        problems += [
            f"{name} is {loaded[name].shape} where the model has {wanted[name].shape}"
            for name in sorted(set(loaded) & set(wanted))
            if loaded[name].shape != wanted[name].shape
        ]
        if problems:
            more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise MorphVlaError(f"{self.params_path} does not fit the model: {'; '.join(problems[:5])}{more}")
        logging.info("%s: %d leaves loaded, %d new (morphology/...)", self.params_path, len(loaded), len(new))
        merged = {
            name: leaf if name in new else np.asarray(loaded[name], leaf.dtype)
            for name, leaf in wanted.items()
        }
        return flax.traverse_util.unflatten_dict(merged, sep="/")


def _with_robot(group: Any, robot: str, model: MorphPi0Config) -> Any:
    """Transforms that end, on the way in, with the robot, and on the way out begin without it."""
    plugin = model.morphology
    add = ours.AddRobot(robot, plugin.max_joints, model.action_dim, plugin.descriptors)
    return group.push(inputs=[add], outputs=[ours.DropRobot(model.action_dim)])


@dataclasses.dataclass(frozen=True)
class DroidDataConfig(_config.LeRobotDROIDDataConfig):
    """openpi's DROID in LeRobot's format, with a robot."""

    robot: str = "panda"

    def create(self, assets_dirs: pathlib.Path, model_config: Any) -> Any:
        """The pipeline of openpi; a served request may name another robot in its key `robot`.

        Raises MorphVlaError for a robot of another number of joints than DROID has values.
        """
        joints = len(robots.load(self.robot).joints)
        if joints != DROID_VALUES:
            raise MorphVlaError(
                f"data: droid has {DROID_VALUES} values, and robot '{self.robot}' has {joints} joints; name "
                "another robot, or data: lerobot"
            )
        pipeline = super().create(assets_dirs, model_config)
        inputs = [ours.KeepRobot(_droid_policy.DroidInputs(model_type=model_config.model_type))]
        return dataclasses.replace(
            pipeline,
            data_transforms=dataclasses.replace(pipeline.data_transforms, inputs=inputs),
            model_transforms=_with_robot(pipeline.model_transforms, self.robot, model_config),
        )


@dataclasses.dataclass(frozen=True)
class RobotDataConfig(_config.DataConfigFactory):
    """A LeRobot dataset of one robot: absolute joint values, learnt as differences from the present state."""

    robot: str = ""
    cameras: tuple[str | None, ...] = ()  # the dataset's columns, in the order of openpi's three cameras
    state: str = "observation.state"
    actions: str = "action"
    grippers: int = 1  # the last joints; their actions stay absolute

    def create(self, assets_dirs: pathlib.Path, model_config: Any) -> Any:
        """The pipeline for this robot. Raises MorphVlaError for one that is not registered."""
        joints = len(robots.load(self.robot).joints)
        if self.grippers > joints:
            raise MorphVlaError(f"grippers: {self.grippers} of the {joints} joints of robot '{self.robot}'")
        columns = {
            name: column for name, column in zip(_model.IMAGE_KEYS, self.cameras, strict=True) if column
        }
        repack = {**columns, "state": self.state, "actions": self.actions, "prompt": "prompt"}
        delta = _transforms.make_bool_mask(joints - self.grippers, -self.grippers)
        cameras = {name: name if name in columns else None for name in _model.IMAGE_KEYS}
        inputs = ours.RobotInputs(cameras, self.robot, joints)
        return dataclasses.replace(
            self.create_base_config(assets_dirs, model_config),
            repack_transforms=_transforms.Group(inputs=[_transforms.RepackTransform(repack)]),
            data_transforms=_transforms.Group(
                inputs=[inputs, _transforms.DeltaActions(delta)],
                outputs=[_transforms.AbsoluteActions(delta), ours.TakeActions(joints)],
            ),
            model_transforms=_with_robot(
                _config.ModelTransformFactory()(model_config), self.robot, model_config
            ),
            action_sequence_keys=(self.actions,),
        )


@dataclasses.dataclass(frozen=True)
class FakeRobotDataConfig(_config.DataConfigFactory):
    """openpi's fake data, with a robot, and what a server needs beside them: statistics and a tokenizer."""

    repo_id: str = "fake"
    robot: str = "panda"

    def create(self, assets_dirs: pathlib.Path, model_config: Any) -> Any:
        """The fake pipeline; a served request holds `image`, `image_mask`, `state` and `prompt`."""
        joints = len(robots.load(self.robot).joints)
        ones = np.ones(joints)
        unit = _normalize.NormStats(mean=0 * ones, std=ones, q01=-ones, q99=ones)
        tokenize = ours.TokenizeBytes(model_config.max_token_len)
        size = model_config.host().image_size
        inputs = [
            _transforms.ResizeImages(size, size), tokenize,
            _transforms.PadStatesAndActions(model_config.action_dim),
        ]  # fmt: skip
        return _config.DataConfig(
            repo_id=self.repo_id,
            asset_id="fake",
            norm_stats={"state": unit, "actions": unit},
            data_transforms=_transforms.Group(outputs=[ours.TakeActions(joints)]),
            model_transforms=_with_robot(_transforms.Group(inputs=inputs), self.robot, model_config),
            use_quantile_norm=True,
        )


@dataclasses.dataclass(frozen=True)
class MorphTrainConfig(_config.TrainConfig):
    """openpi's TrainConfig without a moving average of what is frozen; the filter tells a model of ours.

    openpi casts frozen parameters to bfloat16 and averages them all the same; there 0.99 x + 0.01 x is not x,
    so the averages, which are what it saves and serves, wander off with every step. Its own configurations
    with a freeze filter leave the average out as well.
    """

    ema_decay: float | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for an average together with a freeze filter."""
        super().__post_init__()
        nothing = self.freeze_filter is nnx.Nothing or isinstance(self.freeze_filter, nnx.Nothing)
        if self.ema_decay is not None and not nothing:
            raise ConfigError(
                f"ema_decay: {self.ema_decay:g} would average frozen parameters in bfloat16, where rounding "
                "moves them every step; leave ema_decay None, or train everything (freeze_filter=nnx.Nothing)"
            )
        if isinstance(self.model, MorphPi0Config):
            frozen = nnx.filterlib.to_predicate(self.freeze_filter)
            whole = all(frozen(leaf, nnx.Param(0)) for leaf in _of_prefix())
            object.__setattr__(self, "model", dataclasses.replace(self.model, frozen_prefix=whole))


def train_config(name: str, recipe: recipes.Recipe) -> Any:
    """A recipe as openpi's TrainConfig: action-expert fine-tuning from pi05_base, or the small model."""
    common: dict[str, Any] = {
        "name": name,
        "batch_size": recipe.batch,
        "num_train_steps": recipe.steps,
        "freeze_filter": AP_FT,
        "policy_metadata": {"robot": recipe.robot},
    }
    if recipe.data == "fake":
        model = MorphPi0Config(
            dtype="float32", paligemma_variant="dummy", action_expert_variant="dummy",
            action_horizon=recipe.horizon, morphology=recipe.morphology,
            vit=VitConfig(width=24, depth=2, mlp_dim=32, heads=2),
        )  # fmt: skip
        data = FakeRobotDataConfig(robot=recipe.robot)
        return MorphTrainConfig(
            **common, model=model, data=data, num_workers=0, log_interval=1, wandb_enabled=False
        )
    model = MorphPi0Config(action_horizon=recipe.horizon, morphology=recipe.morphology)
    base = _config.DataConfig(prompt_from_task=True)
    dataset = {"repo_id": recipe.repo_id} if recipe.repo_id else {}
    if recipe.data == "droid":
        # A client that would take them for positions refuses them (`morph-vla eval --policy ws://...` does).
        common["policy_metadata"]["action_space"] = "joint_velocity"
        # The statistics that pi05_base was trained with.
        assets = _config.AssetsConfig(assets_dir=f"{recipes.BASE}/assets", asset_id="droid")
        data = DroidDataConfig(base_config=base, assets=assets, robot=recipe.robot, **dataset)
    else:
        data = RobotDataConfig(
            base_config=base,
            robot=recipe.robot,
            cameras=recipe.cameras,
            state=recipe.state,
            actions=recipe.actions,
            grippers=recipe.grippers,
            **dataset,
        )
    return MorphTrainConfig(
        **common, model=model, data=data, weight_loader=MorphWeightLoader(f"{recipes.BASE}/params")
    )


def register(datasets: Mapping[str, str] = {}) -> list[str]:
    """Enter every recipe into openpi's named configurations; the names of all of them, openpi's included.

    `datasets`: name -> repo_id, in place of the recipe's.
    """
    for name in recipes.available():
        recipe = recipes.load(name)
        recipe = dataclasses.replace(recipe, repo_id=datasets.get(name, recipe.repo_id))
        config = train_config(name, recipe)
        if name not in _config._CONFIGS_DICT:
            _config._CONFIGS.append(config)
        _config._CONFIGS_DICT[name] = config
    return sorted(_config._CONFIGS_DICT)
