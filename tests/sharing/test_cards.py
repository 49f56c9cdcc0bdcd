"""The card of a repository, word by word."""

import dataclasses
from pathlib import Path

import pytest

from morph_vla.data.layout import Entry, Layout
from morph_vla.recipes import recipe as recipes
from morph_vla.results.record import EngineFacts, PolicyCard, Record, Stopped, SuiteFacts
from morph_vla.results.trial import Trial
from morph_vla.sharing import cards, push

GOLDEN = Path(__file__).parent
SHAPE = ["height", "width", "channels"]
PANDA = {
    "joints": [f"joint{i}" for i in range(8)],
    "control_rate": 15.0,
    "actions": "absolute",
    "cameras": {"base_0_rgb": "exterior", "left_wrist_0_rgb": "wrist"},
}


def evaluation(version: int, **more) -> Record:
    """Of two tasks: 4 of 5 and 2 of 3."""
    trials = [Trial(task="can_in_mug", episode=i, success=i > 0) for i in range(5)]
    trials += [Trial(task="cube|bowl", episode=i, success=i > 0) for i in range(3)]
    suite, policy = SuiteFacts(name="droid_panda", version=version), PolicyCard(name="10")
    return Record(
        suite=suite, policy=policy, trials=tuple(trials), engine=EngineFacts("mujoco", "4.0.0"), **more
    )


def trained(**records: Record) -> cards.Trained:
    recipe = recipes.load("panda_demo", ["data.dataset=me/demonstrations", "tokenizer=bytes"])
    named = {f"evaluations/{name}": record for name, record in records.items()}
    versions = {"python": "3.12.1", "jax": "0.12.0"}
    return cards.Trained("me/arm", 1400, "ab" * 32, 1_234_567, recipe, {"panda": PANDA}, named, versions)


def dataset(**changes) -> Layout:
    features = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": ["lift", "jaw"]},
        "observation.images.front": {
            "dtype": "video",
            "shape": [48, 64, 3],
            "names": ["height", "width", "channels"],
        },
    }
    episodes = tuple(Entry(i, 7, ("wave",), Path("data"), {}) for i in range(3))
    facts = {"info": {"features": features}, "fps": 30.0, "robot_type": "so101", "episodes": episodes}
    return Layout(**{"root": Path(), "version": "v3.0", "tasks": {0: "wave"}, **facts, **changes})


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("model_card", lambda: cards.model_card(trained(
            droid_panda=evaluation(3),
            droid_panda_2=evaluation(2, overrides=("light=1",), stopped=Stopped(8, 20, "decided")),
        ))),
        ("dataset_card", lambda: cards.dataset_card(
            "me/demonstrations", dataset(), {"suite": "droid_panda", "episodes": 3, "attempted": 4}
        )),
    ],
)  # fmt: skip
def test_a_card_is_this_text(name, made):
    assert made() == (GOLDEN / f"{name}.md").read_text()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({}, "| absolute |"),
        ({"space": "joints"}, "| absolute |"),
        ({"space": "tool"}, "| absolute, of the tool's pose |"),
        ({"space": "hand"}, "| absolute, of the tool's pose, told from the hand |"),
    ],
)
def test_a_card_says_what_an_action_is_of(space, said):
    robots = {"panda": {**PANDA, **space}}
    assert said in cards.model_card(dataclasses.replace(trained(), robots=robots))


def test_a_card_on_a_branch_names_the_branch():
    card = cards.model_card(dataclasses.replace(trained(), revision="trial"))
    assert "morph-vla serve hf://me/arm@trial " in card
    assert "weights=hf://me/arm@trial " in card
    shared = push.Pushed("me/arm", "model", "https://hub/me/arm", 3, 7, 0, "trial")
    assert str(shared).endswith("others name it hf://me/arm@trial")


def test_a_card_without_an_evaluation_names_no_rate():
    card = cards.model_card(trained())
    assert "No evaluation of this checkpoint came with it." in card
    assert "%" not in card
    assert "--suite SUITE" in card


def test_a_suite_that_was_made_is_made_again_first():
    record = evaluation(1)
    made = dataclasses.replace(record, suite=SuiteFacts(name="panda", version=1, robot="panda"))
    card = cards.model_card(trained(panda=made))
    assert card.index("morph-vla suites new panda") < card.index("--suite panda")


def test_a_suite_that_nobody_else_has_gives_way_to_one_of_a_shipped_robot():
    record, name = evaluation(1), "my_arm"
    ours = dataclasses.replace(record, suite=SuiteFacts(name=name, version=1, robot=name))
    card = cards.model_card(trained(my_arm=ours))  # trained on the Panda
    assert "morph-vla suites new panda" in card
    assert f"--suite {name}" not in card
    shipped = cards.model_card(trained(my_arm=ours, droid_panda=record))
    assert "--suite droid_panda" in shipped
    assert "suites new" not in shipped
    unknown = dataclasses.replace(trained(my_arm=ours), robots={name: PANDA})
    assert f"--suite {name}" in cards.model_card(unknown)


def test_an_environment_that_names_no_robot_is_no_unseen_one():
    """One of another robot is, alone: there is nothing to pool."""
    pusht, so101 = evaluation(1), evaluation(1)
    pusht = dataclasses.replace(pusht, suite=SuiteFacts(name="pusht", version=1))
    so101 = dataclasses.replace(so101, suite=SuiteFacts(name="so101", version=1, robot="so101"))
    card = cards.model_card(trained(pusht=pusht, so101=so101))
    rows = [line.split("|") for line in card.splitlines() if line.startswith("|") and "evaluations/" in line]
    assert {row[1].strip() for row in rows} == {"", "so101, never trained on"}
    assert "evaluations, never trained on" not in card


def test_many_tasks_are_counted():
    card = cards.dataset_card("me/many", dataset(tasks={i: f"task {i:02d}" for i in range(25)}), {})
    assert "- task 19\n- and 5 more\n" in card
    assert "attempts" not in card


def test_the_commands_on_a_card_are_understood():
    from morph_vla.cli import build_parser

    lines = cards.model_card(trained(droid_panda=evaluation(3))).splitlines()
    commands = [line.partition("#")[0].split()[1:] for line in lines if line.startswith("morph-vla ")]
    assert len(commands) >= 2
    for command, *words in commands:
        assert callable(build_parser(command).parse_args([command, *words]).run)
