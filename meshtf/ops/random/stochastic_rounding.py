"""Stochastic rounding of variables, the same under every layout, and the same in a scan and in unrolled layers.

bfloat16 is the upper half of a float32. Adding 16 random bits to the lower half carries into the upper half with the
probability lower half / 2^16. Cutting the lower half off then rounds up or down, and is correct on average.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import tensorflow as tf

from meshtf import random
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layer_scopes import without_numbers
from meshtf.layout import Axes
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.variables.program_step import program_step
from meshtf.ops.variables.variable import Variable
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class VariableBits(Operation):
    """32 random bits for each element of a variable, different in every step of the program.

    A variable of one unrolled layer has the bits that a scan has for this layer.
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
        ranges = list(self._ranges(size, layout.axes))
        part, whole = [s.size for s in ranges], [s.whole for s in ranges]
        key = planner.random_key(without_numbers(self.name, self.variable.spec.layer_scopes))

        def emit(core: Core, *counts: tf.Tensor) -> tf.Tensor:
            own = key
            for count in counts:
                own = random.fold_in(own, count)
            bits = random.random_bits(own, [s.begin(core) for s in ranges], part, whole)
            return tf.reshape(tf.bitcast(bits, tf.int32), size)

        inputs, spec = [planner.read(step), *planner.loops.iterations], (output.shape, output.dtype, layout)
        flops, facts = math.prod(size), WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random", emit, inputs, [spec], flops=flops, facts=facts)[0])

    def _ranges(self, size: tuple[int, ...], axes: tuple[Axes, ...]) -> Iterator[_DrawnRange]:
        """The ranges of the variable's dimensions and of its layer's stacks, as if all layers were stacked."""
        own = (_DrawnRange(d.size, n, a) for d, n, a in zip(self.variable.shape, size, axes, strict=True))
        for scope in self.variable.spec.layer_scopes:
            if scope.number is None:
                yield from itertools.islice(own, len(scope.stacked_dims))
            else:
                yield _DrawnRange(scope.dim.size, 1, first=scope.number)
        yield from own


@dataclasses.dataclass(frozen=True)
class _DrawnRange:
    """The range of one dimension that a core draws: `size` of its `whole` elements.

    It is the core's part if mesh axes split the dimension; otherwise it begins at `first`.
    """

    whole: int
    size: int
    axes: Axes = ()
    first: int = 0

    def begin(self, core: Core) -> tf.Tensor | int:
        return core.coordinate(self.axes) * self.size if self.axes else self.first


def rounded_to_bfloat16(x: Tensor, variable: Variable, name: str = "rounding") -> Tensor:
    """A variable's new value, rounded up or down at random, and correct on average. Infinities and NaN are kept.

    Args:
      x: float32 [variable.shape].
      variable: the variable. Its name and layers, and the program's step, key the random bits.
      name: the operations' name.

    Returns:
      float32 numbers that bfloat16 can hold: their last 16 bits are 0.
    """
    bits = VariableBits(variable, name).outputs[0]
    return ElementwiseOperation(name, _with_carry, [x, bits]).outputs[0]


def _with_carry(x: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    bits, below = tf.bitcast(x, tf.int32), tf.constant((1 << 16) - 1, tf.int32)
    rounded = tf.bitwise.bitwise_and(bits + tf.bitwise.bitwise_and(noise, below), tf.bitwise.invert(below))
    # Infinities and NaN have no neighbours to round to.
    return tf.where(tf.math.is_finite(x), tf.bitcast(rounded, tf.float32), x)
