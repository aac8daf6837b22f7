"""The program that measures this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshtf as mtf
from meshtf.bin import probe
from meshtf.costs import load_machine, predict
from meshtf.errors import DeviceError
from meshtf.mesh_impl.virtual_cpus import num_processors
from meshtf.probe import ProbeSizes
from meshtf.probe import probe as measured
from meshtf_programs.exit_status import ExitStatus

SMALL = ProbeSizes(cores=2, side=8, image_side=4, elements=8, many_elements=8, chain=1, runs=1)


def test_a_probe_writes_a_machine_that_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "here.toml"
    assert (
        probe.write_probe(path, ProbeSizes(cores=2, side=8, image_side=4, elements=8, many_elements=8, chain=1, runs=1))
        == ExitStatus.DONE
    )
    out = capsys.readouterr().out
    assert "measuring collectives" in out
    assert str(path) in out
    machine = load_machine(str(path))
    assert machine.processors == num_processors()
    assert machine.source.startswith("measured by meshtf-probe on ")
    assert machine.source in out
    step = mtf.function(
        lambda x: mtf.reduce_sum(x),
        mtf.PlanMeshImpl("rows:2", "batch:rows"),
        inputs={"x": mtf.TensorSpec([mtf.Dimension("batch", 8)])},
    )
    assert predict(step.report(), machine).seconds > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out"),
        (["--out=here.txt"], "--out=here.txt: the name of a machine file must end in .toml"),
        (["--out=none/here.toml"], "--out=none/here.toml: there is no folder none"),
        (["--out=here.toml", "--cores=3"], "--cores=3: it must be an even number, as in --cores=4"),
        (["--out=here.toml", "--cores=0"], "--cores"),
        (["--out=here.toml", "--backend=gpu", "--cores=4"], "--cores=4 is for virtual CPUs"),
    ],
)
def test_wrong_flags_are_refused_before_anything_is_measured(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe.main([probe.PROGRAM, *arguments]) == ExitStatus.BAD_CONFIGURATION
    printed = capsys.readouterr()
    assert message in printed.err
    assert "measuring" not in printed.out


def test_a_machine_without_gpus_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(virtual: int | None) -> None:
        raise DeviceError("a GPU was asked for, and none can be used")

    monkeypatch.setattr(probe, "open_gpus", none)
    given = [probe.PROGRAM, f"--out={tmp_path / 'gpu.toml'}", "--backend=gpu"]
    assert probe.main(given) == ExitStatus.BAD_CONFIGURATION
    assert "none can be used" in capsys.readouterr().err


def test_a_folder_is_refused_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "here.toml").mkdir()
    assert probe.main([probe.PROGRAM, f"--out={tmp_path / 'here.toml'}"]) == ExitStatus.BAD_FILE
    printed = capsys.readouterr()
    assert "--out is a folder" in printed.err
    assert "measuring" not in printed.out


def test_what_other_work_hid_is_told() -> None:
    """By a clock that stands still nothing takes any time."""
    source = measured(SMALL, clock=lambda: 0.0).source
    assert "; wrong for operations, memory, exponentials, products, convolutions, random bits, collectives, " in source
