"""The exit statuses of programs."""

from __future__ import annotations

import enum

STATUSES = """\
  0      done
  1      something else failed
  2      a flag or the configuration is wrong, or does not fit the run folder or the machine; nothing was started
  3      a NaN or an infinity stopped training
  4      a file cannot be read or written: the disk is full, the folder read-only
  5      a collective failed, or another process is gone; the same command resumes from the last checkpoint
  128+n  signal n asked it to stop (129: its terminal closed, 130: Ctrl-C, 143: SIGTERM)
"""


class ExitStatus(enum.IntEnum):
    """The exit statuses, as `--help` lists them."""

    DONE = 0
    FAILED = 1
    BAD_CONFIGURATION = 2
    NOT_FINITE = 3
    BAD_FILE = 4
    COLLECTIVE_FAILED = 5
    INTERRUPTED = 130

    @staticmethod
    def of_signal(number: int) -> int:
        return 128 + number
