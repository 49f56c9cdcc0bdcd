"""What Isaac Lab's engine refuses, starts, leaves out and shows; without Isaac Lab."""

import importlib.util
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines import by_name as engines
from morph_vla.engines.isaaclab import door, launch, lights, limits, options, scene
from morph_vla.engines.isaaclab.options import Options
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.suites.suite import initial_states, load

# --------------------------------------------------------------------------------------------- what is chosen


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "devise=cpu",
            r"^engine isaaclab has no option 'devise'; did you mean 'device'\?; there are physics, ",
        ),
        ("physics=phisx", r"physics is 'phisx'; did you mean 'physx'\?; it can be newton, physx or ovphysx$"),
        ("renderer=opengl", r"renderer is 'opengl'; it can be newton, rtx or ovrtx$"),
        ("device=gpu", r"^engine isaaclab: device is 'gpu'; it can be cpu, cuda or cuda:N$"),
        ("contacts=many", r"^engine isaaclab: contacts is 'many'; it must be a whole number, 1 or more$"),
        ("contacts=0", r"contacts is '0'; it must be a whole number, 1 or more$"),
        (
            "physics=physx,renderer=ovrtx",
            r"^engine isaaclab: physics=physx runs inside Isaac Sim and renderer=ovrtx only outside it; use ",
        ),
        (
            "physics=ovphysx,renderer=rtx",
            r"renderer=rtx runs inside Isaac Sim and physics=ovphysx only outside",
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_in_a_sentence(text, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        engines.check(f"isaaclab,{text}")


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (
            Options("physx"),
            "physics=physx needs Isaac Sim, which is not installed; install it beside Isaac Lab",
        ),
        (Options(renderer="rtx"), "renderer=rtx needs Isaac Sim, .*, or use renderer=newton$"),
        (Options("ovphysx"), r"needs OvPhysX, .*: pip install 'isaaclab\[ovphysx\]', or use physics=newton$"),
        (
            Options(renderer="ovrtx"),
            r"renderer=ovrtx needs OVRTX, .*: pip install 'isaaclab\[ovrtx\]', or use ",
        ),
    ],
)
@pytest.mark.usefixtures("pip_installs")
def test_a_program_that_is_not_installed_is_named(monkeypatch, chosen, sentence):
    monkeypatch.setattr(options.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MorphVlaError, match=sentence):
        chosen.check()


@pytest.mark.skipif(bool(importlib.util.find_spec("isaaclab")), reason="Isaac Lab is installed here")
def test_isaac_lab_that_is_not_installed_is_named():
    with pytest.raises(MissingExtraError, match=r"^engine isaaclab needs Isaac Lab, .* `make test-isaaclab`"):
        engines.check("isaaclab")


def test_a_record_says_the_lights_and_whether_repeats_are_asked_to_be_equal():
    here, there = door.declared(Options()), door.declared(Options(renderer="rtx", device="cuda:0"))
    assert here["lights"] == "mujoco's: ambient 0.45, key 0.6 along (0.1, 0.5, -1.0), headlight 0.4"
    assert there["lights"].endswith("not compared with mujoco's")
    assert (here["contacts"], here["repeats"], there["repeats"]) == (
        "200", "bit-equal, as measured", "bit-equal, asked for",
    )  # fmt: skip
    of_kit = door.declared(Options("physx"))
    assert ("contacts" in of_kit, of_kit["repeats"]) == (False, "not measured")


def test_room_for_contacts_that_nobody_makes_is_refused(monkeypatch):
    monkeypatch.setattr(options.importlib.util, "find_spec", lambda _: True)
    words = r"^engine isaaclab: contacts is for physics=newton, and physics is physx; leave it out$"
    with pytest.raises(MorphVlaError, match=words):
        options.read({"physics": "physx", "contacts": "200"})


def test_names_that_usd_writes_alike_are_refused():
    scene._check_prim_names("a.yaml: cameras", ["side", "side-1"])
    words = r"^a\.yaml: cameras: engine isaaclab cannot tell 'side-1' from 'side_1': USD's names have "
    with pytest.raises(MorphVlaError, match=words):
        scene._check_prim_names("a.yaml: cameras", ["side-1", "side_1"])


# -------------------------------------------------------------------------------------------- what is started


def test_the_program_is_started_once_and_stays_until_the_process_ends(monkeypatch):
    """Kit cannot be started twice, and ends the process where it is closed."""
    events = []

    @contextmanager
    def launch_simulation(config, arguments):
        events.append((config, arguments))
        yield
        events.append("closed")

    app = SimpleNamespace(launch_simulation=launch_simulation)
    at_exit = []
    monkeypatch.setattr(launch, "require", lambda module, _: {"isaaclab.app": app}[module])
    monkeypatch.setattr(launch.scene, "runtime_cfg", lambda chosen: f"config of {chosen.physics}")
    monkeypatch.setattr(launch.atexit, "register", at_exit.append)
    monkeypatch.setattr(launch, "STARTED", [])
    for room in (200, 400):
        launch.start(Options("physx", "rtx", "cuda:0", room))
    words = (
        "^engine isaaclab: this process runs Kit for physics=physx, renderer=rtx, device=cuda:0, and it "
        "cannot be started twice; choose the same, or begin a new process$"
    )
    with pytest.raises(MorphVlaError, match=words):
        launch.start(Options("newton", "rtx", "cuda:0"))
    assert events == [("config of physx", {"headless": True, "device": "cuda:0"})]
    (close,) = at_exit
    close()
    assert events[1:] == ["closed"]


# ------------------------------------------------------------------------------------------- what is left out


class Array:
    """As Warp's arrays are read here."""

    def __init__(self, *values):
        self.values = np.array(values)

    def numpy(self):
        return self.values.copy()

    def assign(self, values):
        self.values = np.array(values)


class Newton:
    """A manager as Isaac Lab has it, of worlds that make as many contacts as is said."""

    def __init__(self, room):
        contact = SimpleNamespace(worldid=Array(2, 0, 2, 1, 2, *[0] * room))
        data = SimpleNamespace(
            overflow=Array(0, 0, 0), naconmax=room, njmax=800, nacon=Array(5), contact=contact
        )
        self._solver = SimpleNamespace(mjw_data=data)
        self._contacts = SimpleNamespace(rigid_contact_count=Array(0))

    def get_device(self):
        return "cpu"

    def get_contacts(self):
        return self._contacts

    def register_post_actuator_callback(self, callback):
        self.callback = callback

    def step(self, *made):
        """A control step with so many contacts in each of its physics steps."""
        for count in made:
            self._contacts.rigid_contact_count = Array(count)
            self.callback()
        self._contacts.rigid_contact_count = Array(0)


@pytest.fixture
def newton(monkeypatch):
    def copy(dest, source, dest_offset, count):
        dest.values[dest_offset : dest_offset + count] = source.values

    warp = SimpleNamespace(zeros=lambda n, **_: Array(*[0] * n), copy=copy, int32=int)
    monkeypatch.setattr(limits, "require", lambda *_: warp)
    return Newton(room=600)


def test_contacts_that_do_not_fit_in_any_physics_step_end_every_worlds_episode(newton):
    watch = limits.Limits(newton, 3, 2, 200)
    newton.step(600, 600)
    watch.look()
    assert [watch.problem(index) for index in range(3)] == [None] * 3
    newton.step(607, 12)
    watch.look()
    newton.step(3, 3)
    watch.look()
    sentence = (
        "the 3 worlds together made 607 contacts and the solver has room for 600: some were left out, of any "
        "world (world 2 has most, 3); make room with --engine isaaclab,contacts=406 (per world; now 200)"
    )
    assert [watch.problem(index) for index in range(3)] == [sentence] * 3
    watch.forget([0, 2])
    watch.look()
    assert [watch.problem(index) for index in range(3)] == [None, sentence, None]


def test_one_world_is_not_told_of_others():
    assert limits.too_many_contacts(207, 200, [200], 200) == (
        "it made 207 contacts and the solver has room for 200: some were left out; make room with --engine "
        "isaaclab,contacts=414 (per world; now 200)"
    )


@pytest.mark.parametrize("bits", [1, 2, 1 | 512])
def test_rows_that_do_not_fit_end_that_worlds_episode_alone(newton, bits):
    watch = limits.Limits(newton, 3, 2, 200)
    newton._solver.mjw_data.overflow.values[1] = bits
    watch.look()
    assert watch.problem(0) is None
    assert watch.problem(1) == (
        "this world's contacts need more than the 800 rows of constraints that the solver has room for: some "
        "were left out; make room with --engine isaaclab,contacts=400 (per world; now 200)"
    )
    watch.forget([1])
    watch.look()
    assert watch.problem(1) is None


def test_a_solver_that_stopped_iterating_left_nothing_out(newton):
    watch = limits.Limits(newton, 3, 2, 200)
    newton._solver.mjw_data.overflow.values[:] = 512 | 1024
    watch.look()
    assert watch.problem(1) is None


# ----------------------------------------------------------------------------------------------- what is seen


def test_what_no_ray_meets_is_black_and_what_is_met_is_lit_from_above():
    colors = np.full((2, 2, 3), 100, np.uint8)
    normals = np.zeros((2, 2, 3), np.float32)
    normals[0] = (0.0, 0.0, 1.0)
    normals[1, 1] = (0.0, 0.0, -1.0)
    level = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])  # looks along y
    frame = lights.shaded(colors, normals, level, 40.0)
    assert frame[1, 0].tolist() == [0, 0, 0]
    assert frame[1, 1].tolist() == [45] * 3  # turned away from both lights: what is ambient alone
    assert 45 + 53 <= frame[0, 0, 0] <= 45 + 60


@pytest.mark.gl
@pytest.mark.parametrize(
    ("name", "camera"), [("droid_panda:cube_in_bowl", "exterior"), ("so101_pick_orange", "front")]
)
def test_a_table_shaded_as_isaac_labs_is_the_table_that_mujoco_renders(name, camera):
    """The table's top is the one surface whose normals are known without another renderer."""
    mujoco = pytest.importorskip("mujoco")
    suite = load(name, [f"cameras.{camera}.{side}=48" for side in ("width", "height")])
    with_table = MujocoEngine(robots.load(suite.robot), suite, 1)
    with_table.place({0: initial_states(suite, 1, len(with_table.robot.joints))[0]})
    frame, axes = with_table.render(0, camera), with_table.camera_pose(0, camera)[1]
    renderer = mujoco.Renderer(with_table.model, 48, 48)
    renderer.enable_segmentation_rendering()
    renderer.update_scene(with_table.data(0), camera)
    top = renderer.render()[..., 0] == with_table.model.geom("table").id
    renderer.close()
    with_table.close()
    assert top.mean() > 0.3
    colors = np.broadcast_to(np.rint(np.asarray(suite.table.color) * 255).astype(np.uint8), frame.shape)
    normals = np.broadcast_to(np.array([0.0, 0.0, 1.0], np.float32), frame.shape)
    gap = np.abs(lights.shaded(colors, normals, axes, suite.cameras[camera].fovy).astype(int) - frame)[top]
    assert np.median(gap) <= 3
    assert gap.mean() <= 4
