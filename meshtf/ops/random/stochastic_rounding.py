"""Stochastic rounding of variables: the same under every layout, and in a scan as in its layers unrolled."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import tensorflow as tf

from meshtf import random
from meshtf.graph import Operation, Tensor
from meshtf.layer_scopes import without_numbers
from meshtf.layout import Axes
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.variables.program_step import program_step
from meshtf.ops.variables.variable import Variable
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.planning.work_facts import WorkFacts


class VariableBits(Operation):
    """32 random bits for each element of a variable, other ones in every step of the program.

    A variable of one layer, where layers are unrolled, has those that a scan's has for this layer.
    """

    takes_padding = True

    def __init__(self, variable: Variable, name: str) -> None:
        graph = variable.graph
        with graph.root_scope(), graph.variable_scope(variable.full_name):
            super().__init__([program_step(variable.mesh)], [(variable.shape, tf.int32)], name=name)
        self.variable = variable

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        (output,), (step,) = self.outputs, self.inputs
        layout = planner.layouts[output]
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        stretches = list(self._stretches(size, layout.axes))
        part, whole = [s.size for s in stretches], [s.whole for s in stretches]
        key = planner.random_key(without_numbers(self.name, self.variable.spec.layer_scopes))

        def emit(core: Core, *counts: tf.Tensor) -> tf.Tensor:
            own = key
            for count in counts:
                own = random.fold_in(own, count)
            bits = random.random_bits(own, [s.begin(core) for s in stretches], part, whole)
            return tf.reshape(tf.bitcast(bits, tf.int32), size)

        inputs, spec = [planner.read(step), *planner.iterations], (output.shape, output.dtype, layout)
        flops, facts = math.prod(size), WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random", emit, inputs, [spec], flops=flops, facts=facts)[0])

    def _stretches(self, size: tuple[int, ...], axes: tuple[Axes, ...]) -> Iterator[_Stretch]:
        """The dimensions of the variable, and those of the stacks whose layer it is, as one for all layers has them."""
        own = (_Stretch(d.size, n, a) for d, n, a in zip(self.variable.shape, size, axes, strict=True))
        for scope in self.variable.spec.layer_scopes:
            if scope.number is None:
                yield from itertools.islice(own, len(scope.stacked_dims))
            else:
                yield _Stretch(scope.dim.size, 1, first=scope.number)
        yield from own


@dataclasses.dataclass(frozen=True)
class _Stretch:
    """What a core draws of one dimension: `size` of its `whole` elements, the part that it has where these axes split
    it, or from the `first` on."""

    whole: int
    size: int
    axes: Axes = ()
    first: int = 0

    def begin(self, core: Core) -> tf.Tensor | int:
        return core.coordinate(self.axes) * self.size if self.axes else self.first


def rounded_to_bfloat16(x: Tensor, variable: Variable, name: str = "rounding") -> Tensor:
    """A new value of a variable, rounded up or down at random, right in the mean; what is not finite stays.

    Args:
      x: float32 [variable.shape].
      variable: whose name, layers and place in the program's steps key the random bits.
      name: the operations' name.

    Returns:
      float32 numbers that bfloat16 has: with 16 bits of 0 at their ends.
    """
    bits = VariableBits(variable, name).outputs[0]
    return ElementwiseOperation(name, _with_carry, [x, bits]).outputs[0]


def _with_carry(x: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    bits, below = tf.bitcast(x, tf.int32), tf.constant((1 << 16) - 1, tf.int32)
    rounded = tf.bitwise.bitwise_and(bits + tf.bitwise.bitwise_and(noise, below), tf.bitwise.invert(below))
    # What is no finite number has no neighbours.
    return tf.where(tf.math.is_finite(x), tf.bitcast(rounded, tf.float32), x)
