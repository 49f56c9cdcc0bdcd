"""What every test runs under: one CPU, no network, strict dtypes, nothing of the user's own settings."""

import hashlib
import importlib.util
import itertools
import os
import shlex
import shutil
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
import slow_parts

# Before anything imports JAX or matplotlib.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
os.environ.setdefault("MPLBACKEND", "Agg")
CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"
# Tests build the same tiny models over and over: what XLA compiled is kept, for child processes too.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# JAX 0.5.3 reads programs back wrongly on a CPU: jax.random.beta then gives one number for all.
if find_spec("jax") and version("jax").startswith("0.5."):
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
# Compiling is most of the time, and no test's model is large enough to win back what optimizing costs.
QUICK = "--xla_backend_optimization_level=0"
# A quarter less of it, measured on a training step's gradient; at openpi's pins nobody ran all tests so.
if find_spec("jax") and not version("jax").startswith("0.5."):
    QUICK += " --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_prefer_vector_width=128"
os.environ["XLA_FLAGS"] = f"{QUICK} {os.environ.get('XLA_FLAGS', '')}".strip()
# mujoco reads it when it is first imported, whichever test does that.
os.environ.setdefault("MUJOCO_GL", "egl")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("MORPH_VLA_PATH", None)

ROOT = Path(__file__).resolve().parents[1]

# A slow machine is no failure, and a failure in CI must come back on the laptop.
hypothesis.settings.register_profile("morph_vla", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("morph_vla")


# What Flax 0.10 does under JAX 0.5, openpi's pins, at whichever test traces a model first: no file's own.
OLD_FLAX = ("linear_util.wrap_init:DeprecationWarning", "shape requires ndarray:DeprecationWarning")


@pytest.fixture
def pip_installs(monkeypatch):
    """Messages name the command of an environment with pip; what else they name is test_installing's."""
    monkeypatch.setattr("morph_vla.installing._installer", lambda: "pip install")
    monkeypatch.setattr("morph_vla.installing._made_by_setup", lambda: False)


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "of the slow tests those of one part in N, file by file (.ci/run: 4, chosen by the commit)"
    parser.addoption("--slow-part", metavar="K/N", type=slow_parts.part, help=words)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--slow-part")
    if part is not None:
        others = set(slow_parts.left_out(items, part))
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


def pytest_configure(config: pytest.Config) -> None:
    if find_spec("jax") and version("jax").startswith("0.5."):
        for warning in OLD_FLAX:
            config.addinivalue_line("filterwarnings", f"ignore:{warning}")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of this checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's shared reading, beside the checkout or inside it; tests that need it skip without it."""
    for folder in (ROOT / "shared", ROOT.parent / "shared"):
        if folder.is_dir():
            return folder
    pytest.skip("the shared folder with recorded values is not beside this checkout")


@pytest.fixture(scope="module")
def script(request) -> ModuleType:
    """The file of `scripts/` that a test module is about, as a module: its global SCRIPT."""
    path = ROOT / "scripts" / f"{request.module.SCRIPT}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(capsys):
    """Run a command line in this process: (status, stdout, stderr)."""
    from morph_vla import cli

    def call(line: str) -> tuple[int, str, str]:
        path = os.environ.get("MORPH_VLA_PATH")  # `--folder` adds to that of its process
        try:
            status = cli.main(shlex.split(line))
        except SystemExit as ended:  # argparse's --help and --version
            status = ended.code if isinstance(ended.code, int) else 1
        finally:
            # Not by monkeypatch, which would bring back what it found there.
            os.environ.pop("MORPH_VLA_PATH", None)
            os.environ.update({} if path is None else {"MORPH_VLA_PATH": path})
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A function that gives the folder of a name, filled by the first of the processes to ask."""
    from morph_vla.files.writing import locked

    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # the session's; each process has one of its own below it

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        folder, whole = base / "shared" / name, base / "shared" / f"{name}.whole"
        folder.parent.mkdir(exist_ok=True)
        with locked(folder.with_name(f"{name}.lock")):
            if not whole.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed half way
                fill(folder)
                whole.touch()
        return folder

    return made


@pytest.fixture
def hub_server(monkeypatch, tmp_path):
    """A stand-in that the Hub's client asks in place of the Hub; the user has logged in."""
    import huggingface_hub
    from hub_stand_in import TOKEN, Hub
    from huggingface_hub import constants

    server = Hub()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between the client's attempts
    yield server
    server.shutdown()
    server.server_close()
    huggingface_hub.close_session()


@pytest.fixture
def xet_server(hub_server, monkeypatch, tmp_path):
    """The same Hub with Xet's storage, for a machine that has hf_xet."""
    pytest.importorskip("hf_xet", reason="the Hub's client came without hf_xet")
    from huggingface_hub import constants
    from xet_stand_in import Store

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    # As the stand-in has it: blocks without compression, sent by the first version of each call.
    for name, value in {
        "XORB_COMPRESSION_POLICY": "none", "CLIENT_LEGACY_DIRECT_XORB_UPLOAD": "true",
        "CLIENT_SHARD_API_VERSION": "v1", "CLIENT_RECONSTRUCTION_API_VERSION": "v1",
        "TELEMETRY_ENABLED": "false", "CLIENT_RETRY_MAX_ATTEMPTS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"HF_XET_{name}", value)
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))
    hub_server.xet = Store(hub_server.objects)
    yield hub_server
    hub_server.xet.shutdown()
    hub_server.xet.server_close()


TINY_CAMERAS = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]


@pytest.fixture(scope="session")
def tiny_suite():
    """The demo's suite with small frames and short episodes."""
    from morph_vla.suites import suite

    return suite.load("droid_panda:cube_in_bowl", [*TINY_CAMERAS, "episode_seconds=2", "settle_seconds=0.1"])


@pytest.fixture(scope="session")
def tiny_dataset(shared_folder) -> Path:
    """Three real demonstrations of the demo's suite as a LeRobot dataset with small frames."""
    from morph_vla.demonstrations import recording as record
    from morph_vla.suites import suite

    chosen = suite.load("droid_panda:cube_in_bowl", TINY_CAMERAS)
    return shared_folder("tiny_dataset", lambda folder: record.record(chosen, folder, 3, workers=1))


@pytest.fixture(scope="session")
def tiny_recipe(tiny_dataset):
    """A recipe that trains on it in seconds."""
    from morph_vla.recipes import recipe as config

    sizes = [
        "model.image_size=24", "model.vit={width: 12, depth: 1, mlp_dim: 20, heads: 2, patch: 12}",
        "model.prefix={width: 20, mlp_dim: 28}", "model.expert={width: 16, mlp_dim: 28}", "model.depth=2",
        "model.heads=2", "model.head_dim=6",
    ]  # fmt: skip
    pace = [
        "training.steps=6", "training.batch=5", "training.flow_samples=2", "training.log_every=2",
        "training.held_out_every=4", "training.checkpoint_every=3", "optimizer.warmup=2", "data.held_out=0.4",
        "data.phases={}", "training.noise_share=0",
    ]  # fmt: skip
    text = ["tokenizer=bytes", "model.vocab=520", "model.max_tokens=40"]
    return config.load("panda_demo", [*sizes, *pace, *text, f"data.dataset={tiny_dataset}"])


@pytest.fixture(scope="session")
def tiny_run(tiny_recipe, tmp_path_factory, shared_folder):
    """A finished training run of the tiny recipe: trained once, and this process's own copy of it."""
    from morph_vla.training import loop

    trained = shared_folder("tiny_run", lambda folder: loop.train(tiny_recipe, folder))
    own = tmp_path_factory.mktemp("run") / "train"
    shutil.copytree(trained, own)
    return loop.train(tiny_recipe, own)  # finished: this reads it


@pytest.fixture(scope="session")
def so101_dataset(tmp_path_factory) -> Path:
    """Five short episodes of a SO101 that was never there, without cameras, by lerobot's own writer."""
    import numpy as np
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder = tmp_path_factory.mktemp("so101") / "dataset"
    feature = {"dtype": "float32", "shape": (6,), "names": [f"value_{i}" for i in range(6)]}
    features = {"observation.state": feature, "action": feature}
    made = LeRobotDataset.create("local/so101", 30, features, root=folder, use_videos=False)
    random = np.random.default_rng(0)
    for _ in range(5):
        walk = np.cumsum(random.normal(size=(23, 6)), axis=0).astype(np.float32) * 3 + 20
        for now, then in itertools.pairwise(walk):
            made.add_frame({"observation.state": now, "action": then, "task": "wave"})
        made.save_episode()
    made.finalize()
    return folder


@pytest.fixture(scope="session")
def mixed_recipe(tiny_recipe, tiny_dataset, so101_dataset):
    """Two robots in one run, rows mixed 3 : 2."""
    import dataclasses

    from morph_vla.recipes.keys import Data, Dataset

    panda = Dataset(str(tiny_dataset), "panda", tiny_recipe.data.cameras, 3.0)
    so101 = Dataset(str(so101_dataset), "so101", {}, 2.0, "delta")
    data = Data(datasets=(panda, so101), by="row", held_out=0.4)
    return dataclasses.replace(tiny_recipe, data=data)


@pytest.fixture
def write_video():
    """A function that writes a small video: path, number of frames, rate."""
    import small_datasets

    return small_datasets.encode_video


@pytest.fixture
def write_dataset(tmp_path):
    """A function that writes a small LeRobot dataset, v2.0, v2.1 or v3.0, complete; returns the folder."""
    import small_datasets

    def write(*given, folder: str = "recorded", **options) -> Path:
        return small_datasets.write_dataset(tmp_path / folder, *given, **options)

    return write


@pytest.fixture
def reword(monkeypatch):
    """From when it is called, parts of findings and lines of errors are other words; equal ones are equal."""
    from morph_vla.errors import MorphVlaError
    from morph_vla.findings import Finding

    made = Finding.__init__

    def word(text: str) -> str:
        return text and f"w{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def other_error(self, *given, **options):
        lines = ["\n".join(map(word, str(text).split("\n"))) for text in given]
        super(MorphVlaError, self).__init__(*lines, **options)

    def other_words(self, code, severity, where, subject, found, expected, consequence):
        made(self, code, severity, where, subject, word(found), word(expected), word(consequence))

    def call() -> None:
        monkeypatch.setattr(Finding, "__init__", other_words)
        monkeypatch.setattr(MorphVlaError, "__init__", other_error)

    return call
