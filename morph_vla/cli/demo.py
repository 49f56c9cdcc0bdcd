"""`morph-vla demo`: the main job, small, real, end to end.

From a URDF to a success rate with an interval, in one folder. Every stage finds what an earlier run left and
says so; an interrupted stage goes on where it stopped.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from morph_vla.cli.common import add_json, print_json
from morph_vla.errors import MorphVlaError

EXAMPLES = """
  morph-vla demo
  morph-vla demo training.steps=200 --attempts 60 --episodes 20 -o runs/quick
"""

SUITE, RECIPE = "droid_panda", "panda_demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla demo`."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=f"changes to the recipe {RECIPE}")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="where it goes"
    )
    parser.add_argument(
        "--suite", default=SUITE, help=f"tasks of a Panda, for example {SUITE}:cube_in_bowl (default {SUITE})"
    )
    parser.add_argument("--attempts", type=int, default=900, help="demonstrations to try (default 900)")
    parser.add_argument(
        "--episodes", type=int, default=50, help="initial states evaluated of each task (default 50)"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing of the five stages and print the result."""
    from morph_vla.doctor import require_gl

    if arguments.attempts < 10 or arguments.episodes < 1:
        raise MorphVlaError("the demo wants at least 10 attempts and 1 episode")
    require_gl()
    folder = arguments.output
    clock = _Clock(folder)
    robot = clock.measure("robot", lambda: _robot(folder))
    recording = clock.measure("record", lambda: _record(folder, arguments.suite, arguments.attempts))
    training = clock.measure("train", lambda: _train(folder, arguments.overrides))
    records = clock.measure("evaluate", lambda: _evaluate(folder, arguments.suite, arguments.episodes))
    attention = clock.measure("attention", lambda: _attention(folder, arguments.suite))
    record = _compose(folder, robot, recording, training, records, attention, clock, arguments)
    report = clock.measure("report", lambda: _report(folder, record))
    if arguments.json:
        print_json({"folder": str(folder), "report": str(report), "record": str(folder / "record.json")})
    else:
        _print_result(record, folder, report)


class _Clock:
    """Seconds by stage, added up over interrupted runs, kept in the folder."""

    def __init__(self, folder: Path):
        self._path = folder / "seconds.json"
        self.seconds: dict[str, float] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def measure(self, stage: str, work: Callable[[], Any]) -> Any:
        from morph_vla.robots.dropin import write_text

        print(f"\n== {stage}", flush=True)
        began = time.monotonic()
        try:
            return work()
        finally:
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.monotonic() - began, 1)
            write_text(self._path, json.dumps(self.seconds))


def _robot(folder: Path) -> dict[str, Any]:
    """Read the URDF, print its joints, draw its graph."""
    from morph_vla import robots
    from morph_vla.cli.common import print_table
    from morph_vla.robots import draw

    robot = robots.load("panda")
    facts = robot.as_dict()
    rows = [
        [j["index"], j["name"], j["type"], j["lower"], j["upper"], j["unit"], ", ".join(j["neighbours"])]
        for j in facts["joints"]
    ]
    print_table(["", "joint", "type", "lower", "upper", "dataset unit", "neighbours"], rows)
    picture = folder / "joint_graph.png"
    if picture.exists():
        print(f"already there: {picture}")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        draw.write(robot, picture)
        print(picture)
    return facts


def _record(folder: Path, name: str, attempts: int) -> dict[str, Any]:
    """Demonstrations of the scripted expert."""
    from morph_vla.cli.progress import Bar, counting
    from morph_vla.cli.record import sentence
    from morph_vla.robots.dropin import to_plain
    from morph_vla.sim import record, suite

    dataset = folder / "dataset"
    chosen = suite.load_tasks(name)
    if record.completed(dataset) is not None:
        done = record.record(chosen, dataset, attempts)  # refuses one of other settings
        print(f"already there: {dataset}")
    else:
        with Bar("recording", attempts, "episode") as bar:
            done = record.record(chosen, dataset, attempts, progress=counting(bar))
    print(sentence(done))
    seconds = json.loads((folder / "seconds.json").read_text()).get("record", 0.0)
    facts = {
        "attempted": done.attempted,
        "episodes": done.episodes,
        "dropped": done.dropped,
        "frames": done.frames,
    }
    return {
        **facts,
        "fps": done.fps,
        "seconds": seconds,
        "dataset": "dataset",
        "failed": to_plain(done.failed_clauses),
    }


def _train(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Fine-tune the small pi0.5 with a body."""
    from morph_vla.cli.train import train
    from morph_vla.robots.dropin import to_plain
    from morph_vla.training import checkpoint, config

    recipe = config.load(RECIPE, [*overrides, f"data.dataset={folder / 'dataset'}"])
    there = checkpoint.steps(folder / "train" / "checkpoints")
    if there and there[-1] >= recipe.training.steps:
        print(f"already there: {folder / 'train' / 'checkpoints' / str(there[-1])}")
    elif there:
        print(f"going on from step {there[-1]}")
    done = train(recipe, folder / "train")
    return {
        "recipe": to_plain(recipe),
        "steps": recipe.training.steps,
        "parameters": done.parameters,
        "parameters_by_part": done.parts,
        "seconds": round(done.seconds, 1),
        "curve": done.curve,
    }


def _evaluate(folder: Path, suite_name: str, episodes: int) -> list[dict[str, Any]]:
    """The untrained and the trained checkpoint over the same initial states."""
    from morph_vla.cli.eval import evaluate, sentence
    from morph_vla.sim import suite
    from morph_vla.sim.rollout import Settings
    from morph_vla.training import checkpoint

    tasks, checkpoints = suite.load_tasks(suite_name), folder / "train" / "checkpoints"
    steps = checkpoint.steps(checkpoints)
    records = []
    for name, step in (("untrained", steps[0]), ("trained", steps[-1])):
        record = evaluate(checkpoints / str(step), tasks, Settings(episodes), folder / "eval" / name, name)
        print(sentence(record))
        records.append(record)
    return records


def _attention(folder: Path, name: str) -> str:
    """Who attends to whom in the trained policy, over the suite's first episode."""
    from morph_vla.robots.dropin import write_text
    from morph_vla.serving.attention import episode_attention
    from morph_vla.serving.policy import CheckpointPolicy
    from morph_vla.sim import suite
    from morph_vla.sim.mujoco import MujocoEngine
    from morph_vla.training import checkpoint

    path = folder / "attention.json"
    checkpoints = folder / "train" / "checkpoints"
    step = checkpoint.steps(checkpoints)[-1]
    policy = CheckpointPolicy(checkpoints / str(step), batch=8)
    digest = policy.digest()
    if path.exists() and json.loads(path.read_text()).get("policy_sha256") == digest:
        print(f"already there: {path}")
        return path.name
    if policy.config.morphology is None:
        print("no kinematic tokens in this recipe: nothing to show")
        return ""
    chosen = suite.load_tasks(name)[0]
    engine = MujocoEngine(policy.robot, chosen)
    state = suite.initial_state(chosen, 0, len(policy.robot.joints))
    found = episode_attention(policy, engine, state)
    engine.close()
    write_text(path, json.dumps({**found, "policy_sha256": digest}))
    print(path)
    return path.name


def _compose(
    folder: Path,
    robot: dict[str, Any],
    recording: dict[str, Any],
    training: dict[str, Any],
    records: list[dict[str, Any]],
    attention: str,
    clock: _Clock,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """The demo's record.json, with every path relative to its folder."""
    from morph_vla.robots.dropin import write_text
    from morph_vla.sim import comparison, rollout

    placed = []
    for record in records:
        home = f"eval/{record['policy']['name']}"
        trials = [{**t, "video": f"{home}/{t['video']}" if t["video"] else None} for t in record["trials"]]
        placed.append({**record, "trials": trials})
    words = [
        *arguments.overrides,
        f"--suite {arguments.suite}",
        f"--attempts {arguments.attempts}",
        f"--episodes {arguments.episodes}",
    ]
    whole = {
        "schema": 1,
        "kind": "demo",
        "robot": robot,
        "recording": recording,
        "training": training,
        "evaluations": placed,
        "difference": comparison.compare(records[0], records[1]),
        "pictures": {"joint_graph": "joint_graph.png", **({"attention": attention} if attention else {})},
        "machine": {
            "platform": platform.platform(),
            "cores": os.cpu_count(),
            "processor": platform.machine(),
        },
        "versions": rollout.versions(),
        "command": f"morph-vla demo {' '.join(words)}",
        "seconds_by_stage": clock.seconds,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_text(folder / "record.json", json.dumps(whole, indent=1))
    return whole


def _report(folder: Path, record: dict[str, Any]) -> Path:
    from morph_vla.sim import report

    return report.write(folder, record)


def _print_result(record: dict[str, Any], folder: Path, report: Path) -> None:
    """The last screen: both rates, their difference, and where everything is."""
    from morph_vla.cli.eval import sentence

    print()
    for evaluation in record["evaluations"]:
        print(sentence(evaluation))
    gap = record["difference"]
    print(
        f"difference: {100 * gap['difference']:+.1f} points "
        f"[{100 * gap['low']:+.1f}, {100 * gap['high']:+.1f}] (95%, {gap['interval']})"
    )
    total = sum(record["seconds_by_stage"].values())
    print(
        f"{total / 60:.1f} minutes: "
        + ", ".join(f"{k} {v:.0f} s" for k, v in record["seconds_by_stage"].items())
    )
    print(f"report: {report}")
    print(f"folder: {folder}")
