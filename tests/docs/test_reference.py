"""The reference has every public name once, and what `--help` of every program prints."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import pytest
from absl import flags
from pages import TREE

import meshtf as mtf
from meshtf.bin import (
    benchmark,
    checkpoint,
    compare,
    compile,  # noqa: A004
    decode,
    dialog,
    eval,  # noqa: A004
    export,
    import_gin,
    plan,
    probe,
    quantize,
    serve,
    sweep,
    tokenize,
    train,
    vocab,
)
from meshtf_programs.launching import launch

REFERENCE = TREE / "docs" / "reference"

# Names of these packages that another one has too are where a reader looks for them first.
PACKAGES = [
    "meshtf",
    "meshtf.layers",
    "meshtf.layers.transformer",
    "meshtf.layers.moe",
    "meshtf.models",
    "meshtf.optimize",
    "meshtf.testing",
    "meshtf.checkpoint",
    "meshtf.costs",
    "meshtf.debug",
    "meshtf.quantization",
    "meshtf.train",
    "meshtf.train.callbacks",
    "meshtf.train.data",
    "meshtf.train.decoding",
    "meshtf.train.dialog",
    "meshtf.train.quality",
]

_ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)


def public_names() -> Iterator[str]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield from (f"{package}.{name}" for name in module.__all__ if not isinstance(getattr(module, name), ModuleType))
    errors = [value for value in vars(mtf.errors).values() if getattr(value, "__module__", None) == "meshtf.errors"]
    yield from (f"meshtf.errors.{value.__name__}" for value in errors if isinstance(value, type))


def entries() -> list[str]:
    return [name for page in sorted(REFERENCE.glob("*.md")) for name in _ENTRY.findall(page.read_text())]


def test_every_public_name_has_one_entry() -> None:
    counts = Counter(entries())
    assert sorted(set(public_names()) - set(counts)) == []
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_entry_is_public() -> None:
    assert sorted(set(entries()) - set(public_names())) == []


PROGRAMS = [
    *(train, eval, benchmark, compare, compile, decode, export),
    *(plan, probe, tokenize, vocab, import_gin, checkpoint, launch),
    *(dialog, quantize, serve, sweep),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_of_every_program_is_there(program: ModuleType) -> None:
    flags.FLAGS.mark_as_parsed()
    text = program.help_text() if hasattr(program, "help_text") else program.command_line().help_text()
    assert f"## {program.PROGRAM}\n\n```text\n{text}```\n" in (REFERENCE / "programs.md").read_text()
