"""`get_variable`, which makes a variable, or finds an existing one by name."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, Shape, ShapeLike, shape_of
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.mesh import Mesh, check_mesh
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType
from meshtf.layer_scopes import scopes_of
from meshtf.ops.inputs.constants import zeros
from meshtf.ops.variables._initializers import Initializer, initializer_of
from meshtf.ops.variables.variable import Variable, VariableSpec, variable_of
from meshtf.takes_mesh import takes_mesh

DEFAULT_STDDEV = 0.02
"""The standard deviation of the normal numbers with which a variable starts, if it has no initializer."""


class MakesVariables(Protocol):
    """Returns a layer's part of the variables of a stack."""

    def makes(self, full_name: str) -> bool: ...

    def make(self, spec: VariableSpec) -> Tensor: ...


class StoresVariables(Protocol):
    """Keeps some variables in another form than layers read them in; see `mtf.quantization.quantized_weights`."""

    def stores(self, spec: VariableSpec) -> bool: ...

    def read(self, mesh: Mesh, spec: VariableSpec) -> Tensor: ...

    def product(self, x: Tensor, kernel: Tensor, output_shape: Shape) -> Tensor | None:
        """x times a kernel that `read` returned; None for any other kernel. See `mtf.quantization.kernel_product`."""
        ...


@takes_mesh
def get_variable(
    mesh: Mesh,
    name: str,
    shape: ShapeLike,
    dtype: tf.DType | VariableDType | None = None,
    initializer: Initializer | Any | None = None,
    trainable: bool = True,
    *,
    unpadded_shape: ShapeLike | None = None,
    matrix: tuple[ShapeLike, ShapeLike] | None = None,
) -> Tensor:
    """The variable of this name under the open scopes, as a tensor. It is made if it does not exist yet.

    Args:
      mesh: the mesh of the variable.
      name: the variable's name under the open scopes.
      shape: named shape.
      dtype: the variable's dtype; by default the graph's policy.
      initializer: `(mesh, shape, dtype) -> tensor` in the language, computed slice by slice, or an array. The default
        is normal numbers with standard deviation 0.02.
      trainable: whether optimizers update it.
      unpadded_shape: the true shape of a variable that is padded, so that a dimension can be split. It has the same
        names, and sizes that are no larger. The padding starts as zeros. The store, checkpoints and initial arrays
        have only the true shape.
      matrix: the rows and the columns of the variable, if it is a matrix: the dimensions that a layer sums over, then
        those that it makes, such as ("d_model", "heads d_kv"). The other dimensions count matrices. Only optimizers
        and `mtf.quantization.quantized_weights` use it.

    Raises:
      GraphError: it exists with another shape or dtype; or `initializer` is neither such a function nor an array; or
        a tf.variable_scope is open, which would not name it; or a gradient would make it, to be trained.
      DtypeError: it is not floating, and has no `initializer`.
      ShapeError: `unpadded_shape` is no part of `shape`; an initial array has another shape; or `matrix` names a
        dimension twice, or one that is not in `shape`.

    Examples:
      >>> with mtf.variable_scope("layer"):
      ...     w = mtf.get_variable(mesh, "kernel", "hidden:8 d_ff:16")
      >>> w
      layer/kernel [hidden:8 d_ff:16] float32
      >>> mtf.get_variable(mesh, "counts", "vocab:16", tf.int32, initializer=mtf.zeros, trainable=False)
      counts [vocab:16] int32
    """
    graph, policy, named = check_mesh(mesh).graph, _policy(mesh, dtype), shape_of(shape)
    graph.check_scope_of_tensorflow()
    own = named if unpadded_shape is None else shape_of(unpadded_shape, named)
    if own.dimension_names != named.dimension_names or any(m.size > n.size for m, n in zip(own, named, strict=True)):
        raise ShapeError(
            f"unpadded_shape [{own}] must have the names of shape [{named}], in order, and no larger sizes"
        )
    assert policy.slice_dtype is not None
    if initializer is None and not policy.slice_dtype.is_floating:
        raise DtypeError(
            f'variable "{name}" of {policy.slice_dtype.name} needs an initializer, such as mtf.zeros: the '
            f"default draws normal numbers, which are floating"
        )
    chosen = None if initializer is None else initializer_of(name, initializer, own, named, policy.slice_dtype)
    full_name = graph.scoped(graph.checked_name(name, "a variable"))
    scopes = scopes_of(full_name, graph.layer_scopes)
    roles = None if matrix is None else _matrix(name, named, *map(named.only, matrix))
    spec = VariableSpec(full_name, named, policy, chosen, trainable, own, scopes, roles)
    storages: list[StoresVariables] = graph.variable_storage
    storage = next((each for each in reversed(storages) if each.stores(spec)), None)
    return make_variable(mesh, spec) if storage is None else storage.read(mesh, spec)


def make_variable(mesh: Mesh, spec: VariableSpec) -> Tensor:
    """The variable's value. Inside a scan over layers, it is the layer's part of the value."""
    if spec.trainable and mesh.graph.differentiated is not None and spec.full_name not in mesh.graph.variables:
        raise GraphError(
            f'a gradient would make variable "{spec.full_name}", and no optimizer would train it; grad_fn of '
            f"mtf.custom_gradient gets the variables that the function uses in all_inputs"
        )
    for maker in reversed(mesh.graph.makes_variables):
        if maker.makes(spec.full_name):
            return maker.make(spec)
    existing = mesh.graph.variables.get(spec.full_name)
    if existing is None:
        return Variable(mesh, spec).value
    assert isinstance(existing, Variable)
    if not existing.spec.is_alike(spec):
        raise GraphError(
            f'variable "{existing.full_name}" already exists with {existing.spec}, made at {existing.site}, and is '
            f"requested again with {spec}; give one of them another name, or open a scope"
        )
    return existing.value


@language_function
def like_variable(
    variable: Variable | Tensor, name: str, shape: ShapeLike | None = None, dtype: tf.DType = tf.float32
) -> Tensor:
    """State that belongs to a variable, initially zero: `<variable's name>/<name>`, not trainable.

    It is padded, stacked and saved like the variable. Under the same layout rules, it is also split like the variable.

    Args:
      variable: a variable of the graph, or the result of `get_variable`.
      name: the state's name.
      shape: dimensions of the variable; all of them by default.
      dtype: the state's dtype.

    Raises:
      ShapeError: a dimension is not one of the variable's.
      GraphError: it is no variable.

    Examples:
      >>> w = mtf.get_variable(mesh, "kernel", "hidden:8 d_ff:16")
      >>> variable = mesh.graph.variables["kernel"]
      >>> mtf.like_variable(variable, "momentum"), mtf.like_variable(variable, "row_mean", "hidden")
      (kernel/momentum [hidden:8 d_ff:16] float32, kernel/row_mean [hidden:8] float32)
    """
    variable = variable_of(variable)
    chosen = variable.shape if shape is None else variable.shape.only(shape)
    scopes = tuple(
        s for s in variable.spec.layer_scopes if not s.is_stacked or all(chosen.has(d.name) for d in s.stacked_dims)
    )
    whole = dataclasses.replace(variable.spec, layer_scopes=scopes)
    return part_of_variable(variable.mesh, whole, name, chosen, dtype, zeros)


def part_of_variable(
    mesh: Mesh, whole: VariableSpec, name: str, shape: Shape, dtype: tf.DType, initializer: Initializer
) -> Tensor:
    """A variable that belongs to another, `<its name>/<name>`, over some of its dimensions. It is not trainable."""
    own = Shape([_unpadded(whole, d) for d in shape])
    full_name = f"{whole.full_name}/{name}"
    spec = VariableSpec(full_name, shape, VariableDType(dtype), initializer, False, own, whole.layer_scopes)
    return make_variable(mesh, spec)


def _unpadded(whole: VariableSpec, dim: Dimension) -> Dimension:
    """A dimension of a part without its padding. The part may have another size of it, such as the count of groups."""
    place = whole.shape.axis(dim.name)
    return whole.unpadded_shape.dims[place] if whole.shape.dims[place] == dim else dim


def _matrix(name: str, shape: Shape, summed: Shape, made: Shape) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Checks both sides of a matrix, and returns their names."""
    if twice := [d.name for d in summed if made.has(d.name)]:
        raise ShapeError(
            f'the matrix of variable "{name}" [{shape}] has dimension "{twice[0]}" on both sides, [{summed}] and '
            f"[{made}]; give it to one side only"
        )
    return tuple(summed.dimension_names), tuple(made.dimension_names)


def _policy(mesh: Mesh, dtype: tf.DType | VariableDType | None) -> VariableDType:
    if isinstance(dtype, VariableDType):
        return dtype
    return mesh.graph.variable_dtype if dtype is None else VariableDType(dtype_of(dtype))
