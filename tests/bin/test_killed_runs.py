"""Training runs killed at random moments and resumed: each ends as one that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fresh_process import run_fresh

KILLED_RUNS = Path(__file__).parent / "killed_runs.py"
_KILLS_OF_A_TEST = 25


def check(folder: Path, kills: int, seed: int) -> None:
    done = run_fresh([str(KILLED_RUNS), str(folder), str(kills), str(seed)], timeout_seconds=1700)
    again = f"again: python {KILLED_RUNS.name} FOLDER {kills} {seed}"
    assert done.status == 0, f"{again}\n{done.stdout}\n{done.stderr}"
    assert f"{kills} kills" in done.stdout


def test_a_few_kills(tmp_path: Path) -> None:
    check(tmp_path, 2, 3)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(200 // _KILLS_OF_A_TEST))
def test_many_kills(tmp_path: Path, seed: int, number: int) -> None:
    check(tmp_path, _KILLS_OF_A_TEST, seed + number)
