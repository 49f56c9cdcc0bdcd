"""openpi's own training step and sampler at sizes of ours, to be measured beside ours."""

import dataclasses
import importlib
import importlib.util
import runpy
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.pi05.config import Pi05Config

_lock = threading.Lock()
UNASKED = ("lerobot.common.datasets.lerobot_dataset", "wandb", "tqdm_loggable.auto")
"""What openpi's trainer imports for its data (a git commit of lerobot's) and its log"""


def openpi_step(
    checkout: Path, config: Pi05Config, batch: int, kind: str
) -> tuple[Callable[[], Any], list[str]]:
    """(one step on random weights and a batch of zeros, compiled at its first call, what it was given).

    The step is `train_step` of the checkout's scripts/train.py; `kind` is expert, full or lora, frozen as
    openpi's filters do it. openpi calls its sizes by name: in this process the names mean `config`'s sizes.

    Raises MorphVlaError when there is no checkout, and MissingExtraError when it cannot be imported here.
    """
    with _importing(checkout):
        jax = importlib.import_module("jax")
        for module in UNASKED:
            _stand_in(module)
        _as_flax_is_now()
        theirs = runpy.run_path(str(checkout / "scripts" / "train.py"))
        model = _resized(config, kind)
        settings = _settings(model, batch, kind)
    mesh = importlib.import_module("openpi.training.sharding").make_mesh(1)
    state, _ = theirs["init_train_state"](settings, jax.random.key(0), mesh, resume=False)
    step = jax.jit(
        lambda key, state, batch: theirs["train_step"](settings, key, state, batch), donate_argnums=1
    )
    inputs = _zeros(model.inputs_spec(batch_size=batch))
    carried = [state]

    def again() -> None:
        carried[0], info = step(jax.random.key(1), carried[0], inputs)
        jax.block_until_ready(info)

    return again, [f"paligemma {model.paligemma_variant}", f"expert {model.action_expert_variant}"]


def openpi_sampler(checkout: Path, config: Pi05Config, batch: int) -> Callable[[], Any]:
    """One call of openpi's `sample_actions`, compiled and with weights in bfloat16 as its server has them.

    Raises as `openpi_step`.
    """
    with _importing(checkout):
        import jax
        from flax import nnx

        model = _resized(config, "expert")
        compiled = importlib.import_module("openpi.shared.nnx_utils").module_jit
        graph, shapes = nnx.split(nnx.eval_shape(lambda: model.create(jax.random.key(0))))

    @jax.jit
    def drawn() -> Any:  # made one by one, in float32, its leaves would take minutes
        def small(leaf: Any) -> Any:
            key = jax.random.key(leaf.size)
            return 0.02 * jax.random.normal(key, leaf.shape, config.dtype)

        return jax.tree.map(small, shapes)

    policy = nnx.merge(graph, drawn())
    sample, (seen, _) = compiled(policy.sample_actions), _zeros(model.inputs_spec(batch_size=batch))
    return lambda: jax.block_until_ready(sample(jax.random.key(1), seen))


def _zeros(shapes: Any) -> Any:
    import jax

    return jax.tree.map(lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype), shapes)


@contextmanager
def _importing(checkout: Path) -> Iterator[None]:
    """Around what imports openpi from a checkout, one thread at a time; it mixes types, so JAX does then."""
    if not (checkout / "scripts" / "train.py").is_file():
        raise MorphVlaError(f"{checkout} is no checkout of openpi: scripts/train.py is not there")
    added = [str(checkout / "src"), str(checkout / "packages" / "openpi-client" / "src")]
    _lock.acquire()
    sys.path[:0] = [path for path in added if path not in sys.path]
    try:
        importlib.import_module("jax").config.update("jax_numpy_dtype_promotion", "standard")
        _without_type_checks()
        yield
    except (ImportError, AttributeError) as error:
        raise MissingExtraError(
            f"openpi cannot be imported here ({str(error).splitlines()[0]}); run this in the environment of "
            "`make test-openpi`"
        ) from error
    finally:
        _lock.release()


def _stand_in(module: str) -> None:
    """Empty modules where openpi's trainer imports what its step never asks for, if it is not here."""
    package, name = module.partition(".")[0], ""
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = ModuleSpec(name, None)  # other libraries look whether there is one
        if "." in name:
            setattr(sys.modules[name.rpartition(".")[0]], part, sys.modules[name])


def _without_type_checks() -> None:
    """Openpi checks types by names of classes that Flax has moved since, and replaces a function of jaxtyping
    that is there no more.
    """
    importlib.import_module("jaxtyping").config.update("jaxtyping_disable", True)
    decorator = importlib.import_module("jaxtyping._decorator")
    vars(decorator).setdefault("_check_dataclass_annotations", None)


def _as_flax_is_now() -> None:
    """Let openpi's training step run on a current Flax.

    Its `state_map` goes by the paths of a state, which Flax now gives beside leaves that no set takes. What
    is computed stays the same. A GPU machine has a current JAX, and openpi is pinned to one of 2025.
    """
    utils: Any = importlib.import_module("openpi.shared.nnx_utils")

    def state_map(state: Any, chosen: Any, function: Callable[[Any], Any]) -> Any:
        flat = state.filter(chosen).flat_state()
        paths = set(getattr(flat, "paths", None) or flat)
        return state.map(lambda path, leaf: function(leaf) if path in paths else leaf)

    utils.state_map = state_map


def _resized(config: Pi05Config, kind: str) -> Any:
    """A configuration of openpi whose names of sizes mean ours, for the rest of this process."""
    from openpi.models import gemma, model, pi0_config, siglip

    low = gemma.get_config("gemma_2b_lora").lora_configs, gemma.get_config("gemma_300m_lora").lora_configs

    def sized(variant: str) -> Any:
        expert = "300m" in variant
        size = config.expert if expert else config.prefix
        pairs = low[expert] if "lora" in variant else {}
        return gemma.Config(
            size.width, config.depth, size.mlp_dim, config.heads, config.kv_heads, config.head_dim, pairs
        )

    vit, pixels = config.vit, (config.image_size, config.image_size)
    patch = (vit.patch, vit.patch)
    sizes = {
        "width": vit.width,
        "depth": vit.depth,
        "mlp_dim": vit.mlp_dim,
        "num_heads": vit.heads,
        "patch_size": patch,
    }
    changed: Any = (gemma, siglip, model)
    changed[0].get_config, changed[0].PALIGEMMA_VOCAB_SIZE = sized, config.vocab
    changed[1].decode_variant = lambda _: sizes
    changed[2].IMAGE_RESOLUTION = pixels
    changed[2].preprocess_observation.__kwdefaults__["image_resolution"] = pixels
    suffix: Any = "_lora" if kind == "lora" else ""
    return pi0_config.Pi0Config(
        dtype=config.dtype,
        pi05=True,
        action_dim=config.action_dim,
        action_horizon=config.horizon,
        max_token_len=config.max_tokens,
        paligemma_variant=f"gemma_2b{suffix}",  # pyright: ignore[reportArgumentType]
        action_expert_variant=f"gemma_300m{suffix}",  # pyright: ignore[reportArgumentType]
    )


def _settings(model: Any, batch: int, kind: str) -> Any:
    """A training configuration of openpi's for a kind of fine-tuning."""
    from flax import nnx
    from openpi.shared import nnx_utils
    from openpi.training import config

    frozen: Any = model.get_freeze_filter()
    if kind == "expert":
        frozen = nnx.All(nnx_utils.PathRegex("PaliGemma/.*"), nnx.Not(nnx_utils.PathRegex(".*llm.*_1.*")))
    plain = config.TrainConfig(
        name="bench", exp_name="bench", model=model, batch_size=batch, wandb_enabled=False
    )
    return dataclasses.replace(plain, freeze_filter=frozen)
