"""What every test runs under: one CPU, no network, strict dtypes, nothing of the user's own settings."""

import itertools
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# Before anything imports JAX or matplotlib.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
os.environ.setdefault("MPLBACKEND", "Agg")
CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"
# Tests build the same tiny models over and over: what XLA compiled is kept, for child processes too.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Compiling is most of the time, and no test's model is large enough to win back what optimizing costs.
QUICK = "--xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = f"{QUICK} {os.environ.get('XLA_FLAGS', '')}".strip()
# mujoco reads it when it is first imported, whichever test does that.
os.environ.setdefault("MUJOCO_GL", "egl")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("MORPH_VLA_PATH", None)

ROOT = Path(__file__).resolve().parents[1]

# A slow machine is no failure, and a failure in CI must come back on the laptop.
hypothesis.settings.register_profile("morph_vla", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("morph_vla")


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


@pytest.fixture
def run(capsys):
    """Run a command line in this process: (status, stdout, stderr)."""
    from morph_vla import cli

    def call(line: str) -> tuple[int, str, str]:
        try:
            status = cli.main(shlex.split(line))
        except SystemExit as ended:  # argparse's --help and --version
            status = ended.code if isinstance(ended.code, int) else 1
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

    from morph_vla.recipes.recipe import Data, Dataset

    panda = Dataset(str(tiny_dataset), "panda", tiny_recipe.data.cameras, 3.0)
    so101 = Dataset(str(so101_dataset), "so101", {}, 2.0, "delta")
    data = Data(datasets=(panda, so101), by="row", held_out=0.4)
    return dataclasses.replace(tiny_recipe, data=data)


def encode_video(path: Path, frames: int, fps: int = 30, size: int = 16, colour: int = 0) -> Path:
    """A small H.264 video of plain pictures that grow brighter; the first is as bright as `colour`."""
    import av
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=fps, options={"g": "2", "crf": "18"})
        stream.width, stream.height, stream.pix_fmt = size, size, "yuv420p"
        for number in range(frames):
            picture = np.full((size, size, 3), (colour + 7 * number) % 250, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


@pytest.fixture
def write_video():
    """A function that writes a small video: path, number of frames, rate."""
    return encode_video


@pytest.fixture
def write_dataset(tmp_path):
    """A function that writes a small LeRobot dataset, v2.0, v2.1 or v3.0, complete; returns the folder."""
    import json

    import pyarrow as pa
    from pyarrow import parquet

    def rows_of(episode: int, values: dict, fps: float, offset: int) -> "pa.Table":
        count = len(next(iter(values.values())))
        columns = {name: pa.array([list(map(float, row)) for row in v]) for name, v in values.items()}
        columns["timestamp"] = pa.array([frame / fps for frame in range(count)], pa.float32())
        columns["frame_index"] = pa.array(range(count), pa.int64())
        columns["episode_index"] = pa.array([episode] * count)
        columns["index"] = pa.array(range(offset, offset + count), pa.int64())
        columns["task_index"] = pa.array([0] * count)
        return pa.table(columns)

    def write_v3(root: Path, tables: list, cameras, fps) -> None:
        (root / "data/chunk-000").mkdir(parents=True)
        (root / "meta/episodes/chunk-000").mkdir(parents=True)
        half = (len(tables) + 1) // 2  # two files, so that an episode's place matters
        rows: dict[str, list] = {"episode_index": list(range(len(tables)))}
        rows |= {"length": [len(table) for table in tables], "tasks": [["wave"] for _ in tables]}
        rows |= {"data/chunk_index": [0] * len(tables)}
        rows["data/file_index"] = [int(index >= half) for index in range(len(tables))]
        for file, part in enumerate((tables[:half], tables[half:])):
            if part:
                parquet.write_table(pa.concat_tables(part), root / f"data/chunk-000/file-{file:03d}.parquet")
            for camera in cameras if part else ():
                key = f"videos/observation.images.{camera}"
                ends = list(itertools.accumulate(len(table) / fps for table in part))
                rows.setdefault(f"{key}/from_timestamp", []).extend([0.0, *ends[:-1]])
                rows.setdefault(f"{key}/to_timestamp", []).extend(ends)
                rows[f"{key}/chunk_index"], rows[f"{key}/file_index"] = (
                    [0] * len(tables),
                    rows["data/file_index"],
                )
                path = root / key / f"chunk-000/file-{file:03d}.mp4"
                encode_video(path, sum(len(table) for table in part), fps, colour=100 * file)
        parquet.write_table(pa.table(rows), root / "meta/episodes/chunk-000/file-000.parquet")
        tasks = pa.table({"task_index": [0], "task": ["wave"]})
        parquet.write_table(tasks, root / "meta/tasks.parquet")

    def write_v2(root: Path, tables: list, cameras, fps) -> None:
        lines = []
        for index, table in enumerate(tables):
            path = root / f"data/chunk-{index // 2:03d}/episode_{index:06d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, path)
            lines.append(json.dumps({"episode_index": index, "tasks": ["wave"], "length": len(table)}))
            for camera in cameras:
                folder = root / f"videos/chunk-{index // 2:03d}/observation.images.{camera}"
                encode_video(folder / f"episode_{index:06d}.mp4", len(table), fps, colour=40 * index)
        (root / "meta").mkdir(exist_ok=True)
        (root / "meta/episodes.jsonl").write_text("\n".join(lines), encoding="utf-8")
        (root / "meta/tasks.jsonl").write_text(
            json.dumps({"task_index": 0, "task": "wave"}), encoding="utf-8"
        )

    def write(version, episodes, names=None, fps=30, folder="recorded", info=None, cameras=()) -> Path:
        """`episodes`: for each a dict feature -> rows of values; `names`: feature -> what info.json holds."""
        root, offset, tables = tmp_path / folder, 0, []
        for index, values in enumerate(episodes):
            tables.append(rows_of(index, values, fps, offset))
            offset += len(tables[-1])
        features = {
            name: {"dtype": "float32", "shape": [len(rows[0])], "names": (names or {}).get(name)}
            for name, rows in episodes[0].items()
        }
        for name, dtype in (("timestamp", "float32"), *((f"{n}index", "int64") for n in INDEXES)):
            features[name] = {"dtype": dtype, "shape": [1], "names": None}
        for camera in cameras:
            shape = {"shape": [16, 16, 3], "names": ["height", "width", "channels"]}
            features[f"observation.images.{camera}"] = {"dtype": "video", **shape}
        described = {"codebase_version": version, "fps": fps, "features": features, "chunks_size": 2}
        described |= {"total_episodes": len(episodes), "total_frames": offset, "robot_type": "tiny"}
        if version.startswith("v3"):
            described["data_path"] = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
            write_v3(root, tables, cameras, fps)
        else:
            described["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
            write_v2(root, tables, cameras, fps)
        (root / "meta").mkdir(exist_ok=True)
        (root / "meta/info.json").write_text(json.dumps(described | (info or {})), encoding="utf-8")
        return root

    return write


INDEXES = ("frame_", "episode_", "", "task_")
