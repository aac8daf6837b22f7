"""A dropout mask drawn block by block: the same bits, but never more than a block of them at once."""

from __future__ import annotations

import math

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.errors import ShapeError
from meshtf.graph import Mesh, Operation, Tensor
from meshtf.layout import TensorLayout
from meshtf.ops.random._dropout_key import DropoutKey
from meshtf.ops.random._stretches import Stretch, cuts_of, drawn_part
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.work_facts import WorkFacts


class DropoutInBlocks:
    """The elements that `mtf.dropout` keeps, one block at a time, as often as wanted.

    Block j has every `count`-th position of a dimension from the j-th on. The key is made where this object is made.
    Blocks that are drawn in loops, and again in a gradient, therefore belong to one mask: the one that `mtf.dropout` of
    the same name, place and whole shape would draw.
    """

    def __init__(self, mesh: Mesh, shape: Shape, cut: str, count: int, rate: float, name: str) -> None:
        """Makes the key of the mask.

        cut: the dimension of `shape` that is cut into `count` blocks, which must divide it.
        rate: the rate of dropout.
        """
        dim = shape.get_dim_by_name(cut)
        if dim.size % count:
            raise ShapeError(f'dimension "{cut}" of [{shape}] does not divide into {count} blocks')
        self.key = DropoutKey(mesh, name, rate=rate)
        self._shape = Shape([Dimension(cut, dim.size // count) if d == dim else d for d in shape])
        self._cut, self._count = cut, count

    def block(self, number: Tensor) -> Tensor:
        """bool, the shape with the block's positions: whether each element is kept.

        `number` is the block's, int32 [].
        """
        return _DropoutBlock(self, number).outputs[0]

    @property
    def shape(self) -> Shape:
        """The shape of a block."""
        return self._shape

    def stretch(self, stretch: Stretch, name: str, number: Value) -> Stretch:
        """The segment of a dimension of this name that a core draws for one block."""
        if name != self._cut:
            return stretch
        return Stretch(stretch.whole, stretch.size, stretch.axes, ((self._count, number),))


class _DropoutBlock(Operation):
    """One block of a mask."""

    takes_padding = True

    def __init__(self, mask: DropoutInBlocks, number: Tensor) -> None:
        abreast = mask.key.abreast
        told_by = abreast.inputs if abreast else []
        shape = mask.shape
        if abreast and not shape.has(abreast.along.name):
            shape = Shape([abreast.along, *shape])
        name = "dropout_block"
        super().__init__([mask.key.outputs[0], number, *told_by], [(shape, tf.bool)], name=name, mesh=number.mesh)
        self._mask = mask

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        (output,), (keys, number, *told_by) = self.outputs, self.inputs
        layout, abreast = planner.layouts[output], self._mask.key.abreast
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        along = output.shape.axis(abreast.along) if abreast else None
        own_axes = () if along is None else (layout.axes[along],)
        key_value = planner.read(keys, TensorLayout((*own_axes, ())))
        number_value = planner.read(number)
        told_values = [planner.read(x, TensorLayout(own_axes)) for x in told_by]
        stretches = []
        for i, (dim, n, axes) in enumerate(zip(output.shape, size, layout.axes, strict=True)):
            if i != along:
                cuts = cuts_of(dim, output.shape, abreast, told_values[1:], planner)
                stretches.append(self._mask.stretch(Stretch(dim.size, n, axes, *cuts), dim.name, number_value))
        of_cuts = [value for s in stretches for _, value in s.cuts]
        inputs = list(dict.fromkeys([key_value, *told_values, *of_cuts]))

        def emit(core: Core, *values: tf.Tensor) -> tf.Tensor:
            given = dict(zip(inputs, values, strict=True))
            if along is None:
                return drawn_part(self._mask.key.draw, given[key_value], stretches, core, given)
            each = [{**given, **{v: given[v][n] for v in told_values}} for n in range(size[along])]
            drawn = [
                drawn_part(self._mask.key.draw, given[key_value][n], stretches, core, own) for n, own in enumerate(each)
            ]
            return tf.stack(drawn, along)

        spec = (output.shape, output.dtype, layout)
        flops, facts = math.prod(size), WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random", emit, inputs, [spec], flops=flops, facts=facts)[0])
