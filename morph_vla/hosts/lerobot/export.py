"""The files by which LeRobot takes a checkpoint for a policy: `weights convert --to lerobot-plugin`.

No weights are copied. `config.json` names the checkpoint or the server, and two files say LeRobot's
processors. In the checkpoint's own folder they make it one that `--policy.path` takes as it is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from morph_vla.errors import MorphVlaError, require
from morph_vla.files import remote

CONFIG = "config.json"
"""LeRobot's name for what a policy is."""
ADDRESS = "://"
"""In the name of what is no folder here: a server's, or a checkpoint's elsewhere."""
SCHEMES = "hf", "gs", "ws", "wss"


def write(source: str, target: Path) -> None:
    """Write the files for a checkpoint's folder, or an address (ws://, hf://), into the folder `target`.

    Raises MorphVlaError where LeRobot is not installed, `target` holds a policy of LeRobot's already or
    something else than the checkpoint, and where there is no checkpoint and can be none.
    """
    require("lerobot.configs", "lerobot")
    from morph_vla.hosts.lerobot.configuration_morph_vla import MorphVlaConfig
    from morph_vla.hosts.lerobot.processor_morph_vla import make_morph_vla_pre_post_processors

    if (target / CONFIG).exists():
        raise MorphVlaError(f"{target / CONFIG} exists already: remove it, or name another folder")
    about: dict[str, Any] = {"checkpoint": source}
    if ADDRESS in source:
        _check_address(source)
    else:
        about = _about(remote.folder_of(source), target)  # also of a base that comes with the package
    if about["checkpoint"] != "." and target.is_dir() and any(target.iterdir()):
        raise MorphVlaError(f"{target} is not empty, and is not that checkpoint's folder: name another one")
    config = MorphVlaConfig(device="cpu", **about)
    target.mkdir(parents=True, exist_ok=True)
    config._save_pretrained(target)
    for pipeline in make_morph_vla_pre_post_processors(config):
        pipeline.save_pretrained(target)


def _check_address(source: str) -> None:
    """Raise MorphVlaError for what LeRobot could not load from, without asking anybody."""
    parts = urlsplit(source)
    if parts.scheme not in SCHEMES or not parts.netloc:
        expected = ", ".join(f"{scheme}://..." for scheme in SCHEMES)
        raise MorphVlaError(f"'{source}' is no checkpoint or server: expected a folder, or {expected}")
    remote.check_address(source)


def _about(folder: Path, target: Path) -> dict[str, Any]:
    """What config.json says of a checkpoint; of several robots, `--policy.robot` chooses one."""
    from morph_vla.training import checkpoint

    trained = checkpoint.about(folder)["robots"]
    inside = folder.resolve() == target.resolve()
    about: dict[str, Any] = {"checkpoint": "." if inside else str(folder.resolve())}
    if len(trained) == 1:
        ((robot, facts),) = trained.items()
        about |= {"robot": robot, **_features(facts)}
    return about


def _features(trained: Mapping[str, Any]) -> dict[str, Any]:
    """What LeRobot compares with an environment or a dataset: cameras by name, sizes of joints and poses."""
    configs = require("lerobot.configs", "lerobot")
    kinds, feature = configs.FeatureType, configs.PolicyFeature
    joints, sizes = (len(trained["joints"]),), trained.get("sizes", {})
    images = {
        f"observation.images.{name}": feature(kinds.VISUAL, (3, *sizes.get(name, (224, 224))))
        for name in trained["cameras"].values()
    }
    state = {"observation.state": feature(kinds.STATE, joints)}
    if poses := trained.get("environment"):
        state["observation.environment_state"] = feature(kinds.ENV, (len(poses),))
    return {
        "input_features": {**state, **images},
        "output_features": {"action": feature(kinds.ACTION, joints)},
    }
