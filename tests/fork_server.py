"""What the process has done from which tests/fresh_process.py forks: imports, which garbage collections pass over."""

import gc

import meshtf  # noqa: F401

gc.freeze()
