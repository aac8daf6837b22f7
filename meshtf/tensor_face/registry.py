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
_OF_MESHES = 'mtf.with_layout(x, "batch:rows") to say how cores of the mesh split it'
_INSTEAD = {
    "T": 'x.transpose("columns", "rows")',
    "backward": "mtf.gradients([x], variables)",
    "bool": "x.astype(tf.bool)",
    "cpu": _OF_MESHES,
    "cuda": _OF_MESHES,
    "detach": "mtf.stop_gradient(x)",
    "device": _OF_MESHES,
    "dot": "mtf.einsum([x, y], output_shape=[...])",
    "double": "x.astype(tf.float64)",
    "expand": 'mtf.broadcast(x, "copies:2 rows columns")',
    "float": "x.astype(tf.float32)",
    "half": "x.astype(tf.float16)",
    "int": "x.astype(tf.int32)",
    "long": "x.astype(tf.int64)",
    "masked_fill": "mtf.where(mask, value, x)",
    "matmul": "mtf.einsum([x, y], output_shape=[...])",
    "ndim": "x.shape.ndims",
    "permute": 'x.transpose("columns", "rows")',
    "squeeze": 'x["dimension", 0]',
    "swapaxes": 'x.transpose("columns", "rows")',
    "take": 'x["dimension", indices]',
    "to": f"x.astype(tf.bfloat16) for another dtype, or {_OF_MESHES}",
    "type": "x.astype(tf.bfloat16)",
    "unsqueeze": 'x.reshape("one:1 rows columns")',
    "view": 'x.reshape("rows:2 columns:3")',
}
"""The code to write instead of an attribute that arrays of NumPy or PyTorch have."""


def register_functions(public: Mapping[str, Callable[..., Any]], private: Mapping[str, Callable[..., Any]]) -> None:
    """Registers functions by name. Error messages suggest only the public ones, which `mtf` has."""
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
    if name.startswith("_"):  # tools look up such names on every object
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
