"""What a suite asks for: its keys under `success`."""

import dataclasses
from collections.abc import Collection, Iterator

from morph_vla.errors import nearest

Vector3 = tuple[float, float, float]
MOST_OBJECTS = 5  # of `also`: every order in which they may lie is looked at, in every control step


@dataclasses.dataclass(frozen=True)
class Success:
    """The box-dwell-rest criterion (paper, Appendix C.3), released by every link; see `engines.success`."""

    object: str
    target: str
    low: Vector3  # [m] in the target's frame
    high: Vector3
    dwell_seconds: float
    max_speed: float  # [m/s]
    max_spin: float  # [rad/s]
    min_opening: float = 0.6  # share of the gripper's range; 0: it may stay closed
    min_upright: float | None = None
    """The least cosine between the target's up axis and the vertical; None: it may lie as it likes."""
    max_moved: float | None = None
    """[m] The most that the target may be from where it first stood; None: it may be anywhere."""
    also: dict[str, str] = dataclasses.field(default_factory=dict)
    """More objects, and as many more targets: any object may be in any target, each in another one."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The object and the target, then those of `also`."""
        return (self.object, self.target), *self.also.items()

    @property
    def by_pushing(self) -> bool:
        """Whether a gripper that never opens can succeed: then nothing asks for a grasp."""
        return self.min_opening <= 0

    def unknown(self, objects: Collection[str]) -> Iterator[str]:
        """Which names are none of the suite's `objects`, one sentence each."""
        keys = ["object", "target", *["also"] * (2 * len(self.also))]
        for key, name in zip(keys, (name for pair in self.pairs for name in pair), strict=True):
            if name not in objects:
                yield f"success.{key}: no object is called '{name}'{nearest(name, objects)}"

    def problems(self) -> Iterator[str]:
        """What is wrong with the values, one sentence each."""
        if any(low >= high for low, high in zip(self.low, self.high, strict=True)):
            yield f"success: low {self.low} must be below high {self.high} on every axis"
        if self.min_upright is not None and not -1 <= self.min_upright <= 1:
            yield f"success.min_upright: must be a cosine, -1 to 1, not {self.min_upright:g}"
        if self.max_moved is not None and not self.max_moved > 0:
            yield f"success.max_moved: must be above 0, not {self.max_moved:g}"
        if not 0 <= self.min_opening <= 1:
            yield f"success.min_opening: is a share of the gripper's range, 0 to 1, not {self.min_opening:g}"
        for key in ("max_speed", "max_spin"):
            if not getattr(self, key) > 0:
                yield f"success.{key}: must be above 0, not {getattr(self, key):g}"
        if self.dwell_seconds < 0:
            yield f"success.dwell_seconds: must be at least 0, not {self.dwell_seconds:g}"
        names = [name for pair in self.pairs for name in pair]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield f"success.also: '{name}' is named twice among the objects and targets"
        if len(self.pairs) > MOST_OBJECTS:
            yield f"success.also: {len(self.pairs)} objects; {MOST_OBJECTS} are the most that are matched"
        if self.also and self.max_moved is not None:
            yield "success.max_moved: is of one target alone; leave it out beside success.also"
