"""Training runs killed at random moments and resumed: each ends as one that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fresh_process import run_fresh

KILLED_RUNS = Path(__file__).parent / "killed_runs.py"
_KILLS_OF_A_TEST = 25


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(200 // _KILLS_OF_A_TEST))
def test_many_kills(tmp_path: Path, seed: int, number: int) -> None:
    arguments = [str(KILLED_RUNS), str(tmp_path), str(_KILLS_OF_A_TEST), str(seed + number)]
    done = run_fresh(arguments, timeout_seconds=1700)
    assert done.status == 0, f"again: python {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    assert f"{_KILLS_OF_A_TEST} kills" in done.stdout
