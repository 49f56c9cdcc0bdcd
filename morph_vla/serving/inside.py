"""What goes on inside a checkpoint's policy over one episode, in files that a report shows.

`attention.json`: between joints (`serving.attention`). `image_tokens.json`: which are kept (`serving.kept`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from morph_vla.engines import by_name as engines
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.benchmark import shown_to
from morph_vla.files.writing import write_text
from morph_vla.results.record import Record
from morph_vla.results.values import mapping
from morph_vla.serving import attention, kept, policy
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.watched import Sight, watch
from morph_vla.suites import environment
from morph_vla.suites.suite import Suite, initial_state

KINDS = {"attention": attention.of_episode, "image_tokens": kept.of_episode}


class Written(NamedTuple):
    """Files of one episode."""

    files: dict[str, str]
    """Kind -> the name in their folder"""
    there: bool
    """Whether all of them were there already"""


def kinds(policy: CheckpointPolicy) -> list[str]:
    """What there is to show of a policy: of all image tokens kept, nothing."""
    fewer = getattr(policy.config, "image_tokens", None) is not None
    return ["attention"] * attention.has_joints(policy.config) + ["image_tokens"] * fewer


def write(
    folder: Path,
    policy: CheckpointPolicy,
    suite: Suite,
    episode: int,
    shown: Sequence[str],
    open_loop: int | None = None,
    engine: str = engines.DEFAULT,
    sight: Sight | None = None,
) -> Written:
    """Play one row of a suite's table and write the kinds that are to be `shown` as JSON.

    `sight` is what tells the policy of what is seen, if anything does.
    What is there answers the same question where policy, suite, episode, noise and execution are the same.
    """
    asked = {
        "policy": (sight or policy).digest(), "suite": suite.label, "episode": episode, **policy.sampler,
        "open_loop": open_loop, "engine": engine,
    }  # fmt: skip
    files = {kind: f"{kind}.json" for kind in shown}
    lacking = {kind: folder / name for kind, name in files.items() if not _answers(folder / name, asked)}
    if lacking:
        worlds = engines.worlds(shown_to(sight or policy, suite), 1, engine)
        try:
            state = initial_state(suite, episode, len(policy.robot.joints))
            watched = watch(policy, worlds, state, open_loop, sight)
        finally:
            worlds.close()
        for kind, path in lacking.items():
            write_text(path, json.dumps({**KINDS[kind](policy, watched), "asked": asked}))
    return Written(files, not lacking)


def _answers(path: Path, asked: dict[str, object]) -> bool:
    """Whether a file is the answer to that; a damaged one is none, and is written anew."""
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8"))).get("asked") == asked
    except (OSError, ValueError, RecursionError):
        return False


def of_record(
    record: Record,
    task: str,
    episode: int,
    folder: Path,
    sight_of: Callable[[CheckpointPolicy, str, Sequence[Suite]], Sight],
) -> Written:
    """The same of an evaluation's `episode` of `task` ("": its first task), answers being there at once.

    `sight_of` gives what stood before the policy, of the source that the record has as `poses_from`. Raises
    MorphVlaError where the record lacks the episode, has answers that came late or names no checkpoint, where
    the checkpoint there is another by now, and for another simulator's environment.
    """
    card, facts = record.policy, record.suite
    if not record.trials:
        raise MorphVlaError("the record holds no episodes, so none can be played again")
    if record.latency or record.real_time:
        raise MorphVlaError(
            "the record's answers came late (--latency or --real-time); played again, an episode has them in "
            "time and would be another"
        )
    task = task or record.trials[0].task
    known = [trial.episode for trial in record.trials if trial.task == task]
    if episode not in known:
        held = f"{min(known)} to {max(known)}" if known else "none"
        raise MorphVlaError(f"the record has no episode {episode} of task '{task}'; it has {held}")
    if not card.checkpoint or not facts.name:
        raise MorphVlaError("the record names no checkpoint of ours, so its policy cannot be asked again")
    suites = environment.load_tasks(facts.name, record.overrides or ())
    suite = next((one for one in suites if one.task_key == task), None)
    if not isinstance(suite, Suite):
        raise MorphVlaError(f"suite '{facts.name}' has no task '{task}' that can be played again here")
    asked = {} if card.sampler is None else {"steps": card.sampler.steps, "noise": card.sampler.noise}
    of_policy = policy.load(
        card.checkpoint,
        robot=suite.robot,
        batch=card.batch or policy.EVALUATION_BATCH,
        **{name: value for name, value in asked.items() if value is not None},
    )
    source, ours = card.others.get("poses_from"), [task for task in suites if isinstance(task, Suite)]
    sight = None if source is None else sight_of(of_policy, str(source), ours)
    if card.sha256 and (sight or of_policy).digest() != card.sha256:
        both = card.checkpoint if source is None else f"{card.checkpoint} behind {source}"
        raise MorphVlaError(f"{both} is not the policy that was evaluated: it was trained anew")
    shown = list(dict.fromkeys([*kinds(of_policy), *["image_tokens"] * bool(of_policy.cameras)]))
    if not shown:
        raise MorphVlaError(f"{card.checkpoint}: this policy has neither joints that attend nor pictures")
    engine = record.engine.name if record.engine else engines.DEFAULT
    return write(folder, of_policy, suite, episode, shown, record.open_loop, engine, sight)


def name_files(path: Path, files: Mapping[str, str]) -> None:
    """Name files of a policy's inside (kind -> name) in the record at `path`; of a demo, among its pictures.

    All else in it stays as it is, also what this version does not read.
    """
    plain = json.loads(path.read_text(encoding="utf-8"))
    named = {"pictures": {**mapping(plain.get("pictures")), **files}} if "evaluations" in plain else files
    write_text(path, json.dumps({**plain, **named}, indent=1))
