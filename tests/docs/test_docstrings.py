"""What every public name's signature and docstring give to those who read them with a tool."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import meshtf as mtf

sys.path.insert(0, str(Path(__file__).parent))  # makes public_names importable
from public_names import docstring, everything, signature

MANY = 4
"""From so many parameters on, a docstring lists them."""

NOT_A_BEGINNING = {"a function", "as", "for", "helper", "it", "note", "returns the", "see", "this", "used", "which"}


def of_everything(problems: Callable[[str, Callable[..., Any]], Iterator[str]]) -> list[str]:
    return [f"{name}: {problem}" for name, thing in everything().items() for problem in problems(name, thing)]


def parameters(thing: Callable[..., Any]) -> list[inspect.Parameter]:
    return [p for p in signature(thing).parameters.values() if p.name != "self"]


def test_a_signature_says_what_to_give() -> None:
    """No `**kwargs` stand for what a function takes (but sizes of a caller's own names), and all have a type."""

    def problems(name: str, thing: Callable[..., Any]) -> Iterator[str]:
        for parameter in parameters(thing):
            is_options = parameter.kind is parameter.VAR_KEYWORD and str(parameter) != "**sizes: 'int'"
            if is_options or parameter.annotation is parameter.empty:
                yield str(parameter)
        if not inspect.isclass(thing) and signature(thing).return_annotation is inspect.Signature.empty:
            yield "the type of the result"

    assert not of_everything(problems)


def test_a_function_bears_its_name() -> None:
    def problems(name: str, thing: Callable[..., Any]) -> Iterator[str]:
        own = name.rpartition(".")[2]
        if thing.__name__ != own and own != "Print":
            yield thing.__name__

    assert not of_everything(problems)


def test_a_docstring_begins_with_a_verb_or_the_thing() -> None:
    def problems(name: str, thing: Callable[..., Any]) -> Iterator[str]:
        first = docstring(thing).partition("\n\n")[0].strip()
        words = first.lower().split()
        if not first.endswith((".", ":", "?")) or {words[0], " ".join(words[:2])} & NOT_A_BEGINNING:
            yield first or "no docstring"

    assert not of_everything(problems)


def test_many_parameters_are_listed() -> None:
    """All of them, under the names that they have, here or in the docstring that "`mtf.Name` describes them" names."""

    def problems(name: str, thing: Callable[..., Any]) -> Iterator[str]:
        names = [p.name for p in parameters(thing)]
        text = docstring(thing)
        text += "".join(
            docstring(attrgetter(other)(mtf)) for other in re.findall(r"`mtf\.([\w.]+)` describes the", text)
        )
        if len(names) >= MANY and "Args:" not in text and "Attributes:" not in text:
            yield "does not list its parameters"
        if len(names) >= MANY:
            yield from (f"lacks {n}" for n in names if f"{n}: " not in text)

    assert not of_everything(problems)
