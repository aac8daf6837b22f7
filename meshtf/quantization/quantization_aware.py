"""Quantization-aware training: a model learns with the rounding that quantized weights and activations will have."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

import meshtf as mtf
from meshtf.control_flow.notes import note, noting
from meshtf.dimension import Shape
from meshtf.errors import GraphError, UsageError
from meshtf.field_checks import check_kinds
from meshtf.graph.graph import current_graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.number_checks import is_integer, is_number
from meshtf.ops.variables.get_variable import make_variable, part_of_variable
from meshtf.ops.variables.variable import VariableSpec
from meshtf.quantization.kernels import is_kernel, of_layers
from meshtf.quantization.number_formats import NUMBER_FORMATS, from_numbers, to_numbers
from meshtf.quantization.observed_inputs import largest_by_kernel, largest_magnitude
from meshtf.quantization.quantization import STATIC, Quantization
from meshtf.quantization.quantized_tensor import quantize, quantized_by

INPUT_RANGE = "input_range"
"""The moving range of a kernel's input is the variable `<the kernel's name>/input_range`."""

_STEP = "quantization_aware/step"


@dataclasses.dataclass(frozen=True)
class QuantizationAware:
    """Training with the rounding of quantized weights and activations (Jacob et al. 2018).

    The program keeps floating weights. It computes with their rounded values, and gradients pass as if nothing were
    rounded (a straight-through estimator). For static activations, the range of a kernel's input is a moving average of
    the largest magnitude in each step. It is a variable, saved with the weights. Numbers outside of the range are
    clipped to it, and have no gradient.

    Attributes:
      quantization: the form of weights and activations to train for. Its `cache` has no effect.
      start_step: the first step, counted from 0, that rounds numbers. Ranges move in earlier steps too.
      momentum: the decay of a moving range, per step. The first step sets the range.

    Raises:
      GraphError: `start_step` is no integer, 0 or more; or `momentum` is not from 0 up to 1.

    Examples:
      >>> mtf.quantization.QuantizationAware(mtf.quantization.Quantization("int4"), start_step=100).momentum
      0.99
    """

    quantization: Quantization = dataclasses.field(default_factory=Quantization)
    start_step: int = 0
    momentum: float = 0.99

    def __post_init__(self) -> None:
        if not is_integer(self.start_step, 0):
            raise GraphError(f"QuantizationAware.start_step must be an integer, 0 or more, and is {self.start_step!r}")
        if not is_number(self.momentum) or not 0 <= self.momentum < 1:
            raise GraphError(
                f"QuantizationAware.momentum must be a number of at least 0 and below 1, and is {self.momentum!r}"
            )
        check_kinds(self, GraphError)


@contextlib.contextmanager
def quantization_aware(policy: QuantizationAware, *, is_training: bool) -> Iterator[dict[str, Tensor]]:
    """Rounds the kernels of the layers inside, and the activations that they multiply, as a policy says.

    Args:
      policy: the form of the numbers, and the step at which rounding starts.
      is_training: whether to observe the ranges of activations and to wait for `start_step`. Otherwise, every step
        rounds.

    Yields:
      The ranges of this step, keyed by the kernel's name, filled at the end as for `observed_inputs`. Pass them to
      `move_ranges`.

    Raises:
      GraphError: no graph is being built here. Or activations are static, and a layer is in a pipeline, or in a branch
        or a loop other than a scan. Or it is training, and `Quantization.floating` has a scope that has no kernel here.
      UsageError: the policy is no QuantizationAware.

    Examples:
      >>> policy = mtf.quantization.QuantizationAware(mtf.quantization.Quantization(activations="static"))
      >>> with mtf.quantization.quantization_aware(policy, is_training=True) as ranges:
      ...     y = mtf.layers.dense(x, "d_ff:32", name="layer")
      >>> mtf.quantization.move_ranges(policy, ranges)
      >>> [(name, v.trainable) for name, v in mesh.graph.variables.items() if name != "layer/bias"]
      [('layer/kernel', True), ('layer/kernel/input_range', False), ('quantization_aware/step', False)]
    """
    if not isinstance(policy, QuantizationAware):
        raise UsageError(f"quantization_aware needs a QuantizationAware, such as QuantizationAware(), not {policy!r}")
    graph, found = current_graph(), dict[str, Tensor]()
    own = _RoundedKernels(policy, is_training=is_training)
    graph.variable_storage.append(own)
    try:
        with noting(graph) as notes:
            yield found
    finally:
        graph.variable_storage.pop()
    if is_training:  # another program may have a part of the model's layers
        policy.quantization.check_scopes(own.seen)
    found.update(largest_by_kernel(graph, notes))


def move_ranges(policy: QuantizationAware, ranges: Mapping[str, Tensor]) -> None:
    """Updates the moving ranges of activations with those of a step, and counts the step.

    A step's range that is infinite or NaN is ignored.

    Args:
      policy: the same as for `quantization_aware`.
      ranges: the ranges of this step.

    Raises:
      GraphError: no graph is being built here; or it has several meshes; or a kernel has no moving range.

    Examples:
      >>> policy = mtf.quantization.QuantizationAware(mtf.quantization.Quantization(activations="static"))
      >>> with mtf.quantization.quantization_aware(policy, is_training=True) as ranges:
      ...     y = mtf.layers.dense(mtf.ones(mesh, "batch:4 hidden:8"), "d_ff:32", name="layer")
      >>> mtf.quantization.move_ranges(policy, ranges)
      >>> value(mtf.read_variable(mesh.graph.variables["layer/kernel/input_range"]))
      np.float32(1.0)
    """
    graph = current_graph()
    for name, largest in ranges.items():
        if f"{name}/{INPUT_RANGE}" not in graph.variables:
            raise GraphError(
                f'kernel "{name}" has no moving range; ranges come from '
                f"mtf.quantization.quantization_aware with static activations"
            )
        variable = graph.variables[f"{name}/{INPUT_RANGE}"].outputs[0]
        before = mtf.read_variable(variable)
        moved = policy.momentum * before + (1.0 - policy.momentum) * largest
        moved = mtf.where(mtf.equal(before, 0.0), largest, moved)
        # A moving average would keep an infinity for ever, and so would a checkpoint.
        mtf.assign(variable, mtf.where(mtf.is_finite(largest), moved, before))
    if len(graph.meshes) != 1:
        raise GraphError(f"move_ranges needs a program with one mesh, and this one has {len(graph.meshes)}")
    mtf.assign_add(_step(graph.meshes[0]), mtf.ones(graph.meshes[0], [], tf.int32))


class _RoundedKernels:
    """Reads kernels, and rounds them and the inputs that they multiply."""

    def __init__(self, policy: QuantizationAware, *, is_training: bool) -> None:
        self._policy, self._is_training = policy, is_training
        self.seen: dict[str, None] = {}
        self._kernels: dict[Tensor, VariableSpec] = {}

    def stores(self, spec: VariableSpec) -> bool:
        if not is_kernel(spec):
            return False
        self.seen[spec.full_name] = None
        return self._policy.quantization.takes(spec.full_name)

    def read(self, mesh: Mesh, spec: VariableSpec) -> Tensor:
        assert spec.matrix is not None
        quantization, summed = self._policy.quantization, spec.matrix[0]

        def rounded(w: Tensor) -> Tensor:
            return from_numbers(*to_numbers(w, quantization, summed), w.shape, quantization)

        kernel = self._straight_through(make_variable(mesh, spec), rounded)
        self._kernels[kernel] = spec
        return kernel

    def product(self, x: Tensor, kernel: Tensor, output_shape: Shape) -> Tensor | None:
        activations = self._policy.quantization.activations
        if activations is None or kernel not in self._kernels:
            return None
        spec = self._kernels[kernel]
        assert spec.matrix is not None
        summed = spec.matrix[0]
        if activations == STATIC:
            given = self._within_range(x, spec)
        else:
            numbers = self._policy.quantization.input_numbers
            given = self._straight_through(x, lambda x: quantize(x, summed, numbers=numbers).dequantized())
        return mtf.einsum([given, kernel.astype(x.dtype)], output_shape=output_shape)

    def _within_range(self, x: Tensor, spec: VariableSpec) -> Tensor:
        """x, quantized and dequantized by the moving range of a kernel's input; x itself while that is still 0."""
        numbers = self._policy.quantization.input_numbers
        limit = part_of_variable(x.mesh, spec, INPUT_RANGE, of_layers(spec), tf.float32, mtf.zeros)
        if self._is_training:
            note(spec.full_name, largest_magnitude(x))
        is_known = mtf.greater(limit, 0.0)
        scale = mtf.where(is_known, limit / NUMBER_FORMATS[numbers].largest, 1.0)
        limit = mtf.where(is_known, limit, math.inf)

        def rounded(x: Tensor) -> Tensor:
            new = quantized_by(x, scale, reduced=[], numbers=numbers)
            return mtf.where(is_known, new.dequantized(), mtf.cast(x, tf.float32))

        return self._straight_through(x, rounded, limit)

    def _straight_through(self, x: Tensor, rounded: Callable[[Tensor], Tensor], limit: Tensor | None = None) -> Tensor:
        """The rounded numbers from `start_step` on, with the gradient of x, or 0 where a magnitude is above `limit`."""
        is_on = self._is_on(x.mesh)

        def value(x: Tensor) -> Tensor:
            new = mtf.cast(rounded(x), x.dtype)
            return new if is_on is None else mtf.where(is_on, new, x, output_shape=x.shape)

        def gradient(
            explicit: list[Tensor], every: list[Tensor], forward: object, outputs: object, grads: list[Tensor]
        ) -> list[Tensor | None]:
            (x,), (dy,) = explicit, grads
            if limit is not None:
                is_beyond = mtf.greater(mtf.abs(mtf.cast(x, tf.float32)), limit)
                is_beyond = is_beyond if is_on is None else mtf.logical_and(is_beyond, is_on)
                dy = mtf.where(is_beyond, mtf.zeros_like(dy), dy)
            return [dy, *(None for _ in every[1:])]

        return mtf.custom_gradient(value, gradient, [x])

    def _is_on(self, mesh: Mesh) -> Tensor | None:
        """Whether this step rounds; None if every step does."""
        if not self._is_training or not self._policy.start_step:
            return None
        return mtf.greater_equal(_step(mesh), self._policy.start_step)


def is_training_state(name: str) -> bool:
    """Whether a variable of this name is state of quantization-aware training: a range, or the count of steps."""
    return name == _STEP or name.endswith(f"/{INPUT_RANGE}")


def _step(mesh: Mesh) -> Tensor:
    """The number of steps so far: a variable of the program."""
    with mesh.graph.root_scope():
        return mtf.get_variable(mesh, _STEP, [], tf.int32, mtf.zeros, trainable=False)
