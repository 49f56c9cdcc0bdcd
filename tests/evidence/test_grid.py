"""A grid's cells, their recipes, and what is said of one that cannot be run."""

import dataclasses
from pathlib import Path

import pytest

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.evidence import fits
from morph_vla.evidence import grid as grids
from morph_vla.evidence.asked import _of_condition
from morph_vla.evidence.check import check
from morph_vla.evidence.grid import Body, Cell, Grid, Hypothesis, Split
from morph_vla.findings import errors
from morph_vla.policies.config import FourierConfig
from morph_vla.recipes.keys import Recipe

GRIDS = Path(__file__).parents[2] / "configs" / "evidence"


@pytest.fixture
def grid(study) -> Grid:
    return grids.load(study / "grid.yaml")


@pytest.fixture
def planned(study, grid):
    return grids.plan(grid, [study])


def recipe_of(grid: Grid, name: str) -> Recipe:
    asked = grids.condition_of(grid, name)
    assert isinstance(asked, Recipe)
    return asked


@pytest.mark.slow
def test_cells_are_every_combination_once_and_seed_by_seed(grid):
    cells = grids.cells(grid)
    assert len(set(cells)) == len(cells) == 2 * 2 * 2
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4


def test_a_hypothesis_adds_seeds_of_its_two_conditions_alone(grid):
    more = dataclasses.replace(
        grid,
        conditions={**grid.conditions, "other": ()},
        hypotheses={"H1": Hypothesis("mix", "random", (7, 5)), "H2": Hypothesis("other", "random")},
    )
    seeds = {name: grids.seeds_of(more, name) for name in more.conditions}
    assert seeds == {"mix": (0, 1, 7, 5), "random": (0, 1, 7, 5), "other": (0, 1)}
    cells = grids.cells(more)
    assert len(set(cells)) == len(cells) == 2 * (4 + 4 + 2)
    added = [cell for cell in cells if cell.seed > 1]
    assert {(cell.seed, cell.condition) for cell in added} == {
        (s, c) for s in (5, 7) for c in ("mix", "random")
    }
    assert cells[-len(added) :] == tuple(added)  # what every condition has comes first
    dealt = [grids.cells(more, (part, 3)) for part in (1, 2, 3)]
    assert sorted(cell for part in dealt for cell in part) == sorted(cells)


def test_a_condition_that_names_robots_is_not_asked_for_those_of_its_recipe():
    """They are a split's: `answer` may not hold a cell's against the recipe's own."""
    asked = _of_condition(grids.condition_of(grids.load(GRIDS / "which.yaml"), "robot-embedding"))
    body = asked["recipe"]["model"]["morphology"]  # pyright: ignore[reportIndexIssue]
    assert body["descriptors"] == "robot"
    assert "robots" not in body


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_the_parts_of_a_grid_are_the_grid_and_what_is_compared_is_in_one(grid, parts):
    dealt = [grids.cells(grid, (part, parts)) for part in range(1, parts + 1)]
    assert sorted(cell for part in dealt for cell in part) == sorted(grids.cells(grid))
    for part in dealt:
        assert part
        whole = {(cell.seed, cell.split, name) for cell in part for name in grid.conditions}
        assert set(part) == whole


def test_more_parts_than_there_are_seeds_of_splits_are_refused(grid):
    words = r"^5 parts of 4, the seeds of all splits: a part has all conditions of one; cut the grid "
    with pytest.raises(MorphVlaError, match=words):
        grids.cells(grid, (2, 5))


def test_cells_of_a_split_differ_in_condition_and_seed_alone(planned):
    def difference(a: Cell, b: Cell) -> set[str]:
        one, other = (flat(planned.settings(cell)) for cell in (a, b))
        assert one.keys() == other.keys()
        return {key for key in one if one[key] != other[key]}

    first = Cell(0, "both", "mix")
    assert difference(first, first) == set()
    assert difference(first, Cell(1, "both", "mix")) == {"recipe.training.seed"}
    assert difference(first, Cell(0, "both", "random")) == {"recipe.model.graph"}


def flat(value, at=""):
    if not isinstance(value, dict):
        return {at: value}
    return {
        key: leaf
        for name, item in value.items()
        for key, leaf in flat(item, f"{at}.{name}".strip(".")).items()
    }


def test_a_split_says_which_demonstrations_of_which_bodies(planned, study):
    both, few = (planned.recipe(Cell(1, name, "mix")).data.sources for name in ("both", "few"))
    assert [(source.robot, source.weight, source.episodes) for source in both] == [
        ("panda", 8, ()), ("so101", 2, ()),
    ]  # fmt: skip
    assert [(source.robot, source.dataset, source.episodes) for source in few] == [
        ("panda", str(study / "panda"), ()), ("so101", str(study / "so101"), (0, 1)),
    ]  # fmt: skip


def test_a_variant_stands_for_its_overrides(grid):
    changes = ("@table1.tokens", "model.morphology.control=tokens")
    pi05 = dataclasses.replace(grid, recipe="panda_demo", overrides=(), conditions={"matched": changes})
    plugin = recipe_of(pi05, "matched").model.morphology
    assert plugin is not None
    assert (plugin.control, plugin.bias, plugin.film) == ("tokens", "none", False)


def test_a_condition_may_have_a_recipe_of_its_own(grid):
    conditions = {"own": ("recipe=fourier_state", "model.stride=16"), "late": ("seed=1", "recipe=x")}
    several = dataclasses.replace(grid, conditions=conditions, overrides=("training.steps=7",))
    own = recipe_of(several, "own")
    assert isinstance(own.model, FourierConfig)
    assert (own.model.stride, own.training.steps) == (16, 7)
    with pytest.raises(ConfigError, match="recipe"):
        grids.condition_of(several, "late")
    unknown = dataclasses.replace(several, conditions={"own": ("recipe=fourier_stat",)})
    with pytest.raises(MorphVlaError, match=r"fourier_stat.*did you mean 'fourier_state'"):
        grids.condition_of(unknown, "own")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": ()}, r"seeds: none are given"),
        ({"seeds": (1, 1)}, r"seeds: one is given twice"),
        ({"episodes": 0}, r"episodes: must be at least 1, not 0"),
        ({"seeds": (0, -1, -2)}, r"seeds: must be at least 0, not -1\n.*seeds: must be at least 0, not -2$"),
        ({"margin": -5.0}, r"margin: a difference of success rates is from 0 to 1 \(0.05 is .*, not -5$"),
        ({"margin": 5.0}, r"margin: a difference of success rates is from 0 to 1 \(0.05 is .*, not 5$"),
        ({"margin": float("nan")}, r"margin: .*, not nan$"),
        (
            {"sampler_steps": 0, "noise": -1.0},
            r"sampler_steps: the sampler's steps must be at least 1, not 0\n"
            r".*noise: the sampler's noise must be a finite number of at least 0, not -1$",
        ),
        ({"primary": ("fw",)}, r"primary: no split 'fw'; did you mean 'few'\? \(both, few\)"),
        ({"primary": ()}, r"primary: name the splits that the hypotheses are tested on"),
        (
            {"hypotheses": {"H1": Hypothesis("mix", "randm")}},
            r"hypotheses.H1.than: no condition 'randm'; did you mean 'random'\? \(mix, random\)",
        ),
        (
            {"hypotheses": {"H1": Hypothesis("mix", "random", (2, -3))}},
            r"hypotheses.H1.more_seeds: must be at least 0, not -3$",
        ),
        *(
            (
                {"hypotheses": {"H1": Hypothesis("mix", "random", seeds)}},
                r"hypotheses.H1.more_seeds: one is given twice; they come beside seeds$",
            )
            for seeds in ((2, 2), (2, 1))
        ),
        ({"conditions": {"a/b": ()}, "hypotheses": {}}, r"conditions: 'a/b' names files; expected letters, "),
        (
            {"splits": {"s": Split(("panda",), ("pand",))}, "primary": ("s",)},
            r"splits.s.judge: no body 'pand'; did you mean 'panda'\? \(panda, so101\)",
        ),
        (
            {"splits": {"s": Split(("panda", "panda"), ())}, "primary": ("s",)},
            r"splits.s.train: a body is given twice\n.*splits.s.judge: no body is given",
        ),
        (
            {"bodies": {"panda": Body("x")}, "splits": {"s": Split(("panda",), ("panda",))}, "primary": ()},
            r"splits.s.train: body 'panda' has no dataset; name one in bodies.panda",
        ),
        (
            {"splits": {"s": Split(("panda",), ("so101",), {"so101": 5}, {"panda": 0.0})}, "primary": ("s",)},
            r"splits.s.episodes: no trained body 'so101' \(panda\)\n.*splits.s.weights.panda: must be more "
            r"than 0, not 0",
        ),
        (
            {"bodies": {"panda": Body("a_*", "one"), "so101": Body("b", "data/*", count=-2)}, "splits": {}},
            r"splits: none are given\n.*bodies.panda.dataset: needs '\*', which stands for the name of each "
            r"body\n.*bodies.so101.count: must be at least 0, not -2\n.*bodies.so101: '\*' and count are for "
            r"several bodies, whose suite is a pattern \('arm_\*'\)",
        ),
    ],
)  # fmt: skip
def test_names_and_numbers_that_make_no_grid(grid, changes, words):
    with pytest.raises(ConfigError, match=words):
        grids.checked(dataclasses.replace(grid, **changes), "grid.yaml")


@pytest.mark.slow
def test_a_grid_that_can_be_run_has_nothing_to_say(grid, study):
    checked = check(grid, [study])
    assert checked.findings == ()
    assert str(checked).splitlines()[-1] == "0 errors, 0 warnings, 0 notes"
    assert list(checked.parameters) == ["mix", "random"]
    assert str(checked).splitlines()[0].split() == ["condition", "parameters", "to", "the", "first"]


def test_every_problem_of_a_grid_is_said_at_once(grid, study):
    bodies = {
        "a": dataclasses.replace(grid.bodies["panda"], suite="small_pand:cube_in_bowl"),
        "b": dataclasses.replace(grid.bodies["panda"], suite="small_panda"),
        "c": dataclasses.replace(grid.bodies["panda"], dataset="nowhere"),
        "d": dataclasses.replace(grid.bodies["panda"], dataset=grid.bodies["so101"].dataset),
        "e": dataclasses.replace(grid.bodies["panda"], suite="no_arm", dataset="elsewhere"),
    }
    conditions = {"mix": ("model.grph=random",), "film": ("@table1.token",)}
    bad = dataclasses.replace(grid, bodies=bodies, conditions=conditions)
    lines = [str(finding) for finding in errors(check(bad, [study]).findings)]
    for words in (
        "error: bodies.a: no suite 'small_pand'; did you mean 'small_panda'?",
        "error: bodies.b: suite 'small_panda' has 3 tasks; name one of small_panda:cube_in_bowl, ",
        "error: bodies.c: no dataset in nowhere: `morph-vla record small_panda:cube_in_bowl -o ",
        "has 30 frames a second, the suite 15",
        "error: bodies.e: no suite 'no_arm'",
        "error: bodies.e: no dataset in elsewhere",
        "model.grph: no such key; did you mean 'graph'?",
        "no variant 'table1.token'; did you mean 'table1.tokens'?",
    ):
        assert any(words in line for line in lines), (words, lines)


@pytest.mark.slow
def test_a_robot_with_more_joints_than_places_is_an_error_of_its_condition(grid, study):
    narrow = dataclasses.replace(
        grid, conditions={"mix": (), "narrow": ("model.action_dim=6",)}, hypotheses={}
    )
    findings = check(narrow, [study]).findings
    (finding,) = errors(findings)
    assert str(finding) == (
        "error: conditions.narrow: robot 'panda' has 8 joints, the model 6 action values; raise "
        "model.action_dim, or, since a trained model keeps its own, give it fewer joints to drive (`joints` "
        "in the side file: one arm's)"
    )
    assert [f.code for f in findings] == ["robot", "parameters"]
    assert "parameters, the first condition has" in str(findings[1])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MorphVlaError, match=r"^no such file: .*grid\.yaml$"):
        grids.load(tmp_path / "grid.yaml")


def test_a_shipped_grid_has_a_name_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert grids.load("quick").title == grids.load(GRIDS / "quick.yaml").title
    with pytest.raises(
        MorphVlaError, match=r"^no grid 'quik'; did you mean 'quick'\? \(the grids are any_arm, "
    ):
        grids.load("quik")
    with pytest.raises(MorphVlaError, match=r"^no such file: .*/quick\.yaml; did you mean 'quick'\?"):
        grids.load("configs/evidence/quick.yaml")


@pytest.mark.slow
def test_an_unseen_body_asks_for_statistics_that_need_no_recording(grid, study):
    splits = {"no-so101": Split(("panda",), ("so101",))}
    bodies = {**grid.bodies, "so101": Body("small_so101")}
    conditions = {"mix": (), "body": ("data.statistics=robot",)}
    leaves = dataclasses.replace(grid, splits=splits, bodies=bodies, conditions=conditions)
    statistics, rate, text = check(leaves, [study]).findings
    assert str(statistics) == (
        "error: splits.no-so101: so101: the policy was not trained on robot 'so101' (panda); only a policy "
        "trained with data.statistics: robot can drive one that it has not seen; of mix"
    )
    # And what the evaluation of the other condition would refuse, hours later.
    assert str(rate) == (
        "error: splits.no-so101: so101: control rate: the suite runs at 30 Hz, the policy was trained at 15 "
        "Hz; of body"
    )
    assert str(text).startswith("warning: splits.no-so101: so101: text: the suite says")


@pytest.mark.slow
@pytest.mark.parametrize("order", [("fine", "gone"), ("gone", "fine")])
def test_what_one_condition_lacks_is_said_of_it_alone(grid, study, order):
    conditions = {"fine": (), "gone": ("weights=/no/such/weights",)}
    gone = dataclasses.replace(
        grid,
        recipe="pi05_poses",
        overrides=("data.phases={}", "data.held_out=0"),
        conditions={name: conditions[name] for name in order},
        hypotheses={},
        primary=(),
    )
    problems = errors(check(gone, [study]).findings)
    assert any("/no/such/weights" in str(problem) for problem in problems), problems
    assert all(str(problem).endswith("of gone") for problem in problems), problems


@pytest.mark.slow
def test_what_a_training_would_refuse_is_said_of_every_body(grid, study):
    wide = ("model={family: body, width: 8, depth: 2, heads: 2, mlp_dim: 12, horizon: 4, environment: 7}",)
    split = {"both": dataclasses.replace(grid.splits["both"], episodes={"panda": 99})}
    bad = dataclasses.replace(
        grid, conditions={"mix": (), "wide": wide}, splits=split, hypotheses={}, primary=()
    )
    lines = [str(finding) for finding in errors(check(bad, [study]).findings)]
    assert lines[0].startswith("error: bodies.panda: there is no episode ")
    assert "and 9" in "".join(lines)  # of so many, five are named
    assert len(lines) < 9
    has = "'observation.environment_state' has 14 values; set model.environment, which is 7; of wide"
    assert lines[-1].startswith("error: bodies.so101: ")
    assert lines[-1].endswith(has)


@pytest.mark.slow
def test_a_model_that_looks_back_at_steps_it_is_not_asked_at_is_an_error_of_each_such_suite(grid, study):
    model = "model={{family: fourier, width: 8, mlp_dim: 12, modes: 1, window: {}, stride: {}}}"
    windows = {"near": (2, 8), "far": (2, 16), "present": (1, 8)}
    conditions = {name: (model.format(*window),) for name, window in windows.items()}
    looks_back = dataclasses.replace(
        grid, conditions=conditions, splits={"both": grid.splits["both"]}, hypotheses={}, primary=()
    )
    found = errors(check(looks_back, [study]).findings)
    # The panda's suite runs at 15 Hz and asks at every 8th step, which divides 16 too.
    assert [str(finding) for finding in found] == [
        "error: splits.both: so101: the model looks back in strides of 8 control steps and at 30 Hz is asked "
        "every 16 alone; its stride must be a multiple of 16; of near"
    ]
    tokens = ("@table1.tokens", "model.morphology.history={steps: 2, modes: 1, stride: 12}")
    pi05 = recipe_of(
        dataclasses.replace(grid, recipe="panda_demo", overrides=(), conditions={"was": tokens}), "was"
    )
    assert "strides of 12 control steps and at 15 Hz is asked every 8 alone" in fits._unseen_rows(
        pi05.model, 15.0
    )
    assert fits._unseen_rows(pi05.model, 22.5) == ""


NAMES = ("arm_near3_000", "arm_near3_001", "arm_near3_002b", "arm_near3_003", "arm_far11_000")


@pytest.fixture
def drawn(tmp_path):
    """A folder as `robots vary --suites` leaves it, as far as names go."""
    (tmp_path / "eval").mkdir()
    for name in NAMES:
        (tmp_path / "eval" / f"{name}.yaml").touch()
    return tmp_path


@pytest.fixture
def patterned(grid):
    bodies = {
        "trained": Body("arm_near3_*:pick", "data/*", {"base": "front"}, count=3),
        "far": Body("arm_far11_*"),
        "panda": grid.bodies["panda"],
    }
    splits = {"s": Split(("trained", "panda"), ("far",), {"trained": 5}, {"trained": 2.0, "panda": 8.0})}
    return dataclasses.replace(grid, bodies=bodies, splits=splits, primary=("s",))


def test_a_pattern_stands_for_the_first_bodies_by_name_redrawn_ones_too(patterned, drawn):
    assert grids.checked(patterned, "grid.yaml") is patterned
    whole, first = grids.expanded(patterned, [drawn]), ("arm_near3_000", "arm_near3_001", "arm_near3_002b")
    assert whole.bodies["arm_near3_002b"] == Body(
        "arm_near3_002b:pick", "data/arm_near3_002b", {"base": "front"}
    )
    assert list(whole.bodies) == [*first, "arm_far11_000", "panda"]
    assert whole.splits["s"] == Split(
        (*first, "panda"),
        ("arm_far11_000",),
        dict.fromkeys(first, 5),
        dict.fromkeys(first, 2.0) | {"panda": 8.0},
    )
    assert grids.expanded(whole, []) == whole
    assert grids.cells(whole) == grids.cells(patterned)  # so a status needs no body


def test_patterns_that_too_few_bodies_fit_are_said_at_once(patterned, drawn):
    bodies = {
        **patterned.bodies,
        "trained": Body("arm_near3_*", "data/*", count=5),
        "far": Body("arm_fr11_*"),
        "twice": Body("arm_far11_*"),
        "again": Body("arm_far*"),
    }
    findings = check(dataclasses.replace(patterned, bodies=bodies), [drawn]).findings
    lines = [str(finding) for finding in findings]
    for words in (
        "error: bodies.trained: 4 suites of 'arm_near3_*', 5 are asked for: `morph-vla robots vary ... ",
        "error: bodies.far: 0 suites of 'arm_fr11_*': `morph-vla robots vary ... --suites` draws more; ",
        "error: bodies.again: arm_far11_000: another body has that name",
    ):
        assert any(line.startswith(words) for line in lines), (words, lines)


@pytest.mark.parametrize("path", sorted(GRIDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_grid_that_is_shipped_makes_recipes_of_its_conditions(path):
    shipped = grids.load(path)
    made = {name: grids.condition_of(shipped, name) for name in shipped.conditions}
    assert len({str(each) for each in made.values()}) == len(made)  # no two are the same
    assert shipped.primary, "say which split is the primary one, without hypotheses too"


def test_the_grid_of_the_plan_has_its_controls_and_hypotheses(root):
    folder = root / "configs" / "evidence"
    plan, parts, tool = (grids.load(folder / f"{name}.yaml") for name in ("relatives", "parts", "tool"))
    assert list(plan.conditions) == ["token-matched", "h1-mix-film", "h2-all"]
    assert (plan.recipe, len(plan.seeds), plan.episodes) == ("pi05_poses", 5, 100)
    assert [body.count for body in plan.bodies.values()] == [26, 4, 5, 4]
    # The control of the others is that of the plan: its cells are found, not trained again.
    differ = {"title", "question", "conditions", "hypotheses", "seeds"}
    for other in (parts, tool):
        changed = {key for key, value in vars(plan).items() if value != getattr(other, key)} - {"minutes"}
        assert changed == differ
        assert plan.conditions["token-matched"] == other.conditions["token-matched"]
        assert set(other.seeds) <= set(grids.seeds_of(plan, "token-matched"))
    assert plan.conditions["h1-mix-film"] == tool.conditions["h1-mix-film"]
    recipes = {name: recipe_of(grid, name) for grid in (tool, parts, plan) for name in grid.conditions}
    assert (recipes["tool"].data.space, recipes["bare"].data.space) == ("tool", "joints")
    assert {(recipe.training.steps, recipe.data.by) for recipe in recipes.values()} == {(3000, "row")}
    made = {name: recipe.model.morphology for name, recipe in recipes.items()}
    assert made["bare"] is None
    assert made["tool"] is None
    matched, which, paper, ours = (
        made[name] for name in ("token-matched", "robot-embedding", "h1-mix-film", "h2-all")
    )
    assert matched is not None
    assert which is not None
    assert paper is not None
    assert ours is not None
    assert (matched.control, matched.tokens) == ("tokens", paper.tokens)
    assert (which.descriptors, which.bias, which.film) == ("robot", "none", True)
    assert (paper.bias, paper.film, paper.descriptors, paper.poses) == ("mix", True, "paper", "none")
    assert (ours.bias, ours.film, ours.descriptors, ours.poses) == ("mix", True, "geometry", "present")
    assert {h.than for h in plan.hypotheses.values()} == {"token-matched"}
    assert grids.seeds_of(plan, "h1-mix-film") == grids.seeds_of(plan, "token-matched") == tuple(range(10))
    assert grids.seeds_of(plan, "h2-all") == plan.seeds
