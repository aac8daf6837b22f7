"""meshtf-compile: the TPU's own compiler asked of a training step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshtf.bin.compile import main

DIGITS = ["meshtf-compile", "--gin_file=digits_mlp.gin", "--mesh_shape=rows:2;cols:4"]


def test_a_table_then_json_from_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--topology=v5e:2x4", f"--cache_dir={tmp_path / 'cache'}", f"--hlo_file={tmp_path / 'step.hlo'}"]
    assert main([*DIGITS, *options]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    assert "compiled by libtpu" in text
    assert "of 15.8 GiB" in text
    assert (tmp_path / "step.hlo").read_text().startswith("HloModule")
    assert main([*DIGITS, *options, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["topology"], data["cores"], data["is_cached"]) == ("v5e:2x4", 8, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--topology is needed, for example: meshtf-compile --gin_file=lm_tiny.gin"),
        (["--topology=v5e:3x3"], '"v5e:3x3" is not a TPU topology'),
        (["--topology=v5e:4x4"], "mesh [rows:2 cols:4] has 8 cores, and topology v5e:4x4 has 16"),
    ],
)
def test_mistakes(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DIGITS, *options]) == 2
    assert said in capsys.readouterr().err


def test_a_cache_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main([*DIGITS, "--topology=v5e:2x4", f"--cache_dir={tmp_path / 'file' / 'cache'}"]) == 4
    assert "a file cannot be read or written" in capsys.readouterr().err


def test_a_program_that_cannot_be_written_is_told_before_anything_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, why in ((tmp_path / "none" / "step.hlo", "there is no folder"), (tmp_path, "--hlo_file is a folder")):
        options = [f"--cache_dir={tmp_path / 'cache'}", f"--hlo_file={place}"]
        assert main([*DIGITS, "--topology=v5e:2x4", *options]) == 4
        assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_program_does_not_overwrite_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, outer = tmp_path / "own.gin", tmp_path / "outer.gin"
    own.write_text('include "digits_mlp.gin"\n')
    outer.write_text('include "own.gin"\n')
    for given in (own, outer):
        assert main([*DIGITS, f"--gin_file={given}", "--topology=v5e:2x4", f"--hlo_file={own}"]) == 2
        assert f"--hlo_file={own} would overwrite {own}, which this command reads" in capsys.readouterr().err
        assert own.read_text() == 'include "digits_mlp.gin"\n'
