"""Kernels of a trace: of a program that ran, and of a GPU's trace as JAX's profiler gives it."""

from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from benchmarks import kernels

# As an error, this one of the profiler's own ends the process.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")]


def test_a_programs_turn_is_told_kernel_by_kernel(tmp_path):
    def work(x):
        with jax.named_scope("dear"):
            return jnp.sort(x @ x, axis=0)

    x = jnp.ones((311, 311))
    program = jax.jit(work).lower(x).compile()
    found = kernels.traced(lambda: jax.block_until_ready(program(x)), program, tmp_path)
    assert [kernel.ms for kernel in found] == sorted((kernel.ms for kernel in found), reverse=True)
    assert all(kernel.count == round(kernel.count) > 0 for kernel in found)
    assert any("dear" in kernel.scope for kernel in found)
    assert (tmp_path / "program.txt.gz").stat().st_size


def event(name, nanoseconds, **stats):
    return SimpleNamespace(name=name, duration_ns=nanoseconds, stats=stats.items())


def test_of_a_gpu_its_streams_count_and_a_graphs_kernels_have_names_of_their_own(monkeypatch):
    stream = [
        event("loop_add_fusion_3", 2e6, hlo_op="loop_add_fusion.3"),
        event("nvjet_sm90", 5e6, hlo_op="command_buffer_7"),
        event("memcpy", 1e6),
    ]
    lines = [SimpleNamespace(name="Stream #13(Compute)", events=stream)]
    lines += [SimpleNamespace(name="XLA Modules", events=[event("jit_step", 9e6)])]
    host = SimpleNamespace(name="/host:CPU", lines=[SimpleNamespace(name="Stream", events=stream)])
    planes = [SimpleNamespace(name="/device:GPU:0", lines=lines), host]
    data = SimpleNamespace(from_file=lambda _: SimpleNamespace(planes=planes))
    monkeypatch.setattr(jax.profiler, "ProfileData", data)
    told = list(kernels.events(Path("trace")))
    assert told == [("loop_add_fusion.3", 2.0), ("nvjet_sm90", 5.0), ("memcpy", 1.0)]


def test_a_graphs_kernel_has_the_scope_of_its_instruction(monkeypatch, tmp_path):
    (tmp_path / "a.xplane.pb").touch()
    monkeypatch.setattr(kernels, "events", lambda _: [("loop_add_fusion_3", 2.0), ("nvjet_sm90", 5.0)])
    text = '  %loop_add-fusion.3 = f32[3]{0} fusion(%x), metadata={op_name="jit(step)/norm/add" id=1}\n'
    program = SimpleNamespace(as_text=lambda: text)
    dearest, other = kernels.traced(lambda: None, program, tmp_path)
    assert (dearest.name, dearest.scope) == ("nvjet_sm90", "")
    assert other.scope == "jit(step)/norm/add"
