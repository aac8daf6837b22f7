"""What the process has done from which tests/fresh_process.py forks: imports, which garbage collections pass over.

Hundreds of processes import all rooms of meshtf, which takes most of a second. So this one has imported them.
"""

import gc
import importlib
import sys

gc.disable()
importlib.import_module("meshtf")

IMPORTED_WITH_MESHTF = frozenset(sys.modules)
"""The names of the modules that `import meshtf` alone has imported."""

PROGRAMS = ("train", "eval", "decode", "export", "plan", "compile", "checkpoint", "compare", "tokenize", "vocab")

importlib.import_module("meshtf.models")
for program in PROGRAMS:
    importlib.import_module(f"meshtf.bin.{program}")
for imported_by_trainings in ("tensorboard.summary.v2", "sklearn.datasets"):
    importlib.import_module(imported_by_trainings)
importlib.import_module("tests.fresh_process")  # the functions that processes start with

gc.freeze()
gc.enable()
