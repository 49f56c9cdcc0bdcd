"""`morph-vla robots add` of what is no URDF: an MJCF file, and robots of robot_descriptions.

The package robot_descriptions is one that the test makes, of the same form: a mapping of what there is, and
a module a robot that knows where its files are.
"""

import json
import re
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from morph_vla import robots
from morph_vla.robots import described

ARM = """<mujoco model="arm"><worldbody><body name="r0_base"><geom size="0.1"/>
<body name="r0_upper" pos="0 0 1"><joint name="r0_elbow" range="-90 90"/><geom size="0.1"/>
<body name="jaw"><joint name="jaw" type="slide" axis="0 1 0" range="0 0.05"/><geom size="0.1"/></body>
</body></body></worldbody><keyframe><key qpos="0.5 0.05"/></keyframe></mujoco>"""
URDF = """<robot name="arm"><link name="base"/><link name="upper"/>
<joint name="elbow" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 0 1"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""


def test_an_mjcf_file_becomes_a_urdf_and_a_side_file(run, folder):
    pytest.importorskip("mujoco")
    Path("my_arm.xml").write_text(ARM)
    status, out, err = run("robots add my_arm.xml --strip r0_")
    assert (status, err) == (0, "")
    assert "wrote urdf_descriptors/my_arm.urdf\nwrote urdf_descriptors/my_arm.yaml" in out
    robot = robots.load("my_arm")
    assert (robot.names, robot.rest.tolist()) == (("elbow", "jaw"), [0.5, 0.05])
    assert robot.side.source == "my_arm.xml, an MJCF file"
    assert "is already there, the same" in run("robots add my_arm.xml --strip r0_")[1]
    status, out, _ = run("robots add my_arm.xml --name jaw --joints jaw --root r0_upper --json")
    assert (status, json.loads(out)["joints"]) == (0, ["jaw"])
    assert robots.load("jaw").urdf.links[0].name == "r0_upper"


@pytest.fixture
def package(tmp_path, monkeypatch, folder):
    """A package of the form of robot_descriptions; a robot's module can only be imported with its files."""
    clone = tmp_path / "cache" / "arms"
    (clone / ".git").mkdir(parents=True)
    (clone / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (clone / ".git" / "refs" / "heads").mkdir(parents=True)
    (clone / ".git" / "refs" / "heads" / "main").write_text("c0ffee\n")
    (clone / "panda.urdf").write_text(URDF)
    (clone / "arm.xml").write_text(ARM)
    folder = tmp_path / "site" / "robot_descriptions"
    folder.mkdir(parents=True)
    where = f'print("Cloning ...")\nREPOSITORY_PATH: str = {str(clone)!r}\n'
    modules = {
        "panda_description": f'{where}URDF_PATH: str = REPOSITORY_PATH + "/panda.urdf"',
        "arm_mj_description": f'{where}MJCF_PATH: str = REPOSITORY_PATH + "/arm.xml"',
        "gen3_description": f'{where}XACRO_PATH: str = REPOSITORY_PATH + "/gen3.xacro"',
        "srdf_description": f'{where}SRDF_PATH: str = REPOSITORY_PATH + "/a.srdf"',
        "stretch_description": f'{where}URDF_PATH: str = REPOSITORY_PATH + "/panda.urdf"',
        "ur5_description": f'{where}URDF_PATH: str = REPOSITORY_PATH + "/panda.urdf"',
        "far_description": 'raise OSError("could not resolve host\\nmore")',
    }
    licences: dict[str, str | None] = dict.fromkeys(modules, "Apache-2.0")
    licences["stretch_description"] = "CC-BY-NC-SA-4.0"
    licences["ur5_description"] = None
    (folder / "__init__.py").write_text(
        textwrap.dedent(f"""
        from types import SimpleNamespace
        DESCRIPTIONS = {{name: SimpleNamespace(license_spdx=licence, repository="arms")
                        for name, licence in {licences!r}.items()}}
        """)
    )
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(f"{text}\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    forget = [name for name in sys.modules if name.split(".")[0] == "robot_descriptions"]
    for name in forget:
        monkeypatch.delitem(sys.modules, name)
    yield SimpleNamespace(clone=clone)
    for name in [name for name in sys.modules if name.split(".")[0] == "robot_descriptions"]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["panda", "panda_description"])
def test_a_robot_by_name_is_text_with_its_licence_and_commit(run, package, name):
    status, out, _ = run(f"robots add rd:{name} --json")
    assert (status, json.loads(out)["name"]) == (0, "panda"), "what the package prints is no answer"
    copied = Path("urdf_descriptors/panda.urdf")
    assert copied.read_text() == URDF
    assert sorted(path.name for path in copied.parent.iterdir()) == ["panda.urdf", "panda.yaml"]
    side = robots.load(copied).side
    assert side.source == "robot_descriptions, panda_description: arms at c0ffee"
    assert side.licence == "Apache-2.0"


def test_a_robot_that_is_mjcf_alone(run, package):
    pytest.importorskip("mujoco")
    assert run("robots add rd:arm --strip r0_")[0] == 0
    arm = robots.load("arm")
    assert arm.names == ("elbow", "jaw")
    assert arm.side.source == "robot_descriptions, arm_mj_description: arms at c0ffee"
    assert arm.side.licence == "Apache-2.0"


def test_a_clone_whose_commit_cannot_be_read(run, package):
    (package.clone / ".git" / "HEAD").unlink()
    assert described.described("panda").source.endswith("arms at an unknown commit")
    (package.clone / ".git" / "HEAD").write_text("abc123\n")
    assert described.described("panda").source.endswith("arms at abc123")


@pytest.mark.parametrize("name", ["stretch", "ur5"])
def test_a_licence_that_may_forbid_commercial_use_has_to_be_accepted(run, package, name):
    status, _, err = run(f"robots add rd:{name}")
    assert status == 2
    words = {"stretch": "is 'CC-BY-NC-SA-4.0', which may forbid commercial use", "ur5": "is not known"}[name]
    assert err == f"error: rd:{name}: its licence {words}; read it, then pass --accept-license\n"
    assert f"robot_descriptions.{name}_description" not in sys.modules, "nothing was fetched"
    assert run(f"robots add rd:{name} --accept-license")[0] == 0
    assert robots.load(name).side.licence == ("CC-BY-NC-SA-4.0" if name == "stretch" else "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pnda", "no robot 'pnda' in robot_descriptions; did you mean 'panda'\\?"),
        ("far", "rd:far: its repository cannot be fetched: could not resolve host"),
        ("gen3", "rd:gen3 has only the Xacro .*/gen3.xacro; run it through xacro first"),
        ("srdf", "rd:srdf has neither URDF nor MJCF"),
    ],
)
def test_a_robot_that_cannot_be_had_is_one_sentence(run, package, name, words):
    status, _, err = run(f"robots add rd:{name}")
    assert status == 2
    assert re.search(rf"^error: {words}\n\Z", err, re.MULTILINE)


@pytest.mark.usefixtures("pip_installs")
def test_without_the_package_the_extra_is_named(run, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_descriptions", None)
    status, _, err = run("robots add rd:panda")
    assert status == 2
    assert (
        "'robot_descriptions' is not installed; install the extra: pip install 'morph-vla[descriptions]'"
        in err
    )
