"""What `morph-vla recipes show` adds to a recipe: parameters, tokens and operations, also of its variants."""

import dataclasses
from typing import Any

from morph_vla.cli.common import print_table

TERA = 1e12


def of(recipe: Any) -> dict[str, Any]:
    """Counts of a recipe's model, and of every variant of the plugin at its size; nothing is allocated."""
    import jax

    from morph_vla.pi05 import counts
    from morph_vla.training import step
    from morph_vla.training.kinds import parts_of

    model, training = recipe.model, recipe.training
    host = dataclasses.replace(model, morphology=None)
    with jax.numpy_dtype_promotion("standard"):
        plugin = {"morphology": counts.plugin_shapes(model)}
        everything = {**counts.shapes(host), **plugin}
        without = (
            {**counts.shapes(dataclasses.replace(host, lora=None)), **plugin} if model.lora else everything
        )
        kinds = {kind: step.partition(without, _kind(training, kind)) for kind in ("expert", "full")}
        kinds[training.kind] = step.partition(everything, training)
        split = {
            kind: {"trainable": _size(learnt), "frozen": _size(frozen)}
            for kind, (learnt, frozen) in kinds.items()
        }
        learnt = counts.parameters(kinds[training.kind][0])
        parts = [
            {"part": part, "parameters": count, "trainable": learnt[part]}
            for part, count in counts.parameters(everything).items()
        ]
        rows = [_row(name, each, training) for name, each in counts.variants(model).items()]
    alone = next(row for row in rows if row["variant"] == "host alone")
    for row in rows:
        for key in ("training_step", "sampling_call"):
            row[f"{key}_over_host"] = row[f"{key}_flop"] / alone[f"{key}_flop"] - 1
    about = {
        "kind": training.kind,
        "batch": training.batch,
        "flow_samples": training.flow_samples,
        "steps": 10,
    }
    tokens = counts.tokens(model)
    return {
        "parts": parts,
        "kinds": split,
        "tokens": tokens,
        "counted_for": about,
        "variants": rows,
        "pairs": [part for part in parts_of(everything, training) if "pairs of rank" in part],
        "memory": _memory(recipe),
    }


def _memory(recipe: Any) -> dict[str, Any]:
    """Bytes on one device by what they are for, in words too, and what would save some."""
    from morph_vla.training import memory

    mesh = (recipe.training.mesh.data or 1, recipe.training.mesh.fsdp)  # 0: as many as there are
    needed = memory.estimate(recipe, *mesh)
    return {
        **dataclasses.asdict(needed),
        "total": needed.total,
        "words": memory.words(recipe, *mesh).split("\n"),
        "levers": [dataclasses.asdict(lever) for lever in memory.levers(recipe, *mesh)],
    }


def _kind(training: Any, kind: str) -> Any:
    return dataclasses.replace(training, kind=kind, lora=None)


def _row(name: str, model: Any, training: Any) -> dict[str, Any]:
    from morph_vla.pi05 import counts

    return {
        "variant": name,
        "new_parameters": _size(counts.plugin_shapes(model)),
        "kinematic_tokens": counts.tokens(model)["kinematic"],
        "training_step_flop": counts.training_step(
            model, training.batch, training.flow_samples, training.kind
        ),
        "sampling_call_flop": counts.sampling_call(model),
    }


def _size(tree: Any) -> int:
    import jax

    return sum(int(leaf.size) for leaf in jax.tree.leaves(tree))


def show(counted: dict[str, Any]) -> None:
    """Print the counts as comments, so that what is printed stays a recipe."""
    about, tokens = counted["counted_for"], counted["tokens"]
    rows = [(row["part"], f"{row['parameters']:,}", f"{row['trainable']:,}") for row in counted["parts"]]
    total = [f"{sum(row[key] for row in counted['parts']):,}" for key in ("parameters", "trainable")]
    print("\n# Counted, nothing allocated:\n#")
    header = ("parameters", "all", f"trained ({about['kind']})")
    print_table(header, [*rows, ("together", *total)], before="#   ", right=(1, 2))
    for pairs in counted["pairs"]:
        print(f"#   {pairs}")
    for kind, split in counted["kinds"].items():
        print(f"#   kind: {kind}: {split['trainable']:,} trainable, {split['frozen']:,} frozen")
    for line in counted["memory"]["words"]:
        print(f"#   {line}")
    print("#   tokens: " + ", ".join(f"{count} {name}" for name, count in tokens.items()) + "\n#")
    lines = [
        (
            row["variant"],
            f"{row['new_parameters']:,}",
            row["kinematic_tokens"],
            *(
                cell
                for key in ("training_step", "sampling_call")
                for cell in (f"{row[f'{key}_flop'] / TERA:.4g}", f"{100 * row[f'{key}_over_host']:+.2f}%")
            ),
        )
        for row in counted["variants"]
    ]
    header = ("variant at this size", "new parameters", "tokens", "TFLOP/step", "", "TFLOP/call", "")
    print_table(header, lines, before="#   ", right=range(1, 7))
    print(
        f"#   step: kind {about['kind']}, batch {about['batch']}, {about['flow_samples']} noise draws; "
        f"call: {about['steps']} Euler steps, batch 1; matrix products only"
    )
