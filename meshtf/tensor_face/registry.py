"""The functions that operators, methods and brackets of tensors call, and the base of their classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from meshtf.dimension import Shape
from meshtf.errors import nearest_public
from meshtf.symbolic_values import SymbolicValue

_registered: dict[str, Callable[..., Any]] = {}
_public: set[str] = set()

_OF_VALUES = {"numpy", "item", "tolist", "tobytes"}
_INSTEAD = {
    "T": 'x.transpose("columns", "rows")',
    "dot": "mtf.einsum([x, y], output_shape=[...])",
    "matmul": "mtf.einsum([x, y], output_shape=[...])",
    "ndim": "x.shape.ndims",
    "permute": 'x.transpose("columns", "rows")',
    "squeeze": 'x["dimension", 0]',
    "take": 'x["dimension", indices]',
    "view": 'x.reshape("rows:2 columns:3")',
}
"""The language's form of attributes that arrays of NumPy and PyTorch have."""


def register_functions(public: Mapping[str, Callable[..., Any]], private: Mapping[str, Callable[..., Any]]) -> None:
    """Adds functions by name: those of `mtf`, which messages may name, and others."""
    _registered.update(public)
    _registered.update(private)
    _public.update(public)


def registered(name: str) -> Callable[..., Any]:
    """The function registered under this name."""
    return _registered[name]


def is_public(name: str) -> bool:
    """Whether `mtf` has an operation of this name."""
    return name in _public


class Face(SymbolicValue):
    """The base of the classes that give `Tensor` its operators and methods."""

    shape: Shape

    if not TYPE_CHECKING:  # a type checker would take it for a promise of every attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"an mtf.Tensor has no attribute {name!r}{_instead(name, type(self))}", name=name, obj=self
            )


def _instead(name: str, face: type) -> str:
    """A hint for an attribute that tensors lack."""
    if name.startswith("_"):  # which tools ask for, of every object
        return ""
    if name in _INSTEAD:
        return f"; write {_INSTEAD[name]}"
    if name in _public:
        return f"; write mtf.{name}(x)"
    if name in _OF_VALUES:
        return ", since it has no value while the graph is built; return it from the program"
    if near := nearest_public(name, [n for n in dir(face) if not n.startswith("_")]):
        return near
    functions = re.sub(r'"(\w+)"', r'"mtf.\1(x)"', nearest_public(name, sorted(_public)))
    return functions or ": other operations are functions of mtf"
