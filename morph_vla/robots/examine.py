"""A robot's file, read once and judged once: `robots check`, and every way to a `Robot`.

The judge's findings, those on the joints an action drives and those on the side file come all at once;
nothing is raised for what a file says until somebody asks for the robot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files import dropin, typed_yaml
from morph_vla.findings import Finding, Line, counts, errors, in_order, tally
from morph_vla.robots import choose, parallel_jaw, side, standing
from morph_vla.robots.judgement import judge
from morph_vla.robots.kinematics import DRIVEN
from morph_vla.robots.records import Urdf
from morph_vla.robots.robot import Robot, action_order, assemble, choose_joints, default_joints
from morph_vla.robots.rules import finding
from morph_vla.robots.side import Side
from morph_vla.robots.urdf import parse, read
from morph_vla.wording import count


@dataclass(frozen=True, eq=False)
class Examination:
    """What a URDF and its side file say, and the robot they make."""

    path: Path
    urdf: Urdf
    findings: tuple[Finding, ...]
    """On the URDF in the order of its lines, then on the side file"""
    side_path: Path | None
    """The side file, when there is one"""
    action: tuple[str, ...]
    """The joints an action drives: the side file's, else all that move by themselves"""
    robot: Robot | None
    """None when something is an error"""
    text: bytes | None = None
    """The URDF, where it was made here and is in no file of this path"""

    @property
    def counts(self) -> dict[str, int]:
        """Errors, warnings and notes."""
        return counts(self.findings)

    @property
    def advice(self) -> str:
        """What to choose from when there are more joints than a model has values; "" otherwise."""
        return "" if self.robot is None else choose.too_many(self.urdf, self.action)

    @property
    def usable(self) -> bool:
        """Nothing keeps the robot from being used."""
        return self.robot is not None

    @property
    def urdf_errors(self) -> tuple[Finding, ...]:
        """What keeps the URDF itself from being used."""
        places = [(finding, finding.where) for finding in errors(self.findings)]
        return tuple(f for f, where in places if isinstance(where, Line) and where.file == self.urdf.file)

    def __str__(self) -> str:
        """Every finding, what to choose from where there is too much, and one line about the file."""
        lines = [*map(str, self.findings), ""] if self.findings else []
        if self.advice:
            lines.append(f"{self.advice}\n")
        side_file = f"side file {self.side_path.name}" if self.side_path else "no side file"
        joints, action = count(len(self.urdf.joints), "joint"), count(len(self.action), "action joint")
        size = f"{joints}, {len(self.urdf.actuated)} movable, {len(self.urdf.mimicking)} mimic, {action}"
        return "\n".join([*lines, f"{self.path}, {side_file}: {size}; {tally(self.findings)}"])

    def loaded(self) -> Robot:
        """The robot.

        Raises MorphVlaError with every finding that keeps the URDF from being used, and ConfigError for a
        side file that does not fit it.
        """
        if self.robot is not None:
            return self.robot
        if self.urdf_errors:
            raise MorphVlaError("\n".join(map(str, self.urdf_errors)))
        raise ConfigError.of(errors(self.findings))


def examine(path: Path | str, joints: Sequence[str] = ()) -> Examination:
    """Read and judge the URDF at `path` and the side file of the same name beside it.

    `joints` chooses the action joints and their order in place of the side file or the default,
    `action_order`: names, or patterns such as `left_*` (see `choose.match`).

    Raises MorphVlaError only when the file itself cannot be opened, and for `joints` that it does not have.
    """
    path = Path(path)
    if path.is_dir():
        raise MorphVlaError(f"{path} is a folder; expected a URDF file")
    urdf, side_path = read(path), path.with_suffix(".yaml")
    if not side_path.is_file():
        return _examined(_with_misnamed(urdf, path), Side(), path, joints)
    try:
        urdf, given = _as_said(urdf, typed_yaml.read(side_path, Side), side_path)
        examination = _examined(urdf, given, path, joints)
    except ConfigError as error:
        given = Finding("side-file", "error", Line(side_path.name), (), str(error), "", "")
        unread = [replace(finding, consequence=side.UNUSABLE) for finding in error.findings or (given,)]
        examination = _examined(urdf, Side(), path, (), unread)
    return replace(examination, side_path=side_path)


def _with_misnamed(urdf: Urdf, path: Path) -> Urdf:
    """With a word on what may be meant as its side file, but has another ending."""
    other = path.with_suffix(".yml")
    if not other.is_file():
        return urdf
    expected = f"expected {path.with_suffix('.yaml').name}, if it is this robot's side file"
    what = f"{other.name} lies beside it"
    return replace(
        urdf, problems=(*urdf.problems, finding("side-file-name", Line(urdf.file, 1), (), what, expected))
    )


def examine_text(
    text: bytes, given: Side, path: Path, joints: Sequence[str] = (), problems: Sequence[Finding] = ()
) -> Examination:
    """Judge a URDF that was made here, and its side file; `path` names it, and is not opened.

    `problems` were found by what made it; `joints` as in `examine`.
    """
    urdf = parse(text, path.name)
    urdf = replace(urdf, problems=(*problems, *urdf.problems))
    urdf, given = _as_said(urdf, given, path.with_suffix(".yaml"))
    return replace(_examined(urdf, given, path, joints), text=text)


def _as_said(urdf: Urdf, given: Side, side_path: Path) -> tuple[Urdf, Side]:
    """What a side file makes of a URDF: joints that stand elsewhere than at 0, and a gripper of ours."""
    return parallel_jaw.fitted(standing.stood(urdf, given, side_path), given)


def _examined(
    urdf: Urdf, given: Side, path: Path, joints: Sequence[str] = (), problems: Sequence[Finding] = ()
) -> Examination:
    """`problems`: what keeps the side file from being read; `given` is then an empty one."""
    on_urdf, robot = judge(urdf), None
    action: tuple[str, ...] = ()
    if not errors(on_urdf):
        action = default_joints(urdf, given)
        if joints and action:
            # What can be chosen from; a joint that cannot be driven has its own sentence.
            choices = (*given.joints, *action_order(urdf), *(name for name in joints if name in urdf.by_name))
            given = choose_joints(
                replace(given, joints=action), choose.match(tuple(dict.fromkeys(choices)), joints)
            )
            action = given.joints
        on_action = _action(urdf, action, path)
        if action:
            problems = [*problems, *side.judge(given, urdf, action, path.with_suffix(".yaml"))]
            if not problems:
                robot = assemble(urdf, given, path, on_urdf)
                on_urdf = robot.findings
        on_urdf = (*on_urdf, *on_action)
    return Examination(path, urdf, in_order([*on_urdf, *problems]), None, action, robot)


def _action(urdf: Urdf, action: tuple[str, ...], path: Path) -> list[Finding]:
    """None to drive, or more than the model has values for."""
    where, most = Line(urdf.file, 1), choose.MODEL_VALUES
    if not action:
        kinds = f"{', '.join(DRIVEN[:-1])} or {DRIVEN[-1]}"
        expected = f"expected one that is {kinds}, and not a mimic of another joint"
        return [finding("no-action-joint", where, (), "no joint that an action could drive", expected)]
    if len(action) <= most:
        return []
    found = f"{len(action)} joints that an action could drive"
    expected = f"expected at most {most}, as many values as an action of pi0.5 has"
    side_file = path.with_suffix(".yaml").name
    remedy = f"choose those your dataset has, in its order, with joints: in {side_file}"
    return [finding("many-action-joints", where, (), found, expected, remedy)]


@dataclass(frozen=True)
class Listed:
    """A registered robot; without `joints`, the `problem` says why."""

    name: str
    joints: int | None
    path: Path
    problem: str | None


def listed(folders: Sequence[Path | str] = ()) -> list[Listed]:
    """Every registered robot, those that cannot be read too."""
    robots = []
    for name, path in available(folders).items():
        try:
            robots.append(Listed(name, len(load(name, folders).joints), path, None))
        except MorphVlaError as error:
            robots.append(Listed(name, None, path, str(error)))
    return robots


def build(urdf: Urdf, given: Side, path: Path) -> Robot:
    """The robot of a URDF that has been read, and a side file (`Side()` for none); `path` names it.

    Raises as `Examination.loaded`.
    """
    return _examined(*_as_said(urdf, given, path.with_suffix(".yaml")), path).loaded()


def load(name_or_path: str | Path, folders: Sequence[Path | str] = (), joints: Sequence[str] = ()) -> Robot:
    """The robot registered under a name, which is its file's name, or of the URDF at a path.

    `folders` are searched before the others, those of `dropin.search_path`; `joints` as in `examine`.

    Raises MorphVlaError when there is no such robot (naming the nearest), and as `Examination.loaded`.
    """
    joints = [joints] if isinstance(joints, str) else joints
    return examine(dropin.find("robots", str(name_or_path), folders), joints).loaded()


def available(folders: Sequence[Path | str] = ()) -> dict[str, Path]:
    """Every registered robot, of the drop-in folders `urdf_descriptors/`: name -> URDF, sorted by name."""
    return dropin.available("robots", folders)
