"""On paper: a training step's time against the number of devices. An estimate of what nobody here has run.

    computing   operations of the step / devices / rate
    sending     data:  all-reduce of the gradients,  2 (d - 1) / d * gradient bytes / f
                fsdp:  parameters gathered twice (forward, and again backward) and gradients scattered,
                       (f - 1) / f * (2 * parameter bytes + gradient bytes)
                each over the bandwidth of its slowest link

with d groups of f devices. The true time lies between `least` (all that is sent is hidden behind computing)
and `most` (nothing is). Rows per device become few as devices become many; that a small batch computes at a
lower rate is not in it, nor the time of data, of the optimizer's update and of checkpoints.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, counts
from morph_vla.recipes.keys import Training
from morph_vla.training.sharding import check_batch
from morph_vla.wording import table


@dataclasses.dataclass(frozen=True)
class Machine:
    """What one device does, and what joins it to the others."""

    name: str
    rate: float  # [operation/s] of the whole step, as measured on one device
    near: float  # [byte/s] between devices of one host
    far: float  # [byte/s] for each device between hosts
    per_host: int


H200 = Machine(
    name="H200, eight to a host",
    # A step of action-expert tuning at full size, batch 32, three cameras, a body, measured on one H200:
    # 285.7 ms for 143.3 TFLOP, attention written out (docs/scale.md).
    rate=143.3e12 / 0.2857,
    near=450e9,  # NVLink 4, one way, by NVIDIA's data sheet
    far=50e9,  # one 400 Gbit/s adapter per device
    per_host=8,
)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Seconds of one step on a number of devices."""

    devices: int
    data: int
    fsdp: int
    computing: float  # [s]
    sending: float  # [s]

    @property
    def least(self) -> float:
        """[s] with everything sent hidden behind computing."""
        return max(self.computing, self.sending)

    @property
    def most(self) -> float:
        """[s] with nothing hidden."""
        return self.computing + self.sending


def listed(estimates: Sequence[Estimate], machine: Machine = H200) -> Iterator[str]:
    """A row for each number of devices."""
    yield f"an estimate, nothing was run: {machine.name}, {machine.rate / 1e12:.0f} TFLOP/s each"
    header = ["devices", "data", "fsdp", "computing ms", "sending ms", "step ms, at least", "at most"]
    rows = []
    for each in estimates:
        seconds = (each.computing, each.sending, each.least, each.most)
        rows.append((each.devices, each.data, each.fsdp, *(round(1e3 * time) for time in seconds)))
    yield from table(header, rows)


def step_time(
    model: Pi05Config,
    training: Training,
    learnt: int,
    parameters: int,
    devices: int,
    fsdp: int = 1,
    machine: Machine = H200,
) -> Estimate:
    """A step of `model` on `devices`, of whose `parameters` `learnt` have gradients (float32).

    Raises MorphVlaError when `fsdp` does not divide `devices`, or the batch cannot be split over them.
    """
    if devices % fsdp:
        raise MorphVlaError(f"{devices} devices cannot be grouped by fsdp {fsdp}")
    check_batch(training.batch, devices)
    groups = devices // fsdp
    work = counts.training_step(model, training.batch, training.flow_samples, training.kind)
    gradients, gathered = 4 * learnt, (2 if model.dtype == "bfloat16" else 4) * parameters
    within = machine.near if fsdp <= machine.per_host else machine.far
    across = machine.near if devices <= machine.per_host else machine.far
    sent = (fsdp - 1) / fsdp * (2 * gathered + gradients) / within
    sent += 2 * (groups - 1) / groups * gradients / fsdp / across
    return Estimate(devices, groups, fsdp, work / devices / machine.rate, sent)
