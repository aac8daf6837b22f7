"""Every flag of every program that takes a path refuses one of a user whom there is not, by its name."""

from __future__ import annotations

import importlib
import re

import pytest
from absl import flags

from meshtf_programs.command_lines.checkpoint import define_flags
from meshtf_programs.command_lines.path_flags import PathParser

NOBODY = "~no_such_user_here"
WITH_COMMAND_LINES = (
    *("compile", "decode", "eval", "export", "import_gin"),
    *("plan", "probe", "quantize", "tokenize", "train", "vocab"),
)

NO_PATHS = {
    *("allow_unread_bindings", "dry_run", "dtype", "from_scratch", "gin_param"),
    *("list", "python_library", "recipe", "trust_config", "verify"),
}
"""Flags in whose help a file or a folder is spoken of."""


def flags_of(name: str) -> flags.FlagValues:
    module = importlib.import_module(f"meshtf_programs.command_lines.{name}")
    return define_flags() if name == "checkpoint" else module.command_line().flags


def path_flags(values: flags.FlagValues) -> list[str]:
    return [name for name in values if isinstance(values[name].parser, PathParser)]


@pytest.mark.parametrize("name", [*WITH_COMMAND_LINES, "checkpoint"])
def test_what_takes_a_path_is_known(name: str) -> None:
    values = flags_of(name)
    spoken_of = {each for each in values if re.search(r"\b(files?|folders?|path)\b", values[each].help or "", re.I)}
    assert spoken_of - set(path_flags(values)) <= NO_PATHS


@pytest.mark.parametrize("name", [*WITH_COMMAND_LINES, "checkpoint", "compare"])
def test_a_path_of_no_user_names_its_flag(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"meshtf_programs.command_lines.{name}")
    found = ["output"] if name == "compare" else path_flags(flags_of(name))
    assert found
    for flag in found:
        for path in (f"{NOBODY}/x", f"file://{NOBODY}"):
            before = {"checkpoint": ["list"], "compare": ["a", "b"]}.get(name, [])
            assert module.answer([module.PROGRAM, *before, f"--{flag}={path}"]) == 2
            told = capsys.readouterr().err
            assert told.startswith(f"{module.PROGRAM}: error: flag --{flag}={path}: this machine has no user"), told


def test_a_path_that_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = importlib.import_module("meshtf_programs.command_lines.checkpoint")
    for arguments in (["list", "a", f"{NOBODY}/b"], ["export", f"{NOBODY}/b", "c"], ["import", "a", f"{NOBODY}/b"]):
        assert checkpoint.answer(["meshtf-checkpoint", *arguments]) == 2
        assert f"error: {NOBODY}/b: this machine has no user" in capsys.readouterr().err
