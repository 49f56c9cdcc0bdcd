"""LeRobot's checkpoints: safetensors in the Hub's layout, one file or shards with an index, and config.json.

The Hub's `lerobot/pi05_base` names its entries without the prefix `model.`, carries the embedding only as
`lm_head`, and has a second `lm_head`, of the action expert, that nothing uses but a strict load wants.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_bytes
from morph_vla.pi05.config import GemmaConfig, Pi05Config
from morph_vla.weights import lerobot_processors, names, tensors
from morph_vla.weights.checkpoint import BLOCK, flat, fresh
from morph_vla.weights.lerobot_processors import NORM_MAP, OneRobot
from morph_vla.weights.names import Piece, Shape
from morph_vla.weights.packed import TensorsCheckpoint

FILE, INDEX, PLUGIN_FILE = "model.safetensors", "model.safetensors.index.json", "morphology.safetensors"
WITH_PLUGIN = "morph_vla_plugin"  # the key under which we say which file holds a trained body
SIZES = "morph_vla"  # the key of a file's metadata under which we keep what LeRobot's shapes do not tell


class LerobotCheckpoint(TensorsCheckpoint):
    """A LeRobot checkpoint, opened for reading."""

    format = "lerobot"

    def __init__(self, path: Path):
        """`path` is the folder, or a safetensors file in it."""
        self.path = path
        folder = path if path.is_dir() else path.parent
        files = _shards(folder) if path.is_dir() else [path]
        every: dict[str, tensors.Tensor] = {}
        self.metadata: dict[str, str] = {}
        for file in files:
            header, metadata = tensors.read_header(file)
            self.metadata |= metadata
            for name, tensor in header.items():
                if every.setdefault(name.removeprefix(names.PREFIX), tensor) is not tensor:
                    twice = name.removeprefix(names.PREFIX)
                    raise MorphVlaError(f"{path}: '{twice}' is there twice ({file.name})")
        if WITH_PLUGIN in self.metadata and not (folder / PLUGIN_FILE).is_file():
            raise MorphVlaError(
                f"{folder} was written with {PLUGIN_FILE}, which is missing: without the trained body it "
                "would be another policy; copy that file too"
            )
        if (folder / PLUGIN_FILE).is_file() and path.name != PLUGIN_FILE:
            every |= tensors.read_header(folder / PLUGIN_FILE)[0]
        super().__init__(every)  # by LeRobot's names without the prefix `model.`
        # The output heads of the two language models. The VLM's is the embedding where that is missing. Where
        # both are there, they may differ: LeRobot's class does not tie them, and uses the embedding alone.
        heads = {names.EXPERT_HEAD, names.HEAD} if names.EMBEDDING in self._tensors else {names.EXPERT_HEAD}
        self.unused = frozenset(heads & self._tensors.keys())

    def pieces(self, leaf: str, shape: Shape) -> list[Piece]:
        """The entries that make up a leaf; what LeRobot has no name for keeps its own."""
        if not names.is_lerobots(leaf):
            return super().pieces(leaf, shape)
        return [
            dataclasses.replace(piece, entry=piece.alias)
            if piece.alias in self._tensors and piece.entry not in self._tensors
            else piece
            for piece in names.lerobot_pieces(leaf, shape)
        ]

    def config(self, like: Pi05Config | None = None) -> Pi05Config:
        """The sizes; numbers of heads from our metadata, else from `like`, else those that LeRobot fixes."""
        heads = {} if like is None else {"heads": like.heads, "vit_heads": like.vit.heads}
        written = json.loads(self.metadata.get(SIZES, "{}"))
        if not isinstance(written, dict):
            raise ValueError(f"its metadata '{SIZES}' is no mapping")
        shapes, known = {name: entry.shape for name, entry in self.entries.items()}, heads | written
        known = {key: known[key] for key in ("heads", "vit_heads") if key in known}
        for key, count in known.items():
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"its metadata '{SIZES}' has {key}: {count!r}; expected a number above 0")
        return names.lerobot_config_of(shapes, **known)


def _shards(folder: Path) -> list[Path]:
    """The file of a folder, or the shards its index names.

    Raises MorphVlaError for one that is missing, and where both are there: LeRobot reads the file alone.
    """
    if not (folder / INDEX).is_file():
        return [folder / FILE]
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        listed = sorted(set(index["weight_map"].values()))
        wrong = [name for name in listed if Path(name).name != name]
        missing = [name for name in listed if not (folder / name).is_file()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise MorphVlaError(f"{folder / INDEX} cannot be read ({error})") from error
    if (folder / FILE).is_file() and FILE not in listed:
        raise MorphVlaError(
            f"{folder} has both {FILE} and an index of other files ({INDEX}), which may be of another "
            "training; remove the one that is not meant"
        )
    if wrong or missing:
        raise MorphVlaError(f"{folder}: its index names missing shards: {', '.join(wrong or missing)}")
    return [folder / name for name in listed]


def refuse_plugin(leaves: Iterable[str]) -> None:
    """Raise MorphVlaError for leaves of the plugin."""
    count = sum(names.part_of(name) == names.PLUGIN for name in leaves)
    if count:
        raise MorphVlaError(
            f"LeRobot's pi0.5 has no place for the plugin's {count} leaves and would act without them; keep "
            "them beside it, for our reader alone, with keep_plugin=True (--keep-plugin)"
        )


def save_lerobot(
    folder: Path | str,
    params: Mapping[str, Any],
    config: Pi05Config,
    *,
    keep_plugin: bool = False,
    shard_bytes: int | None = None,
    robot: OneRobot | None = None,
    beside: Mapping[str, bytes] = {},
    known: Mapping[str, Any] = {},
) -> Path:
    """Write `params` (nested, openpi's names) as LeRobot reads them: the Hub's layout. Returns the folder.

    With `robot`, its processors and the widths of its values too: LeRobot then has a policy. `beside` are
    other files of the folder, by name, and `known` keys of config.json in place of ours.

    The entries are the Hub's: no prefix, the embedding as `lm_head` only, zeros as the expert's `lm_head`.
    LeRobot itself reads one file; `shard_bytes` is for other readers. The folder appears whole or not at all.

    Raises MorphVlaError when the folder exists, and when `params` has the plugin's leaves, which LeRobot's
    class cannot use: with `keep_plugin` they go into a file of their own that only we read. So too for a
    model of fewer image tokens, or with a head.
    """
    leaves = {name: np.asarray(leaf) for name, leaf in flat(params).items()}
    plugin = {name: leaf for name, leaf in leaves.items() if names.part_of(name) == names.PLUGIN}
    if not keep_plugin:
        refuse_plugin(leaves)
    if config.image_tokens is not None:
        raise MorphVlaError("LeRobot's pi0.5 has no model.image_tokens: it reads all tokens of an image")
    if config.head is not None or names.HEAD_LEAF in leaves:
        raise MorphVlaError("LeRobot's pi0.5 has no model.head: it denoises its actions")
    pairs = [name for name in leaves if names.is_lora(name)]
    if pairs:
        raise MorphVlaError(
            f"LeRobot's pi0.5 has no place for {len(pairs)} leaves of low-rank pairs; merge them into their "
            "weights first (weights.merge_lora, or `morph-vla weights convert`, which does)"
        )
    drafts = {
        piece.alias or piece.entry: _draft(leaf, piece)
        for name, leaf in leaves.items()
        if name not in plugin
        for piece in names.lerobot_pieces(name, leaf.shape)
    }
    vocab, width = config.vocab, config.expert.width
    dtype = leaves["PaliGemma/llm/embedder/input_embedding"].dtype
    drafts[names.EXPERT_HEAD] = tensors.Draft((vocab, width), dtype, lambda: _zeros(vocab, width, dtype))
    drafts = dict(sorted(drafts.items()))
    sizes = {"heads": config.heads, "vit_heads": config.vit.heads}
    metadata = {names.EMBEDDING: names.HEAD, SIZES: json.dumps(sizes)}
    metadata |= {WITH_PLUGIN: PLUGIN_FILE} if plugin else {}
    with fresh(folder) as unfinished:
        _write_files(unfinished, drafts, metadata, shard_bytes)
        if plugin:
            plain = {name: _draft(leaf, names.own_piece(name, leaf.shape)) for name, leaf in plugin.items()}
            tensors.write(unfinished / PLUGIN_FILE, dict(sorted(plain.items())), {})
        for name, content in beside.items():
            write_bytes(unfinished / name, content)
        plain = {**config_json(config), **known}
        if isinstance(plain["n_action_steps"], int):
            plain["n_action_steps"] = min(plain["n_action_steps"], plain["chunk_size"])
        if robot is not None:
            plain |= lerobot_processors.features(plain, robot) | robot.config
            lerobot_processors.write(unfinished, plain, robot)
        (unfinished / "config.json").write_text(json.dumps(plain, indent=4), encoding="utf-8")
    return Path(folder)


def _draft(leaf: np.ndarray, piece: Piece) -> tensors.Draft:
    """The entry of a piece of a leaf, made from it when it is written."""
    return tensors.Draft(piece.entry_shape, leaf.dtype, lambda: [piece.to_entry(leaf[piece.index])])


def _zeros(rows: int, width: int, dtype: np.dtype) -> Iterator[np.ndarray]:
    step = max(1, BLOCK // (width * dtype.itemsize))
    return (np.zeros((min(step, rows - start), width), dtype) for start in range(0, rows, step))


def _write_files(
    folder: Path, drafts: Mapping[str, tensors.Draft], metadata: Mapping[str, str], shard_bytes: int | None
) -> None:
    """One file, or shards of at most `shard_bytes` (or one tensor) with their index."""
    if shard_bytes is None:
        tensors.write(folder / FILE, drafts, metadata)
        return
    shards: list[dict[str, tensors.Draft]] = [{}]
    for name, draft in drafts.items():
        if shards[-1] and sum(d.nbytes for d in shards[-1].values()) + draft.nbytes > shard_bytes:
            shards.append({})
        shards[-1][name] = draft
    places = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors.write(folder / file, shard, metadata)
        places |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(d.nbytes for d in drafts.values())}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


IMAGES = "observation.images."
SAID = {"horizon": "chunk_size", "max_tokens": "tokenizer_max_length", "dtype": "dtype"}

# LeRobot knows these two widths by name, and no others.
_VARIANTS = {
    GemmaConfig(width=2048, mlp_dim=16_384): "gemma_2b",
    GemmaConfig(width=1024, mlp_dim=4096): "gemma_300m",
}


def said_of(folder: Path) -> dict[str, Any]:
    """What the config.json of a LeRobot policy says that no shape does, by our names; {} where there is none.

    Raises MorphVlaError for one that is damaged.
    """
    path = folder / "config.json"
    if not path.is_file():
        return {}
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        features = [name for name in plain.get("input_features", {}) if name.startswith(IMAGES)]
        known = {ours: plain[theirs] for ours, theirs in SAID.items() if theirs in plain}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise MorphVlaError(f"{path} cannot be read ({error})") from error
    return known | ({"cameras": [name.removeprefix(IMAGES) for name in features]} if features else {})


def config_json(config: Pi05Config) -> dict[str, Any]:
    """LeRobot's config.json for these sizes; sizes it has no name for are called by the nearest one."""
    cameras = {
        f"{IMAGES}{name}": {"type": "VISUAL", "shape": [3, config.image_size, config.image_size]}
        for name in config.cameras
    }
    vector = {"shape": [config.action_dim]}
    return {
        "type": "pi05",
        "input_features": {**cameras, "observation.state": {"type": "STATE", **vector}},
        "output_features": {"action": {"type": "ACTION", **vector}},
        "paligemma_variant": _VARIANTS.get(config.prefix, "gemma_2b"),
        "action_expert_variant": _VARIANTS.get(config.expert, "gemma_300m"),
        "dtype": config.dtype,
        "chunk_size": config.horizon,
        "n_action_steps": config.horizon,
        "max_state_dim": config.action_dim,
        "max_action_dim": config.action_dim,
        "image_resolution": [config.image_size, config.image_size],
        "tokenizer_max_length": config.max_tokens,
        "normalization_mapping": NORM_MAP,
    }
