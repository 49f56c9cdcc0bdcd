"""Typed YAML: from a file to a frozen dataclass, every problem with its line; plain values; whole files."""

import enum
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files import typed_yaml
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Training:
    steps: int = 11
    rate: float = 1e-3
    bias: Literal["mix", "full", "none"] = "mix"
    betas: tuple[float, float] = (0.9, 0.95)

    def __post_init__(self):
        if self.steps < 0:
            raise ConfigError(f"steps {self.steps} is negative; expected 0 or more")


@dataclass(frozen=True)
class Box:
    side: float


@dataclass(frozen=True)
class Ball:
    radius: float


@dataclass(frozen=True)
class Recipe:
    name: str
    training: Training = field(default_factory=Training)
    stages: tuple[Training, ...] = ()
    by_robot: dict[str, Training] = field(default_factory=dict)
    shape: Box | Ball | None = None
    later: Training | None = None
    folder: Path | None = None
    colour: Colour = Colour.RED
    seed: Annotated[int, "of the table"] = 7


@pytest.fixture
def recipe(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return path

    return write


def problems(path: Path, overrides=()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        typed_yaml.read(path, Recipe, overrides)
    return str(caught.value).replace(f"{path}", "FILE").splitlines()


# ----------------------------------------------------------------------------------------------------- read


def test_a_file_becomes_a_frozen_dataclass(recipe):
    path = recipe("""
name: on                # a word in YAML 1.2, where 1.1 reads "true"
training: {steps: 13, rate: 1e-4, betas: [0, 1]}
stages: [{bias: full}]
by_robot: {panda: {steps: 17}}
shape: {radius: .5}
folder: runs/demo
colour: blue
""")
    read = typed_yaml.read(path, Recipe)
    assert read == Recipe(
        name="on",
        training=Training(13, 1e-4, "mix", (0.0, 1.0)),
        stages=(Training(bias="full"),),
        by_robot={"panda": Training(17)},
        shape=Ball(0.5),
        folder=Path("runs/demo"),
        colour=Colour.BLUE,
    )


@pytest.mark.parametrize("value", ["/d/take #2", "#2", "'/d/take' #2", "{steps: 3} # so many"])
def test_an_override_that_yaml_would_cut_is_refused(recipe, value):
    """In a file the rest is a comment; on a command line somebody's folder has such a name."""
    path = recipe("name: a   # this is one\n")
    (said,) = problems(path, [f"name={value}"])
    rest = value[value.index("#") :]
    assert said.startswith(
        f"override 'name={value}': '{rest}' is a comment in YAML; if it belongs to the value, "
    )
    assert typed_yaml.read(path, Recipe, ['name="/d/take #2"']).name == "/d/take #2"
    assert typed_yaml.read(path, Recipe, ["name=a#2 "]).name == "a#2"


def test_every_problem_is_named_at_once_with_its_line(recipe):
    path = recipe("""name: 3
training:
  stpes: 5
  rate: "fast"
stages:
  - {steps: true}
by_robot: {panda: {bias: fll}}
later: {betas: [1]}
colour: rde
folder: [1]
""")
    assert problems(path) == [
        "FILE:1: name: expected a word, got 3",
        "FILE:3: training.stpes: no such key; did you mean 'steps'?",
        'FILE:4: training.rate: expected a valid number, got "fast"',
        "FILE:6: stages.0.steps: expected a valid integer, got true",
        "FILE:7: by_robot.panda.bias: expected 'mix', 'full' or 'none', got \"fll\"; did you mean 'full'?",
        "FILE:8: later.betas.1: missing",
        "FILE:9: colour: expected 'red' or 'blue', got \"rde\"; did you mean 'red'?",
        "FILE:10: folder: expected a word, got [1]",
    ]


def test_a_word_left_empty_is_told_how_to_be_none(recipe):
    """A shell takes the quotes of KEY="" away."""
    path = recipe("name: a")
    assert problems(path, ["name="]) == [
        "override 'name=': name: expected a word, got null; for no word, write \"\" (on a command "
        "line, 'KEY=\"\"')"
    ]
    assert typed_yaml.read(path, Recipe, ['name=""']).name == ""


def test_an_unknown_key_near_nothing_is_answered_with_the_keys_there_are(recipe):
    assert problems(recipe("name: x\ntraining: {epochs: 3}")) == [
        "FILE:2: training.epochs: no such key (the keys here are steps, rate, bias, betas)"
    ]


@dataclass(frozen=True)
class WithConstant:
    """What a class says of all is no key of a file."""

    kind: ClassVar[str] = "x"
    size: int = 3


def test_what_a_class_says_of_all_its_instances_is_no_key():
    assert typed_yaml.keys(WithConstant) == ("size",)
    with pytest.raises(
        ConfigError, match=r"kind\.deeper: no such key|kind: no such key \(the keys here are size\)"
    ):
        typed_yaml.of_plain({"kind": {"deeper": 1}}, WithConstant, "x")


def test_a_missing_key_and_a_wrong_shape(recipe):
    assert problems(recipe("{}")) == ["FILE: name: missing"]
    assert problems(recipe("")) == ["FILE: name: missing"]
    assert problems(recipe("name: x\ntraining: 3")) == [
        "FILE:2: training: expected the keys steps, rate, bias, betas, got 3"
    ]
    assert problems(recipe("- 1")) == [
        "FILE: the file: expected the keys name, training, stages, by_robot, shape, later, folder, colour, "
        "seed, got [1]"
    ]


def test_the_problems_of_a_union_have_no_level_that_the_file_has_not(recipe):
    assert problems(recipe("name: x\nshape: {raduis: 1}")) == [
        "FILE:2: shape.side: missing",
        "FILE:2: shape.raduis: no such key (the keys here are side)",
        "FILE:2: shape.radius: missing",
        "FILE:2: shape.raduis: no such key; did you mean 'radius'?",
    ]


def test_what_a_dataclass_refuses_is_named_by_its_place(recipe):
    path = recipe("name: x\ntraining: {steps: -1}")
    assert problems(path) == ["FILE:2: training: steps -1 is negative; expected 0 or more"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [", "FILE:1: not YAML: expected the node content, but found '<stream end>'"),
        ("name: a\nname: b", "FILE:2: name: given twice"),
        ("training: {steps: 1, steps: 2}", "FILE:1: training.steps: given twice"),
        ("? [a]\n: 1", "FILE:1: a key must be a word"),
        ("name: !!python/object/apply:os.getcwd []", "FILE: name: missing"),
        ("name: !!timestamp 2026-01-01", "FILE:1: the tag tag:yaml.org,2002:timestamp is not supported"),
        ("name: " + "9" * 5000, "FILE:1: a number of more than 1000 digits"),
        ("name: *a", "FILE:1: not YAML: found undefined alias 'a'"),
        ("name: \x01", "FILE: not YAML: unacceptable character #x0001: special characters are not allowed"),
        ("[" * 3000, "FILE: nested too deeply"),
    ],
)
def test_what_is_no_yaml_of_ours_is_refused_in_words(recipe, text, sentence):
    result = problems(recipe(text))[0]
    if "python/object" in text:
        assert "os.getcwd" in result or "expected a word" in result
    else:
        assert result.startswith(sentence)


def test_aliases_are_fine_and_a_bomb_of_them_is_not(recipe):
    read = typed_yaml.read(recipe("name: x\ntraining: &t {steps: 5}\nlater: *t"), Recipe)
    assert read.later == read.training == Training(5)
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert problems(recipe("\n".join(lines))) == ["FILE: more than 20000 values"]


def test_a_huge_file_one_that_is_no_text_and_one_that_is_not_there(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"#" * (typed_yaml.MAX_BYTES + 1))
    assert problems(path) == ["FILE: larger than 1048576 bytes, so it is not a configuration file"]
    path.write_bytes(b"name: \xff")
    assert problems(path) == ["FILE: not UTF-8 text (byte 6)"]
    with pytest.raises(MorphVlaError, match=r"none.yaml: cannot be read: No such file or directory$"):
        typed_yaml.read(tmp_path / "none.yaml", Recipe)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1e-4", 1e-4),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("010", 10),
        ("0x1F", 31),
        ("+7", 7),
        (".inf", float("inf")),
    ],
)
def test_numbers_are_those_of_yaml_1_2(recipe, word, value):
    assert typed_yaml.read(recipe(f"name: x\ntraining: {{rate: {word}}}"), Recipe).training.rate == value


@pytest.mark.parametrize("word", ["yes", "off", "1:30", "1_000", "0o17", "e5"])
def test_these_are_words(recipe, word):
    assert typed_yaml.read(recipe(f"name: {word}"), Recipe).name == word


# ------------------------------------------------------------------------------------------------ overrides


def test_overrides_reach_into_mappings_lists_and_what_the_file_leaves_out(recipe):
    path = recipe("name: x\nstages: [{steps: 3}, {steps: 5}]\nlater:\n")
    overrides = [
        "training.steps=200",
        "stages.1.rate=1e-4",
        "later.bias=full",
        "by_robot={so101: {steps: 2}}",
    ]
    read = typed_yaml.read(path, Recipe, overrides)
    assert read.training.steps == 200
    assert read.stages == (Training(3), Training(5, 1e-4))
    assert read.later == Training(bias="full")
    assert read.by_robot == {"so101": Training(2)}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("later.stpes=3", "override 'later.stpes=3': later.stpes: no such key; did you mean 'steps'?"),
        ("seed=many", "override 'seed=many': seed: expected a valid integer, got \"many\""),
        ("training", "override 'training': expected KEY=VALUE, for example training.steps=200"),
        ("a..b=1", "override 'a..b=1': expected KEY=VALUE, for example training.steps=200"),
        ("name.first=1", "FILE: override 'name.first=1': name is a value and has no keys"),
        ("stages.2.steps=1", "FILE: override 'stages.2.steps=1': stages is a list of 2, numbered from 0"),
        ("stages.last=1", "FILE: override 'stages.last=1': stages is a list of 2, numbered from 0"),
        ("name=[", "override 'name=[':1: not YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_a_wrong_override_is_named_as_it_was_typed(recipe, override, sentence):
    path = recipe("name: x\nstages: [{steps: 3}, {steps: 5}]")
    assert problems(path, [override]) == [sentence]


# ------------------------------------------------------------------------------------------------- folders


# ------------------------------------------------------------------------------------------------- writing


def test_plain_values_are_what_json_knows():
    @dataclass(frozen=True)
    class Inner:
        numbers: np.ndarray
        where: Path

    value = {"a": Inner(np.arange(3, dtype=np.float32), Path("x/y")), 2: (Colour.BLUE, np.float64(0.5))}
    plain = to_plain([value, {"b", "a"}, np.int32(7), None, True])
    assert plain == [
        {"a": {"numbers": [0.0, 1.0, 2.0], "where": "x/y"}, "2": ["blue", 0.5]},
        ["a", "b"],
        7,
        None,
        True,
    ]
    assert json.loads(json.dumps(plain)) == plain
    assert type(plain[0]["2"][1]) is float
    with pytest.raises(MorphVlaError, match=r"^a object cannot be written as JSON or YAML$"):
        to_plain(object())


training = st.builds(
    Training,
    steps=st.integers(0, 10**6),
    rate=st.floats(allow_nan=False),
    bias=st.sampled_from(["mix", "full", "none"]),
    betas=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)


recipes = st.builds(
    Recipe,
    name=st.text(),
    training=training,
    stages=st.lists(training, max_size=3).map(tuple),
    shape=st.none() | st.builds(Ball, st.floats(0, 1)),
    colour=st.sampled_from(Colour),
)


@given(recipes)
@settings(max_examples=50)
def test_what_is_written_is_read_back(tmp_path_factory, recipe):
    path = tmp_path_factory.mktemp("round") / "recipe.yaml"
    write_text(path, json.dumps(to_plain(recipe)))
    assert typed_yaml.read(path, Recipe) == recipe


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new/folder/record.json"
    write_text(path, "first\n")
    assert path.read_text() == "first\n"

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "second\n")
    assert path.read_text() == "first\n"
    assert [result.name for result in path.parent.iterdir()] == ["record.json"]


# --------------------------------------------------------------------------------------------------- layers

LAYERED = """name: base
training: {steps: 13, rate: 0.5}
tasks:
  one: {name: first}
  two:
    training:
      stpes: 17
"""


def test_a_layer_is_merged_over_the_rest_and_its_problems_keep_their_lines(recipe):
    path = recipe(LAYERED.replace("stpes", "steps"))
    assert typed_yaml.layers(path, "tasks") == ("one", "two")
    assert typed_yaml.read(path, Recipe, (), ("tasks", "one")) == Recipe("first", Training(13, 0.5))
    assert typed_yaml.read(path, Recipe, (), ("tasks", "two")) == Recipe("base", Training(17, 0.5))
    overridden = typed_yaml.read(path, Recipe, ["training.steps=19"], ("tasks", "two"))
    assert overridden.training == Training(19, 0.5)
    with pytest.raises(ConfigError, match=r":7: training\.stpes: no such key; did you mean 'steps'\?$"):
        typed_yaml.read(recipe(LAYERED), Recipe, (), ("tasks", "two"))


@pytest.mark.parametrize("text", ["tasks: 3", "tasks: {}", "tasks: {one: 3}", "tasks: [one]"])
def test_layers_are_names_with_keys(recipe, text):
    with pytest.raises(ConfigError, match=r":2: tasks: expected names, each with the keys it changes$"):
        typed_yaml.layers(recipe(f"name: base\n{text}\n"), "tasks")


def test_a_file_without_layers_has_none(recipe):
    assert typed_yaml.layers(recipe("name: base"), "tasks") == ()
    assert typed_yaml.layers(recipe("- 1"), "tasks") == ()


ODD_WORDS = [
    "1e3",
    "2E5",
    "1e-4",
    "-1e4",
    "Infinity",
    "-Infinity",
    ".inf",
    "on",
    "yes",
    "0x1F",
    "010",
    "~",
    "",
]


@dataclass(frozen=True)
class Kept:
    words: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(ODD_WORDS) | st.text(st.characters(codec="ascii", min_codepoint=32), max_size=7)
    ),
    st.lists(st.floats(allow_nan=False)),
)
def test_what_is_written_is_read_back_as_it_is(tmp_path_factory, words, numbers):
    kept = Kept(tuple(words), tuple(numbers))
    path = tmp_path_factory.mktemp("kept") / "kept.yaml"
    path.write_text(typed_yaml.dump(to_plain(kept)), "utf-8")
    assert typed_yaml.read(path, Kept) == kept
