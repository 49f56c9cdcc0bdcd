"""The plugin's settings, as a recipe writes them."""

import dataclasses
import math
from typing import Literal

from morph_vla.errors import ConfigError

BiasKind = Literal[
    "none", "full", "mix", "spd-soft", "adj-soft-v1.0", "adj-soft-v1.1", "adj-soft-v2.0"
]  # fmt: skip
BiasInit = Literal["zero", "hard", "mix", "linear"]
Control = Literal["none", "random", "tokens"]
Encoder = Literal["linear", "linear-swiglu-linear"]
Start = Literal["paper", "exact"]
Descriptors = Literal["paper", "standardised", "geometry", "robot", "raw"]
Poses = Literal["none", "present"]
Readout = Literal["actions", "joints"]

SCALE = 3.0  # how strongly a soft bias starts where it starts strong: logits of -3 (paper, Appendix F)


@dataclasses.dataclass(frozen=True)
class History:
    """A joint's last positions, of which its tokens read the lowest Fourier modes (`morphology.history`)."""

    steps: int = 8  # positions, the present one last
    modes: int = 3  # of them, the lowest
    stride: int = 8  # control steps from one position to the next: the policy must be asked as often

    def check(self) -> None:
        """Raise ConfigError, naming the key, for a window that cannot be."""
        for key in ("steps", "stride"):
            if getattr(self, key) < 1:
                raise ConfigError(f"morphology.history.{key}: must be at least 1, not {getattr(self, key)}")
        most = 1 + self.steps // 2
        if not 1 <= self.modes <= most:
            raise ConfigError(
                f"morphology.history.modes: {self.steps} positions have 1 to {most} modes, not {self.modes}"
            )

    @property
    def lags(self) -> tuple[int, ...]:
        """How many control steps back each position is, the oldest first."""
        return tuple(self.stride * back for back in reversed(range(self.steps)))

    @property
    def values(self) -> int:
        """What a token reads: a cosine and a sine a mode, less those that are always zero."""
        return min(2 * self.modes - 1, self.steps)


@dataclasses.dataclass(frozen=True)
class MorphologyConfig:
    """Kinematic tokens (paper, Section 2.1), topology bias (2.2), joint-attribute conditioning (2.3).

    `bias`: `full` and `mix` mask (Appendix B.1); `spd-soft` (v3.0) learns a bias per layer and distance,
    the `adj-soft`s a strength per layer against all that are not neighbours (Appendix G).
    `control`: `random` puts a random graph of the same density in the joint graph's place; `tokens` keeps
    number, encoder and input of the tokens and takes the joints out of them.
    `start`: `paper` starts near the host, because zero tokens take attention's mass; `exact` starts at it.
    `descriptors`, which FiLM reads: `paper`, its twelve; `standardised`, the same as `film.standardised` has
    them; `geometry`, where each joint lies and how it turns (`robots.screws.GEOMETRY`); `robot`, a control,
    which of the `robots` it belongs to and nothing else: a learnt scale and shift of each, and of another
    robot their mean. Earlier runs wrote `raw` for `paper`.
    `poses`: `present` adds each joint's pose now to its tokens (`poses`).
    `history`: the lowest Fourier modes of each joint's last positions, through an encoder of their own, are
    added to its tokens.
    `readout`: `actions`, the paper's, reads the velocity from the action tokens, which have a row of weights
    for every place of a joint; `joints` adds what one linear layer, the same for all joints, reads from each
    joint's own tokens.
    """

    max_joints: int = 32  # J: robots are padded to this many joints
    chunks: int = 1  # G: time chunks of the horizon, each with one token per joint
    auxiliary: int = 0  # M: further tokens per joint and chunk, each with an encoder of its own
    encoder: Encoder = "linear-swiglu-linear"
    hidden: int = 0  # width inside the encoder; 0 takes the expert's width
    bias: BiasKind = "mix"
    bias_init: BiasInit = "zero"  # where a soft bias starts
    max_distance: int = 8  # D_max of spd-soft: joints farther apart, or not connected, share its entry
    theta_max: float = 3.0  # cap of theta in adj-soft-v1.0 and v1.1, whose strength is exp(theta)
    film: bool = True
    descriptors: Descriptors = "paper"  # what FiLM reads of a joint
    robots: tuple[str, ...] = ()  # of `descriptors: robot`, by name; a recipe fills in those of its data
    poses: Poses = "none"  # what a token reads of where its joint is
    history: History | None = None  # and of where it was; none: it looks at the present alone
    readout: Readout = "actions"  # where a joint's velocity is read
    control: Control = "none"
    control_seed: int = 0  # what is random in a control
    start: Start = "paper"

    def __post_init__(self) -> None:
        if self.descriptors == "raw":
            object.__setattr__(self, "descriptors", "paper")

    def check(self, horizon: int, action_dim: int) -> None:
        """Raise ConfigError, naming the key and what to change, for a combination that makes no sense."""
        if self.chunks < 1 or horizon % self.chunks:
            divisors = [n for n in range(1, horizon + 1) if horizon % n == 0]
            raise ConfigError(
                f"morphology.chunks: {self.chunks} does not divide the horizon {horizon}; "
                f"choose one of {', '.join(map(str, divisors))}"
            )
        if not 1 <= self.max_joints <= action_dim:
            raise ConfigError(
                f"morphology.max_joints: {self.max_joints} must lie between 1 and the model's "
                f"{action_dim} action values: a kinematic token reads one of them"
            )
        for key in ("auxiliary", "hidden", "control_seed"):
            if getattr(self, key) < 0:
                raise ConfigError(f"morphology.{key}: must not be negative, as {getattr(self, key)} is")
        if self.hidden and self.encoder == "linear":
            raise ConfigError(
                f"morphology.hidden: {self.hidden} has no effect: the encoder 'linear' has no inner layer; "
                "leave hidden out or choose encoder: linear-swiglu-linear"
            )
        if self.descriptors != "paper" and not self.film and self.control != "tokens":
            raise ConfigError(
                f"morphology.descriptors: '{self.descriptors}' has no effect with film: false, which reads "
                "none; leave it out or choose film: true"
            )
        if (self.descriptors == "robot") != bool(self.robots):
            need = "reads no names of robots" if self.robots else "needs the names of its robots"
            given = f"{list(self.robots)} does not fit"
            raise ConfigError(f"morphology.robots: {given}: descriptors: {self.descriptors} {need}")
        if self.history is not None:
            self.history.check()
        self._check_bias()
        self._check_control()

    def _check_bias(self) -> None:
        inits = {"spd-soft": ("zero", "hard", "mix", "linear")}
        if self.bias.startswith("adj-soft"):
            inits = {self.bias: ("zero", "hard")}
        known = inits.get(self.bias, ())
        if not known and self.bias_init != "zero":
            raise ConfigError(
                f"morphology.bias_init: '{self.bias_init}' has no effect: the bias '{self.bias}' learns "
                "nothing; leave bias_init out or choose bias: spd-soft"
            )
        if known and self.bias_init not in known:
            raise ConfigError(
                f"morphology.bias_init: '{self.bias_init}' is not an initialisation of '{self.bias}', which "
                f"knows no distances; choose {' or '.join(known)}, or bias: spd-soft"
            )
        if self.bias == "spd-soft" and self.max_distance < 2:
            raise ConfigError(
                f"morphology.max_distance: {self.max_distance} leaves no entry for joints that are not "
                "neighbours; choose at least 2"
            )
        if self.exponential and not math.log(SCALE) < self.theta_max < 80:
            raise ConfigError(
                f"morphology.theta_max: {self.theta_max:g} must lie between {math.log(SCALE):.2f}, below "
                "which the strength could not learn from where bias_init: hard starts, and 80, where its "
                "exponential leaves float32"
            )

    def _check_control(self) -> None:
        if self.control == "none" and self.control_seed:
            raise ConfigError(
                f"morphology.control_seed: {self.control_seed} has no effect without a control; leave it out "
                "or choose control: random or tokens"
            )
        if self.control == "random" and self.bias in ("none", "spd-soft"):
            why = "uses no graph" if self.bias == "none" else "needs distances, and a random graph has none"
            raise ConfigError(
                f"morphology.control: 'random' replaces the joint graph, and the bias '{self.bias}' {why}; "
                "choose bias: full, mix or an adj-soft, or control: tokens"
            )
        if self.control == "tokens" and self.bias != "none":
            raise ConfigError(
                f"morphology.bias: '{self.bias}' makes no sense with control: tokens, whose tokens belong to "
                "no joint; choose bias: none"
            )
        if self.control == "tokens" and self.film:
            raise ConfigError(
                "morphology.film: true makes no sense with control: tokens, whose tokens belong to no joint; "
                "choose film: false"
            )
        if self.control == "tokens" and self.readout != "actions":
            raise ConfigError(
                f"morphology.readout: '{self.readout}' makes no sense with control: tokens, whose tokens "
                "belong to no joint; choose readout: actions"
            )
        if self.control == "tokens" and self.poses != "none":
            raise ConfigError(
                f"morphology.poses: '{self.poses}' makes no sense with control: tokens, whose tokens belong "
                "to no joint; choose poses: none"
            )

        if self.control == "tokens" and self.history is not None:
            raise ConfigError(
                "morphology.history: makes no sense with control: tokens, whose tokens belong to no joint; "
                "leave it out"
            )

    @property
    def lags(self) -> tuple[int, ...]:
        """How many control steps back each position of a joint's history is; () without one."""
        return () if self.history is None else self.history.lags

    @property
    def exponential(self) -> bool:
        """Whether a soft bias's strength is exp(theta)."""
        return self.bias in ("adj-soft-v1.0", "adj-soft-v1.1")

    @property
    def copies(self) -> int:
        """Tokens of one joint, G * (1 + M)."""
        return self.chunks * (1 + self.auxiliary)

    @property
    def tokens(self) -> int:
        """Number of kinematic tokens, J * G * (1 + M)."""
        return self.max_joints * self.copies
