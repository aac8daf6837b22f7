"""Operation classes that programs call or name in `isinstance`: `mtf.Constant(mesh, 0, shape, dtype).outputs[0]`.

Calling such a class calls a function of the language, and returns its operation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf import ops
from meshtf.compat.mesh_tensorflow import _convolution_gradients
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._language import for_graphs
from meshtf.compat.mesh_tensorflow._variables import assign as assign_one
from meshtf.compat.mesh_tensorflow._variables import assign_slice, get_variable
from meshtf.compat.mesh_tensorflow.runs.updates import Updates
from meshtf.dimension import Shape
from meshtf.errors import GraphError, UsageError
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType

_OWN = """\
{base} is an operation of meshtf, which no class derives from; call mtf.{function} in a function of yours, or derive \
from mtf.Operation, whose `lower` works on slices"""


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of several operations that replace one operation of Mesh TensorFlow.

    Attributes:
      outputs: the results.
    """

    outputs: tuple[Tensor, ...]

    @property
    def name(self) -> str:
        return self.outputs[0].operation.name

    @property
    def splittable_dims(self) -> frozenset[str]:
        return frozenset(d.name for y in self.outputs for d in y.shape)

    @property
    def unsplittable_dims(self) -> frozenset[str]:
        return frozenset()


class MadeOperation(type):
    """The metaclass of these classes.

    Calling a class makes an operation, and `isinstance` checks for the language's class.

    Args:
      name: the class's name.
      make: the function that makes the operation. It returns the outputs or the operation.
      kinds: the names of the language's classes that such operations have.
      function: the name of the function of `mtf` that does the same.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> MadeOperation:
        for base in bases:
            if isinstance(base, MadeOperation):
                raise UsageError(_OWN.format(base=base.__name__, function=base.function))
        return super().__new__(cls, name, bases, namespace)

    make: Callable[..., Any]
    kinds: tuple[str, ...]
    function: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls.make(*args, **kwargs)
        if isinstance(made, list | tuple):
            return made[0].operation if tuple(made) == made[0].operation.outputs else Results(tuple(made))
        return made.operation if isinstance(made, Tensor) else made

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Operation) and type(instance).__name__ in cls.kinds


def _made(name: str, make: Callable[..., Any], *kinds: str, function: str) -> Any:
    namespace = {
        "make": staticmethod(make),
        "kinds": kinds,
        "function": function,
        "__doc__": f"Made by `mtf.{function}`.",
        "__module__": __name__,
    }
    return MadeOperation(name, (), namespace)


def _variable(
    mesh: Mesh,
    name: str,
    shape: Shape,
    dtype: VariableDType,
    initializer: Any = None,
    trainable: bool = True,
    **kwargs: Any,
) -> Tensor:
    return get_variable(mesh, name, shape, dtype, initializer=initializer, trainable=trainable, **kwargs)


def _assign(
    variables: Sequence[Any], new_values: Sequence[Tensor], assign_fn: Any = assign_slice, name: str | None = None
) -> Any:
    made = [assign_one(v, x, assign_fn) for v, x in zip(variables, new_values, strict=True)]
    return made[0] if len(made) == 1 else Updates.of(made)


def _constant(mesh: Mesh, value: Any, shape: Any, dtype: tf.DType, name: str | None = None) -> Tensor:
    return _renamed(mtf.constant(mesh, value, shape, dtype), name)


def _scalar(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(x: Tensor, scalar: Any, name: str | None = None) -> Tensor:
        return _renamed(function(x, scalar), name)

    return make


def _binary(tf_fn: Any, x1: Tensor, x2: Tensor, output_shape: Any, dtype: Any, name: str | None = None) -> Tensor:
    return _renamed(mtf.binary_op_with_broadcasting(tf_fn, x1, x2, output_shape, dtype), name)


def _extremum(tf_fn: Any, x1: Tensor, x2: Tensor, output_shape: Any, name: str | None = None) -> Tensor:
    function = {tf.minimum: mtf.minimum, tf.maximum: mtf.maximum}.get(tf_fn)
    if function is None:
        raise GraphError(f"MinMaxOperation takes tf.minimum or tf.maximum, and not {tf_fn!r}")
    return function(x1, x2, output_shape, name)


def _reduce(x: Tensor, output_shape: Any, reduction_fn_string: str, name: str | None = None) -> Tensor:
    functions = {"SUM": mtf.reduce_sum, "MAX": mtf.reduce_max, "MIN": mtf.reduce_min}
    if reduction_fn_string.upper() not in functions:
        raise GraphError(f'a reduction is "SUM", "MAX" or "MIN", and not {reduction_fn_string!r}')
    return functions[reduction_fn_string.upper()](x, output_shape=output_shape, name=name)


def _pool(x: Tensor, ksize: Sequence[int], strides: Sequence[int], pool_fn_string: str, name: str | None = None) -> Any:
    kind = pool_fn_string.partition("_")[0]
    functions = {"MAX": ops.max_pool, "AVG": ops.avg_pool}
    if kind not in functions or list(ksize) != list(strides):
        raise GraphError(
            f'PoolOperation is "MAX_2D", "AVG_2D", "MAX_3D" or "AVG_3D" of windows that do not overlap, and not '
            f"{pool_fn_string!r} with ksize {ksize} and strides {strides}; meshtf.max_pool and avg_pool take strides"
        )
    dims = x.shape.dims[-1 - len(ksize) : -1]
    made = for_graphs(functions[kind])(x, {d.name: n for d, n in zip(dims, ksize, strict=True)}, name=name)
    setattr(made.operation, "whole_names", [d.name for d in dims])  # noqa: B010  # for programs that read it
    return made


def _slicewise(
    tf_fn: Any,
    inputs: Sequence[Tensor],
    output_shapes: Sequence[Any],
    output_dtypes: Sequence[Any],
    splittable_dims: Sequence[Any],
    grad_function: Any = None,
    name: str | None = None,
) -> Any:
    word = name and name.replace(" ", "_")
    return mtf.slicewise(tf_fn, inputs, output_shapes, output_dtypes, splittable_dims, grad_function, word)


def _backprop_input(num: int, is_transpose: bool, shape: Any, kernel: Tensor, dy: Tensor, *steps: Any) -> Tensor:
    return _backprop(num, is_transpose, "input")(shape, kernel, dy, *_own_steps(steps))


def _backprop_filter(num: int, is_transpose: bool, x: Tensor, shape: Any, dy: Tensor, *steps: Any) -> Tensor:
    return _backprop(num, is_transpose, "filter")(x, shape, dy, *_own_steps(steps))


def _own_steps(steps: Sequence[Any]) -> list[Any]:
    strides, *rest = steps
    return [list(strides)[1:-1] if len(strides) in (4, 5) else strides, *rest]


def _backprop(num: int, is_transpose: bool, of: str) -> Any:
    return getattr(_convolution_gradients, f"conv{num}d{'_transpose' if is_transpose else ''}_backprop_{of}")


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(x: Tensor, kernel: Tensor, strides: Sequence[int], padding: str, name: str | None = None) -> Tensor:
        return for_graphs(function)(x, kernel, _own_steps([strides])[0], padding, name=name)

    return make


def _random(mesh: Mesh, shape: Any, tf_fn: Any, **kwargs: Any) -> Tensor:
    functions = {"random_uniform": mtf.random_uniform, "random_normal": mtf.random_normal}
    kind = tf_fn.__name__ if tf_fn.__name__.startswith("random_") else f"random_{tf_fn.__name__}"
    if kind not in functions:
        raise GraphError(
            f"RandomOperation takes tf.random.uniform or tf.random.normal, whose bits follow from a seed in every "
            f"layout, and not {tf_fn!r}; compose it of mtf.random_uniform and mtf.random_normal"
        )
    return functions[kind](mesh, shape, **kwargs)


def _broadcast(x: Tensor, output_shape: Any, name: str | None = None) -> Tensor:
    return _renamed(mtf.broadcast(x, output_shape), name)


def _read(var: Any, name: str | None = None) -> Tensor:
    return _renamed(mtf.read_variable(var), name)


def _depend(x: Tensor, dependencies: Sequence[Any], name: str | None = None) -> Tensor:
    return _renamed(mtf.depend(x, dependencies), name)


def _stop_gradient(x: Tensor, name: str | None = None) -> Tensor:
    return _renamed(mtf.stop_gradient(x), name)


def _loop(cond_fn: Any, body_fn: Any, inputs: Any, tf_kwargs: Any = None, has_accumulators: bool = False) -> Any:
    return mtf.while_loop(cond_fn, body_fn, inputs, has_accumulators=has_accumulators, **(tf_kwargs or {}))


def _renamed(made: Tensor, name: str | None) -> Tensor:
    """Sets the name of a result whose function has no parameter for a name."""
    if name is not None:
        made.operation.name = made.graph.unique_name(name.replace(" ", "_"))
    return made


AddOperation = _made("AddOperation", mtf.add, "ElementwiseOperation", function="add")
Assign = _made("Assign", _assign, "Assign", function="assign")
BinaryOpWithBroadcasting = _made(
    "BinaryOpWithBroadcasting", _binary, "ElementwiseOperation", function="binary_op_with_broadcasting"
)
BroadcastOperation = _made("BroadcastOperation", _broadcast, function="broadcast")
ConcatOperation = _made("ConcatOperation", mtf.concat, "ConcatOperation", function="concat")
Constant = _made("Constant", _constant, "FillOperation", function="constant")
Conv2dOperation = _made("Conv2dOperation", _convolution(ops.conv2d), "ConvolutionOperation", function="layers.conv2d")
Conv2or3dBackpropFilterOperation = _made(
    "Conv2or3dBackpropFilterOperation",
    _backprop_filter,
    "ConvolutionKernelOperation",
    function="conv2d_backprop_filter",
)
Conv2or3dBackpropInputOperation = _made(
    "Conv2or3dBackpropInputOperation", _backprop_input, "ConvolutionImageOperation", function="conv2d_backprop_input"
)
Conv3dOperation = _made("Conv3dOperation", _convolution(ops.conv3d), "ConvolutionOperation", function="layers.conv3d")
Depend = _made("Depend", _depend, "DependOperation", function="depend")
EinsumOperation = _made("EinsumOperation", mtf.einsum, "EinsumOperation", function="einsum")
ImportOperation = _made("ImportOperation", mtf.import_tf_tensor, "InputOperation", function="import_tf_tensor")
MinMaxOperation = _made("MinMaxOperation", _extremum, "ElementwiseOperation", function="maximum")
OneHotOperation = _made("OneHotOperation", mtf.one_hot, "OneHotOperation", function="one_hot")
PadOperation = _made("PadOperation", mtf.pad, "ConcatOperation", function="pad")
PoolOperation = _made("PoolOperation", _pool, "MaxPoolOperation", "WindowSumOperation", function="layers.max_pool2d")
PrintOperation = _made("PrintOperation", mtf.Print, "PrintOperation", function="Print")
RandomOperation = _made("RandomOperation", _random, "RandomOperation", function="random_uniform")
RangeOperation = _made("RangeOperation", mtf.range, "RangeOperation", function="range")
ReadVariable = _made("ReadVariable", _read, "ReadVariable", function="read_variable")
ReduceOperation = _made("ReduceOperation", _reduce, "ReduceOperation", function="reduce_sum")
ReshapeOperation = _made("ReshapeOperation", mtf.reshape, "ReshapeOperation", function="reshape")
ScalarAddOperation = _made("ScalarAddOperation", _scalar(mtf.add), "ElementwiseOperation", function="add")
ScalarMultiplyOperation = _made(
    "ScalarMultiplyOperation", _scalar(mtf.multiply), "ElementwiseOperation", function="multiply"
)
ShiftOperation = _made("ShiftOperation", mtf.shift, "ShiftOperation", function="shift")
SliceOperation = _made("SliceOperation", mtf.slice, "SliceOperation", function="slice")
SlicewiseOperation = _made("SlicewiseOperation", _slicewise, "SlicewiseOperation", function="slicewise")
SplitOperation = _made("SplitOperation", mtf.split, "SplitOperation", function="split")
StackOperation = _made("StackOperation", mtf.stack, "StackOperation", function="stack")
StopGradient = _made("StopGradient", _stop_gradient, function="stop_gradient")
TopKOperation = _made("TopKOperation", mtf.top_k, "TopKOperation", function="top_k")
UnstackOperation = _made("UnstackOperation", mtf.unstack, "UnstackOperation", function="unstack")
Variable = _made("Variable", _variable, "Variable", function="get_variable")
WhileLoopOperation = _made("WhileLoopOperation", _loop, "LoopOperation", function="while_loop")

__all__ = [
    "AddOperation",
    "Assign",
    "BinaryOpWithBroadcasting",
    "BroadcastOperation",
    "ConcatOperation",
    "Constant",
    "Conv2dOperation",
    "Conv2or3dBackpropFilterOperation",
    "Conv2or3dBackpropInputOperation",
    "Conv3dOperation",
    "Depend",
    "EinsumOperation",
    "ImportOperation",
    "MinMaxOperation",
    "OneHotOperation",
    "PadOperation",
    "PoolOperation",
    "PrintOperation",
    "RandomOperation",
    "RangeOperation",
    "ReadVariable",
    "ReduceOperation",
    "ReshapeOperation",
    "ScalarAddOperation",
    "ScalarMultiplyOperation",
    "ShiftOperation",
    "SliceOperation",
    "SlicewiseOperation",
    "SplitOperation",
    "StackOperation",
    "StopGradient",
    "TopKOperation",
    "UnstackOperation",
    "Variable",
    "WhileLoopOperation",
]
