"""Everything that is said of a dataset, of a recipe, and of an episode that is played on a robot.

For each code its severity and what to do; of an episode also what was expected. An error: training
cannot run, or learns something else; an episode cannot be played.
"""

from morph_vla.findings import Feature, Finding, Severity, Source

VARIES = ""
"""Stands for a part that depends on the place: whoever finds it says it."""
_META, _LEAVE = "repair the meta files", "leave the episode out with `episodes`"
_TIMES = "write the time stamps anew"

RULES: dict[str, tuple[Severity, str]] = {
    # a dataset's tables
    "no-episodes": ("error", "record some"),
    "no-such-episode": ("error", "leave it out of `episodes`"),
    "no-feature": ("error", "name the dataset's keys with `state` and `action`"),
    "unreadable-file": ("error", VARIES),
    "width-in-info": ("error", "correct the shape in meta/info.json, or record the episode again"),
    "empty-episodes": ("error", "remove them from the dataset"),
    "other-length": ("error", f"{_META}, or {_LEAVE}"),
    "unknown-episodes": ("error", _META),
    "single-frames": ("warning", "nothing moves in one: leave it out with `episodes`"),
    "split-episode": ("error", "write the dataset anew"),
    "frame-order": ("error", f"frames were lost or doubled: look at the recording, or {_LEAVE}"),
    "not-finite": ("error", "training refuses it: repair the frames, or leave them out with `episodes`"),
    "time-not-finite": ("error", _TIMES),
    "time-backwards": ("error", _TIMES),
    "other-rate": ("error", "correct fps in meta/info.json, or the time stamps"),
    "time-gaps": ("warning", VARIES),
    "no-task-column": ("error", "every frame needs the number of its task"),
    "unknown-task": ("error", "add it to the tasks in meta"),
    "empty-task": ("warning", "a policy is prompted with it: write what is to be done"),
    # its videos and pictures
    "no-camera": ("error", "name the dataset's camera with `cameras`"),
    "no-video": ("error", "repair the meta files, or leave the camera out"),
    "missing-video": ("error", "fetch the videos, or leave out the episodes (`episodes`) or the camera"),
    "broken-video": ("error", "an interrupted recording has no index at its end: fetch or record it again"),
    "cut-video": ("error", "fetch it again"),
    "short-video": ("error", f"the video is shorter than the table: {_LEAVE}"),
    "long-video": ("warning", "pictures and values may be shifted against each other: look at the episode"),
    "video-times": ("error", "correct from_timestamp in meta/episodes, or write the dataset anew"),
    "depth-video": ("error", "leave the camera out (`cameras`): eight bits of it would be left, as grey"),
    "video-rate": ("error", "pictures and values drift apart: correct fps, or make the videos anew"),
    "no-pictures": ("error", "write the dataset anew, or leave the camera out"),
    "large-row-groups": ("note", "data.frames=cache reads each once; data.frames=video one for each picture"),
    "missing-picture": ("error", f"fetch or write the dataset anew, or {_LEAVE}"),
    "broken-picture": ("error", f"fetch or write the dataset anew, or {_LEAVE}"),
    "picture-size": ("warning", "each is scaled from its own size: correct the shape in meta/info.json"),
    "still-camera": (
        "warning",
        "frozen, or it does not see the robot: look at the episode, or leave the camera out (`cameras`)",
    ),
    "flat-camera": ("warning", "covered, or not plugged in? leave the camera out (`cameras`) or record anew"),
    # a recipe's data
    "robot": ("error", "`morph-vla robots check` has more on a robot's file"),
    "dataset": ("error", "name a LeRobot dataset's folder; `morph-vla stats USER/NAME` fetches one"),
    "share": ("error", "or record more"),
    "rates": ("error", "a robot's actions have one pace: resample one of them, or leave it out"),
    "no-cameras": ("warning", "name them with `cameras`; without one the policy is blind"),
    "old-version": ("note", "training converts it to v3.0 once, with LeRobot's converter"),
    "nothing-left": ("error", "no episode is left to train on: lower it, or record more"),
    "held-out-twice": ("error", VARIES),
    "warmup": ("warning", "lower it, or train longer"),
    "nothing-held-out": ("warning", "this dataset will have no held-out loss: raise it to have one"),
    "statistics": ("error", "`morph-vla stats RECIPE --output FILE` writes such a file"),
    # its values
    "action-width": (
        "error",
        "training needs a value of each, and no others: choose the robot recorded, or as many joints "
        "in a side file",
    ),
    "preset-robot": (
        "warning",
        "its units, gripper and keys stay in force; for another robot set preset: null and say them yourself",
    ),
    "other-robot": ("warning", VARIES),
    "model-width": ("error", "raise it"),
    "tool-guessed": ("warning", "say where they take hold: `tools` in its side file (docs/robots.md)"),
    "tool-unnamed": (
        "warning",
        "if it closes a hand, name it as `gripper` in its side file",
    ),
    "tool-own": ("warning", "choose data.statistics: robot"),
    "tool-absolute": ("warning", "choose delta"),
    "no-tool": ("error", "choose data.space: joints"),
    "frame-turns": (
        "warning",
        "its tools lie about the root's axis, as those of arms face to face: choose data.space: tool",
    ),
    "max-joints": ("error", "raise it"),
    "state-width": ("error", "name keys with `state` that have one value a joint"),
    "units": ("error", "correct unit, gripper or recorded of this dataset"),
    "phases": ("error", "leave it out"),
    "not-absolute": ("error", "name the key of targets with `action`, or give it the state's"),
    "not-steps": ("error", "leave `recorded: steps` out (preset: droid for DROID)"),
    "narrow": ("warning", VARIES),
    # its model
    "cameras-differ": ("warning", "served, the first one is asked for"),
    "read-twice": ("note", "they are drawn, and count in statistics, twice"),
    "statistics-not-here": ("note", "training fetches it first; nothing is compared with it here"),
    "weights-not-here": ("note", "training fetches it first"),
    "suite": ("error", "name a suite of a robot that is trained, or leave it out"),
    "memory": ("warning", "`recipes show` names what saves memory; a larger machine may have it"),
    "weights": ("error", "name a checkpoint, or leave weights empty to train anew"),
    "tokenizer-not-here": ("note", "training fetches it first; the length of the prompts was not checked"),
    "tokenizer": ("error", "name its file, or 'bytes' for a small model"),
    "long-prompt": ("error", "the state at its end would be cut: raise model.max_tokens or shorten the task"),
}


def problem(
    code: str,
    where: str,
    found: str,
    episode: int | None = None,
    frame: int | None = None,
    subject: tuple[str, ...] = (),
    remedy: str = "",
    severity: Severity | None = None,
) -> Finding:
    """One sentence on a dataset, or a key of a recipe; severity and remedy are the code's if not given."""
    usual, usual_remedy = RULES[code]
    place = Source(where, episode, frame)
    return Finding(code, severity or usual, place, subject, found, "", remedy or usual_remedy)


_ORDER, _DECLARE = "expected one order", "say so with dataset_open and dataset_closed"
REMARKS: dict[str, tuple[Severity, str, str]] = {
    # `playback`: names and widths
    "not-finite": ("error", "expected numbers", "training refuses the dataset"),
    "wrong-number-of-names": ("warning", "expected a name per value", "the names are not used"),
    "wrong-width": ("error", "expected a value per joint", VARIES),
    "values-left-over": ("warning", VARIES, "found by their names; training needs a value per joint"),
    "names-in-another-order": ("warning", _ORDER, VARIES),
    "names-nearer-to-others": ("warning", _ORDER, "played by place; check the order"),
    "names-of-the-other-side": (
        "warning",
        "expected the side in their place",
        "played by place: left and right are exchanged, or their names are; put the side file's joints in "
        "the values' order, or, if only the names are wrong, write them as its names:",
    ),
    "names-unlike": (
        "warning",
        "expected the joints' names",
        "played by place; is this the right robot? see names: in the side file",
    ),
    "no-names": ("note", "expected the joints' names", "played in the robot's order"),
    # `playback_units`
    "not-radians": ("warning", "expected radians", VARIES),
    "counts-on": (
        "warning",
        "expected at most three turns of joints that turn without end",
        "they count on, and a policy meets values that no training had: leave wheels out of `joints`",
    ),
    "radians": (
        "warning",
        VARIES,
        "they look like radians: leave unit: out, of the recipe (preset: null) or the side file",
    ),
    "percent": ("warning", "expected degrees", VARIES),
    "not-percent": ("warning", "expected -100..100", VARIES),
    # `playback_rules`: rate, limits, motion
    "control-rate": ("warning", VARIES, "a policy trained on it acts at another rate than the robot"),
    "other-rate": ("warning", VARIES, "the dataset's fps or its time stamps are wrong"),
    "time-gaps": ("warning", VARIES, "frames were lost, and a policy learns the jumps"),
    "a-little-beyond": ("note", VARIES, "calibration, or limits narrower than the real ones"),
    "leaves-limits": ("warning", VARIES, VARIES),
    "never-moves": (
        "warning",
        "expected some motion",
        "its statistics are noise: leave it out or check the order",
    ),
    "one-of-two-moves": (
        "warning",
        "expected both or neither",
        "their orders differ, or one was not recorded",
    ),
    "too-fast": ("warning", VARIES, VARIES),
    "tip-too-fast": ("warning", VARIES, "lost frames, another unit or another joint order"),
    # grippers
    "gripper-beyond": ("warning", VARIES, VARIES),
    "gripper-unit": ("warning", VARIES, f"they look like 0..1: {_DECLARE}"),
    "never-closed": ("note", VARIES, VARIES),
    "gripper-inverted": (
        "warning",
        "expected more open, if it holds a thing",
        "it seems inverted: exchange dataset_open and dataset_closed",
    ),
    "gripper-right": (
        "note",
        "expected so, if it holds a thing",
        "its open and closed ends are probably right",
    ),
}


def remark(
    code: str, feature: str, subject: tuple[str, ...], found: str, expected: str = "", consequence: str = ""
) -> Finding:
    """A finding on an episode; `expected` and `consequence` stand for the code's where they are given."""
    severity, usual, follows = REMARKS[code]
    return Finding(
        code, severity, Feature(feature), subject, found, expected or usual, consequence or follows
    )
