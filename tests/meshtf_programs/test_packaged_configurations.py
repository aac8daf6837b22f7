from __future__ import annotations

from pathlib import Path

import pytest

from meshtf_programs.command_lines.train import answer
from meshtf_programs.packaged_configurations import no_gin_file, packaged_folder


def test_a_misspelt_name_is_looked_for_beside_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path, tmp_path / "mine"):
        (folder / "houses.gin").touch()
    monkeypatch.chdir(tmp_path)
    assert no_gin_file("hauses.gin").startswith('there is no gin file "hauses.gin"; did you mean "houses.gin"?')
    assert '; did you mean "mine/houses.gin"?' in no_gin_file("mine/hauses.gin")
    assert f'; did you mean "{tmp_path}/houses.gin"?' in no_gin_file(f"{tmp_path}/hauses.gin")
    assert '; did you mean "switch_base.gin"?' in no_gin_file("switch_bass.gin")
    assert 'there is no gin file "gone/x.gin"\n' in no_gin_file("gone/x.gin")


def test_experiments_are_listed_with_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.gin").write_text(
        '# A variant.\n# With more steps.\n\n# Of no matter.\ninclude "gpt2.gin"\nx = 1\n'
    )
    (tmp_path / "bare.gin").write_text("x = 1\n")
    (tmp_path / "folder.gin").mkdir()
    (tmp_path / "gone.gin").symlink_to("nowhere")
    (tmp_path / "of_many.gin").write_text("# Of many.\n" + f'include "{"configs/" * 12}"\n' * 2)
    monkeypatch.chdir(tmp_path)
    assert answer(["meshtf-train", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["bare.gin", "mine.gin", "of_many.gin"]
    assert lines[1].split(maxsplit=1)[1] == "A variant. With more steps.  (from gpt2.gin)"
    assert lines[2].split(maxsplit=1)[1].startswith("Of many.  (from configs/")
    assert [line.split()[0] for line in lines[3:]] == sorted(path.name for path in packaged_folder().glob("*.gin"))
    assert all(len(line) <= 120 and len(line.split()) > 3 for line in lines[3:])
