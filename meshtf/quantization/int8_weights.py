"""Weights that are kept in int8: how a program reads them, and how a store of trained weights becomes one of these."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import GraphError, LayoutWarning
from meshtf.function.program import Function
from meshtf.graph.graph import current_graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.lowering.variable_store import VariableStore
from meshtf.ops.variables.get_variable import make_variable, part_of_variable
from meshtf.ops.variables.variable import Variable, VariableSpec
from meshtf.quantization.quantized_tensor import QuantizedTensor, quantize

VALUES, SCALE = "int8", "int8_scale"
"""The names of both parts of a weight, under its own."""


@contextlib.contextmanager
def int8_weights() -> Iterator[None]:
    """Keeps the kernels of the layers inside in int8, with a float32 scale for each output. Layers read them as before.

    A kernel is a floating variable that has a `matrix`: dense layers, projections of attention, feed-forward layers and
    experts have one. Embeddings, norms, biases and routers stay as they are. For a kernel `layer/kernel` the store has
    `layer/kernel/int8` and `layer/kernel/int8_scale`. `quantize_store` makes them from trained weights. Without it they
    start as 0 and NaN, so a program that runs without weights gives NaN.

    This is for inference: the weights are no variables of the program, and cannot be trained.

    Raises:
      GraphError: no graph is being built here.

    Examples:
      >>> with mtf.quantization.int8_weights():
      ...     y = mtf.layers.dense(x, "d_ff:32", name="layer")
      >>> for name, variable in mesh.graph.variables.items():
      ...     print(name, variable.shape, variable.slice_dtype.name)
      layer/kernel/int8 hidden:8 d_ff:32 int8
      layer/kernel/int8_scale d_ff:32 float32
      layer/bias d_ff:32 float32
    """
    storage = current_graph().variable_storage
    storage.append(_Int8Storage())
    try:
        yield
    finally:
        storage.pop()


class _Int8Storage:
    """Keeps kernels as int8 numbers and scales."""

    def stores(self, spec: VariableSpec) -> bool:
        return _is_kernel(spec)

    def read(self, mesh: Mesh, spec: VariableSpec) -> Tensor:
        assert spec.dtype.activation_dtype is not None
        return QuantizedTensor(*_parts(mesh, spec)).dequantized(spec.dtype.activation_dtype)


@says_where
def quantize_store(program: Function) -> VariableStore:
    """A store with a trained program's kernels in int8, for the program that is built inside `int8_weights()`.

    Each core quantizes its own slices, so no weight is ever whole on one device. The other variables of the program are
    shared with its own store, which stays as it is. Variables that the program does not use, such as an optimizer's
    state, are left out.

    Args:
      program: a program that reads the weights, built without `int8_weights()`. Its store has their values.

    Raises:
      GraphError: the program has no kernel, or its store lacks a variable.

    Examples:
      >>> def logits(x: mtf.f32["batch:2 hidden:4"]):
      ...     return mtf.layers.dense(x, "vocab:3", name="logits")
      >>> one_core = mtf.SpmdMeshImpl("all:1", "")
      >>> program = mtf.function(logits, one_core)
      >>> program.initialize()
      >>> list(mtf.quantization.quantize_store(program))
      ['logits/bias', 'logits/kernel/int8', 'logits/kernel/int8_scale']
    """
    variables = [v for v in program.graph.variables.values() if isinstance(v, Variable)]
    kernels = [v.spec for v in variables if _is_kernel(v.spec)]
    if not kernels:
        raise GraphError(
            f'program "{program.name}" has no kernel to quantize; its floating variables with a `matrix` are kernels'
        )
    whole = program.variables.renamed({v.full_name: v.full_name for v in variables})

    def quantize_weights(mesh: Mesh) -> None:
        for spec in kernels:
            _assign_quantized(mesh, spec)

    with warnings.catch_warnings():
        # It lacks dimensions of the program, such as the batch, for which the layout has rules.
        warnings.simplefilter("ignore", LayoutWarning)
        mtf.function(quantize_weights, program.lowering.mesh_impl, variables=whole)()
    for spec in kernels:
        del whole[spec.full_name]
    return whole


def _assign_quantized(mesh: Mesh, spec: VariableSpec) -> None:
    assert spec.matrix is not None
    weight = mtf.read_variable(make_variable(mesh, spec), spec.dtype.slice_dtype)
    quantized = quantize(weight, spec.matrix[0])
    values, scale = _parts(mesh, spec)
    mtf.assign(values, quantized.values)
    mtf.assign(scale, quantized.scale)


def _is_kernel(spec: VariableSpec) -> bool:
    assert spec.dtype.slice_dtype is not None
    return spec.matrix is not None and spec.dtype.slice_dtype.is_floating


def _parts(mesh: Mesh, spec: VariableSpec) -> tuple[Tensor, Tensor]:
    """The variables of a weight's int8 numbers and of its scales, one for each output of each matrix."""
    assert spec.matrix is not None
    outputs = Shape([d for d in spec.shape if d.name not in spec.matrix[0]])
    values = part_of_variable(mesh, spec, VALUES, spec.shape, tf.int8, mtf.zeros)
    return values, part_of_variable(mesh, spec, SCALE, outputs, tf.float32, _nan)


def _nan(mesh: Mesh, shape: Shape, dtype: tf.DType) -> Tensor:
    return mtf.fill(mesh, math.nan, shape, dtype)
