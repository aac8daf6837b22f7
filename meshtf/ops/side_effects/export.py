"""`export`, which gives tensors names by which they can be fetched."""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.graph.scopes import checked_name
from meshtf.graph.tensor import Tensor, check_tensor


@language_function
def export(x: Tensor, name: str) -> Tensor:
    """Returns x, and lets you fetch it by this name under the open scopes without returning it from the program.

    `lowering.run("decoder/weights", feeds)` and `lowering.export_to_tf_tensor("decoder/weights", feeds)` return its
    whole value. For an `mtf.function`, the lowering is `step.lowering`. An export costs nothing until it is fetched.

    Raises:
      GraphError: another tensor has the name.

    Examples:
      >>> with mtf.variable_scope("encoder"):
      ...     y = mtf.export(2.0 * x, "hidden")
      >>> mesh.graph.exports
      {'encoder/hidden': encoder/multiply [batch:4 hidden:8] float32}
    """
    exports = check_tensor(x).graph.exports
    full_name = x.graph.scoped(checked_name(name, "an export"))
    first = exports.setdefault(full_name, x)
    if first is not x:
        raise GraphError(f'"{full_name}" already names {first}, made at {first.operation.site}; give another name')
    return x
