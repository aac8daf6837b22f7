"""Quantized weights: how a program reads them, and how a store of trained weights becomes one of these."""

from __future__ import annotations

import contextlib
import dataclasses
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
from meshtf.quantization.number_formats import NUMBER_FORMATS, from_numbers, to_numbers
from meshtf.quantization.quantization import Quantization


@contextlib.contextmanager
def quantized_weights(quantization: Quantization | None = None) -> Iterator[None]:
    """Keeps the kernels of the layers inside as small numbers with float32 scales. Layers read them as before.

    A kernel is a floating variable that has a `matrix`: dense layers, projections of attention, feed-forward layers and
    experts have one. Embeddings, norms, biases and routers stay as they are. For a kernel `layer/kernel` in int8 the
    store has `layer/kernel/int8` and `layer/kernel/int8_scale`; other formats are named so too. `quantize_store` makes
    them from trained weights. Without it they start as 0 and NaN, so a program that runs without weights gives NaN.

    This is for inference: the weights are no variables of the program, and cannot be trained.

    Args:
      quantization: the numbers and who shares a scale; by default int8, with a scale for each output.

    Raises:
      GraphError: no graph is being built here.

    Examples:
      >>> with mtf.quantization.quantized_weights():
      ...     y = mtf.layers.dense(x, "d_ff:32", name="layer")
      >>> for name, variable in mesh.graph.variables.items():
      ...     print(name, variable.shape, variable.slice_dtype.name)
      layer/kernel/int8 hidden:8 d_ff:32 int8
      layer/kernel/int8_scale d_ff:32 float32
      layer/bias d_ff:32 float32
    """
    storage = current_graph().variable_storage
    storage.append(_QuantizedStorage(quantization or Quantization()))
    try:
        yield
    finally:
        storage.pop()


def keeps_int8_cache() -> bool:
    """Whether a cache of decoding that is made here keeps its numbers in int8; see `Quantization.cache`.

    Where no graph is being built, it does not.

    Examples:
      >>> with mtf.quantization.quantized_weights(mtf.quantization.Quantization(cache="int8")):
      ...     mtf.quantization.keeps_int8_cache()
      True
    """
    try:
        storages = reversed(current_graph().variable_storage)
    except GraphError:
        return False
    return next((s.quantization.cache is not None for s in storages if isinstance(s, _QuantizedStorage)), False)


@dataclasses.dataclass(frozen=True)
class _QuantizedStorage:
    """Keeps kernels as numbers and scales."""

    quantization: Quantization

    def stores(self, spec: VariableSpec) -> bool:
        return is_kernel(spec)

    def read(self, mesh: Mesh, spec: VariableSpec) -> Tensor:
        assert spec.dtype.activation_dtype is not None
        values, scale = _parts(mesh, spec, self.quantization)
        weight = from_numbers(values, scale, spec.shape, self.quantization)
        return mtf.cast(weight, spec.dtype.activation_dtype)


@says_where
def quantize_store(program: Function, quantization: Quantization | None = None) -> VariableStore:
    """A store with a trained program's kernels as small numbers, for a program built inside `quantized_weights`.

    Each core quantizes its own slices, so no weight is ever whole on one device. The other variables of the program are
    shared with its own store, which stays as it is. Variables that the program does not use, such as an optimizer's
    state, are left out.

    Args:
      program: a program that reads the weights, built without `quantized_weights`. Its store has their values.
      quantization: the same as for `quantized_weights`.

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
    chosen = quantization or Quantization()
    variables = [v for v in program.graph.variables.values() if isinstance(v, Variable)]
    kernels = [v.spec for v in variables if is_kernel(v.spec)]
    if not kernels:
        raise GraphError(
            f'program "{program.name}" has no kernel to quantize; its floating variables with a `matrix` are kernels'
        )
    whole = program.variables.renamed({v.full_name: v.full_name for v in variables})

    def quantize_weights(mesh: Mesh) -> None:
        for spec in kernels:
            _assign_quantized(mesh, spec, chosen)

    with warnings.catch_warnings():
        # It lacks dimensions of the program, such as the batch, for which the layout has rules.
        warnings.simplefilter("ignore", LayoutWarning)
        mtf.function(quantize_weights, program.lowering.mesh_impl, variables=whole)()
    for spec in kernels:
        del whole[spec.full_name]
    return whole


def _assign_quantized(mesh: Mesh, spec: VariableSpec, quantization: Quantization) -> None:
    assert spec.matrix is not None
    weight = mtf.read_variable(make_variable(mesh, spec), spec.dtype.slice_dtype)
    new = to_numbers(weight, quantization, spec.matrix[0])
    for variable, value in zip(_parts(mesh, spec, quantization), new, strict=True):
        mtf.assign(variable, value)


def is_kernel(spec: VariableSpec) -> bool:
    """Whether a variable is a floating one that has a `matrix`."""
    assert spec.dtype.slice_dtype is not None
    return spec.matrix is not None and spec.dtype.slice_dtype.is_floating


def _parts(mesh: Mesh, spec: VariableSpec, quantization: Quantization) -> tuple[Tensor, Tensor]:
    """The variables of a weight's numbers and of its scales."""
    assert spec.matrix is not None
    name, chosen = quantization.weights, NUMBER_FORMATS[quantization.weights]
    values = part_of_variable(mesh, spec, name, chosen.kept_shape(spec.shape), tf.int8, mtf.zeros)
    groups = quantization.scale_shape(spec.shape, spec.matrix[0])
    return values, part_of_variable(mesh, spec, f"{name}_scale", groups, tf.float32, _nan)


def _nan(mesh: Mesh, shape: Shape, dtype: tf.DType) -> Tensor:
    return mtf.fill(mesh, math.nan, shape, dtype)
