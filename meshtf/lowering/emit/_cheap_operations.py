"""Operations of a function that is being traced, made at less cost than by TensorFlow; equal constants are one."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

# No public names make an operation.
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import func_graph, op_def_registry, ops

_LARGEST = 1024
"""Bytes. What is larger is hardly there twice, and would be copied to be compared."""

_Create = Callable[..., tf.Operation]
"""`Graph._create_op_internal`: of a type, inputs and options."""


@contextlib.contextmanager
def cheap_operations() -> Iterator[None]:
    """Inside, operations of the function being traced are made directly, and a constant that is there is shared.

    Functions called inside, and bodies of loops, are graphs of their own.
    """
    graph = cast("Any", tf.compat.v1.get_default_graph())
    if not inspect.ismethod(graph._create_op_internal):  # one around this has made it so
        yield
        return
    graph._create_op_internal = _sharing_constants(graph, _made_directly(graph, graph._create_op_internal))
    graph.as_default = _as_default(graph, graph.as_default)
    try:
        yield
    finally:
        del graph._create_op_internal, graph.as_default


def _as_default(graph: Any, enter: Callable[[], Any]) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Nothing to do where the graph is the default one, which TensorFlow asks for twice for each operation."""

    def as_default() -> contextlib.AbstractContextManager[Any]:
        is_default = ops.get_default_graph() is graph and not tf.executing_eagerly()
        return contextlib.nullcontext(graph) if is_default else enter()

    return as_default


def know_shape(x: tf.Tensor, shape: Sequence[int | None]) -> None:
    """`x.set_shape(shape)`."""
    if isinstance(x, ops.SymbolicTensor) and None not in shape:
        cast("Any", x)._shape_val = None
        cast("Any", x)._set_shape(shape, False)
    else:
        x.set_shape(shape)


def _sharing_constants(graph: Any, create: _Create) -> _Create:
    """Makes a constant that the graph has already not again.

    Sizes of reshapes and axes of sums were more than a third of the operations of a training step, each of which
    TensorFlow places, partitions and starts anew for every core; Grappler, which would merge them, is off.
    """
    made: dict[Hashable, tf.Operation] = {}

    def create_or_share(op_type: str, *arguments: Any, **options: Any) -> tf.Operation:
        if op_type != "Const" or options["attrs"]["value"].ByteSize() > _LARGEST:
            return create(op_type, *arguments, **options)
        key = (options["attrs"]["value"].SerializeToString(), *graph._device_functions_outer_to_inner)
        if key not in made:
            # What shares it does not wait for what this place would wait for.
            with graph.control_dependencies(None):
                made[key] = create(op_type, *arguments, **options)
        return made[key]

    return create_or_share


def _made_directly(graph: Any, create: _Create) -> _Create:
    """As `create` makes operations, but without what no function of a program has.

    TensorFlow's own Python spends half of its time on stacks of Python's, which errors of programs do not show, copies
    of attributes, and checks that its C++ repeats.
    """
    if not isinstance(graph, func_graph.FuncGraph):
        return create

    def create_directly(
        op_type: str,
        inputs: Sequence[tf.Tensor],
        dtypes: Sequence[tf.DType] | None = None,
        input_types: Sequence[tf.DType] | None = None,
        name: str | None = None,
        attrs: Mapping[str, tf.compat.v1.AttrValue] | None = None,
        op_def: Any = None,
        compute_device: bool = True,
    ) -> tf.Operation:
        if _is_special(graph):
            return create(op_type, inputs, dtypes, input_types, name, attrs, op_def, compute_device)
        own = [x if getattr(x, "graph", None) is graph else _captured(graph, x) for x in inputs]
        unique = name[:-1] if name and name[-1] == "/" else graph.unique_name(name or op_type)
        with graph._c_graph.get() as c_graph:
            description = c_api.TF_NewOperation(c_graph, op_type, unique)
        _add_inputs(description, op_type, own, attrs)
        if graph._control_dependencies_stack:
            for awaited in graph._control_dependencies_for_inputs({x.op for x in own}):
                c_api.TF_AddControlInput(description, cast("Any", awaited)._c_op)
        for key, value in (attrs or {}).items():
            c_api.TF_SetAttrValueProto(description, key, value.SerializeToString())
        try:
            operation = ops.Operation._from_c_op(c_api.TF_FinishOperation(description), graph)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(error.message) from None
        graph._record_op_seen_by_control_dependencies(operation)
        if compute_device:
            graph._apply_device_functions(operation)
        return operation

    return create_directly


def _is_special(graph: Any) -> bool:
    """Whether operations made here get more than what they are asked to have, or stand for others."""
    return bool(
        graph._control_flow_context is not None
        or graph.capture_by_value
        or graph._colocation_stack
        or graph._attr_scope_map
        or graph._container
        or graph._op_to_kernel_label_map
        or graph._gradient_override_map
        or graph._gradient_function_map
    )


@functools.lru_cache(maxsize=1024)
def _lists_of(op_type: str) -> tuple[str, ...] | None:
    """By input, the attribute that tells how many tensors it has, empty for one; None where each has one."""
    op_def = op_def_registry.get(op_type)
    if op_def is None:
        return None  # a function
    lists = tuple(x.number_attr or x.type_list_attr for x in op_def.input_arg)
    return lists if any(lists) else None


def _add_inputs(description: Any, op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any] | None) -> None:
    """Those that are lists as lists."""
    outputs = [x._as_tf_output() for x in inputs]
    lists = _lists_of(op_type)
    if lists is None or attrs is None:
        for x in outputs:
            c_api.TF_AddInput(description, x)
        return
    begin = 0
    for name in lists:
        if name:
            size = attrs[name].i or len(attrs[name].list.type)
            c_api.TF_AddInputList(description, outputs[begin : begin + size])
            begin += size
        else:
            c_api.TF_AddInput(description, outputs[begin])
            begin += 1


_HANDLE = {
    "dtype": tf.compat.v1.AttrValue(type=tf.resource.as_datatype_enum),
    "shape": tf.compat.v1.AttrValue(shape=tf.TensorShape([]).as_proto()),
}


_HANDLE_SPEC = tf.TensorSpec([], tf.resource)


def _captured(graph: Any, x: Any) -> tf.Tensor:
    """As the graph captures a tensor from outside; a variable's handle without what it says of the variable."""
    captures = graph.function_captures
    if (known := captures.by_val_internal.get(id(x))) is not None:
        return known
    if not isinstance(x, ops.EagerTensor) or x.dtype != tf.resource or x.is_packed:
        return graph.capture(x)
    with graph.control_dependencies(None):
        placeholder = graph._create_op_internal("Placeholder", [], name="handle", attrs=_HANDLE).outputs[0]
    captures.add_or_replace(id(x), x, placeholder, tracetype=_HANDLE_SPEC)
    graph.inputs.append(placeholder)
    return placeholder
