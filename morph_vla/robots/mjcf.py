"""A robot's records from a MuJoCo model that has been compiled: a pure function of its arrays.

MuJoCo is not imported here; `engines.mujoco.mjcf.compiled` makes a model of a file. MuJoCo places a body in
its parent's frame by T(body) and then, for each of its joints in turn, by

    T(pos) R(axis, q - ref) T(-pos)   for a hinge, q and ref [rad]
    T(axis (q - ref))                 for a slide, q and ref [m]

A URDF has one joint between two links, without pos and ref. So R(axis, -ref) goes into the joint's origin,
and where T(-pos) remains or another joint follows, a link of one gram stands in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.findings import Finding, Line
from morph_vla.robots.geometry import Transform, matrix_of, pose
from morph_vla.robots.kinematics import motion
from morph_vla.robots.records import Geometry, Inertial, Joint, Limit, Link, Mimic, Pose, Shape, Urdf, unused
from morph_vla.robots.rules import finding
from morph_vla.wording import count

MjModel = Any  # MuJoCo ships no types
# MuJoCo's numbers: mjtJoint, mjtGeom, mjtEq, mjtTrn, mjtObj.
_FREE, _BALL, _SLIDE, _HINGE = range(4)
_PLANE, _MESH, _SHAPES = 0, 7, {2: "sphere", 3: "capsule", 5: "cylinder", 6: "box"}
_CONNECT, _WELD, _TWO_JOINTS = range(3)
_ON_A_JOINT, _A_BODY = (0, 1), 1
_GRAM = Inertial(1e-3, Pose(), (1e-6, 0.0, 0.0, 1e-6, 0.0, 1e-6), 0)
"""Of a link between two joints: simulators move no body without a mass."""
_MOST_VISIBLE_GROUP = 2  # MuJoCo's viewer shows geoms of the groups 0 to 2


def records(model: MjModel, file: str, root: str = "", strip: Sequence[str] = ()) -> Urdf:
    """The robot of a model: its bodies as links, hinges and slides as joints, linear equalities as mimic.

    `root` names the body that is the base (default: the one body on the world that carries every joint, else
    the world itself); what is not below it is left out, and so is its own place in the world. Names lose the
    first of the prefixes `strip` that they begin with. `file` names the model in messages.

    MJCF knows no velocity limits and no contact features: they stay unknown, and the judge says so. What else
    a URDF cannot hold is in `Urdf.problems`: ball and free joints, equalities that are no linear law between
    two joints, closed loops, shapes that are no primitives.

    Raises MorphVlaError without a hinge and a slide, for an unknown `root` (naming the nearest), and for
    prefixes that no name begins with, or without which two names are one.
    """
    return _Reader(model, file, strip).urdf(root)


def home(model: MjModel, strip: Sequence[str] = ()) -> dict[str, float]:
    """The joints' values [rad] or [m] in the model's first keyframe; none where it has no keyframe."""
    return values(model, model.key_qpos[0], strip) if model.nkey else {}


def values(model: MjModel, qpos: Float[np.ndarray, "q"], strip: Sequence[str] = ()) -> dict[str, float]:
    """The joints' values [rad] or [m] in a configuration `qpos` of the model."""
    places = zip(_names(model, "joint", strip), model.jnt_qposadr, strict=True)
    return {name: float(qpos[place]) for name, place in places}


class _Reader:
    """Turns a model's arrays into records."""

    def __init__(self, model: MjModel, file: str, strip: Sequence[str]):
        self.model, self.file = model, file
        self.links, self.joints = _names(model, "body", strip), _names(model, "joint", strip)
        self.problems: list[Finding] = []
        for kind, names in (("bodies", self.links), ("joints", self.joints)):
            if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
                raise MorphVlaError(f"{file}: without the prefixes, several {kind} are called '{twice}'")
        for prefix in strip:
            if not any(name.startswith(prefix) for kind in ("body", "joint") for name in _names(model, kind)):
                raise MorphVlaError(f"{file}: no name of a body or a joint begins with '{prefix}'")

    def _say(self, code: str, subject: tuple[str, ...], found: str, *parts: str) -> None:
        """`parts`: what was expected and what follows, where the rule does not say it."""
        self.problems.append(finding(code, Line(self.file), subject, found, *parts))

    def urdf(self, root: str) -> Urdf:
        base = self._base(root)
        kept = {base}
        for body in range(base + 1, len(self.links)):  # parents come first
            if int(self.model.body_parentid[body]) in kept:
                kept.add(body)
        self._lost(kept)
        self._held(base)
        self.mimics, self.helpers = self._mimics(kept), []
        joints = [joint for body in sorted(kept - {base}) for joint in self._joints(body)]
        links = [self._link(body) for body in sorted(kept)]
        links += [Link(name, _GRAM, (), (), None, 0) for name in self.helpers]
        name = self.model.names.split(b"\0", 1)[0].decode()
        return Urdf(name, self.file, tuple(links), tuple(joints), (), (), tuple(self.problems))

    def _base(self, root: str) -> int:
        """The body that is the root link."""
        model = self.model
        if root:
            for names in (_names(model, "body"), self.links):
                if root in names:
                    return names.index(root)
            raise MorphVlaError(f"{self.file}: no body '{root}'{nearest(root, self.links)}")
        moved = [int(b) for b, kind in zip(model.jnt_bodyid, model.jnt_type, strict=True) if kind >= _SLIDE]
        tops = {int(model.body_rootid[body]) for body in moved}
        if not tops:
            raise MorphVlaError(f"{self.file}: no hinge and no slide joint; expected a robot that moves")
        return 0 if len(tops) > 1 or tops & {*moved} else tops.pop()

    def _lost(self, kept: set[int]) -> None:
        """Say which shapes and closed loops are left out."""
        model = self.model
        kinds = [int(model.geom_type[g]) for g, body in enumerate(model.geom_bodyid) if int(body) in kept]
        if meshes := kinds.count(_MESH):
            self._say("meshes", (), f"{count(meshes, 'shape')} of a mesh", "", "they are left out")
        if other := sum(kind not in (*_SHAPES, _MESH, _PLANE) for kind in kinds):
            self._say("unknown-shape", (), f"{count(other, 'shape')} that a URDF does not know")
        loops = 0
        for kind, on, *bodies in zip(
            model.eq_type, model.eq_objtype, model.eq_obj1id, model.eq_obj2id, strict=True
        ):
            ours = on != _A_BODY or kept & {*map(int, bodies)} - {0}
            loops += bool(kind in (_CONNECT, _WELD) and ours)
        if loops:
            equalities = "equality" if loops == 1 else "equalities"
            self._say("loop-joint", (), f"{loops} connect or weld {equalities}")

    def _held(self, base: int) -> None:
        """Say which hinges and slides move the base itself, which a URDF's root link cannot."""
        model, start = self.model, int(self.model.body_jntadr[base])
        joints = range(start, start + int(model.body_jntnum[base])) if base else range(0)
        for joint in joints:
            if model.jnt_type[joint] not in (_FREE, _BALL):
                name = self.joints[joint]
                self._say("root-joint", (name,), f"joint '{name}' moves the base '{self.links[base]}' itself")

    def _link(self, body: int) -> Link:
        model, shapes = self.model, ([], [])
        for geom in np.flatnonzero(model.geom_bodyid == body).tolist():
            kind = _SHAPES.get(int(model.geom_type[geom]))
            if kind is None:
                continue
            origin = pose(_placed(model.geom_pos[geom], model.geom_quat[geom]))
            colour = tuple(float(value) for value in model.geom_rgba[geom])
            shape = Shape(Geometry(kind, _size(kind, model.geom_size[geom])), origin, colour, 0)
            if model.geom_group[geom] <= _MOST_VISIBLE_GROUP:
                shapes[0].append(shape)
            if model.geom_contype[geom] or model.geom_conaffinity[geom]:
                shapes[1].append(shape)
        inertial, mass = None, float(model.body_mass[body])
        if mass:
            centre = pose(_placed(model.body_ipos[body], model.body_iquat[body]))
            x, y, z = (float(value) for value in model.body_inertia[body])
            inertial = Inertial(mass, centre, (x, 0.0, 0.0, y, 0.0, z), 0)
        return Link(self.links[body], inertial, tuple(shapes[0]), tuple(shapes[1]), None, 0)

    def _joints(self, body: int) -> Iterator[Joint]:
        """The joints from the body's parent to it: those it has, with a link between two, or a fixed one."""
        model, name = self.model, self.links[body]
        parent = self.links[int(model.body_parentid[body])]
        start = int(model.body_jntadr[body])
        before = _placed(model.body_pos[body], model.body_quat[body])
        moving = []
        for joint in range(start, start + int(model.body_jntnum[body])):
            if model.jnt_type[joint] in (_FREE, _BALL):
                kind = "ball" if model.jnt_type[joint] == _BALL else "free"
                self._say("ball-or-free", (self.joints[joint],), f"joint '{self.joints[joint]}' is {kind}")
            else:
                moving.append(joint)
        for place, joint in enumerate(moving):
            anchor = np.eye(4)
            anchor[:3, 3] = model.jnt_pos[joint] if model.jnt_type[joint] == _HINGE else 0.0
            ends_here = joint == moving[-1] and not anchor[:3, 3].any()
            child = name if ends_here else self._helper(f"{name}_{place}")
            yield self._joint(joint, parent, child, before @ anchor)
            parent, before = child, np.linalg.inv(anchor)
        if parent != name:
            fixed = unused(f"{name}_fixed", self.joints)
            yield Joint(fixed, "fixed", parent, name, pose(before), *[None] * 7, line=0)

    def _joint(self, joint: int, parent: str, child: str, before: Transform) -> Joint:
        """The hinge or slide; `before`: what stands before it in the parent's frame."""
        model, dof = self.model, int(self.model.jnt_dofadr[joint])
        x, y, z = (float(value) for value in model.jnt_axis[joint])
        slides, limited = model.jnt_type[joint] == _SLIDE, bool(model.jnt_limited[joint])
        kind = "prismatic" if slides else "revolute" if limited else "continuous"
        lower, upper = (float(value) for value in model.jnt_range[joint])
        effort, limit = self._effort(joint), None
        if limited:
            limit = Limit(lower, upper, effort, None, 0)
        elif not slides and effort is not None:
            limit = Limit(None, None, effort, None, 0)
        made = Joint(
            name=self.joints[joint],
            type=kind,
            parent=parent,
            child=child,
            origin=Pose(),
            axis=(x, y, z),
            limit=limit,
            mimic=self.mimics.get(joint),
            damping=float(model.dof_damping[dof]),
            friction=float(model.dof_frictionloss[dof]),
            soft_lower=None,
            soft_upper=None,
            line=0,
        )
        ref = float(model.qpos0[int(model.jnt_qposadr[joint])])
        return replace(made, origin=pose(before @ motion(made, -ref)))

    def _helper(self, name: str) -> str:
        self.helpers.append(unused(name, [*self.links, *self.helpers]))
        return self.helpers[-1]

    def _effort(self, joint: int) -> float | None:
        """The most an actuator puts on the joint [N m] or [N]; None where the model sets no bound."""
        model = self.model
        if model.jnt_actfrclimited[joint]:
            return float(np.abs(model.jnt_actfrcrange[joint]).max())
        forces = []
        for actuator in np.flatnonzero(model.actuator_trnid[:, 0] == joint).tolist():
            if model.actuator_trntype[actuator] not in _ON_A_JOINT:
                continue
            gear = abs(float(model.actuator_gear[actuator, 0]))
            # A motor's force is gain times control: neither its gain nor its bias depends on the joint.
            motor = not model.actuator_gaintype[actuator] and not model.actuator_biastype[actuator]
            if model.actuator_forcelimited[actuator]:
                forces.append(gear * float(np.abs(model.actuator_forcerange[actuator]).max()))
            elif motor and model.actuator_ctrllimited[actuator]:
                gain = abs(float(model.actuator_gainprm[actuator, 0]))
                forces.append(gear * gain * float(np.abs(model.actuator_ctrlrange[actuator]).max()))
            else:
                return None
        return sum(forces) if forces else None

    def _mimics(self, kept: set[int]) -> dict[int, Mimic]:
        """Joint -> what it follows: y - ref_y = a0 + a1 (x - ref_x), MuJoCo's law with a2 to a4 of 0."""
        model = self.model
        mimics: dict[int, Mimic] = {}
        leaders: dict[int, int] = {}
        for equality in np.flatnonzero(model.eq_type == _TWO_JOINTS).tolist():
            joint, leader = int(model.eq_obj1id[equality]), int(model.eq_obj2id[equality])
            if int(model.jnt_bodyid[joint]) not in kept or not model.eq_active0[equality]:
                continue
            start, slope, *higher = (float(value) for value in model.eq_data[equality][:5])
            above = leader
            while above in leaders and above != joint:
                above = leaders[above]
            inside = leader >= 0 and int(model.jnt_bodyid[leader]) in kept
            if not inside or any(higher) or joint in mimics or above == joint:
                names = [self.joints[i] for i in (joint, leader) if i >= 0]
                self._say("no-mimic", tuple(names), f"the equality of joint {' and '.join(names)}")
                continue
            own_ref, ref = (float(model.qpos0[int(model.jnt_qposadr[i])]) for i in (joint, leader))
            leaders[joint] = leader
            mimics[joint] = Mimic(self.joints[leader], slope, own_ref + start - slope * ref, 0)
        return mimics


def _names(model: MjModel, kind: str, strip: Sequence[str] = ()) -> list[str]:
    """The names of all bodies or joints, in the model's order; one without a name is called by its number."""
    starts = model.name_bodyadr if kind == "body" else model.name_jntadr
    names = []
    for index, start in enumerate(starts.tolist()):
        name = model.names[start : model.names.index(b"\0", start)].decode() or f"{kind}{index}"
        prefix = next((prefix for prefix in strip if name.startswith(prefix)), "")
        names.append(name.removeprefix(prefix) or name)
    return names


def _placed(position: np.ndarray, quaternion: np.ndarray) -> Transform:
    """The matrix of MuJoCo's pos [m] and quat (w, x, y, z)."""
    w, x, y, z = (float(value) for value in quaternion)
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = matrix_of((w, x, y, z)), position
    return matrix


def _size(kind: str, size: np.ndarray) -> tuple[float, ...]:
    """Half sizes and radii as a URDF has them: full lengths, and radii."""
    a, b, c = (float(value) for value in size)
    return {"box": (2 * a, 2 * b, 2 * c), "sphere": (a,)}.get(kind, (a, 2 * b))
