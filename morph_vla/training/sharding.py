"""Where arrays live: one program for a laptop, eight devices or many hosts.

All devices form one mesh of two axes, `data` and `fsdp` (as in openpi's `sharding.py`). The rows of a batch
are split over both. Parameters, their moving average and the optimizer's moments are split over `fsdp` alone
and held in full along `data`: each leaf along its longest axis that `fsdp` divides, small leaves not at all.
Four devices as data 2 x fsdp 2, a batch of 8 rows, a leaf of 6 x 4:

    device     rows    leaf
    0  (0, 0)  0 1     rows 0-2
    1  (0, 1)  2 3     rows 3-5
    2  (1, 0)  4 5     rows 0-2
    3  (1, 1)  6 7     rows 3-5

The compiler puts in what has to be sent; nothing in the model knows of it.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from morph_vla.errors import MorphVlaError

AXES = ("data", "fsdp")


def join(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Make this process number `process` of the `processes` that train together; all None asks the cluster.

    Raises MorphVlaError where only some are given, and when they cannot find each other.
    """
    place = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [f"--{name}" for name, value in place.items() if value is None]
    if 0 < len(missing) < len(place):
        together = "--coordinator, --processes and --process go together"
        raise MorphVlaError(f"{together}; {', '.join(missing)} missing")
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (ValueError, RuntimeError) as error:
        raise MorphVlaError(
            f"the processes cannot find each other ({error}); SLURM, Open MPI, Kubernetes and TPU pods say "
            "where they are; elsewhere give the address of process 0, their number and this one's index"
        ) from error
    if jax.process_index():  # the first process logs for all
        logging.getLogger("morph_vla").setLevel(logging.WARNING)


def make_mesh(data: int = 0, fsdp: int = 1) -> Mesh:
    """The mesh of all devices; `data` 0 is what `fsdp` leaves.

    Raises MorphVlaError when the product is not the number of devices.
    """
    devices = jax.devices()
    along = data or max(1, len(devices) // fsdp)
    if along * fsdp != len(devices):
        raise MorphVlaError(
            f"training.mesh: {along} x {fsdp} (data x fsdp) is {along * fsdp} devices; "
            f"here are {len(devices)} ({devices[0].device_kind})"
        )
    return Mesh(np.asarray(devices).reshape(along, fsdp), AXES)


def over_rows(mesh: Mesh) -> NamedSharding:
    """The first axis split over every device."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def whole(mesh: Mesh) -> NamedSharding:
    """The same on every device."""
    return NamedSharding(mesh, PartitionSpec())


def split_axis(shape: tuple[int, ...], fsdp: int) -> int | None:
    """The axis along which a leaf is split: the longest that `fsdp` divides, the later one of two alike."""
    fitting = [axis for axis, size in enumerate(shape) if size and size % fsdp == 0]
    return max(fitting, key=lambda axis: (shape[axis], axis)) if fsdp > 1 and fitting else None


def of_tree(mesh: Mesh, tree: Any, small: int) -> Any:
    """How the leaves of a tree of arrays or shapes lie; below `small` bytes in full on every device."""

    def of_leaf(leaf: Any) -> NamedSharding:
        axis = split_axis(tuple(leaf.shape), mesh.shape["fsdp"])
        if axis is None or leaf.size * leaf.dtype.itemsize < small:
            return whole(mesh)
        return NamedSharding(mesh, PartitionSpec(*(None,) * axis, "fsdp"))

    return jax.tree.map(of_leaf, tree)


def place(tree: Any, shardings: Any) -> Any:
    """A tree that every process holds in full, as arrays that lie as `shardings` says (one, or a tree)."""
    if isinstance(shardings, NamedSharding):
        return jax.tree.map(lambda leaf: _put(leaf, shardings), tree)
    return jax.tree.map(_put, tree, shardings)


def _put(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if jax.process_count() == 1:
        return jax.device_put(leaf, sharding)
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda region: values[region])


def join_rows(tree: Any, mesh: Mesh) -> Any:
    """The rows of a batch of which every process has its own share, as one array over all devices."""
    sharding = over_rows(mesh)
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)


def ahead(batches: Iterator[Any], mesh: Mesh, count: int = 2) -> Iterator[Any]:
    """The batches on their devices, each sent `count` before it is asked for."""
    sent: deque[Any] = deque()
    for batch in batches:
        sent.append(join_rows(batch, mesh))
        if len(sent) > count:
            yield sent.popleft()
    yield from sent


def place_key(seed: int, mesh: Mesh) -> jax.Array:
    """A random key that every device holds."""
    return jax.jit(lambda: jax.random.key(seed), out_shardings=whole(mesh))()


def check_batch(batch: int, devices: int) -> None:
    """Raise MorphVlaError when the rows of a batch cannot be split over the devices evenly."""
    if batch % devices:
        near = max(1, round(batch / devices)) * devices
        raise MorphVlaError(
            f"training.batch: {batch} rows cannot be split over {devices} devices evenly; {near} can"
        )


def bytes_per_device(tree: Any) -> int:
    """Bytes of a tree's arrays on the fullest of this process's devices."""
    held: dict[Any, int] = {}
    for leaf in jax.tree.leaves(tree):
        for shard in leaf.addressable_shards:
            held[shard.device] = held.get(shard.device, 0) + shard.data.nbytes
    return max(held.values(), default=0)


def is_first() -> bool:
    """Whether this process is the one that writes what there is one of."""
    return jax.process_index() == 0


def together(label: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(label)


def reached_preemption(step: int) -> bool:
    """Whether this is the step after which all processes end, once one of them was told to (SIGTERM)."""
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(step)


def first_then_others(label: str, work: Callable[[], Any]) -> Any:
    """What `work` returns; the first process does it before the others, who find what it left on disk."""
    if not is_first():
        together(label)
        return work()
    made = work()
    together(label)
    return made
