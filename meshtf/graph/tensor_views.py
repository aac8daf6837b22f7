"""The views of a tensor: `x.eval()`, which a higher package implements, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meshtf.errors import counted
from meshtf.markup import Markup, block, element, folded, grid

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor

_registered: dict[str, Callable[..., Any]] = {}


def register_views(**functions: Callable[..., Any]) -> None:
    """Registers functions by name, for methods of tensors to call."""
    _registered.update(functions)


def view(name: str) -> Callable[..., Any]:
    """The function registered under a name."""
    return _registered[name]


def tensor_html(x: Tensor) -> Markup:
    """A tensor as HTML: its name, dimensions, dtype, the line that makes it, and its inputs."""
    operation = x.operation
    dims = [(d.name, f"{d.size:,}") for d in x.shape] or [("(no dimension)", "")]
    facts = [
        ("dtype", x.dtype.name),
        ("size", f"{counted(x.size, 'element')}, {counted(x.size * x.dtype.size, 'byte')} in all"),
        ("made by", f"{operation.label} ({type(operation).__name__})"),
        ("at", operation.site.place),
    ]
    lowering = x.graph.last_lowering
    if lowering is not None and (layout := lowering.layout_text(x)):
        facts.insert(0, ("layout", f"[{layout}] on mesh [{lowering.mesh_shape}]"))
    parts = [element("p", element("b", x.name)), grid(("dimension", "size"), dims, (False, True)), grid((), facts)]
    if operation.inputs:
        inputs = [(y.name, f"[{y.shape}]", y.dtype.name) for y in operation.inputs]
        parts.append(folded("of the tensors", grid(("name", "shape", "dtype"), inputs)))
    return block(*parts)
