"""Everything there is to say about a robot's file before anything is done with it: `robots check`.

The judge's findings, those on the joints an action drives, and the problems of the side file, all at once.
Nothing is raised for what a file says.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files import typed_yaml
from morph_vla.robots.choose import MODEL_VALUES, too_many
from morph_vla.robots.judgement import errors, judge
from morph_vla.robots.markup import Finding
from morph_vla.robots.records import Urdf
from morph_vla.robots.robot import Robot, action_order, build, from_file
from morph_vla.robots.side import DRIVEN, Side
from morph_vla.robots.urdf import read


@dataclass(frozen=True, eq=False)
class Examination:
    """What a URDF and its side file say, and the robot they make."""

    path: Path
    urdf: Urdf
    findings: tuple[Finding, ...]
    """On the URDF, in the order of their lines"""
    side_path: Path | None
    """The side file, when there is one"""
    side_problems: tuple[str, ...]
    """Each keeps the side file from being used; with its line where there is one"""
    action: tuple[str, ...]
    """The joints an action drives: the side file's, else all that move by themselves"""
    robot: Robot | None
    """None when something is an error"""

    @property
    def counts(self) -> dict[str, int]:
        """Errors (the side file's problems among them), warnings and notes."""
        found = Counter(finding.severity for finding in self.findings)
        return {
            "errors": found["error"] + len(self.side_problems),
            "warnings": found["warning"],
            "notes": found["note"],
        }

    @property
    def advice(self) -> str:
        """What to choose from when there are more joints than a model has values; "" otherwise."""
        return "" if self.robot is None else too_many(self.urdf, self.action)

    @property
    def usable(self) -> bool:
        """Nothing keeps the robot from being used."""
        return self.robot is not None and not self.counts["errors"]


def examine(path: Path | str, joints: Sequence[str] = ()) -> Examination:
    """Read and judge the URDF at `path` and the side file beside it; `joints` as in `robot.from_file`.

    Raises MorphVlaError only when the file itself cannot be opened, and for `joints` that it does not have.
    """
    path = Path(path)
    if path.is_dir():
        raise MorphVlaError(f"{path} is a folder; expected a URDF file")
    urdf = read(path)
    findings = list(judge(urdf))
    side_path, side, problems = _side(path)
    action: tuple[str, ...] = ()
    robot = None
    if not errors(findings):
        action = side.joints or action_order(urdf)
        if joints and action and not problems:
            action = from_file(path, joints).names
        findings += _action(urdf, action, path)
    if not errors(findings) and not problems:
        try:
            robot = from_file(path, joints) if joints else build(urdf, side, path)
            findings += [finding for finding in robot.findings if finding not in findings]
        except ConfigError as error:
            problems = str(error).splitlines()
    order = {"error": 0, "warning": 1, "note": 2}
    findings.sort(key=lambda finding: (finding.line, order[finding.severity]))
    return Examination(path, urdf, tuple(findings), side_path, tuple(problems), action, robot)


def _side(path: Path) -> tuple[Path | None, Side, list[str]]:
    beside = path.with_suffix(".yaml")
    if not beside.is_file():
        return None, Side(), []
    try:
        return beside, typed_yaml.read(beside, Side), []
    except MorphVlaError as error:
        return beside, Side(), str(error).splitlines()


def _action(urdf: Urdf, action: tuple[str, ...], path: Path) -> list[Finding]:
    """None to drive, or more than the model has values for."""
    side = path.with_suffix(".yaml").name
    if not action:
        kinds = ", ".join(DRIVEN)
        return [
            Finding(
                "error", urdf.file, 1, "no joint that an action could drive",
                f"expected one that is {kinds} and mimics no other", "it is no robot to a policy",
            )
        ]  # fmt: skip
    if len(action) > MODEL_VALUES:
        return [
            Finding(
                "warning", urdf.file, 1, f"{len(action)} joints that an action could drive",
                f"expected at most {MODEL_VALUES}, as many values as an action of pi0.5 has",
                f"choose those your dataset has, in its order, with joints: in {side}",
            )
        ]  # fmt: skip
    return []
