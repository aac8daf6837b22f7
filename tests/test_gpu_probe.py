"""The probe of GPUs, on virtual ones: it writes a machine that predicts, and says what it did not measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fresh_process import run_fresh

_PROGRAM = """
from pathlib import Path
from meshtf.backends.gpu_mesh_impl import GpuMeshImpl
from meshtf.bin.probe import open_gpus, write_gpu_probe
from meshtf.gpu_probe import GpuProbeSizes
from meshtf.costs import load_machine
from meshtf.mesh_impl.pjrt.pjrt import Cores
GpuMeshImpl.kernel_platform = "cuda"  # as on real ones
fed, feed = [], Cores.feed
def noted(cores, pieces, **options):
    fed.append(pieces[0].shape)
    return feed(cores, pieces, **options)
Cores.feed = noted
path = Path({path!r})
open_gpus({gpus})
assert write_gpu_probe(path, GpuProbeSizes(sides=(4, 8), elements=64, fed=48, chain=1, runs=2)) == 0
machine = load_machine(str(path))
print(machine.fuses, machine.products_fuse, machine.processors)
print(f"attention: {{machine.kernel_platform}} {{machine.kernel_efficiency:.2f}}")
print("inputs:", fed.count((48,)))
print(sorted(machine.peak_flops), 0 < machine.memory_bandwidth, 0 < machine.step_seconds)
"""


@pytest.mark.parametrize("gpus", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_probe_of_virtual_gpus_writes_a_machine(gpus: int, tmp_path: Path) -> None:
    path = tmp_path / "gpu.toml"
    finished = run_fresh(["-c", _PROGRAM.format(path=str(path), gpus=gpus)])
    printed = finished.stdout
    assert "measuring products in bfloat16: 4: " in printed
    assert "True False None" in printed
    assert "attention: cuda 0.30" in printed
    assert "inputs: 3\n" in printed, "one that is not measured, and one for each run"
    assert "['bfloat16', 'float32'] True True" in printed
    assert ("links as h200, since there is one GPU" in printed) == (gpus == 1)
