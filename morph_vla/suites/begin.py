"""The key `expert.begin` of a suite: how its recorded demonstrations begin."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class BeginShares:
    """Shares of the recorded demonstrations by how they begin (`demonstrations.beginnings`).

    They are relative to their sum: `carry: 1` beside `rest`, which is 1 unless said, is half of them.
    Evaluations begin at rest.
    """

    rest: float = 1.0
    near: float = 0.0
    """With the tool beside and above the object."""
    low: float = 0.0
    """With the tool beside the object, at its height."""
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
    """Share of near, low, target and anywhere with the gripper closed."""

    @property
    def kinds(self) -> dict[str, float]:
        """Kind -> share, in the order of the keys; they add up to 1."""
        shares = {key: share for key, share in vars(self).items() if key != "shut"}
        total = sum(shares.values())
        return {kind: share / total for kind, share in shares.items()}

    def problems(self) -> list[str]:
        """What is wrong with the shares, one sentence each."""
        problems = [
            f"expert.begin.{key}: must be a share of at least 0, not {share:g}"
            for key, share in vars(self).items()
            if not 0 <= share < float("inf")
        ]
        if self.shut > 1:
            problems.append(f"expert.begin.shut: must be at most 1, not {self.shut:g}")
        if not problems and not any(share for key, share in vars(self).items() if key != "shut"):
            problems.append("expert.begin: every share is 0; give rest one, or another kind")
        return problems
