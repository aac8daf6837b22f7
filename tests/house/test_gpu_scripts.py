"""The scripts for a machine with a GPU: run at tiny sizes on a virtual GPU, and skipped with a reason without one."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.sharding import Mesh

import meshtf as mtf
from benchmarks.gpu import bench, check, counted
from benchmarks.gpu.bench import Measured
from benchmarks.gpu.counted import Counted
from benchmarks.gpu.kernels import Loop
from benchmarks.gpu.steps import Sized
from benchmarks.workloads import resnet_sizes
from benchmarks.workloads.in_jax import resnet as resnet_in_jax
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from tests.fresh_process import run_fresh

_NO_GPU = "no GPU can be used: there is no driver"
_RESERVES = "XLA_PYTHON_CLIENT_PREALLOCATE"


@pytest.mark.parametrize(("script", "name"), [(check, "lm_tiny"), (bench, "GPT-2 124M, bfloat16, 8 x 1024")])
def test_without_a_gpu_each_part_is_skipped(
    script: object, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["script"])
    monkeypatch.setenv(_RESERVES, "true")  # the check changes it
    monkeypatch.setattr(check, "why_no_gpu", lambda _: _NO_GPU)
    monkeypatch.setattr(bench, "_why_no_gpu", lambda _: _NO_GPU)
    main: Callable[[], int] = vars(script)["main"]
    assert main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith(_NO_GPU)
    assert f"{name}: skipped, since there is no GPU" in printed


def test_the_check_reserves_no_memory_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process opens the GPU first. JAX would then leave a quarter of the memory to the programs that it starts."""
    monkeypatch.setenv(_RESERVES, "true")
    monkeypatch.setattr("sys.argv", ["script"])
    monkeypatch.setattr(check, "why_no_gpu", lambda _: f"opened with {os.environ[_RESERVES]}")
    assert check.main() == 0
    assert capsys.readouterr().out.startswith("opened with false\n")


@pytest.mark.long
def test_the_check_compares_operations_with_the_cpu() -> None:
    ended = run_fresh(["-m", "benchmarks.gpu.check", "--virtual=1", "--only=operations,memory"])
    assert ended.status == 0, ended.stderr
    assert "operations: 19 results and gradients are those of the CPU" in ended.stdout
    assert "MiB, and virtual GPUs do not count theirs" in ended.stdout
    assert "2 of 2 parts are right" in ended.stdout


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Runs the benchmark of GPT-2 with 8 x 1024, whose measurements a function makes. Returns the folder."""

    def run(measured: Callable[..., Iterator[Measured]], *options: str) -> Path:
        monkeypatch.setattr("sys.argv", ["script", f"--out={tmp_path}", "--only=GPT-2 124M, bfloat16, 8", *options])
        monkeypatch.setattr(bench, "_why_no_gpu", lambda _: None)
        monkeypatch.setattr(bench, "card_name", lambda _: "NVIDIA H200")
        monkeypatch.setattr(bench, "predicted", lambda *_: {"GPT-2 124M, bfloat16, 8 x 1024": 22.0})
        monkeypatch.setattr(bench, "_measured", measured)
        assert bench.main() == 0
        return tmp_path

    return run


def test_the_table_has_what_was_measured_and_why_the_rest_was_not(bench_of: Callable[..., Path]) -> None:
    found = {"meshtf": Measured(30.0, 12.0, 33.0), "jax": Measured(None, why="the time was over")}
    folder = bench_of(lambda group, *_: (found[system] for _, system in group))
    table = (folder / "table.md").read_text()
    assert table.startswith("NVIDIA H200; ")
    assert "| GPT-2 124M, bfloat16, 8 x 1024 | 30 |  |  | 33 |  | 22 | 12 |" in table
    assert "- GPT-2 124M, bfloat16, 8 x 1024, jax: the time was over" in table
    assert "NVIDIA H200" in (folder / "picture.svg").read_text() or (folder / "picture.svg").stat().st_size > 1000


def test_a_benchmark_that_was_ended_goes_on_where_it_was(bench_of: Callable[..., Path], tmp_path: Path) -> None:
    """What was measured is in the folder before the next program is measured, and is not measured again."""

    def ends(group: Sequence[tuple[str, str]], *_: object) -> Iterator[Measured]:
        assert [system for _, system in group] == ["meshtf", "jax"]
        yield Measured(30.0, 12.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench_of(ends)
    assert "| GPT-2 124M, bfloat16, 8 x 1024 | 30 |  |  |  |  | 22 | 12 |" in (tmp_path / "table.md").read_text()
    folder = bench_of(lambda group, *_: (Measured(None, why="no memory") for _ in group), "--resume")
    assert "jax: no memory" in (folder / "table.md").read_text()
    bench_of(lambda group, *_: (Measured(20.0, why=system) for _, system in group), "--resume")
    assert "| GPT-2 124M, bfloat16, 8 x 1024 | 30 | 20 | 1.5 |" in (folder / "table.md").read_text()
    with pytest.raises(SystemExit, match="of another machine, or of another number of steps: NVIDIA H200; "):
        bench_of(ends, "--resume", "--steps=5")


def test_programs_compile_at_once_and_are_measured_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each says that it has compiled, waits, and then has the GPU for itself; the first waits for the second."""
    measured = tmp_path / "measured"
    measured.touch()
    program = (
        "import pathlib, sys, time; time.sleep(float(sys.argv[1])); print('a warning'); print('compiled', flush=True);"
        f"log = pathlib.Path({str(measured)!r}); input();"
        "log.write_text(log.read_text() + sys.argv[1] + ' '); print('{\"ms\": 5.0, \"first_s\": 1.0}')"
    )
    fails = "print('it starts'); raise SystemExit('no memory')"
    hangs = "import time; {}; time.sleep(60)".format
    own = {
        "slow": [program, "0.5"],
        "never compiles": [hangs("print('a warning\\n' * 10000)")],
        "quick": [program, "0"],
        "fails": [fails],
    }

    def started(name: str, *_: object) -> bench._Program:
        return bench._Program([sys.executable, "-c", *own[name]], 1.0 if name == "never compiles" else 60.0)

    monkeypatch.setattr(bench, "_start", started)
    group = [(name, "meshtf") for name in own]
    found = dict(zip(own, bench._measured(group, [], time.monotonic() + 60.0), strict=True))
    assert found["slow"] == found["quick"] == Measured(5.0, 1.0)
    assert found["fails"].why == "no memory"
    assert found["never compiles"].why == "it did not compile within 1 s"
    assert measured.read_text() == "0.5 0 "
    never_ends = bench._Program([sys.executable, "-c", hangs("print('compiled', flush=True)")], 60.0)
    never_ends.wait_for_compilation()
    assert never_ends.measure(0.1).why == "the time was over"


def test_images_per_second_stand_beside_jax_and_pytorch() -> None:
    """64 images in 32 ms are 2,000 a second. Programs without images have neither PyTorch nor this table."""
    resnet = "ResNet-50, 64 images of 224 x 224"
    row = {"meshtf": Measured(32.0), "jax": Measured(16.0), "torch": Measured(None, why="PyTorch is not installed")}
    lines = bench.table({resnet: row, "decoding, 16 prompts, 64 tokens": row}, {}).splitlines()
    begin = lines.index("| one GPU, images per second | meshtf | JAX by hand | PyTorch by hand |")
    assert lines[begin + 2 : begin + 4] == [f"| {resnet} | 2,000 | 4,000 |  |", ""]
    assert f"- {resnet}, torch: PyTorch is not installed" in lines
    of_images = [name for name in bench.PROGRAMS if "images" in name]
    assert [name for name in bench.PROGRAMS if "torch" in bench.systems_of(name)] == of_images
    assert [name[:12] for name in of_images] == ["ViT-S, bfloa", "ResNet-50, 6", "ResNet-50, b"]


_ROUNDINGS = 2 * (2 + 7 + 3)
"""The roundings on the longest path through a ResNet of one block and back: two in the stem, seven in the block, and
three in the classifier.
"""


@pytest.mark.parametrize(
    ("dtype", "change"),
    [
        pytest.param(np.float32, 1e-5, marks=pytest.mark.long),
        (tf.bfloat16.as_numpy_dtype, _ROUNDINGS**0.5 * 2**-9),
    ],
)
def test_resnet_has_the_losses_of_jax(dtype: type, change: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rounding to bfloat16 changes a number by 2^-9 of it at most, and n independent ones by root n times as much.

    If all logits change by a share e, a loss changes by e times its distance from the entropy of the probabilities. A
    loss below the logarithm of the number of classes is closer to it than that.
    """
    program = bench.TINY["ResNet of one block, bfloat16"]
    assert isinstance(program, Sized)
    for name, value in {**program.sizes, "DTYPE": dtype}.items():
        monkeypatch.setattr(f"{program.module}.{name}", value)
    mesh = Mesh(np.array(jax.devices("cpu")[:1]).reshape(1, 1), ("rows", "cols"))
    monkeypatch.setattr(resnet_in_jax, "jax_mesh", lambda **_: mesh)
    step, feeds = program.make(mtf.GpuMeshImpl("all:1", ""))
    run = resnet_in_jax.in_jax(1, 1)
    ours, theirs = np.array([(step(**feeds), run()) for _ in range(4)], np.float64).T
    most = np.log(resnet_sizes.CLASSES)
    assert ours[-1] + 1 < max(ours) < most
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=change * most)
    hlo = step.hlo()
    assert hlo is not None
    module = parsed_hlo(hlo)
    instructions = [i for computation in module.computations for i in computation.instructions]
    products = {i.shape.element_type for i in instructions if i.opcode in ("convolution", "dot")}
    assert products == {module.host_program_shape.parameters[0].element_type}


def test_without_the_compiler_nothing_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["script"])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert counted.main() == 0
    assert "CUDA's compiler is not installed" in (printed := capsys.readouterr().out)
    assert "pip install 'meshtf[cuda13]'" in printed


def test_the_counts_of_each_program_are_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Here JAX's program fails. The others are written, and the exit status is 1."""
    loops = [Loop(None, 6), Loop(8, 3), Loop(8, 3)]
    found = Counted({"copy": 1, "fusion kLoop": 3000}, {"copy": 4, "fusion kLoop": 5 * 10**9}, loops, 3 << 30, 21.4)
    monkeypatch.setattr("sys.argv", ["script", f"--out={tmp_path}", "--only=decoding", "--kernels"])
    monkeypatch.setattr(counted, "why_no_compiler", lambda: None)
    monkeypatch.setattr(counted, "_counted_apart", lambda system, _: found if system == "meshtf" else "no memory")
    assert counted.main() == 1
    name = "decoding, 16 prompts, 64 tokens"
    _, _, *lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines == [
        "| program | system | kernels | GB read and written | most memory, GiB | seconds to compile |",
        "|---|---|---|---|---|---|",
        f"| {name} | meshtf | 3,001 | 5.00 | 3.00 | 21 |",
        f"| {name} | meshtf: fusion kLoop | 3,000 | 5.00 |  |  |",
        f"| {name} | meshtf: copy | 1 | 0.00 |  |  |",
        "",
        f"- {name}, meshtf: a loop of 6 kernels, whose iterations the compiler does not know, counted once",
        f"- {name}, meshtf: 2 loops of 8 iterations, each of 3 kernels",
        f"- {name}, JAX by hand: no memory",
    ]
    kept = json.loads((tmp_path / "counted.json").read_text())["rows"][name]
    assert Counted.read(json.dumps(kept["meshtf"])) == found
    assert kept["jax"] == "no memory"


@pytest.mark.long
def test_the_whole_check_is_right() -> None:
    ended = run_fresh(["-m", "benchmarks.gpu.check", "--virtual=1"], timeout_seconds=1500)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "6 of 6 parts are right" in ended.stdout


@pytest.mark.long
@pytest.mark.parametrize("system", ["meshtf", "jax", "torch"])
def test_programs_are_timed(system: str) -> None:
    if system == "torch":
        pytest.importorskip("torch")
    for name in (name for name in bench.TINY if system in bench.systems_of(name)):
        ended = run_fresh(["-m", "benchmarks.gpu.measure", system, name, "--steps=2", "--virtual=1"])
        assert ended.status == 0, ended.stderr
        assert json.loads(ended.stdout.splitlines()[-1])["ms"] > 0
