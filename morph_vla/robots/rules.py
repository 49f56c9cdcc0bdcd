"""Everything that is said of a URDF: for each code its severity, what was expected, and what follows.

Whoever reads the file adds what it found. Errors say that a file cannot be used, warnings that something was
assumed, notes what a person may want to know. What is said to be assumed is what `graph`, `descriptors`,
`kinematics` and `robot` do.
"""

from morph_vla.findings import Finding, Line, Severity

VARIES = ""
"""Stands for a part that depends on the place: whoever finds it says it."""
UNUSABLE, LEFT_OUT = "the file cannot be used", "the value counts as left out"
_REFUSED = "other programs may refuse the file"
_FROZEN, _NOT_READ = "it is frozen at its offset", "it is not read"
_SIMULATOR = "graph and kinematics do not need it; a simulator may refuse it"
_MOVING = "expected a joint that moves"

RULES: dict[str, tuple[Severity, str, str]] = {
    # `markup`: XML
    "file-too-large": ("error", "expected a robot description", _NOT_READ),
    "space-before-xml": ("warning", "expected <?xml at the very start", f"it is skipped; {_REFUSED}"),
    "text-after-end": ("warning", VARIES, f"it is ignored; {_REFUSED}"),
    "not-xml": ("error", "expected a well-formed XML document", "the file cannot be read beyond this line"),
    "refused-xml": ("error", VARIES, "the file is not read"),
    # `urdf`: elements and numbers
    "no-robot": ("error", "expected <robot>", "nothing is read"),
    "namespace": ("note", "expected none in a URDF", "it is ignored"),
    "unbound-prefix": ("warning", VARIES, f"it is read as part of the name; {_REFUSED}"),
    "expression": ("warning", "expected numbers: run xacro first, which expands it", LEFT_OUT),
    "too-many-numbers": ("warning", VARIES, VARIES),
    "wrong-number": ("warning", VARIES, LEFT_OUT),
    # `judgement`: the file as a whole
    "no-elements": ("error", "expected a robot", UNUSABLE),
    "too-many-joints": ("error", VARIES, UNUSABLE),
    "more-findings": ("note", "expected a file with fewer", "they are not listed"),
    # names and elements
    "robot-without-name": ("warning", "expected <robot name=...>", "the file's name is used"),
    "no-name": ("error", "expected name=...", UNUSABLE),
    "second-name": ("error", "expected every name once", UNUSABLE),
    "odd-names": ("note", "expected ASCII without spaces", "they are kept; quote them in YAML"),
    "xacro": ("warning", "expected none: run xacro on this file first", "what it expands to is missing"),
    "prefixed-element": ("warning", VARIES, _NOT_READ),
    "loop-joint": ("warning", "expected a tree", "the loop stays open: only the tree is read"),
    "other-element": ("note", "expected links and joints", _NOT_READ),
    "hidden-joints": ("note", "expected joints as children of <robot>", "they are not joints of the robot"),
    # the tree
    "no-end": ("error", VARIES, UNUSABLE),
    "undeclared-link": ("warning", VARIES, "it is taken as a link without a body"),
    "self-joint": ("error", "expected two different links", UNUSABLE),
    "two-parents": ("error", "expected one parent for every link: a URDF is a tree", UNUSABLE),
    "link-loop": ("error", "expected a tree: a path to every link from one root", UNUSABLE),
    "several-roots": ("warning", "expected one root", "they are separate parts: no path joins their joints"),
    # joints
    "frozen-type": (
        "warning",
        "expected revolute, continuous or prismatic",
        "it is frozen: no action drives it",
    ),
    "unknown-type": ("error", VARIES, UNUSABLE),
    "no-axis": ("warning", "expected an axis", "the format's default 1 0 0 is used"),
    "zero-axis": ("error", "expected a direction", UNUSABLE),
    "long-axis": ("warning", "expected a unit vector", "it is scaled to length one"),
    # limits
    "continuous-limits": ("note", "expected none: it turns without end", "-pi to pi is used"),
    "no-limit": ("warning", "expected lower and upper", VARIES),
    "no-bound": ("warning", VARIES, "the format's default 0 is used"),
    "no-effort-or-velocity": ("note", VARIES, "none is known"),
    "negative-bound": ("warning", "expected 0 or more", "it counts as left out: none is known"),
    "crossed-limits": ("warning", "expected lower < upper (in PyBullet this means no limit)", VARIES),
    "equal-limits": ("warning", "expected lower < upper", "it counts as movable but cannot move"),
    "boundless-limits": ("warning", "expected the joint's range", VARIES),
    "limits-in-degrees": ("warning", "expected radians; are these degrees?", "they are taken as radians"),
    "limits-in-millimetres": (
        "warning",
        "expected metres; are these millimetres?",
        "they are taken as metres",
    ),
    # mimicking joints
    "fixed-mimic": ("warning", _MOVING, "it stays fixed"),
    "mimic-of-none": ("warning", "expected a joint of this file", _FROZEN),
    "mimic-of-frozen": ("warning", _MOVING, _FROZEN),
    "mimic-chain": ("note", "expected a joint that mimics no other", "the chain is followed to its leader"),
    "mimic-of-zero": ("warning", "expected a number that is not 0", _FROZEN),
    "mimic-reversed": ("note", "a positive one is usual", "it moves in the opposite direction"),
    "mimic-loop": ("error", "expected a chain that ends at a joint of its own", UNUSABLE),
    # links
    "no-inertial": ("note", "expected a mass", _SIMULATOR),
    "no-mass": ("warning", "expected more than 0", _SIMULATOR),
    "impossible-inertia": ("warning", "expected principal moments a, b, c > 0 with a + b >= c", _SIMULATOR),
    "unknown-shape": ("note", "expected box, cylinder, sphere, capsule or mesh", "the shape is ignored"),
    "meshes": ("note", "expected to lie beside the file", "a simulator uses those that do, the policy none"),
    # `mjcf`: what a MuJoCo model has and a URDF cannot hold
    "ball-or-free": ("warning", "expected a hinge or a slide", "it is frozen where the model begins"),
    "root-joint": ("warning", "expected a base that stands still", "it is left out: the base is fixed"),
    "no-mimic": (
        "warning",
        "expected one linear law for a joint and another joint of the robot",
        "it is not kept: the joint moves by itself",
    ),
    # `examine`: what lies beside it
    "side-file-name": ("warning", VARIES, _NOT_READ),
    # `examine` and `descriptors`: what an action drives, and its features
    "no-action-joint": ("error", VARIES, "a policy has nothing to drive"),
    "many-action-joints": ("warning", VARIES, VARIES),
    "contact-default": ("note", VARIES, VARIES),
    "no-contact": ("note", VARIES, VARIES),
}


def finding(
    code: str, where: Line, subject: tuple[str, ...], found: str, expected: str = "", consequence: str = ""
) -> Finding:
    """A finding on a URDF; `expected` and `consequence` stand for those of the code where they are given."""
    severity, usual, follows = RULES[code]
    return Finding(code, severity, where, subject, found, expected or usual, consequence or follows)
