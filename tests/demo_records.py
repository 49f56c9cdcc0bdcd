"""Records of evaluations that never ran, for the tests of what the demo says of them."""

from collections.abc import Mapping

from morph_vla.results.record import Record, record_from_json


def made_up(name: str, step: int | None, won: Mapping[str, int], *, episodes: int, suite: str) -> Record:
    """So many episodes of each task, the first of which succeeded, after 2, 3, 4, ... seconds."""
    trials = [
        {"episode": i, "task": task, "success": i < many, "time_s": 2.0 + i if i < many else None,
         "ended": "success" if i < many else "time", "error": None, "initial": {"cube": [0.1 * i, 0.0, 0.0]}}
        for task, many in won.items() for i in range(episodes)
    ]  # fmt: skip
    return record_from_json({
        "policy": {"name": name, "step": step, "sampler": {"steps": 10, "noise": 0.0}},
        "suite": {"name": suite, "version": 1, "seed": 7},
        "trials": trials,
    })  # fmt: skip
