"""Record what openpi computes, for tests that run without it: `tests/pi05/golden/*.npz`.

    python scripts/make_golden.py OPENPI [--check]

OPENPI is a checkout of Physical-Intelligence/openpi. Run it with a Python that has openpi's pins of what is
used here: jax 0.5.3, flax 0.10.2, orbax-checkpoint 0.11.13, numpy < 2, augmax 0.4.1, jaxtyping 0.2.36,
beartype 0.19, einops, equinox, sentencepiece, pillow, tqdm-loggable, numpydantic, treescope, fsspec and
filelock. Torch and transformers are not needed: stand-ins hold their place, because only openpi's JAX side
runs.

Weights and inputs are those already in the files; outputs and gradients are computed anew. `--check` writes
nothing, says how far the recorded values are from those of this machine, and fails beyond 1e-5.
"""

import argparse
import importlib
import io
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

FOLDER = Path(__file__).resolve().parents[1] / "tests/pi05/golden"
ALLOWED = 1e-5
CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")

# Text to train a small SentencePiece model on, in the form of openpi's prompts.
TASKS = ("pick up the cube", "put the red bowl on the plate", "open the drawer", "fold the towel in half")


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what openpi computes.")
    parser.add_argument("openpi", type=Path, help="a checkout of Physical-Intelligence/openpi")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    arguments = parser.parse_args()
    for source in ("src", "packages/openpi-client/src"):
        sys.path.insert(0, str(arguments.openpi / source))
    hold_the_place_of("torch", "torch.nn", "torch.nn.functional", "transformers", "safetensors.torch")
    hold_the_place_of("openpi.models_pytorch", "openpi.models_pytorch.pi0_pytorch")
    torch: Any = sys.modules["torch"]
    torch.Tensor, torch.__version__ = type("Tensor", (), {}), "2"  # einops asks for both
    recorded = {name: openpi_outputs(FOLDER / f"{name}.npz") for name in ("pi05_odd", "pi05_odd_small")}
    recorded["preprocessing"] = preprocessing(recorded["pi05_odd"])
    for name, data in recorded.items():
        path = FOLDER / f"{name}.npz"
        if arguments.check:
            compare(path, data)
        else:
            np = importlib.import_module("numpy")
            np.savez_compressed(path, **data)
            print(f"{path.name}: {len(data)} arrays")


def hold_the_place_of(*names: str) -> None:
    """Modules that answer any import and any attribute, where the real ones are not used."""
    for name in names:
        module: Any = types.ModuleType(name)
        module.__path__ = []
        module.__getattr__ = lambda name: mock.MagicMock()
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], child, module)


def compare(path: Path, data: dict[str, Any]) -> None:
    """Print the largest difference between the file and `data`; exit with 1 beyond what rounding explains."""
    import numpy as np

    with np.load(path) as file:
        if sorted(file.files) != sorted(data):
            sys.exit(f"{path.name}: other keys: {sorted(set(file.files) ^ set(data))}")
        pairs = {key: (np.asarray(data[key], float), np.asarray(file[key], float)) for key in data}
    # Of the array's own size: where the residual stream is small, gradients are large.
    far = {key: np.abs(a - b).max(initial=0) / np.abs(b).max(initial=1) for key, (a, b) in pairs.items()}
    worst = max(far, key=lambda key: far[key])
    print(f"{path.name}: {len(far)} arrays, largest difference {far[worst]:.2g} ({worst})")
    if not far[worst] <= ALLOWED:
        sys.exit(1)


# ------------------------------------------------------------------------------------------------ the model


def tiny_openpi(data: dict[str, Any]) -> Any:
    """The pi0.5 of openpi at the sizes of the recorded weights, holding them."""
    gemma: Any = importlib.import_module("openpi.models.gemma")
    siglip: Any = importlib.import_module("openpi.models.siglip")
    model: Any = importlib.import_module("openpi.models.model")
    pi0_config = importlib.import_module("openpi.models.pi0_config")
    jnp = importlib.import_module("jax.numpy")

    widths = {"gemma_2b": (24, 44), "gemma_300m": (16, 36)}

    def get_config(variant: str) -> Any:
        width, mlp_dim = widths[variant]
        return gemma.Config(width=width, depth=3, mlp_dim=mlp_dim, num_heads=8, num_kv_heads=1, head_dim=10)

    gemma.get_config = get_config
    gemma.PALIGEMMA_VOCAB_SIZE = 384
    siglip.decode_variant = lambda _: {
        "width": 12, "depth": 2, "mlp_dim": 28, "num_heads": 3, "patch_size": (14, 14),
    }  # fmt: skip
    model.IMAGE_RESOLUTION = (42, 42)
    set_resolution(model, (42, 42))
    config = pi0_config.Pi0Config(
        pi05=True, dtype="float32", action_dim=7, action_horizon=5, max_token_len=20,
        pytorch_compile_mode=None,
    )  # fmt: skip
    params: dict[str, Any] = {}
    for name in (name for name in data if name.startswith("w/")):
        node, (*folders, leaf) = params, name.removeprefix("w/").split("/")
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = jnp.asarray(data[name])
    return config.load(params)


def set_resolution(model: Any, size: tuple[int, int]) -> None:
    """The default size of `preprocess_observation`, which was bound when it was defined."""
    function = model.preprocess_observation
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    function.__kwdefaults__["image_resolution"] = size


def observation_of(data: dict[str, Any]) -> Any:
    """The recorded inputs as openpi's observation."""
    jnp = importlib.import_module("jax.numpy")
    model: Any = importlib.import_module("openpi.models.model")
    return model.Observation(
        images={name: jnp.asarray(data["in/image/" + name]) for name in CAMERAS},
        image_masks={name: jnp.asarray(data["in/image_mask/" + name]) for name in CAMERAS},
        state=jnp.asarray(data["in/state"]),
        tokenized_prompt=jnp.asarray(data["in/tokens"]),
        tokenized_prompt_mask=jnp.asarray(data["in/tokens_mask"]),
    )


def openpi_outputs(path: Path) -> dict[str, Any]:
    """Weights and inputs of the file at `path`, with openpi's outputs and gradients for them."""
    np = importlib.import_module("numpy")
    jax = importlib.import_module("jax")
    jnp = importlib.import_module("jax.numpy")
    nnx = importlib.import_module("flax.nnx")
    pi0 = importlib.import_module("openpi.models.pi0")
    with np.load(path) as file:
        data = {key: file[key] for key in file.files if key.startswith(("w/", "in/"))}
    model, observation = tiny_openpi(data), observation_of(data)
    actions, noise, time = (jnp.asarray(data[f"in/{name}"]) for name in ("actions", "noise", "time"))
    x_t = time[:, None, None] * noise + (1 - time[:, None, None]) * actions
    graph, state = nnx.split(model)

    def forward(state: Any) -> dict[str, Any]:
        model = nnx.merge(graph, state)
        prefix, prefix_mask, prefix_ar = model.embed_prefix(observation)
        suffix, suffix_mask, suffix_ar, condition = model.embed_suffix(observation, x_t, time)
        mask = jnp.concatenate([prefix_mask, suffix_mask], axis=1)
        visible = pi0.make_attn_mask(mask, jnp.concatenate([prefix_ar, suffix_ar]))
        (prefix_out, suffix_out), _ = model.PaliGemma.llm(
            [prefix, suffix],
            mask=visible,
            positions=jnp.cumsum(mask, axis=1) - 1,
            adarms_cond=[None, condition],
        )
        v_t = model.action_out_proj(suffix_out[:, -5:])
        return {
            "loss": jnp.mean(jnp.square(v_t - (noise - actions)), axis=-1),
            "v_t": v_t, "prefix": prefix, "prefix_mask": prefix_mask, "suffix": suffix, "cond": condition,
            "prefix_out": prefix_out, "suffix_out": suffix_out,
        }  # fmt: skip

    out = jax.jit(forward)(state)
    for name, steps in (("actions", 10), ("actions1", 1)):
        out[name] = model.sample_actions(jax.random.key(0), observation, num_steps=steps, noise=noise)
    data |= {f"out/{name}": np.asarray(value) for name, value in out.items()}
    gradient = jax.jit(jax.grad(lambda state: forward(state)["loss"].mean()))(state).to_pure_dict()
    for keys, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        data["g/" + "/".join(str(key.key) for key in keys)] = np.asarray(leaf)
    return data


# ------------------------------------------------------------------------------ what happens before the model


def preprocessing(data: dict[str, Any]) -> dict[str, Any]:
    """Resizing, augmentation, one training loss with everything before it, tokens, quantiles."""
    found = resized()
    found |= augmented()
    found |= training_loss(data)
    found |= tokens()
    found |= quantiles()
    return found


def resized() -> dict[str, Any]:
    """Pictures of both types, larger and smaller, wide and tall, to 17 x 17; and by openpi's client."""
    np = importlib.import_module("numpy")
    tools = importlib.import_module("openpi.shared.image_tools")
    client = importlib.import_module("openpi_client.image_tools")
    rng, found = np.random.default_rng(7), {}
    for height, width in ((13, 29), (31, 19), (7, 5), (37, 37)):
        name = f"resize/{height}x{width}"
        picture = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
        found[f"{name}/in"] = picture
        found[f"{name}/uint8"] = np.asarray(tools.resize_with_pad(picture, 17, 17))
        found[f"{name}/float"] = np.asarray(
            tools.resize_with_pad(picture.astype(np.float32) / 255 * 2 - 1, 17, 17)
        )
        found[f"{name}/client"] = client.resize_with_pad(picture, 17, 17)
    return found


def augmented() -> dict[str, Any]:
    """Five pictures through openpi's augmentation as each camera's, with and without one black picture."""
    np = importlib.import_module("numpy")
    jax = importlib.import_module("jax")
    model: Any = importlib.import_module("openpi.models.model")
    rng = np.random.default_rng(11)
    pictures = rng.uniform(-1, 1, (5, 21, 26, 3)).astype(np.float32)
    pictures[3] = np.round(pictures[3] * 2) / 2  # ties, greys, black and white
    pictures[4] = -1.0
    observation = model.Observation(
        images={name: jax.numpy.asarray(pictures) for name in CAMERAS},
        image_masks={},
        state=jax.numpy.zeros((5, 7)),
    )
    found = {"augment/in": pictures}
    out = model.preprocess_observation(jax.random.key(3), observation, train=True, image_resolution=(21, 26))
    return found | {f"augment/{name}": np.asarray(out.images[name]) for name in CAMERAS}


def training_loss(data: dict[str, Any]) -> dict[str, Any]:
    """What openpi's `compute_loss(key, ..., train=True)` gives, and the x_t and times it drew."""
    np = importlib.import_module("numpy")
    jax = importlib.import_module("jax")
    model, observation = tiny_openpi(data), observation_of(data)
    seen: dict[str, Any] = {}
    real = model.embed_suffix

    def embed_suffix(observation: Any, x_t: Any, time: Any) -> Any:
        seen.update(x_t=x_t, time=time)
        return real(observation, x_t, time)

    with mock.patch.object(type(model), "embed_suffix", lambda _, *inputs: embed_suffix(*inputs)):
        loss = model.compute_loss(
            jax.random.key(5), observation, jax.numpy.asarray(data["in/actions"]), train=True
        )
    return {f"train/{name}": np.asarray(value) for name, value in (*seen.items(), ("loss", loss))}


def sentencepiece_model() -> bytes:
    """A small SentencePiece model with PaliGemma's special tokens, digits apart and bytes to fall back on."""
    sentencepiece = importlib.import_module("sentencepiece")
    numbers = [" ".join(str((17 * i + j) % 257 - 1) for j in range(8)) for i in range(40)]
    lines = [f"Task: {task}, State: {row};" for task in TASKS for row in numbers] + ["Action: "] * 20
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=340, pad_id=0, eos_id=1,
        bos_id=2, unk_id=3, byte_fallback=True, split_digits=True, add_dummy_prefix=False,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=1,
    )  # fmt: skip
    return out.getvalue()


PROMPTS = (
    ("pick up the cube", 3, 60),
    ("  put_the_red\nbowl on the plate ", 8, 60),
    ("öffne die Schublade", 2, 60),
    ("fold the towel in half", 8, 23),  # too long: cut
    ("", 1, 30),
)


def tokens() -> dict[str, Any]:
    """Ids of openpi's tokenizer on a small SentencePiece model, and the bins of states at every edge."""
    np = importlib.import_module("numpy")
    importlib.import_module("openpi.models.utils")
    hold_the_place_of("openpi.models.utils.fsq_tokenizer")
    tokenizer = importlib.import_module("openpi.models.tokenizer")
    path = FOLDER / "preprocessing.npz"
    proto = np.load(path)["tokens/model"].tobytes() if path.exists() else sentencepiece_model()
    found = {"tokens/model": np.frombuffer(proto, np.uint8)}
    file = mock.Mock()
    file.open = lambda _: io.BytesIO(proto)
    state = np.array([-1.01, -1, -0.9999, 0, 0.5, 0.9999, 1, np.nan], np.float32)
    with mock.patch.object(tokenizer.download, "maybe_download", return_value=file):
        for i, (prompt, joints, length) in enumerate(PROMPTS):
            ids, mask = tokenizer.PaligemmaTokenizer(length).tokenize(prompt, state[:joints])
            found[f"tokens/{i}/text"] = np.frombuffer(prompt.encode(), np.uint8)
            found[f"tokens/{i}/state"] = np.nan_to_num(state[:joints], nan=9.0)  # 9 stands for NaN
            found[f"tokens/{i}/ids"], found[f"tokens/{i}/mask"] = ids.astype(np.int32), mask
    return found


def quantiles() -> dict[str, Any]:
    """Quantile normalisation as openpi has it, and its inverse; the third value never moves."""
    np = importlib.import_module("numpy")
    transforms = importlib.import_module("openpi.transforms")
    normalize = importlib.import_module("openpi.shared.normalize")
    q01, q99 = np.array([-1.7, 0.25, 0.5]), np.array([2.3, 0.75, 0.5])
    x = np.array([[-1.7, 0.25, 0.5], [2.3, 0.75, 0.5], [3.1, -0.4, 0.50001], [0.3, 0.5, 0.4]])
    stats = {"state": normalize.NormStats(mean=x.mean(0), std=x.std(0), q01=q01, q99=q99)}
    normal = transforms.Normalize(stats, use_quantiles=True)({"state": x})["state"]
    back = transforms.Unnormalize(stats, use_quantiles=True)({"state": normal})["state"]
    return {
        "quantiles/q01": q01, "quantiles/q99": q99, "quantiles/in": x, "quantiles/normal": normal,
        "quantiles/back": back,
    }  # fmt: skip


if __name__ == "__main__":
    main()
