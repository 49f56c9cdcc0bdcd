"""Everything that is said of a URDF: for each code its severity, what was expected, and what follows.

`markup` and `urdf` say the first two groups, `judgement` the others, and each adds what it found. Errors say
that a file cannot be used, warnings that something was assumed, notes what a person may want to know. What is
said to be assumed is what `graph`, `descriptors`, `kinematics` and `robot` do.
"""

from morph_vla.findings import Finding, Line, Severity

ASSUMED = ""
"""Stands for a part that depends on the place: whoever finds it says it."""
UNUSABLE, LEFT_OUT = "the file cannot be used", "the value counts as left out"
_REFUSED = "other programs may refuse the file"
_FROZEN, _NOT_READ = "it is frozen at its offset", "it is not read"
_SIMULATOR = "of no matter for graph and kinematics; a simulator may refuse it"
_MOVING = "expected a joint that moves"

RULES: dict[str, tuple[Severity, str, str]] = {
    # XML
    "file-too-large": ("error", "expected a robot description", _NOT_READ),
    "space-before-xml": (
        "warning", "expected <?xml at the very start", f"the white space is skipped; {_REFUSED}",
    ),
    "text-after-end": ("warning", ASSUMED, f"it is ignored; {_REFUSED}"),
    "not-xml": ("error", "expected a well-formed XML document", "the file cannot be read beyond this line"),
    "refused-xml": ("error", ASSUMED, "the file is not read"),
    # elements and numbers
    "no-robot": ("error", "expected <robot>", "nothing is read"),
    "namespace": ("note", "expected none in a URDF", "it is ignored"),
    "unbound-prefix": ("warning", ASSUMED, f"it is read as part of the name; {_REFUSED}"),
    "expression": (
        "warning", "expected numbers: an expression was left unexpanded (run xacro first)", LEFT_OUT,
    ),
    "too-many-numbers": ("warning", ASSUMED, ASSUMED),
    "wrong-number": ("warning", ASSUMED, LEFT_OUT),
    # the whole
    "no-elements": ("error", "expected a robot", UNUSABLE),
    "too-many-joints": ("error", ASSUMED, UNUSABLE),
    "more-findings": ("note", "expected fewer to be read by a person", "they are not listed"),
    # names
    "robot-without-name": ("warning", "expected <robot name=...>", "the file's name is used"),
    "no-name": ("error", "expected name=...", UNUSABLE),
    "second-name": ("error", "expected every name once", UNUSABLE),
    "odd-names": ("note", "expected plain words", "kept as they are; quote them in YAML"),
    # elements
    "xacro": (
        "warning", "expected none: xacro has not been run on this file", "what it would expand to is missing here",
    ),
    "prefixed-element": ("warning", ASSUMED, _NOT_READ),
    "loop-joint": ("warning", "expected a tree", "the loop stays open: only the tree is read"),
    "other-element": ("note", "expected links and joints", _NOT_READ),
    "hidden-joints": (
        "note", "expected joints as children of <robot>", "not counted as joints of the robot",
    ),
    # the tree
    "no-end": ("error", ASSUMED, UNUSABLE),
    "undeclared-link": ("warning", ASSUMED, "it is taken as a link without a body"),
    "self-joint": ("error", "expected two different links", UNUSABLE),
    "two-parents": ("error", "expected one parent for every link: a URDF is a tree", UNUSABLE),
    "link-loop": ("error", "expected a tree: a path to every link from one root", UNUSABLE),
    "several-roots": (
        "warning", "expected one root", "the parts stand beside each other, and no path joins their joints",
    ),
    # joints
    "frozen-type": (
        "warning", "expected revolute, continuous or prismatic for a joint that an action drives", "it is frozen",
    ),
    "unknown-type": ("error", ASSUMED, UNUSABLE),
    "no-axis": ("warning", "expected an axis", "the format's default 1 0 0 is used"),
    "zero-axis": ("error", "expected a direction", UNUSABLE),
    "long-axis": ("warning", "expected a unit vector", "it is scaled to length one"),
    # limits
    "continuous-limits": ("note", "expected none: it turns without end", "-pi to pi is used"),
    "no-limit": ("warning", "expected lower and upper", ASSUMED),
    "no-bound": ("warning", ASSUMED, "the format's default 0 is used"),
    "no-effort-or-velocity": ("note", ASSUMED, "none is known"),
    "crossed-limits": ("warning", "expected lower < upper (in PyBullet this means no limit)", ASSUMED),
    "equal-limits": ("warning", "expected lower < upper", "it counts as movable but cannot move"),
    "boundless-limits": ("warning", "expected a range that the joint has", ASSUMED),
    "limits-in-degrees": ("warning", "expected radians; are these degrees?", "they are taken as radians"),
    "limits-in-millimetres": (
        "warning", "expected metres; are these millimetres?", "they are taken as metres",
    ),
    # mimic
    "fixed-mimic": ("warning", _MOVING, "it stays fixed"),
    "mimic-of-none": ("warning", "expected a joint of this file", _FROZEN),
    "mimic-of-frozen": ("warning", _MOVING, _FROZEN),
    "mimic-chain": ("note", "expected one step", "the chain is followed to its leader"),
    "mimic-of-zero": ("warning", "expected a number that is not 0", _FROZEN),
    "mimic-reversed": ("note", "a positive one is usual", "it moves the other way round"),
    "mimic-loop": ("error", "expected a chain that ends at a joint of its own", UNUSABLE),
    # links
    "no-inertial": ("note", "expected a mass", _SIMULATOR),
    "no-mass": ("warning", "expected more than 0", _SIMULATOR),
    "impossible-inertia": (
        "warning", "expected positive principal moments, each at most the sum of the other two", _SIMULATOR,
    ),
    "unknown-shape": (
        "note", "expected box, cylinder, sphere, capsule or mesh", "the shape is passed over",
    ),
    "meshes": ("note", "primitive shapes are read from the file alone", "meshes are not opened"),
}  # fmt: skip


def finding(
    code: str, where: Line, subject: tuple[str, ...], found: str, expected: str = "", consequence: str = ""
) -> Finding:
    """A finding on a URDF; `expected` and `consequence` stand for those of the code where they are given."""
    severity, usual, follows = RULES[code]
    return Finding(code, severity, where, subject, found, expected or usual, consequence or follows)
