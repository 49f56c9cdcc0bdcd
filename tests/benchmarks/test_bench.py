"""`morph-vla bench`: the harness, the door, and `bench robots`."""

import json

import pytest

from benchmarks import harness, ratios
from benchmarks import robots as bench_robots
from morph_vla.cli import bench
from morph_vla.errors import MorphVlaError


def test_bench_takes_turns_and_does_not_count_the_first():
    clock, turns = [0.0], []

    def work(name, seconds):
        def turn():
            clock[0] += seconds * (100 if name not in turns else 1)  # the first turn compiles
            turns.append(name)

        return turn

    result = harness.measure(
        "ours", work("a", 3.0), "theirs", work("b", 5.0), repeats=2, clock=lambda: clock[0]
    )
    assert turns == ["a", "b"] * 3
    assert result == harness.Ratio("ours", 3.0, "theirs", 5.0, 0.6)


def test_bench_prints_ratios(run, monkeypatch):
    monkeypatch.setattr(ratios, "pairs", lambda: iter([("nothing", int, "nothing else", int)]))
    (row,) = json.loads(run("bench --repeats 3 --json")[1])
    assert row["name"] == "nothing"
    assert row["ratio"] == row["ours_s"] / row["reference_s"]
    header, row = run("bench")[1].splitlines()
    assert header.split() == ["what", "ms", "against", "ms", "ratio"]
    assert row.startswith("nothing ")


@pytest.mark.parametrize("options", ["--repeats 31", "--json", "--repeats 31 --json"])
def test_what_stands_before_a_verb_is_not_dropped(run, options):
    """The verb's own defaults would have stood in its place."""
    status, _, err = run(f"bench {options} robots")
    assert status == 2
    assert "--repeats and --json before the verb are of `bench` alone; write them behind it" in err
    assert "--repeats must be at least 1, not 0" in run("bench robots --repeats 0")[2]


@pytest.mark.slow
def test_bench_robots_prints_times_and_exponents(run, monkeypatch):
    monkeypatch.setattr(bench_robots, "SIZES", (125, 250))
    answer = json.loads(run("bench robots --repeats 1 --json")[1])
    assert [row["joints"] for row in answer["rows"]] == [60, 125, 250]
    assert all(row["all"] == sum(row[part] for part in bench_robots.PARTS) for row in answer["rows"])
    assert answer["exponents"].keys() == {*bench_robots.PARTS, "all"}
    lines = run("bench robots --repeats 1")[1].splitlines()
    assert lines[0].split()[:4] == ["robot", "joints", "read", "ms"]
    assert lines[1].startswith("humanoid")
    assert lines[-1].startswith("time ~ joints^e from 125 joints on, e: read ")


def test_the_fitted_exponent_is_that_of_the_law():
    rows = [{"joints": n, "all": 0.003 * n**1.75} for n in (60, 125, 250, 500)]
    assert bench_robots.exponent(rows, "all") == pytest.approx(1.75)


def test_benchs_robots_are_robots():
    from morph_vla.robots.judgement import judge
    from morph_vla.robots.urdf import parse

    for text, count in ((bench_robots.humanoid(), 60), (bench_robots.random_tree(31), 31)):
        assert not judge(urdf := parse(text))
        assert len(urdf.actuated) == count


def test_without_a_checkout_it_says_where_the_benchmarks_are(run, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    words = "error: the benchmarks live in a checkout of morph_vla, not in the package: run `make bench`"
    assert run("bench")[::2] == (2, f"{words} in one\n")
    assert run("bench sim --frames with")[::2] == (2, f"{words} in one\n")
    assert run("bench --help")[0] == 0


def test_an_extra_that_is_missing_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'optax'", name="optax")

    monkeypatch.setattr(bench.importlib, "import_module", missing)
    words = r"^'optax' is not installed; the benchmarks want every extra: make setup$"
    with pytest.raises(MorphVlaError, match=words):
        bench.benchmark("model")


@pytest.mark.parametrize("verb", bench.VERBS)
def test_every_verb_shows_examples_that_it_understands(run, verb):
    import shlex

    from morph_vla import cli

    status, out, _ = run(f"bench {verb} --help")
    assert status == 0
    for example in bench.benchmark(verb).EXAMPLES.strip().splitlines():
        assert example in out
        words = shlex.split(example, comments=True)
        assert words[1:3] == ["bench", verb]
        assert callable(cli.build_parser("bench").parse_args(words[1:]).run)
