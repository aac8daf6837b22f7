"""`show`: which core holds which part of a tensor, as a picture for notebooks."""

from __future__ import annotations

from meshtf.call_sites import says_where
from meshtf.debug.lowered_program import LoweredProgram
from meshtf.dimension import ShapeLike
from meshtf.errors import UsageError
from meshtf.function.program import Function
from meshtf.graph.tensor import Tensor
from meshtf.layout import LayoutLike
from meshtf.lowering.lowering import Lowering
from meshtf.visualize import LaidOutMesh, LayoutPicture, picture_of, visualize_layout

_NEEDS_MESH = """\
the layout of {x} depends on a mesh, and its program is not lowered yet; give a mesh, mtf.debug.show(x, mesh_impl), \
or show it when mtf.function has made the program"""


@says_where
def show(
    x: Tensor | ShapeLike,
    on: Function | Lowering | LaidOutMesh | ShapeLike | None = None,
    layout: LayoutLike | None = None,
) -> LayoutPicture:
    """Shows a tensor's layout: a table of its parts, coloured, with the cores that hold each.

    A notebook shows the result as HTML, and `print(picture)` writes it as text.

    Args:
      x: a tensor, the name of a tensor of the program `on`, or a named shape.
      on: a program, whose layout is shown, or a mesh implementation, or a mesh shape. The default is the program that
        was lowered last from the tensor's graph.
      layout: layout rules; required with a mesh shape.

    Raises:
      GraphError: the program has no such tensor.
      LayoutError: the tensor cannot have the layout.
      UsageError: there is no mesh.

    Examples:
      >>> two_cores = mtf.PlanMeshImpl("rows:2", "batch:rows")
      >>> step = mtf.function(lambda x: 2.0 * x, two_cores, {"x": mtf.TensorSpec("batch:4")})
      >>> picture = mtf.debug.show("x", step)
      >>> picture.title, [block.cores for block in picture.blocks]
      ('x: batch:4/rows on mesh rows:2', [(0,), (1,)])
    """
    if on is None and isinstance(x, Tensor):
        on = x.graph.last_lowering
    if on is None:
        raise UsageError(_NEEDS_MESH.format(x=x))
    if not isinstance(on, Function | Lowering):
        return visualize_layout(x, on, layout, show=False)
    if layout is not None:
        raise UsageError("a program has its layout; to see another one, give its mesh in place of the program")
    lowered = LoweredProgram.of(on)
    tensor, table = lowered.tensor(x), lowered.lowering.layouts
    resolved = table.resolved(tensor).layout
    return picture_of(f"{tensor.name}: ", tensor.shape, resolved, table.mesh_shape)
