"""Writes meshtf_programs/configurables.toml: `make configurables`."""

from __future__ import annotations

import importlib
import json
import pkgutil

from gin import config as gin_config

import meshtf
import meshtf.layers
import meshtf.models
from meshtf.train.gin_files.names import parameters_of
from meshtf_programs.gin_names import CONFIGURABLES

ABOUT = "# meshtf's configurables, and what each may be given; see gin_names.py. Written by `make configurables`.\n\n"


def configurables_text() -> str:
    """What gin knows once all modules of meshtf are imported."""
    for package in (meshtf, meshtf.layers, meshtf.models):  # the last two need not lie inside of the first
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    names = sorted(name for name, _ in gin_config._REGISTRY.items() if name.startswith("meshtf."))
    return ABOUT + "".join(f'"{name}" = {json.dumps(parameters_of(name))}\n' for name in names)


if __name__ == "__main__":
    CONFIGURABLES.write_text(configurables_text())
