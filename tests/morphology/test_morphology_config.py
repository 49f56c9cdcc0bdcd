"""Every key's bounds and every combination that makes no sense, by the words of its refusal."""

import re

import pytest

from morph_vla.errors import ConfigError
from morph_vla.morphology import MorphologyConfig

HORIZON, ACTIONS = 16, 32

REFUSED = {
    "auxiliary": ({"auxiliary": -1}, "morphology.auxiliary: must not be negative, as -1 is"),
    "hidden": ({"hidden": -7}, "morphology.hidden: must not be negative, as -7 is"),
    "seed": (
        {"control": "random", "control_seed": -3},
        "morphology.control_seed: must not be negative, as -3 is",
    ),
    "hidden of a linear encoder": (
        {"encoder": "linear", "hidden": 64},
        "morphology.hidden: 64 has no effect: the encoder 'linear' has no inner layer; leave hidden out or "
        "choose encoder: linear-swiglu-linear",
    ),
    "start of a mask": (
        {"bias": "mix", "bias_init": "hard"},
        "morphology.bias_init: 'hard' has no effect: the bias 'mix' learns nothing; leave bias_init out or "
        "choose bias: spd-soft",
    ),
    "distances without distances": (
        {"bias": "adj-soft-v2.0", "bias_init": "linear"},
        "morphology.bias_init: 'linear' is not an initialisation of 'adj-soft-v2.0', which knows no "
        "distances; choose zero or hard, or bias: spd-soft",
    ),
    "mix of adj-soft": (
        {"bias": "adj-soft-v1.0", "bias_init": "mix"},
        "morphology.bias_init: 'mix' is not an initialisation of 'adj-soft-v1.0', which knows no distances; "
        "choose zero or hard, or bias: spd-soft",
    ),
    "too near": (
        {"bias": "spd-soft", "max_distance": 1},
        "morphology.max_distance: 1 leaves no entry for joints that are not neighbours; choose at least 2",
    ),
    "cap below the start": (
        {"bias": "adj-soft-v1.1", "theta_max": 1.0},
        "morphology.theta_max: 1 must lie between 1.10, below which the strength could not learn from where "
        "bias_init: hard starts, and 80, where its exponential leaves float32",
    ),
    "no cap at all": (
        {"bias": "adj-soft-v1.0", "theta_max": float("inf")},
        "morphology.theta_max: inf must lie between 1.10, below which the strength could not learn from "
        "where bias_init: hard starts, and 80, where its exponential leaves float32",
    ),
    "a seed for nothing": (
        {"control_seed": 5},
        "morphology.control_seed: 5 has no effect without a control; leave it out or choose control: random "
        "or tokens",
    ),
    "random without a graph": (
        {"control": "random", "bias": "none"},
        "morphology.control: 'random' replaces the joint graph, and the bias 'none' uses no graph; choose "
        "bias: full, mix or an adj-soft, or control: tokens",
    ),
    "random distances": (
        {"control": "random", "bias": "spd-soft"},
        "morphology.control: 'random' replaces the joint graph, and the bias 'spd-soft' needs distances, and "
        "a random graph has none; choose bias: full, mix or an adj-soft, or control: tokens",
    ),
    "a bias among no joints": (
        {"control": "tokens", "film": False},
        "morphology.bias: 'mix' makes no sense with control: tokens, whose tokens belong to no joint; choose "
        "bias: none",
    ),
    "descriptors that nobody reads": (
        {"film": False, "descriptors": "standardised"},
        "morphology.descriptors: 'standardised' has no effect with film: false, which reads none; leave it "
        "out or choose film: true",
    ),
    "geometry that nobody reads": (
        {"film": False, "descriptors": "geometry"},
        "morphology.descriptors: 'geometry' has no effect with film: false, which reads none; leave it "
        "out or choose film: true",
    ),
    "poses of no joints": (
        {"control": "tokens", "bias": "none", "film": False, "poses": "present"},
        "morphology.poses: 'present' makes no sense with control: tokens, whose tokens belong to no joint; "
        "choose poses: none",
    ),
    "readout of no joints": (
        {"control": "tokens", "bias": "none", "film": False, "readout": "joints"},
        "morphology.readout: 'joints' makes no sense with control: tokens, whose tokens belong to no joint; "
        "choose readout: actions",
    ),
    "descriptors of no joints": (
        {"control": "tokens", "bias": "none"},
        "morphology.film: true makes no sense with control: tokens, whose tokens belong to no joint; choose "
        "film: false",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_by_name(name):
    keys, sentence = REFUSED[name]
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        MorphologyConfig(**keys).check(HORIZON, ACTIONS)


@pytest.mark.parametrize("start", ["paper", "exact"])
@pytest.mark.parametrize("auxiliary", [0, 3])
@pytest.mark.parametrize(
    "keys",
    [
        {"bias": "none"},
        {"bias": "full", "film": False},
        {"bias": "mix", "encoder": "linear"},
        {"bias": "mix", "descriptors": "standardised"},
        {"bias": "mix", "descriptors": "geometry", "poses": "present"},
        *({"bias": "spd-soft", "bias_init": init} for init in ("zero", "hard", "mix", "linear")),
        *({"bias": f"adj-soft-{v}", "bias_init": "hard"} for v in ("v1.0", "v1.1", "v2.0")),
        {"bias": "mix", "control": "random", "control_seed": 7},
        {"bias": "none", "film": False, "control": "tokens"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_what_makes_sense_is_not(keys, auxiliary, start):
    for chunks in (1, 2, 4, 8, 16):
        MorphologyConfig(**keys, auxiliary=auxiliary, start=start, chunks=chunks).check(HORIZON, ACTIONS)


def test_earlier_runs_wrote_raw():
    assert MorphologyConfig(descriptors="raw") == MorphologyConfig(descriptors="paper") == MorphologyConfig()
