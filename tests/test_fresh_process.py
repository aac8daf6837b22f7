"""The processes that other tests start."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.fresh_process import FreshProcess, run_fresh

TELLS = """
import os, sys
print(sys.argv, os.getcwd(), sys.stdin.read(), hash("a") == int(sys.argv[1]))
sys.exit("an end")
"""


def test_a_program_has_its_own_arguments_folder_input_and_hashes(tmp_path: Path) -> None:
    done = run_fresh(["-c", TELLS, str(hash("a"))], tmp_path, stdin="given")
    assert done.stdout == f"['-c', '{hash('a')}'] {tmp_path} given False\n"
    assert (done.status, done.stderr) == (1, "an end\n")


def test_a_program_ends_by_a_signal_or_in_time() -> None:
    endless = ["-c", "import time; time.sleep(1000)"]
    process = FreshProcess(endless)
    assert process.is_running
    process.terminate()
    assert process.finish().status == -signal.SIGTERM
    with pytest.raises(TimeoutError, match=r"not ended after 0\.1 s: Finished\(status=-9"):
        run_fresh(endless, timeout_seconds=0.1)
