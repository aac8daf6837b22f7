"""The operations that draw random bits, the same under every layout.

The bits depend on the program's seed, the operation's scope path and name, the program's step, and the position in the
whole tensor. Each core computes the bits of its slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Shape
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.layer_scopes import LayerScope, scopes_of, vectorization_of, without_numbers
from meshtf.layout import Axes, TensorLayout
from meshtf.ops.random._drawn_ranges import Draw, DrawnRange, cuts_of, drawn_part
from meshtf.ops.variables.program_step import program_step
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class KeyedOperation(Operation):
    """An operation with a key of random bits.

    If layers are vectorized, their numbers are inputs, and the result has a dimension that counts the layers. The
    program's step is another input.
    """

    takes_padding = True

    def __init__(self, mesh: Mesh, shape: Shape, dtype: tf.DType, name: str) -> None:
        self.vectorization = vectorization_of(mesh.graph.layer_scopes)
        told_by = self.vectorization.inputs if self.vectorization else []
        steps = [] if mesh.graph.is_initial else [program_step(mesh)]
        if self.vectorization and not shape.has(self.vectorization.along.name):
            shape = Shape([self.vectorization.along, *shape])
        super().__init__([*told_by, *steps], [(shape, dtype)], name=name, mesh=mesh)
        self._steps = steps

    @property
    def has_gradient(self) -> bool:
        return False

    @property
    def _layer_scopes(self) -> tuple[LayerScope, ...]:
        """The scopes of layers that its name is in. `mtf.vmap` makes it outside of them, then gives it its name."""
        return scopes_of(self.name, self.scoped_name.layer_scopes)

    def _told_by(self, planner: Planner, axes: Axes) -> list[Value]:
        """The numbers of the layers that this core has, and of their micro-batches."""
        return [
            planner.read(x, TensorLayout((axes,))) for x in (self.vectorization.inputs if self.vectorization else [])
        ]

    def _counts(self, planner: Planner, told_by: list[Value]) -> list[int | Value]:
        """The numbers to fold into the key: the numbers of the layers, of the step, and of the loops' iterations."""
        return [*self._layer_numbers(planner, told_by), *map(planner.read, self._steps), *planner.loops.iterations]

    def _key(self, planner: Planner, counts: list[int | Value]) -> Callable[[dict[Value, tf.Tensor]], random.Key]:
        """A function that makes the key of one layer, from counts that are known when the program runs."""
        key = planner.random_key(without_numbers(self.name, self._layer_scopes))

        def of_layer(given: dict[Value, tf.Tensor]) -> random.Key:
            # Folding counts in one after the other gives each layer, step and iteration a key of its own.
            own = key
            for count in counts:
                own = random.fold_in(own, given[count] if isinstance(count, Value) else count)
            return own

        return of_layer

    def _layer_numbers(self, planner: Planner, told_by: list[Value]) -> list[int | Value]:
        """The numbers of the enclosing layers, outermost first: known for unrolled layers, counted in a scan."""
        counted = iter(planner.loops.layers)
        named: list[int | Value] = []
        for scope in self._layer_scopes:
            if scope.vectorization is not None:
                named.append(told_by[0])
            else:
                named.append(next(counted) if scope.number is None else scope.number)
        return [*named, *counted]


class RandomOperation(KeyedOperation):
    """Draws a slice of a random tensor."""

    mapped = "always"

    def __init__(self, mesh: Mesh, shape: Shape, dtype: tf.DType, draw: Draw, name: str) -> None:
        super().__init__(mesh, shape, dtype, name)
        self._draw = draw

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        layout = planner.layouts[output]
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        along = output.shape.axis(self.vectorization.along) if self.vectorization else None
        told_by = self._told_by(planner, () if along is None else layout.axes[along])
        ranges = [
            DrawnRange(dim.size, n, axes, *cuts_of(dim, output.shape, self.vectorization, told_by[1:], planner))
            for i, (dim, n, axes) in enumerate(zip(output.shape, size, layout.axes, strict=True))
            if i != along
        ]
        counts = self._counts(planner, told_by)
        key = self._key(planner, counts)
        known_later = [*told_by, *(c for c in counts if isinstance(c, Value))]
        inputs = list(dict.fromkeys([*known_later, *(number for s in ranges for _, number in s.cuts)]))

        def emit(core: Core, *numbers: tf.Tensor) -> tf.Tensor:
            given = dict(zip(inputs, numbers, strict=True))
            if along is None:
                return drawn_part(self._draw, key(given), ranges, core, given)
            # Each vectorized layer has its own key, and so the same bits as if it were computed alone.
            each = [{**given, **{v: given[v][n] for v in told_by}} for n in range(size[along])]
            return tf.stack([drawn_part(self._draw, key(own), ranges, core, own) for own in each], along)

        spec = (output.shape, output.dtype, layout)
        flops, facts = math.prod(size), WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random", emit, inputs, [spec], flops=flops, facts=facts)[0])
