"""A task as it was resolved, for the record: overrides included, what no episode depends on left out."""

from morph_vla.files.plain import to_plain
from morph_vla.suites.suite import Suite


def resolved(suite: Suite) -> dict[str, object]:
    """Everything of a task that an episode can depend on, as plain values.

    Left out are where its file lies, how many rows are evaluated, how the scripted expert moves (but for its
    tool, which says whose gripper counts) and distractors that are not on the table.
    """
    plain = to_plain(suite)
    for key in ("path", "episodes"):
        plain.pop(key)
    if not suite.start:
        plain.pop("start")  # records of suites without it keep their digest
    placed = {name: place for name, place in plain["placement"].items() if name in suite.objects}
    beside = [name for name in suite.distractors if name in suite.objects]
    tool = {"tool": suite.expert.tool}
    return {**plain, "expert": tool, "distractors": beside, "placement": placed}
