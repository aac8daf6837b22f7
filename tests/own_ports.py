"""Ports that nobody else takes between their choice and their use, seconds later.

The system gives every program any free port of 32768 to 60999. Two tests that run side by side may be given the same,
the second before the first has used it. These lie below, a range for each of pytest's workers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
from collections.abc import Iterator

_FIRST, _PER_WORKER, _MOST_WORKERS = 12_000, 1_000, 16
_NUMBERS = itertools.count(os.getpid())  # of another run on this machine, those begin elsewhere


def own_ports(number: int) -> list[int]:
    """So many, on the loopback, all different."""
    return list(itertools.islice(filter(_is_free, _candidates()), number))


def _candidates() -> Iterator[int]:
    worker = int("".join(re.findall(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", "0")))) % _MOST_WORKERS
    return (_FIRST + worker * _PER_WORKER + next(_NUMBERS) % _PER_WORKER for _ in range(_PER_WORKER))


def _is_free(port: int) -> bool:
    with socket.socket() as one, contextlib.suppress(OSError):
        one.bind(("127.0.0.1", port))
        return True
    return False
