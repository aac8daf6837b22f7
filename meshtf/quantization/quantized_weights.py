"""Quantized weights: how a program reads them, and how a store of trained weights is converted to them."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import GraphError, LayoutWarning, ShapeError, nearest
from meshtf.function.program import Function
from meshtf.graph.graph import current_graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.lowering.variable_store import VariableStore
from meshtf.ops.variables.get_variable import make_variable, part_of_variable
from meshtf.ops.variables.variable import Variable, VariableSpec
from meshtf.quantization.kernels import is_kernel, of_layers
from meshtf.quantization.number_formats import NUMBER_FORMATS, from_numbers, product_values, to_numbers
from meshtf.quantization.quantization import STATIC, Quantization, policy_or_default
from meshtf.quantization.quantization_aware import is_training_state
from meshtf.quantization.quantized_einsum import quantized_einsum
from meshtf.quantization.quantized_tensor import QuantizedTensor, quantize, quantized_by


@contextlib.contextmanager
def quantized_weights(quantization: Quantization | None = None) -> Iterator[None]:
    """Stores the kernels of the layers inside as 8-bit or 4-bit numbers with float32 scales. Layers read them as usual.

    A kernel is a floating variable that has a `matrix`: dense layers, projections of attention, feed-forward layers and
    experts have one. Embeddings, norms, biases and routers stay as they are. For a kernel `layer/kernel` in int8 the
    store has `layer/kernel/int8` and `layer/kernel/int8_scale`, and likewise for other formats. `quantize_store` makes
    them from trained weights. Without it they start as 0 and NaN, so a program that runs without weights returns NaN.

    This is for inference: the weights are not variables of the program, and cannot be trained.

    Args:
      quantization: the number format, and which numbers share a scale; by default int8, with a scale for each output.

    Raises:
      GraphError: no graph is being built here.
      UsageError: `quantization` is no Quantization.

    Examples:
      >>> with mtf.quantization.quantized_weights():
      ...     y = mtf.layers.dense(x, "d_ff:32", name="layer")
      >>> for name, variable in mesh.graph.variables.items():
      ...     print(name, variable.shape, variable.slice_dtype.name)
      layer/kernel/int8 hidden:8 d_ff:32 int8
      layer/kernel/int8_scale d_ff:32 float32
      layer/bias d_ff:32 float32
    """
    storages = current_graph().variable_storage
    storages.append(_QuantizedStorage(policy_or_default(quantization)))
    try:
        yield
    finally:
        storages.pop()


def keeps_int8_cache() -> bool:
    """Whether a decoding cache that is made here stores its numbers in int8; see `Quantization.cache`.

    Returns False where no graph is being built.

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


class _QuantizedStorage:
    """Keeps kernels as numbers and scales."""

    def __init__(self, quantization: Quantization) -> None:
        self.quantization = quantization
        self._kept: dict[Tensor, tuple[VariableSpec, Tensor, Tensor]] = {}

    def stores(self, spec: VariableSpec) -> bool:
        return is_kernel(spec) and self.quantization.takes(spec.full_name)

    def read(self, mesh: Mesh, spec: VariableSpec) -> Tensor:
        assert spec.dtype.activation_dtype is not None
        parts = _parts(mesh, spec, self.quantization)
        weight = from_numbers(*parts, spec.shape, self.quantization)
        made = mtf.cast(weight, spec.dtype.activation_dtype)
        self._kept[made] = spec, *parts
        return made

    def product(self, x: Tensor, kernel: Tensor, output_shape: Shape) -> Tensor | None:
        if self.quantization.activations is None or kernel not in self._kept:
            return None
        spec, kept, scale = self._kept[kernel]
        assert spec.matrix is not None
        numbers = self.quantization.input_numbers
        weights = QuantizedTensor(product_values(kept, spec.shape, self.quantization), scale, numbers)
        if self.quantization.activations == STATIC:
            scale = _input_scale(x.mesh, spec, self.quantization)
            given = quantized_by(x, scale, reduced=spec.matrix[0], numbers=numbers)
        else:
            given = quantize(x, spec.matrix[0], numbers=numbers)
        return mtf.cast(quantized_einsum(given, weights, output_shape), x.dtype)


@says_where
def quantize_store(
    program: Function,
    quantization: Quantization | None = None,
    input_ranges: Mapping[str, float | np.ndarray] | None = None,
) -> VariableStore:
    """A store with a trained program's kernels quantized, for a program that is built inside `quantized_weights`.

    Each core quantizes its own slices, so no weight is ever whole on one device. The other variables of the program are
    shared with its own store, which stays as it is. Variables that the program does not use, such as an optimizer's
    state, are left out, and so are the ranges of quantization-aware training.

    Args:
      program: a program that reads the weights, built without `quantized_weights`. Its store has their values.
      quantization: the same as for `quantized_weights`.
      input_ranges: for static activations, the largest magnitude of each kernel's input, keyed by the kernel's name, as
        `observed_inputs` yields them. Each is a number, or one for each layer of a stack. The scale is this range
        divided by 127, or by 448 for float8. Kernels that `observed_inputs` does not observe multiply floating numbers.
        If you leave out any other kernel, its products are NaN.

    Raises:
      GraphError: the program has no kernel, or its store lacks a variable. Or a scope of `floating` has no kernel. Or
        activations are static, and there are no ranges, or a range is negative, not finite, or not of a kernel. Or
        there are ranges, and activations are not static.
      ShapeError: a range does not have one number for each layer.
      UsageError: `quantization` is no Quantization.

    Examples:
      >>> def logits(x: mtf.f32["batch:2 hidden:4"]):
      ...     return mtf.layers.dense(x, "vocab:3", name="logits")
      >>> one_core = mtf.SpmdMeshImpl("all:1", "")
      >>> program = mtf.function(logits, one_core)
      >>> program.initialize()
      >>> list(mtf.quantization.quantize_store(program))
      ['logits/bias', 'logits/kernel/int8', 'logits/kernel/int8_scale']
      >>> static = mtf.quantization.Quantization(activations="static")
      >>> mtf.quantization.quantize_store(program, static, {"logits/kernel": 12.7})["logits/kernel/int8_input_scale"]
      array(0.1, dtype=float32)
    """
    chosen = policy_or_default(quantization)
    variables = [v for v in program.graph.variables.values() if isinstance(v, Variable)]
    kernels = [v.spec for v in variables if is_kernel(v.spec)]
    if not kernels:
        raise GraphError(
            f'program "{program.name}" has no kernel to quantize; its floating variables with a `matrix` are kernels'
        )
    chosen.check_scopes([spec.full_name for spec in kernels])
    scales = _checked_scales(kernels, input_ranges or {}, chosen)
    kernels = [spec for spec in kernels if chosen.takes(spec.full_name)]
    whole = program.variables.renamed({v.full_name: v.full_name for v in variables})

    def quantize_weights(mesh: Mesh) -> None:
        for spec in kernels:
            _assign_quantized(mesh, spec, chosen, scales.get(spec.full_name))

    with warnings.catch_warnings():
        # The layout has rules for dimensions that this program lacks, such as the batch.
        warnings.simplefilter("ignore", LayoutWarning)
        mtf.function(quantize_weights, program.lowering.mesh_impl, variables=whole)()
    for name in [name for name in whole if is_training_state(name)] + [spec.full_name for spec in kernels]:
        del whole[name]
    return whole


def _checked_scales(
    kernels: Sequence[VariableSpec], ranges: Mapping[str, float | np.ndarray], quantization: Quantization
) -> dict[str, np.ndarray]:
    """The scale of each kernel's input. It is 1 for an input that was always 0."""
    if quantization.activations != STATIC:
        if ranges:
            raise GraphError(
                f"input_ranges are for static activations, and Quantization.activations is "
                f"{quantization.activations!r}; leave them out"
            )
        return {}
    if not ranges:
        raise GraphError(
            "static activations need the range of each kernel's input, but input_ranges is empty; observe them with "
            "mtf.quantization.observed_inputs, or use dynamic activations"
        )
    layers = {spec.full_name: of_layers(spec) for spec in kernels}
    largest = np.float32(NUMBER_FORMATS[quantization.input_numbers].largest)
    scales = {name: _checked_range(name, x, layers) / largest for name, x in ranges.items()}
    return {name: np.where(scale == 0, np.float32(1), scale) for name, scale in scales.items()}


def _checked_range(name: str, given: float | np.ndarray, layers: Mapping[str, Shape]) -> np.ndarray:
    """The range of a kernel's input, float32, one number for each of its layers."""
    if name not in layers:
        raise GraphError(f'input_ranges has "{name}", which is not a kernel{nearest(name, layers)}')
    found, shape = np.asarray(given, np.float32), layers[name]
    if list(found.shape) != shape.to_integer_list:
        raise ShapeError(
            f'input_ranges["{name}"] must have a number for each layer, [{shape}], and has shape {list(found.shape)}'
        )
    if not (np.isfinite(found) & (found >= 0)).all():
        raise GraphError(f'input_ranges["{name}"] must be finite and at least 0, and is {found}')
    return found


def _assign_quantized(
    mesh: Mesh, spec: VariableSpec, quantization: Quantization, input_scale: np.ndarray | None
) -> None:
    assert spec.matrix is not None
    weight = mtf.read_variable(make_variable(mesh, spec), spec.dtype.slice_dtype)
    new = to_numbers(weight, quantization, spec.matrix[0])
    for variable, value in zip(_parts(mesh, spec, quantization), new, strict=True):
        mtf.assign(variable, value)
    if input_scale is not None:
        variable = _input_scale(mesh, spec, quantization)
        mtf.assign(variable, mtf.constant(mesh, input_scale, variable.shape))


def _parts(mesh: Mesh, spec: VariableSpec, quantization: Quantization) -> tuple[Tensor, Tensor]:
    """The variables of a weight's numbers and of its scales."""
    assert spec.matrix is not None
    name, chosen = quantization.weights, NUMBER_FORMATS[quantization.weights]
    values = part_of_variable(mesh, spec, name, chosen.kept_shape(spec.shape), tf.int8, mtf.zeros)
    groups = quantization.scale_shape(spec.shape, spec.matrix[0])
    return values, part_of_variable(mesh, spec, f"{name}_scale", groups, tf.float32, _nan)


def _input_scale(mesh: Mesh, spec: VariableSpec, quantization: Quantization) -> Tensor:
    """The variable of the scale of a kernel's input, one for each layer of a stack."""
    return part_of_variable(mesh, spec, f"{quantization.weights}_input_scale", of_layers(spec), tf.float32, _nan)


def _nan(mesh: Mesh, shape: Shape, dtype: tf.DType) -> Tensor:
    return mtf.fill(mesh, math.nan, shape, dtype)
