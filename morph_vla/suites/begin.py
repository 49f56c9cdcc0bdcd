"""The key `expert.begin` of a suite: how its recorded demonstrations begin."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Begin:
    """Where recorded demonstrations begin, as shares of them; see `begins`. Evaluations begin at rest."""

    rest: float = 1.0
    near: float = 0.0  # the tool beside and above the object
    target: float = 0.0  # over the target
    anywhere: float = 0.0  # over the table
    miss: float = 0.0  # after a grasp beside the object
    slip: float = 0.0  # after the object was lost on the way
    carry: float = 0.0  # with the object in the hand, off the way to the target
    shut: float = 0.35  # share of near, target and anywhere with the gripper closed

    @property
    def shares(self) -> dict[str, float]:
        """Kind -> share, in the order of the keys; they add up to 1."""
        kinds = [field.name for field in dataclasses.fields(self) if field.name != "shut"]
        total = sum(getattr(self, kind) for kind in kinds)
        return {kind: getattr(self, kind) / total for kind in kinds}

    def problems(self) -> list[str]:
        """What is wrong with the shares, one sentence each."""
        given = dataclasses.asdict(self)
        found = [
            f"expert.begin.{key}: must be a share of at least 0, not {value:g}"
            for key, value in given.items()
            if not 0 <= value < float("inf")
        ]
        if self.shut > 1:
            found.append(f"expert.begin.shut: must be at most 1, not {self.shut:g}")
        if not found and not sum(value for key, value in given.items() if key != "shut"):
            found.append("expert.begin: every share is 0; give rest one, or another kind")
        return found
