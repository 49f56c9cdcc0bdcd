"""The full size once, without a GPU: checkpoints of both layouts, training steps, a resume, an action.

Nothing is downloaded: parameters are random, from a seed, written leaf by leaf; demonstrations are simulated,
with frames of 224 pixels; the tokenizer is a small one unless `--tokenizer` names PaliGemma's. Each part runs
in a process of its own, whose peak memory is measured, and is done once: the same command resumes.

    python scripts/full_size.py runs/full_size                  24 GB of memory, 30 GB of disk, half an hour
    python scripts/full_size.py runs/small --size small         the same parts in minutes

results.json in the folder has every part's numbers: seconds, peak memory, and what was predicted.
"""

import argparse
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SEED, SPREAD = 7, 0.02
RECIPE = "pi05_droid"
CAMERAS = [f"cameras.{name}.{side}=224" for name in ("exterior", "wrist") for side in ("width", "height")]
SIZES: dict[str, list[str]] = {
    "full": [],
    "middle": [  # 200 MB of frozen leaves
        "model.vocab=30000", "model.vit={width: 256, depth: 6, mlp_dim: 1024, heads: 4, patch: 14}",
        "model.prefix={width: 512, mlp_dim: 4096}", "model.expert={width: 256, mlp_dim: 1024}",
        "model.depth=10", "model.head_dim=64",
    ],
    "small": [
        "model.vocab=640", "model.vit={width: 32, depth: 2, mlp_dim: 64, heads: 2, patch: 56}",
        "model.prefix={width: 64, mlp_dim: 128}", "model.expert={width: 32, mlp_dim: 64}", "model.depth=3",
        "model.heads=2", "model.head_dim=16",
    ],
}  # fmt: skip


def overrides(folder: Path, size: str, kind: str = "expert") -> list[str]:
    """The recipe's: three steps of one observation, stopped after two."""
    tokenizer = (folder / "tokenizer.txt").read_text() if (folder / "tokenizer.txt").exists() else "bytes"
    data = ["data.state=[observation.state]", "data.action=[action]", "data.held_out=0.4"]
    cameras = ["data.cameras={base_0_rgb: exterior, left_wrist_0_rgb: wrist}"]
    pace = ["steps=3", "batch=1", "log_every=1", "checkpoint_every=3", "keep=1", f"kind={kind}"]
    return [
        f"data.dataset={folder / 'dataset'}", *data, *cameras, f"weights={folder / 'openpi'}",
        f"tokenizer={tokenizer}", "optimizer.warmup=1", *(f"training.{key}" for key in pace), *SIZES[size],
    ]  # fmt: skip


def recipe_of(folder: Path, size: str, kind: str = "expert") -> Any:
    """`pi05_droid` on this folder's dataset and weights."""
    from morph_vla.recipes import recipe

    return recipe.load(RECIPE, overrides(folder, size, kind))


def host_of(folder: Path, size: str) -> Any:
    """The model without its plugin."""
    import dataclasses

    return dataclasses.replace(recipe_of(folder, size).model, morphology=None)


def drawn(leaf: str, index: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """The seeded values of a leaf's slice at `index` (of one layer): the same whoever asks for them."""
    source = np.random.default_rng([SEED, zlib.crc32(leaf.encode()), *index])
    out = np.empty(shape, BFLOAT16)
    for part in np.array_split(out.reshape(-1), max(1, out.size >> 22)):  # views, filled in turn
        part[:] = SPREAD * source.standard_normal(part.size, np.float32)
    return out


def layered(leaf: str) -> bool:
    """Whether a leaf is a stack of layers, drawn layer by layer."""
    return "/layers/" in leaf or "/encoderblock/" in leaf


def slice_of(leaf: str, shape: tuple[int, ...], index: tuple[int, ...]) -> np.ndarray:
    """The values of a leaf at `index`, in whatever pieces they were drawn."""
    if not layered(leaf):
        return drawn(leaf, (), shape)[index]
    return drawn(leaf, index[:1], shape[1:])[index[1:]]


def write_openpi(folder: Path, size: str) -> dict[str, Any]:
    """The layout of openpi, as orbax writes it, an array at a time through tensorstore; then inspected."""
    import tensorstore as ts

    from morph_vla import weights

    shapes = weights.leaf_shapes(host_of(folder, size))
    params = fresh(folder / "openpi") / "params"
    tree = {}
    for leaf, shape in shapes.items():
        keys = ("params", *leaf.split("/"))
        tree[str(keys)] = {
            "key_metadata": [{"key": key, "key_type": 2} for key in keys],
            "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": [*shape]},
        }
        base = {"driver": "file", "path": f"{params.resolve()}/"}
        rows = [1, *shape[1:]] if layered(leaf) else [min(1024, shape[0]), *shape[1:]]
        spec = {
            "driver": "zarr",
            "kvstore": {"driver": "ocdbt", "base": base, "path": f"{'.'.join(keys)}/"},
            "metadata": {"shape": [*shape], "chunks": rows, "dtype": "bfloat16", "compressor": None},
        }
        store = ts.open(spec, create=True).result()
        if layered(leaf):
            for layer in range(shape[0]):
                store[layer].write(drawn(leaf, (layer,), shape[1:])).result()
        else:
            store.write(drawn(leaf, (), shape)).result()
    about = {"tree_metadata": tree, "use_ocdbt": True, "use_zarr3": False}
    (params / "_METADATA").write_text(json.dumps(about))
    return inspected(params.parent)


def write_lerobot(folder: Path, size: str) -> dict[str, Any]:
    """LeRobot's layout, an entry at a time, of the same values; then inspected."""
    from morph_vla import weights
    from morph_vla.weights import lerobot, names, tensors

    config = host_of(folder, size)
    target = fresh(folder / "lerobot")
    target.mkdir()

    def draft(leaf: str, shape: tuple[int, ...], piece: names.Piece) -> tensors.Draft:
        return tensors.Draft(
            piece.entry_shape, BFLOAT16, lambda: [piece.to_entry(slice_of(leaf, shape, piece.index))]
        )

    drafts = {
        piece.alias or piece.entry: draft(leaf, shape, piece)
        for leaf, shape in weights.leaf_shapes(config).items()
        for piece in names.lerobot_pieces(leaf, shape)
    }
    unused = (config.vocab, config.expert.width)  # the expert's output head, which a strict load wants
    drafts[names.EXPERT_HEAD] = tensors.Draft(unused, BFLOAT16, lambda: [np.zeros(unused, BFLOAT16)])
    heads = {"heads": config.heads, "vit_heads": config.vit.heads}
    metadata = {names.EMBEDDING: names.HEAD, lerobot.SIZES: json.dumps(heads)}
    tensors.write(target / lerobot.FILE, dict(sorted(drafts.items())), metadata)
    (target / "config.json").write_text(json.dumps(lerobot.config_json(config), indent=4))
    return inspected(target)


def inspected(path: Path) -> dict[str, Any]:
    """What `morph-vla weights inspect` says of a checkpoint."""
    from morph_vla.weights.inspect import inspect

    inspection = inspect(path)
    assert not inspection.problems, [str(problem) for problem in inspection.problems]
    return {"format": inspection.format, "parameters": inspection.parameters, "bytes": inspection.nbytes}


def convert(source: str, to: Any, target: str) -> Callable[[Path, str], dict[str, Any]]:
    """A part that converts a checkpoint and keeps the digest of its parameters."""

    def part(folder: Path, size: str) -> dict[str, Any]:
        from morph_vla.weights.convert import convert as converted

        digest, report = converted(folder / source, fresh(folder / target), to, host_of(folder, size))
        return {"digest": digest, "bytes": report.nbytes}

    return part


def back(folder: Path, size: str) -> dict[str, Any]:
    """The digest of what came back, beside those on the way; equal ones free the disk."""
    from morph_vla import weights

    params, report = weights.load(folder / "back", host_of(folder, size), dtype="stored")
    digests = [done(folder)[part]["digest"] for part in ("to_lerobot", "to_openpi")] + [
        weights.digest(params)
    ]
    assert len({*digests}) == 1, digests
    for name in ("lerobot", "converted", "back"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return {"equal": True, "digest": digests[0], "bytes": report.nbytes}


def dataset(folder: Path, size: str) -> dict[str, Any]:
    """A few demonstrations of a Panda with two cameras of 224 pixels, and a tokenizer."""
    from morph_vla.demonstrations import recording
    from morph_vla.suites import suite

    task = suite.load("droid_panda:cube_in_bowl", CAMERAS)
    recorded = recording.record(task, folder / "dataset", 4, workers=1)
    if (
        size == "full" and not (folder / "tokenizer.txt").exists()
    ):  # weights of this vocabulary have PaliGemma's
        import sentencepiece

        out = io.BytesIO()
        lines = [f"Task: pick up the cube {i}, State: {3 * i} {i};\nAction: " for i in range(90)]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=310,
            byte_fallback=True, minloglevel=2, num_threads=1, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
        )  # fmt: skip
        (folder / "small.model").write_bytes(out.getvalue())
        (folder / "tokenizer.txt").write_text(f"paligemma:{folder / 'small.model'}")
    return {"frames": recorded.frames, "episodes": recorded.episodes}


def train(kind: str, resumed: bool) -> Callable[[Path, str], dict[str, Any]]:
    """A part that takes two steps and is told to end; or that resumes, with a held-out loss at its end."""

    def part(folder: Path, size: str) -> dict[str, Any]:
        from morph_vla.training import loop, memory, source

        source.HELD_OUT_ROWS = 2  # a row takes as long as half a step
        recipe, before = recipe_of(folder, size, kind), held("VmRSS")

        def stop(report: Any) -> None:  # after the step that follows
            os.kill(os.getpid(), signal.SIGTERM)

        run = loop.train(recipe, folder / f"train_{kind}", on_report=None if resumed else stop)
        assert run.stopped != resumed, run
        predicted, disk = memory.estimate(recipe), memory.disk(recipe)
        return {
            "before": before,
            "predicted": predicted.on_a_cpu,
            "predicted_state": predicted.state,
            "disk": used(run.folder / "checkpoints"),
            "predicted_disk": disk.total,
            "losses": [line["loss"] for line in run.curve],
            "held_out_loss": run.curve[-1]["held_out_loss"],
            "checkpoint": run.checkpoint.name,
            "seconds_training": run.seconds,
        }

    return part


def act(kind: str) -> Callable[[Path, str], dict[str, Any]]:
    """A part that asks the trained checkpoint for one chunk of actions; the run's folder is then removed."""

    def part(folder: Path, size: str) -> dict[str, Any]:
        from morph_vla.serving import policy

        newest = folder / f"train_{kind}" / "checkpoints" / done(folder)[f"resume_{kind}"]["checkpoint"]
        numbers = answered(lambda: policy.load(newest))
        shutil.rmtree(folder / f"train_{kind}")
        return numbers

    return part


def act_as_it_is(name: str) -> Callable[[Path, str], dict[str, Any]]:
    """A part that asks a checkpoint of another program's layout, as it is, for one chunk of actions."""

    def part(folder: Path, size: str) -> dict[str, Any]:
        from morph_vla.serving import policy
        from morph_vla.serving.foreign import Given

        ends = {"q01": [-1.0] * 8, "q99": [1.0] * 8}
        statistics = folder / "norm_stats.json"
        statistics.write_text(json.dumps({"norm_stats": {"state": ends, "actions": ends}}))
        given = Given(preset="droid", statistics=str(statistics))
        tokenizer = recipe_of(folder, size).tokenizer
        return answered(lambda: policy.load(folder / name, given=given, tokenizer_name=tokenizer))

    return part


def answered(load: Callable[[], Any]) -> dict[str, Any]:
    """Load a policy and ask it for a chunk of actions: the peak of loading, apart from the call's."""
    import jax

    began = time.monotonic()
    loaded = load()
    jax.block_until_ready(loaded.params)
    loading = {"seconds_loading": round(time.monotonic() - began, 1), "peak_loading": held("VmHWM")}
    image = np.zeros((224, 224, 3), np.uint8)
    observation = {"state": np.zeros(8, np.float32), "prompt": "pick up the cube"}
    images = {f"images/{name}": image for name in loaded.cameras.values()}
    times = []
    for _ in range(2):  # the first compiles
        began = time.monotonic()
        actions = loaded.infer({**observation, **images})["actions"]
        times.append(round(time.monotonic() - began, 1))
    assert np.isfinite(actions).all()
    size_of = sum(leaf.nbytes for leaf in jax.tree.leaves(loaded.params))
    return {"actions": list(actions.shape), "bytes": size_of, "seconds_calls": times, **loading}


def refused(folder: Path, size: str) -> dict[str, Any]:
    """Full fine-tuning, which does not fit: the sentence, with its levers."""
    from morph_vla.errors import MorphVlaError
    from morph_vla.training import memory

    try:
        memory.check(recipe_of(folder, size, "full"))
    except MorphVlaError as error:
        return {"refused": str(error).splitlines()}
    assert size != "full", "full fine-tuning was not refused"
    return {"refused": []}


PARTS: dict[str, Callable[[Path, str], dict[str, Any]]] = {
    "write_openpi": write_openpi,
    "to_lerobot": convert("openpi", "lerobot", "converted"),
    "dataset": dataset,
    "act_lerobot": act_as_it_is("converted"),
    "write_lerobot": write_lerobot,
    "to_openpi": convert("lerobot", "openpi", "back"),
    "back": back,
    "act_openpi": act_as_it_is("openpi"),
    "refused": refused,
    **{
        f"{verb}_{kind}": made
        for kind in ("expert", "lora")
        for verb, made in (("train", train(kind, False)), ("resume", train(kind, True)), ("act", act(kind)))
    },
}


def used(folder: Path) -> int:
    """Bytes of the files below a folder, those with several names counted once."""
    files = {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return sum(files.values())


def fresh(folder: Path) -> Path:
    """The folder's name, with nothing there: what a killed part left is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def done(folder: Path) -> dict[str, Any]:
    """The results so far."""
    path = folder / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


def held(key: str) -> int:
    """The memory [bytes] that this process holds (VmRSS), or the most that it has held (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def run_part(folder: Path, size: str, name: str) -> None:
    """Run one part here, and add its numbers to results.json."""
    from morph_vla.files.writing import write_text

    began = time.monotonic()
    numbers = PARTS[name](folder, size)
    numbers |= {"seconds": round(time.monotonic() - began, 1), "peak": held("VmHWM")}
    for key in ("bytes", "predicted"):
        for peak in ("peak", "peak_loading"):
            if numbers.get(key) and numbers.get(peak):
                numbers[f"{peak}_over_{key}"] = round(numbers[peak] / numbers[key], 3)
    write_text(folder / "results.json", json.dumps({**done(folder), name: numbers}, indent=2))


def main() -> int:
    """Run the parts that are not done, each in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--tokenizer", help="a SentencePiece model: paligemma, or paligemma:FILE")
    parser.add_argument("--part", choices=PARTS, help="this one alone, in this process")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.tokenizer:
        (folder / "tokenizer.txt").write_text(arguments.tokenizer)
    if arguments.part:
        run_part(folder, arguments.size, arguments.part)
        return 0
    for name in remaining(folder):
        print(f"{name} ...", flush=True)
        command = [sys.executable, __file__, str(folder), "--size", arguments.size, "--part", name]
        if subprocess.run(command, check=False).returncode:
            print(f"{name} failed; the same command goes on with it", file=sys.stderr)
            return 1
        print(json.dumps({name: done(folder)[name]}), flush=True)
    return 0


def remaining(folder: Path) -> Iterator[str]:
    """The parts without results."""
    return (name for name in PARTS if name not in done(folder))


if __name__ == "__main__":
    sys.exit(main())
