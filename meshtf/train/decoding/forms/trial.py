"""Tries whether a grammar can be compiled, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(__file__).with_name("_trial_process.py")


def why_not_compiled(grammar: str, seconds: float) -> str | None:
    """Compiles a grammar of llguidance's in a process of its own, which is ended after these seconds.

    Nothing else can end the compiler, and some small grammars take years. An example is a JSON schema in which one
    string must match twenty patterns.

    Returns:
      The reason not to compile it in this process, or None. A wrong grammar is no reason: the compiler rejects it at
      once.
    """
    command = [sys.executable, "-P", str(_PROGRAM)]
    try:
        ended = subprocess.run(command, input=grammar, text=True, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"it takes longer than {seconds:g} s to compile; give a smaller one"
    return "the process that compiled it was ended by the system; give a smaller one" if ended.returncode < 0 else None
