"""The user's functions of slices: converts their results to tensors, and checks the functions before anything runs."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf.errors import DtypeError, ExecutionError, GraphError, MeshtfError, ShapeError, counted
from meshtf.graph.operation import Operation
from meshtf.planning.plan import Value

LocalFunction: TypeAlias = Callable[..., Any]
"""A function that takes one slice for each operand, and returns one, or a list, for the outputs."""

_ADVICE = "a dimension that tf_fn resizes, or whose parts it mixes, must not be in splittable_dims"


def as_tensors(results: Any) -> list[tf.Tensor]:
    """The results of a function, one tensor or a list of them, as a list."""
    return [tf.convert_to_tensor(y) for y in (results if isinstance(results, list | tuple) else [results])]


def name_of(tf_fn: LocalFunction, default: str) -> str:
    """The name of a function, or the default if its name is no identifier."""
    name = getattr(tf_fn, "__name__", default)
    return name if name.isidentifier() else default


def check_local_function(
    operation: Operation, tf_fn: LocalFunction, inputs: Sequence[Value], outputs: Sequence[Value]
) -> None:
    """Traces the function once by itself, on slices of the sizes that it will get.

    Raises:
      ExecutionError: the function raised an error.
      ShapeError, DtypeError: its results are not the operation's outputs. The message has the user's line.
    """
    given = [
        f"{list(v.slice_shape)} {v.dtype.name} of {x.name} [{v.layout.to_string(v.shape)}]"
        for x, v in zip(operation.inputs, inputs, strict=True)
    ]
    specs = [tf.TensorSpec(v.slice_shape, v.dtype) for v in inputs]
    returned = traced_results(operation, tf_fn, specs, given)
    if len(returned) != len(outputs):
        expected = counted(len(outputs), "output")
        fact = f"tf_fn returned {counted(len(returned), 'tensor')}, but the operation has {expected}"
        raise ShapeError(text_of(operation, fact, given))
    for y, value in zip(returned, outputs, strict=True):
        _check_output(operation, y, value, given)


def traced_results(
    operation: Operation, tf_fn: LocalFunction, specs: Sequence[tf.TensorSpec], given: Sequence[str]
) -> list[tf.Tensor]:
    """The function's results, traced by itself on slices of these sizes. `given` describes each slice in words.

    Raises:
      ExecutionError: the function raised an error.
      GraphError: it uses a tensor of a session's graph.
    """
    returned: list[tf.Tensor] = []
    function = tf.function(lambda *slices: returned.extend(as_tensors(tf_fn(*slices))), autograph=False)
    try:
        captured = function.get_concrete_function(*specs).captured_inputs
    except MeshtfError:
        raise
    except Exception as error:
        fact = f"tf_fn raised {type(error).__name__}{_users_line(error)}: {_first_lines(error)}"
        raise ExecutionError(text_of(operation, fact, given)) from None
    foreign = [x for x in captured if tf.is_symbolic_tensor(x) and type(x.graph) is tf.Graph]
    if foreign:
        fact = (
            f"tf_fn uses {foreign[0].name}, a tensor of the session's graph, in which the program does not run; make "
            f"it an operand, by mtf.import_tf_tensor(mesh, x, shape), or make it inside tf_fn"
        )
        raise GraphError(text_of(operation, fact, given))
    return returned


def _check_output(operation: Operation, y: tf.Tensor, value: Value, given: Sequence[str]) -> None:
    expected = f"the slice of output [{value.layout.to_string(value.shape)}] {value.dtype.name}"
    if not y.shape.is_compatible_with(value.slice_shape):
        fact = f"tf_fn returned a tensor of shape {y.shape}, but {expected} has {list(value.slice_shape)}; {_ADVICE}"
        raise ShapeError(text_of(operation, fact, given))
    if y.dtype != value.dtype:
        fact = (
            f"tf_fn returned {y.dtype.name} for {expected}; give output_dtype=tf.{y.dtype.name}, or use tf.cast in it"
        )
        raise DtypeError(text_of(operation, fact, given))


def text_of(operation: Operation, fact: str, given: Sequence[str]) -> str:
    """A message about a function of slices: the fact, the slices given to it, and the user's line."""
    lines = [f"{operation.name}: {fact}", "  slices given to tf_fn:"]
    return "\n".join([*lines, *(f"    {slice_}" for slice_ in given), f"  at {operation.site}"])


def _users_line(error: Exception) -> str:
    """The place where the error arose: the innermost frame that is neither TensorFlow's nor this file's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/tensorflow/python/" not in frame.filename and "/keras/" not in frame.filename
        and frame.filename != __file__ and not frame.filename.startswith("<")
    ]  # fmt: skip
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _first_lines(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n    ".join(lines[:4])
