"""Standard streams that are closed, as a shell's `>&-` or `<&-` closes them."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Opens the null device in place of each standard stream that is closed. Call it before any file is opened.

    Otherwise the next files and pipes would have the numbers of these streams.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # it stays open as long as the process runs
