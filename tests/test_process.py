"""What a process sets up before it computes."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from morph_vla import process

GLIBC = process.platform.libc_ver()[0] == "glibc"

# A block like a training step's temporaries is taken and given back, again and again.
CHILD = """
import ctypes, json, resource, sys
from morph_vla import process
kept = process.keep_freed_memory() if sys.argv[1] == "kept" else None
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def use():
    block = libc.malloc(32 << 20)
    ctypes.memset(block, 1, 32 << 20)
    libc.free(block)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(7):
    use()
print(json.dumps([kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""


def faults(way: str) -> tuple[bool | None, int]:
    """What `keep_freed_memory` said, and the page faults of taking 32 MiB seven times more."""
    ended = subprocess.run([sys.executable, "-c", CHILD, way], capture_output=True, text=True, check=True)
    return tuple(json.loads(ended.stdout))


@pytest.mark.skipif(not GLIBC, reason="only glibc can be told to keep freed memory")
def test_freed_memory_is_taken_again_without_page_faults():
    assert faults("given back")[1] > 7 * 8000  # 4 KiB a page
    kept, count = faults("kept")
    assert kept is True
    assert count < 100


def test_another_libc_is_left_alone(monkeypatch):
    monkeypatch.setattr(process.platform, "libc_ver", lambda: ("", ""))
    assert process.keep_freed_memory() is False


def test_compiled_programs_are_kept_in_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path))
    monkeypatch.delenv(process.COMPILED, raising=False)
    process.keep_compiled()
    assert process.os.environ[process.COMPILED] == str(tmp_path / "xla")


def test_a_cache_that_the_user_chose_stays(monkeypatch):
    monkeypatch.setenv(process.COMPILED, "elsewhere")
    process.keep_compiled()
    assert process.os.environ[process.COMPILED] == "elsewhere"


def test_one_folder_keeps_everything(monkeypatch, tmp_path):
    monkeypatch.setenv("MORPH_VLA_CACHE", "~/kept")
    assert process.cache_folder() == Path("~/kept").expanduser()
    monkeypatch.delenv("MORPH_VLA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert process.cache_folder() == tmp_path / "morph_vla"


@pytest.mark.parametrize(("release", "kept"), [("0.5.3", False), ("0.6.0", True), ("0.11.1", True)])
def test_jax_05_keeps_no_compiled_programs(monkeypatch, release, kept):
    monkeypatch.delenv(process.COMPILED, raising=False)
    monkeypatch.setattr(process, "version", lambda _: release)
    process.keep_compiled()
    assert (process.COMPILED in process.os.environ) == kept
    monkeypatch.delenv(process.COMPILED, raising=False)


COMPILING = """
from morph_vla import process
process.keep_compiled()
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: x + 1)(1.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["true", "false"])
def test_jaxs_own_switch_turns_it_off(tmp_path, switch):
    environment = {
        **process.os.environ,
        "MORPH_VLA_CACHE": str(tmp_path),
        "JAX_ENABLE_COMPILATION_CACHE": switch,
    }
    environment.pop(process.COMPILED, None)
    subprocess.run([sys.executable, "-c", COMPILING], env=environment, check=True)
    assert any((tmp_path / "xla").glob("*")) == (switch == "true")


POOL = """
import concurrent.futures, multiprocessing, os, time
from morph_vla import process

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(2, context, process.end_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


def test_the_workers_of_a_pool_end_with_a_process_that_was_killed(tmp_path):
    (tmp_path / "pool.py").write_text(POOL)
    with subprocess.Popen(
        [sys.executable, tmp_path / "pool.py"], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        parent.kill()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.1)
    raise AssertionError("the worker is still there")


def test_the_source_is_told_apart_from_another(monkeypatch, tmp_path):
    """By a module's content or name; what lies beside the modules is no part of it."""
    found = []
    for files in ({"a.py": "1"}, {"a.py": "2"}, {"b.py": "1"}, {"a.py": "1", "a.txt": "3"}):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        monkeypatch.setattr(process, "__file__", str(folder / "process.py"))
        process.source.cache_clear()
        found.append(process.source())
    process.source.cache_clear()
    assert len({*found[:3]}) == 3
    assert found[3] == found[0]
