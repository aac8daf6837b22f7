"""What every public name's signature and docstring give to those who read them with a tool."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import meshtf as mtf

sys.path.insert(0, str(Path(__file__).parent))  # makes public_names importable
from public_names import docstring, everything, signature

MANY = 4
"""From so many parameters on, a docstring lists them."""

NOT_A_BEGINNING = {"a function", "as", "for", "helper", "it", "note", "returns the", "see", "this", "used", "which"}

THINGS = pytest.mark.parametrize(("name", "thing"), [*everything().items()], ids=[*everything()])


def parameters(thing: Callable[..., Any]) -> list[inspect.Parameter]:
    return [p for p in signature(thing).parameters.values() if p.name != "self"]


@THINGS
def test_a_signature_says_what_to_give(name: str, thing: Callable[..., Any]) -> None:
    """No `**kwargs` stand for what a function takes (but sizes of the caller's own names), and all have a type."""
    for parameter in parameters(thing):
        assert parameter.kind is not parameter.VAR_KEYWORD or str(parameter) == "**sizes: 'int'", parameter
        assert parameter.annotation is not parameter.empty, parameter
    if not inspect.isclass(thing):
        assert signature(thing).return_annotation is not inspect.Signature.empty


@THINGS
def test_a_function_bears_its_name(name: str, thing: Callable[..., Any]) -> None:
    own = name.rpartition(".")[2]
    assert thing.__name__ == {"Print": "print_tensor"}.get(own, own) or own == "Print"


@THINGS
def test_a_docstring_begins_with_a_verb_or_the_thing(name: str, thing: Callable[..., Any]) -> None:
    first = docstring(thing).partition("\n\n")[0].strip()
    assert first, f"{name} has no docstring"
    assert first.endswith((".", ":", "?")), first
    words = first.lower().split()
    assert not {words[0], " ".join(words[:2])} & NOT_A_BEGINNING, first


@THINGS
def test_many_parameters_are_listed(name: str, thing: Callable[..., Any]) -> None:
    """All of them, under the names that they have, here or in the docstring that "`mtf.Name` describes them" names."""
    names = [p.name for p in parameters(thing)]
    if len(names) < MANY:
        return
    text = docstring(thing)
    text += "".join(docstring(getattr(mtf, other)) for other in re.findall(r"`mtf\.(\w+)` describes them", text))
    assert "Args:" in text or "Attributes:" in text, f"{name} does not list its parameters"
    assert [n for n in names if f"{n}: " not in text] == []
