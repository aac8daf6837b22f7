"""The run of all tests, room by room; small programs take the place of the rooms' tests."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.house import long_run

PASSES = "print('= 3 passed, 1 skipped in 1.50s =')"
FAILS = "print('= 1 failed, 2 passed in 61.50s (0:01:01) ='); exit(1)"
ENDS = "print('Killed'); exit(137)"


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_run, "RESULTS", tmp_path / "results")


def replace_tests(monkeypatch: pytest.MonkeyPatch, programs: Mapping[str, str]) -> None:
    def command(run: long_run.Run, seed: int | None) -> Sequence[str]:
        return [sys.executable, "-c", programs[run.log.stem]]

    monkeypatch.setattr(long_run.Run, "command", command)


def test_every_test_file_is_in_one_room() -> None:
    in_rooms = [file for room in long_run.rooms() for file in long_run.files(room)]
    assert sorted(in_rooms) == sorted(long_run.TESTS.rglob("test_*.py"))


def test_only_marked_tests_run_again() -> None:
    """pytest fails where it selects none, as in this room, which only names the marker."""
    again = {run.room for run in long_run.runs([]) if run.plain_cpu}
    assert {"ops", "random"} <= again
    assert "house" not in again


def test_a_failure_is_named_and_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_tests(monkeypatch, {"debug": FAILS, "function": ENDS, "costs": PASSES})
    assert long_run.main(["costs", "debug", "function", "--at_once=1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["costs", "debug", "function"]
    assert [line.split(" min  ")[1] for line in lines[:3]] == ["3 passed, 1 skipped", "1 failed, 2 passed", "Killed"]
    assert [line.split(";")[0] for line in lines[3:]] == ["failed: debug", "failed: function"]


def test_a_run_goes_on_with_what_has_not_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_tests(monkeypatch, {"random": PASSES, "random_on_plain_cpu": FAILS})
    assert long_run.main(["random"]) == 1
    replace_tests(monkeypatch, {"random_on_plain_cpu": PASSES})
    assert long_run.main(["random", "--resume"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("random_on_plain_cpu ")
    assert long_run.main(["random", "--resume"]) == 0
    assert capsys.readouterr().out == ""


def test_an_unknown_room_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        long_run.main(["debugging"])
    assert "there is no room debugging; the rooms are cluster, " in capsys.readouterr().err
