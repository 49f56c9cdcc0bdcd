"""`morph-vla recipes scale NAME`: a step's time against the number of devices, on paper."""

import argparse

from morph_vla.cli.common import print_json, print_table

DEVICES = (1, 2, 4, 8, 16, 32, 64)


def run(arguments: argparse.Namespace) -> None:
    """Print an estimate for every number of devices that the recipe's batch can be split over."""
    from morph_vla.cli import counts
    from morph_vla.recipes import recipe as config
    from morph_vla.training import estimate

    recipe = config.load(arguments.name, arguments.overrides, arguments.folders)
    model, training, machine = recipe.model, recipe.training, estimate.H200
    size = counts.of(recipe)["kinds"][training.kind]
    learnt, every = size["trainable"], sum(size.values())
    rows = [
        estimate.step_time(model, training, learnt, every, devices, min(devices, training.mesh.fsdp))
        for devices in DEVICES
        if training.batch % devices == 0
    ]
    if arguments.json:
        print_json(
            [{"machine": machine.name, **vars(row), "least": row.least, "most": row.most} for row in rows]
        )
        return
    print(f"an estimate, nothing was run: {machine.name}, {machine.rate / 1e12:.0f} TFLOP/s each")
    header = ["devices", "data", "fsdp", "computing ms", "sending ms", "step ms, at least", "at most"]
    ms = [[round(1e3 * s) for s in (row.computing, row.sending, row.least, row.most)] for row in rows]
    sizes = [[row.devices, row.data, row.fsdp] for row in rows]
    print_table(header, [[*size, *times] for size, times in zip(sizes, ms, strict=True)])
