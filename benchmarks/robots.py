"""`morph-vla bench robots`: reading, judging, graph and descriptors, and how they grow with the joints.

The robots are made here: a humanoid-like tree of 60 moving joints, and random trees of up to 500. Times are
processor time on one machine in one run, the quickest of several turns: on a busy machine, what takes longer
than the scheduler's slice would be slower by the clock, and its growth steeper. The exponent e of
time ~ joints^e is fitted to the trees of 125 joints and more.
"""

import argparse
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness import add_common
from morph_vla.cli.render import print_json
from morph_vla.robots import graph
from morph_vla.robots.descriptors import descriptors
from morph_vla.robots.judgement import judge
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.robot import action_order
from morph_vla.robots.urdf import parse
from morph_vla.wording import table

EXAMPLES = """
  morph-vla bench robots
  morph-vla bench robots --repeats 5 --json
"""
SIZES = (32, 60, 125, 250, 500)
PARTS = ("read", "judge", "graph", "descriptors", "poses")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench robots`."""
    add_common(parser, run, repeats=5)


def run(arguments: argparse.Namespace) -> None:
    """Print processor time [ms] per part and size, the ratio to the size before, and the exponents."""
    repeats = max(1, arguments.repeats)
    rows = [measure("humanoid", humanoid(), repeats)]
    rows += [measure("random tree", random_tree(size), repeats) for size in SIZES]
    trees = rows[1:]
    exponents = {part: exponent(trees, part) for part in (*PARTS, "all")}
    if arguments.json:
        print_json({"rows": rows, "exponents": exponents})
        return
    cells = []
    for before, row in zip([None, None, *trees], rows, strict=False):
        ratio = row["all"] / before["all"] if before else float("nan")
        times = [row[part] for part in (*PARTS, "all")]
        cells.append((row["robot"], row["joints"], *times, f"{ratio:.2f}" if before else ""))
    header = ("robot", "joints", *(f"{part} ms" for part in PARTS), "all ms", "ratio")
    print(*table(header, cells), sep="\n")
    fitted = ", ".join(f"{part} {value:.2f}" for part, value in exponents.items())
    print(f"\ntime ~ joints^e from 125 joints on, e: {fitted}")


def measure(name: str, text: bytes, repeats: int) -> dict[str, Any]:
    """The quickest processor time [ms] of each part, for the action joints of a URDF."""
    urdf = parse(text)
    chosen = action_order(urdf)
    works: dict[str, Callable[[], Any]] = {
        "read": lambda: parse(text),
        "judge": lambda: judge(urdf),
        "graph": lambda: graph.adjacency(graph.distances(urdf, chosen)),
        "descriptors": lambda: descriptors(urdf, chosen),
        "poses": lambda: link_poses(urdf, dict.fromkeys(chosen, 0.1)),
    }
    times = {part: min(_milliseconds(work) for _ in range(repeats)) for part, work in works.items()}
    return {"robot": name, "joints": len(chosen), **times, "all": sum(times.values())}


def _milliseconds(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return 1e3 * (time.process_time() - begun)


def exponent(rows: Sequence[dict[str, Any]], part: str) -> float:
    """The slope of log(time) over log(joints), by least squares over the sizes from 125 joints on."""
    points = [(math.log(row["joints"]), math.log(row[part])) for row in rows if row["joints"] >= 125]
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


# ------------------------------------------------------------------------------------------------- the robots


def humanoid() -> bytes:
    """60 moving joints: a waist of 3, a head of 3, two legs of 6, two arms of 7, two hands of 14."""
    joints, name = [], iter(range(10_000))

    def chain(parent: str, count: int) -> str:
        for _ in range(count):
            index = next(name)
            joints.append(_joint(f"j{index}", parent, f"l{index}"))
            parent = f"l{index}"
        return parent

    chest = chain("pelvis", 3)
    chain(chest, 3)
    for _ in range(2):
        chain("pelvis", 6)
        palm = chain(chest, 7)
        for length in (3, 3, 3, 3, 2):
            chain(palm, length)
    return _urdf("pelvis", joints)


def random_tree(count: int, seed: int = 7) -> bytes:
    """Moving joints that each hang on one of the eight links before, in shuffled document order."""
    draw = random.Random(seed)
    joints = []
    for index in range(count):
        parent = draw.randrange(max(0, index - 8), index + 1)
        joints.append(_joint(f"j{index}", f"l{parent}", f"l{index + 1}"))
    draw.shuffle(joints)
    return _urdf("l0", joints)


def _joint(name: str, parent: str, child: str) -> str:
    return f"""  <link name="{child}">
    <inertial>
      <mass value="1"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/>
    </inertial>
    <visual>
      <origin xyz="0 0 0.05"/>
      <geometry><box size="0.04 0.04 0.1"/></geometry>
    </visual>
    <collision>
      <origin xyz="0 0 0.05"/>
      <geometry><box size="0.04 0.04 0.1"/></geometry>
    </collision>
  </link>
  <joint name="{name}" type="revolute">
    <origin xyz="0 0 0.1" rpy="0.1 0.2 0.3"/>
    <parent link="{parent}"/>
    <child link="{child}"/>
    <axis xyz="0 0 1"/>
    <limit lower="-1.5" upper="1.5" effort="10" velocity="3"/>
  </joint>
"""


def _urdf(root: str, joints: Sequence[str]) -> bytes:
    return f'<robot name="bench">\n  <link name="{root}"/>\n{"".join(joints)}</robot>\n'.encode()
