"""The demo's last screen: the table, the difference, the minutes, the page, and what to try next."""

from pathlib import Path
from typing import Any

from morph_vla.cli.common import print_table
from morph_vla.cli.progress import span


def show(record: dict[str, Any], folder: Path, report: Path, suite: str, episodes: int) -> None:
    """Print what the demo measured."""
    untrained, trained = record["evaluations"]
    print()
    print_table(
        ["task", "untrained", "trained", "", "95% Wilson", "median time to success"],
        list(_rows(untrained["summary"], trained["summary"])),
        right=(1, 2, 3, 4, 5),
    )
    print(f"\n{difference(record['difference'])}")
    seconds = record["seconds_by_stage"]
    print(f"{span(sum(seconds.values()))}: " + ", ".join(f"{name} {span(s)}" for name, s in seconds.items()))
    print(f"\nThe page, with films of episodes: {report}\n")
    print("Try next:")
    for command, why in next_commands(folder, suite, trained, episodes):
        print(f"  {command}\n      {why}")


def _rows(before: dict[str, Any], after: dict[str, Any]) -> list[list[str]]:
    """A row a task, and one of all where there are several."""
    tasks = after.get("tasks") or {}
    rows = [_row(name, before.get("tasks", {}).get(name), own) for name, own in tasks.items()]
    return rows if len(rows) == 1 else [*rows, _row("all", before, after)]


def _row(name: str, before: dict[str, Any] | None, after: dict[str, Any]) -> list[str]:
    time = (after.get("time_to_success_s") or {}).get("median")
    return [
        name,
        _count(before),
        _count(after),
        "" if after["rate"] is None else f"{after['rate']:.1%}",
        "" if after["rate"] is None else f"[{100 * after['low']:.1f}, {100 * after['high']:.1f}]",
        "-" if time is None else f"{time:.1f} s",
    ]


def _count(summary: dict[str, Any] | None) -> str:
    if not summary or not summary["trials"]:
        return "not measured"
    return f"{summary['successes']} of {summary['trials']}"


def difference(found: dict[str, Any]) -> str:
    """`trained - untrained: +74.0 points [+61.2, +83.9] (95%, Tango), of 50 pairs of equal beginnings`."""
    if found["difference"] is None:
        return f"not compared: {found['reason']}"
    words = (
        f"{found['b']} - {found['a']}: {100 * found['difference']:+.1f} points "
        f"[{100 * found['low']:+.1f}, {100 * found['high']:+.1f}] (95%, {found['interval']})"
    )
    return words if found["paired"] else f"{words}; {found['reason']}"


def next_commands(folder: Path, suite: str, trained: dict[str, Any], episodes: int) -> list[tuple[str, str]]:
    """Three commands that go on from here, and what each is for."""
    sampler = (trained["policy"].get("sampler") or {}).get("noise", 1.0)
    noise = "" if sampler == 1.0 else f" --noise {sampler:g}"
    checkpoint = folder / "train" / "checkpoints" / str(trained["policy"]["step"])
    rows = f"{episodes}:{2 * episodes}"
    return [
        (
            f"morph-vla eval {checkpoint} --suite {suite} --episodes {rows}{noise} -o {folder}/eval/fresh",
            "the policy from beginnings that nobody has looked at",
        ),
        (
            f"morph-vla train panda_demo data.dataset={folder}/dataset model.depth=6 -o {folder}/deeper",
            "your own recipe: any value of `morph-vla recipes show panda_demo`, or a file in configs/",
        ),
        ("morph-vla robots add my_robot.urdf", "your own robot: a URDF is enough"),
    ]
