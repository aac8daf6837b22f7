"""The language's functions under the original's names and parameters.

They need no `with graph`, because the operands determine the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from meshtf import autodiff, control_flow, ops
from meshtf.call_sites import language_function
from meshtf.compat.mesh_tensorflow import _operations
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape, the_dimension
from meshtf.compat.mesh_tensorflow._graph import is_of_tensorflow
from meshtf.compat.mesh_tensorflow._language import for_graphs
from meshtf.compat.mesh_tensorflow._operations import *  # pyright: ignore[reportAssignmentType]  # some are replaced
from meshtf.dimension import DimensionLike, ShapeLike, shape_of, unused_name
from meshtf.errors import LayoutError, ShapeError
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.layout import LayoutLike, axes_size, convert_to_layout_rules

serialize_training_step = for_graphs(control_flow.serialize_training_step)

mtf_abs, mtf_pow, mtf_range, mtf_slice = abs, pow, range, slice


def gather(weights: Tensor, indices: Tensor | int, dim: DimensionLike, output_shape: ShapeLike | None = None) -> Tensor:
    """Gathers `weights` at `indices` along a dimension.

    The indices may also have this dimension. Then the result has it from the indices. See `meshtf.gather`.
    """
    own = the_dimension(dim, "dim of mtf.gather")
    if not isinstance(indices, Tensor) or not indices.shape.has(own.name):
        return for_graphs(ops.gather)(weights, indices, own, output_shape)
    other = unused_name(f"_{own.name}", weights.shape, indices.shape)
    found = for_graphs(ops.gather)(weights, rename_dimension(indices, own.name, other), own)
    renamed = rename_dimension(found, other, own.name)
    return renamed if output_shape is None else transpose(renamed, output_shape)


def _reduction(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A reduction with the original's parameters. Programs that give them by position pass None for the second."""
    reduced = for_graphs(fn)

    def call(
        x: Tensor,
        disable_positional_args: DimensionLike | Iterable[DimensionLike] | None = None,
        output_shape: ShapeLike | None = None,
        reduced_dim: DimensionLike | Iterable[DimensionLike] | None = None,
        name: str | None = None,
    ) -> Tensor:
        dims = reduced_dim if disable_positional_args is None else disable_positional_args
        if disable_positional_args is not None and reduced_dim is not None:
            raise ShapeError(
                f"mtf.{fn.__name__} was given dimensions to reduce twice: {disable_positional_args} and {reduced_dim}; "
                f"give reduced_dim=.. alone"
            )
        return reduced(x, reduced_dim=dims, output_shape=output_shape, name=name)

    call.__name__ = call.__qualname__ = fn.__name__
    call.__doc__ = f"""See `meshtf.{fn.__name__}`.

    The second argument by position is None, as in the original, or the dimensions to reduce.
    """
    return call


reduce_sum, reduce_mean = _reduction(ops.reduce_sum), _reduction(ops.reduce_mean)
reduce_max, reduce_min = _reduction(ops.reduce_max), _reduction(ops.reduce_min)
reduce_any, reduce_all = _reduction(ops.reduce_any), _reduction(ops.reduce_all)


def list_product(l: Iterable[int]) -> int:  # noqa: E741  # its name there
    """Multiplies numbers. The product of an empty list is 1."""
    return math.prod(l)


def transpose_list_of_lists(lol: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The list of first elements, the list of second elements and so on."""
    return [list(column) for column in zip(*lol, strict=True)]


def add_n(xs: Sequence[Tensor]) -> Tensor | int:
    """Adds up a list of tensors. The sum of an empty list is 0."""
    return for_graphs(ops.add_n)(xs) if xs else 0


@for_graphs
def dropout(
    x: Tensor,
    is_training: bool | float = True,
    keep_prob: float | None = None,
    rate: float | None = None,
    noise_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Zeroes elements at random and scales the others. Returns `x` itself if nothing is dropped.

    Early versions had no `is_training`, and took `keep_prob` in its place, as this does if neither share is given.
    """
    if isinstance(is_training, float) and keep_prob is None and rate is None:
        is_training, keep_prob = True, is_training
    if not is_training or keep_prob == 1.0 or rate == 0.0:
        return x
    return ops.dropout(x, True, keep_prob, rate, noise_shape, name or "dropout")


@language_function
def import_tf_tensor(mesh: Mesh, tf_tensor: Any, shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Imports an array or a TensorFlow tensor into the graph. A session computes it in each run that needs it.

    Args:
      mesh: the mesh of the result.
      tf_tensor: an array or a tensor, such as a placeholder. Its unknown sizes must be those of `shape` at run time.
      shape: the named shape. None means a scalar.
      name: the operation's name.

    Raises:
      ShapeError: the tensor has another rank or other sizes than `shape`.
    """
    if is_of_tensorflow(tf_tensor):
        tf_tensor = tf.convert_to_tensor(tf_tensor)
        sizes = shape_of(shape or []).to_integer_list
        if not tf_tensor.shape.is_fully_defined() and tf_tensor.shape.is_compatible_with(sizes):
            tf_tensor = tf.ensure_shape(tf_tensor, sizes)
    return ops.import_tf_tensor(mesh, tf_tensor, shape, name)


def import_fully_replicated(mesh: Mesh, tf_tensor: Any, shape: ShapeLike, name: str | None = None) -> Tensor:
    """Does the same as `import_tf_tensor`. The layout determines each core's slice of the whole."""
    return import_tf_tensor(mesh, tf_tensor, shape, name)


def anonymous_shape(shape: ShapeLike) -> Shape:
    """A shape with the same sizes under names that no layout rule has."""
    return Shape([Dimension(f"_anonymous_{i}", d.size) for i, d in enumerate(shape_of(shape))])


def anonymize(x: Tensor) -> Tensor:
    """The tensor, replicated on every core. Its dimensions get names that no layout rule has."""
    return reshape(x, anonymous_shape(x.shape))


def gradients(
    ys: Sequence[Tensor],
    xs: Sequence[Tensor],
    grad_ys: Sequence[Tensor | None] | None = None,
    operations: object = None,
) -> list[Tensor | None]:
    """The gradients of the sum of `ys`, with None where no path leads to an x. `operations` is ignored."""
    return for_graphs(autodiff.gradients)(ys, xs, grad_ys)


def while_loop(
    cond_fn: Callable[..., Tensor],
    body_fn: Callable[..., Any],
    inputs: Sequence[Tensor],
    num_loop_vars: int | None = None,
    has_accumulators: bool = False,
    **kwargs: Any,
) -> list[Tensor]:
    """Repeats `body_fn` while `cond_fn` holds.

    Only one option for tf.while_loop has an effect, `maximum_iterations`.
    """
    most = kwargs.get("maximum_iterations")
    loop = for_graphs(control_flow.while_loop)
    return loop(cond_fn, body_fn, inputs, num_loop_vars, has_accumulators, maximum_iterations=most)


def custom_gradient(fn: Callable[..., Any], grad_fn: Callable[..., Any], explicit_inputs: Sequence[Tensor]) -> Any:
    """Returns `fn(*explicit_inputs)` with a gradient that the caller defines.

    `grad_fn(explicit_inputs=, all_inputs=, forward_operations=, outputs=, output_grads=)` returns one gradient for each
    of `all_inputs`.
    """

    def by_keyword(*args: Any) -> Any:
        names = ("explicit_inputs", "all_inputs", "forward_operations", "outputs", "output_grads")
        return grad_fn(**dict(zip(names, args, strict=True)))

    return for_graphs(control_flow.custom_gradient)(fn, by_keyword, explicit_inputs)


def recompute_grad(fn: Callable[..., Any], explicit_inputs: Sequence[Tensor], control_dependencies: bool = True) -> Any:
    """Returns `fn(*explicit_inputs)`, and recomputes it for its gradient. `control_dependencies` is ignored."""
    return for_graphs(control_flow.recompute_grad)(fn, explicit_inputs)


def Print(x: Tensor, data: Sequence[Tensor], message: str, **kwargs: Any) -> Tensor:  # noqa: N802  # its name there
    """Returns `x`. The first core prints `data` whenever a session needs the result."""
    return for_graphs(ops.Print)(x, data, message, kwargs.get("summarize"))


def scalar_summary(name: str, x: Tensor) -> Tensor:
    """Returns x. For TensorBoard, give what `lowering.export_to_tf_tensor` returns to tf.compat.v1.summary.scalar."""
    return x


def tensor_dim_to_mesh_dim_size(layout: LayoutLike, mesh_shape: ShapeLike, tensor_dim: DimensionLike) -> int:
    """The number of parts that the layout splits a dimension into."""
    mesh = shape_of(mesh_shape)
    axes = convert_to_layout_rules(layout).axes(Shape([tensor_dim])[0].name)
    return axes_size([a for a in axes if mesh.has(a)], mesh)


def tensor_dim_to_size_per_split(layout: LayoutLike, mesh_shape: ShapeLike, tensor_dim: DimensionLike) -> int:
    """The size of one part of a dimension.

    Raises:
      LayoutError: the parts are not equal.
    """
    dim, parts = Shape([tensor_dim])[0], tensor_dim_to_mesh_dim_size(layout, mesh_shape, tensor_dim)
    if dim.size % parts:
        raise LayoutError(f"dimension {dim} does not divide into {parts} parts; give it a multiple")
    return dim.size // parts


__all__ = [
    "Print",
    "add_n",
    "anonymize",
    "anonymous_shape",
    "custom_gradient",
    "dropout",
    "gather",
    "gradients",
    "import_fully_replicated",
    "import_tf_tensor",
    "list_product",
    "mtf_abs",
    "mtf_pow",
    "mtf_range",
    "mtf_slice",
    "recompute_grad",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_sum",
    "scalar_summary",
    "serialize_training_step",
    "tensor_dim_to_mesh_dim_size",
    "tensor_dim_to_size_per_split",
    "transpose_list_of_lists",
    "while_loop",
]
__all__ += _operations.__all__
