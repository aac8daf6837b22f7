"""The scripts for a machine with a GPU: run at tiny sizes on a virtual GPU, and skipped with a reason without one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.gpu import bench, check
from benchmarks.gpu.bench import Measured
from tests.fresh_process import run_fresh

_NO_GPU = "no GPU can be used: there is no driver"


@pytest.mark.parametrize(("script", "name"), [(check, "lm_tiny"), (bench, "GPT-2 124M, bfloat16, 8 x 1024")])
def test_without_a_gpu_each_part_is_skipped(
    script: object, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["script"])
    monkeypatch.setattr(check, "why_no_gpu", lambda _: _NO_GPU)
    monkeypatch.setattr(bench, "_why_no_gpu", lambda _: _NO_GPU)
    main: Callable[[], int] = vars(script)["main"]
    assert main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith(_NO_GPU)
    assert f"{name}: skipped, since there is no GPU" in printed


@pytest.mark.long
def test_the_check_compares_operations_with_the_cpu() -> None:
    ended = run_fresh(["-m", "benchmarks.gpu.check", "--virtual=1", "--only=operations,memory"])
    assert ended.status == 0, ended.stderr
    assert "operations: 15 results and gradients are those of the CPU" in ended.stdout
    assert "MiB, and virtual GPUs do not count theirs" in ended.stdout
    assert "2 of 2 parts are right" in ended.stdout


def test_the_table_has_what_was_measured_and_why_the_rest_was_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {"meshtf": Measured(30.0, 12.0), "jax": Measured(None, why="the time was over")}
    monkeypatch.setattr("sys.argv", ["script", f"--out={tmp_path}", "--only=GPT-2 124M, bfloat16, 8"])
    monkeypatch.setattr(bench, "_why_no_gpu", lambda _: None)
    monkeypatch.setattr(bench, "card_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(bench, "_measured", lambda group, *_: [found[system] for _, system in group])
    assert bench.main() == 0
    table = (tmp_path / "table.md").read_text()
    assert table.startswith("NVIDIA H200; ")
    assert "| GPT-2 124M, bfloat16, 8 x 1024 | 30 |  |  | " in table
    assert "- GPT-2 124M, bfloat16, 8 x 1024, jax: the time was over" in table
    assert "NVIDIA H200" in (tmp_path / "picture.svg").read_text() or (tmp_path / "picture.svg").stat().st_size > 1000


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
    own = {
        "slow": [program, "0.5"],
        "quick": [program, "0"],
        "fails": [fails],
        "hangs": ["import time; time.sleep(60)"],
    }
    monkeypatch.setattr(
        bench,
        "_start",
        lambda name, *_: bench._Program([sys.executable, "-c", *own[name]], 10 if name != "hangs" else 1),
    )
    found = bench._measured([(name, "meshtf") for name in own], [], 0.0)
    assert found[:2] == [Measured(5.0, 1.0)] * 2
    assert [one.why for one in found[2:]] == ["no memory", "the time was over"]
    assert measured.read_text() == "0.5 0 "


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
    assert [name[:5] for name in of_images] == ["ViT-S", "ResNe"]


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
