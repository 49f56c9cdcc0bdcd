"""The demo's last screen: the table, the difference, the minutes, the page, and what to try next."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from morph_vla.demo import base
from morph_vla.results.comparison import compare
from morph_vla.results.record import Record, Study
from morph_vla.results.statistics import Rates, Summary
from morph_vla.results.values import number
from morph_vla.wording import span, table


def lines(
    study: Study, page: Path, suite: str, episodes: int, prefix: str = "", overrides: Sequence[str] = ()
) -> Iterator[str]:
    """What the demo measured; `prefix` and `overrides` as in `next_commands`."""
    *others, trained = study.evaluations
    yield ""
    if study.origins:
        yield from table(
            ["task", "policy", "successes", "", "95% Wilson", "median time to success"],
            _stacked(study.evaluations),
            right=range(2, 6),
        )
        yield ""
        yield from (f"{name}: {origin}" for name, origin in study.origins.items())
    else:
        yield from table(
            ["task", "untrained", "trained", "", "95% Wilson", "median time to success"],
            _rows(others[0].summary, trained.summary),
            right=range(1, 6),
        )
    yield ""
    yield from (str(compare(other, trained)) for other in others)
    seconds = {name: number(value) or 0.0 for name, value in study.seconds_by_stage.items()}
    yield f"{span(sum(seconds.values()))}: " + ", ".join(f"{name} {span(s)}" for name, s in seconds.items())
    yield f"\nThe page, with videos of episodes: {page}\n\nTry next:"
    source = str(study.base.get("source", ""))
    tuning = f"nano_demo{base.of_space(_space(study))}"
    for command, why in next_commands(
        page.parent, suite, trained, episodes, prefix, overrides, source, tuning
    ):
        yield f"  {command}\n      {why}"


OTHER_LOOKS = "variation.colors=1 variation.marks=6 variation.light=0.3 variation.distractors=2"


def of_zero_shot(
    record: Record, page: Path, source: str, suite: str, prefix: str = "", poses_from: str = ""
) -> Iterator[str]:
    """What a base did as it is, and commands that go on from there; `prefix` as in `next_commands`.

    `poses_from` is the estimator through which it saw, if any.
    """
    groups: list[tuple[str, Rates]] = list(record.summary.tasks.items())
    if len(groups) > 1:
        groups.append(("all", record.summary))
    yield ""
    head = ["task", "successes", "", "95% Wilson", "median time to success"]
    yield from table(head, [[name, *_measured(rates)] for name, rates in groups], right=range(1, 5))
    yield f"\nThe page, with videos of episodes: {page}\n\nTry next:"
    home, named = shlex.quote(str(page.parent)), shlex.quote(suite)
    seen = f" --poses-from {shlex.quote(poses_from)}" if poses_from else ""
    served, sent = "", "it is told poses of objects"
    if poses_from:
        served, sent = f"{seen} --suite {named}", "it is sent the camera's picture"
    again = f"{prefix}morph-vla eval {source}", f"--suite {named} --noise 0"
    others = (
        (
            f"{again[0]} {OTHER_LOOKS} {again[1]}{seen} -o {home}/looks",
            "in other colours and another light, with marks and other things on the table",
        ),
        (
            f"{' '.join(again)} -o {home}/exact",
            "the same policy, told where objects are in place of the pictures",
        ),
    )
    for command, why in (
        *(others if poses_from else ()),
        (
            f"{prefix}morph-vla serve {source} --robot {shlex.quote(record.suite.robot or suite)}{served}",
            f"the same policy for a robot's client, over openpi's protocol; {sent}",
        ),
        (
            f"{prefix}morph-vla record {named} 'cameras={{}}' -o {home}/dataset",
            "demonstrations of this arm, to go on training with",
        ),
        (f"morph-vla demo --robot another_arm.urdf --zero-shot{seen} -o runs/another_arm", "another arm"),
    ):
        yield f"  {command}\n      {why}"


def _space(study: Study) -> str:
    """`data.space` of what was trained."""
    recipe = study.training.get("recipe")
    data = recipe.get("data") if isinstance(recipe, Mapping) else None
    return str(data.get("space", "joints")) if isinstance(data, Mapping) else "joints"


def _stacked(records: Sequence[Record]) -> list[list[str]]:
    """A row of each policy in each task, and in all of them where there are several."""
    tasks = list(records[-1].summary.tasks)
    groups = {task: [record.summary.tasks.get(task) for record in records] for task in tasks}
    if len(tasks) != 1:
        groups["all"] = [record.summary for record in records]
    return [
        ["" if place else name, record.policy.label, *_measured(rates)]
        for name, group in groups.items()
        for place, (record, rates) in enumerate(zip(records, group, strict=True))
    ]


def _rows(before: Summary, after: Summary) -> list[list[str]]:
    """A row a task, and one of all where there are several."""
    rows = [_row(name, before.tasks.get(name), rates) for name, rates in after.tasks.items()]
    return rows if len(rows) == 1 else [*rows, _row("all", before, after)]


def _row(name: str, before: Rates | None, after: Rates) -> list[str]:
    return [name, _count(before), *_measured(after)]


def _measured(rates: Rates | None) -> list[str]:
    """Successes, their share, its interval and the time to success."""
    if rates is None or rates.rate is None or rates.low is None or rates.high is None:
        return [_count(None), "", "", "-"]
    time = rates.time_to_success_s
    return [
        _count(rates),
        f"{rates.rate:.1%}",
        f"[{100 * rates.low:.1f}, {100 * rates.high:.1f}]",
        "-" if time is None else f"{time.median:.1f} s",
    ]


def _count(rates: Rates | None) -> str:
    return f"{rates.successes} of {rates.trials}" if rates and rates.trials else "not measured"


def next_commands(
    folder: Path,
    suite: str,
    trained: Record,
    episodes: int,
    prefix: str = "",
    overrides: Sequence[str] = (),
    source: str = "",
    tuning: str = "nano_demo",
) -> list[tuple[str, str]]:
    """Three commands that go on from here, and what each is for.

    `prefix` stands before those that need the run's own robot or suite, and `overrides` say the robot to the
    recipe; `source` is what was fine-tuned, if anything was, by the recipe `tuning`.
    """
    sampler, step, home = trained.policy.sampler, trained.policy.step or 0, shlex.quote(str(folder))
    noise = f" --noise {sampler.noise:g}" if sampler and sampler.noise not in (None, 1.0) else ""
    recipe, change, place = "panda_demo", "model.depth=6", "deeper"
    another = "morph-vla robots add my_robot.urdf"
    if source:
        recipe, change, place = tuning, f"weights={source} training.steps={2 * step}", "longer"
        another = f"morph-vla demo --robot my_robot.urdf --base {source} -o runs/my_robot"
    values = " ".join([*overrides, f"data.dataset={home}/dataset", change])
    return [
        (
            f"{prefix}morph-vla eval {home}/train/checkpoints/{step} --suite {shlex.quote(suite)}"
            f" --episodes {episodes}:{2 * episodes}{noise} -o {home}/eval/fresh",
            "the same policy from initial states that nobody has seen yet",
        ),
        (
            f"{prefix}morph-vla train {recipe} {values} -o {home}/{place}",
            f"your own recipe: any value of `morph-vla recipes show {recipe}`, or a file in configs/",
        ),
        (another, "your own robot: a URDF is enough"),
    ]
