"""Long tests draw with the seed that is printed, in whatever process they run."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long


def test_a_process_of_its_own_draws_with_the_printed_seed(seed: int) -> None:
    """The test runs itself in one that another process has started, and fails there, which shows the seed."""
    if "MESHTF_SEED_IS_SHOWN" in os.environ:
        raise AssertionError(f"drawn with {seed}")
    command = [sys.executable, "-m", "pytest", "-n", "1", "-m", "long", __file__]
    shown = {**os.environ, "MESHTF_SEED_IS_SHOWN": "1"}
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=shown).stdout
    (printed,) = re.findall(r"long tests draw with --seed=(\d+)", said)
    assert f"drawn with {printed}" in said
