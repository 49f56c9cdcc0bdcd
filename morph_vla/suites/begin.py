"""The key `expert.begin` of a suite: how its recorded demonstrations begin."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Begin:
    """Where recorded demonstrations begin, as shares of them; evaluations begin at rest.

    See `demonstrations.preludes`.
    """

    rest: float = 1.0
    near: float = 0.0
    """With the tool beside and above the object."""
    target: float = 0.0
    """With the tool over the target."""
    anywhere: float = 0.0
    """With the tool over the table."""
    miss: float = 0.0
    """After a grasp beside the object."""
    slip: float = 0.0
    """After the object was lost on the way."""
    carry: float = 0.0
    """With the object in the hand, off the way to the target."""
    shut: float = 0.35
    """Share of near, target and anywhere with the gripper closed."""

    @property
    def shares(self) -> dict[str, float]:
        """Kind -> share, in the order of the keys; they add up to 1."""
        kinds = [field.name for field in dataclasses.fields(self) if field.name != "shut"]
        total = sum(getattr(self, kind) for kind in kinds)
        return {kind: getattr(self, kind) / total for kind in kinds}

    def problems(self) -> list[str]:
        """What is wrong with the shares, one sentence each."""
        given = dataclasses.asdict(self)
        problems = [
            f"expert.begin.{key}: must be a share of at least 0, not {value:g}"
            for key, value in given.items()
            if not 0 <= value < float("inf")
        ]
        if self.shut > 1:
            problems.append(f"expert.begin.shut: must be at most 1, not {self.shut:g}")
        if not problems and not sum(value for key, value in given.items() if key != "shut"):
            problems.append("expert.begin: every share is 0; give rest one, or another kind")
        return problems
