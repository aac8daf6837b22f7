"""A dropout mask drawn block by block: the same bits, but never more than a block of them at once."""

from __future__ import annotations

import math
from typing import overload

import tensorflow as tf

from meshtf.dimension import Dimension, Shape, ShapeLike, shape_of
from meshtf.errors import ShapeError
from meshtf.graph.mesh import Mesh, check_mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import TensorLayout
from meshtf.ops.random._drawn_ranges import DrawnRange, cuts_of, drawn_part
from meshtf.ops.random._dropout_key import DropoutKey
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.takes_mesh import method_takes_mesh


class DropoutInBlocks:
    """The mask of a dropout, drawn one block at a time and any number of times. The whole mask is never stored.

    Block j has every `count`-th position of a dimension, starting at position j. The random key is made together with
    this object. So blocks drawn in loops, and again in a gradient, belong to one mask. `mtf.dropout` draws the same
    mask if it has the same name, is called in the same place and gets the whole shape.

    Args:
      mesh: the mesh of the mask. May be left out.
      shape: the shape of the whole mask.
      cut: the name of the dimension that is cut into blocks.
      count: how many blocks there are; it must divide the dimension.
      rate: the probability with which an element is dropped.
      name: the operation's name, a part of the random key.

    Raises:
      ShapeError: `shape` lacks the dimension, or the blocks do not divide it.

    Examples:
      >>> mask = mtf.DropoutInBlocks("batch:4 length:16", "length", 2, rate=0.1, name="dropout")
      >>> mask.block(mtf.constant(0, dtype=tf.int32))
      dropout_block [batch:4 length:8] bool
    """

    @overload
    def __init__(self, mesh: Mesh, shape: ShapeLike, cut: str, count: int, rate: float, name: str) -> None: ...
    @overload
    def __init__(self, shape: ShapeLike, cut: str, count: int, rate: float, name: str) -> None: ...
    @method_takes_mesh
    def __init__(self, mesh: Mesh, shape: ShapeLike, cut: str, count: int, rate: float, name: str) -> None:
        shape = shape_of(shape)
        dim = shape.get_dim_by_name(cut)
        if dim.size % count:
            raise ShapeError(f'dimension "{cut}" of [{shape}] does not divide into {count} blocks')
        self.key = DropoutKey(check_mesh(mesh), name, rate=rate)
        self._shape = Shape([Dimension(cut, dim.size // count) if d == dim else d for d in shape])
        self._cut, self._count = cut, count

    def block(self, number: Tensor) -> Tensor:
        """bool [shape of a block]: whether each element is kept. `number` is int32 [], the block's number."""
        return _DropoutBlock(self, check_tensor(number, "number of a block")).outputs[0]

    @property
    def shape(self) -> Shape:
        """The shape of a block."""
        return self._shape

    def in_block(self, drawn: DrawnRange, name: str, number: Value) -> DrawnRange:
        """The segment of a dimension of this name that a core draws for one block."""
        if name != self._cut:
            return drawn
        return DrawnRange(drawn.whole, drawn.size, drawn.axes, ((self._count, number),))


class _DropoutBlock(Operation):
    """One block of a mask."""

    takes_padding = True

    def __init__(self, mask: DropoutInBlocks, number: Tensor) -> None:
        vectorization = mask.key.vectorization
        told_by = vectorization.inputs if vectorization else []
        shape = mask.shape
        if vectorization and not shape.has(vectorization.along.name):
            shape = Shape([vectorization.along, *shape])
        name = "dropout_block"
        super().__init__([mask.key.outputs[0], number, *told_by], [(shape, tf.bool)], name=name, mesh=number.mesh)
        self._mask = mask

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        (output,), (keys, number, *told_by) = self.outputs, self.inputs
        layout, vectorization = planner.layouts[output], self._mask.key.vectorization
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        along = output.shape.axis(vectorization.along) if vectorization else None
        own_axes = () if along is None else (layout.axes[along],)
        key_value = planner.read(keys, TensorLayout((*own_axes, ())))
        number_value = planner.read(number)
        told_values = [planner.read(x, TensorLayout(own_axes)) for x in told_by]
        ranges = []
        for i, (dim, n, axes) in enumerate(zip(output.shape, size, layout.axes, strict=True)):
            if i != along:
                cuts = cuts_of(dim, output.shape, vectorization, told_values[1:], planner)
                ranges.append(self._mask.in_block(DrawnRange(dim.size, n, axes, *cuts), dim.name, number_value))
        of_cuts = [value for s in ranges for _, value in s.cuts]
        inputs = list(dict.fromkeys([key_value, *told_values, *of_cuts]))

        def emit(core: Core, *values: tf.Tensor) -> tf.Tensor:
            given = dict(zip(inputs, values, strict=True))
            if along is None:
                return drawn_part(self._mask.key.draw, given[key_value], ranges, core, given)
            each = [{**given, **{v: given[v][n] for v in told_values}} for n in range(size[along])]
            drawn = [
                drawn_part(self._mask.key.draw, given[key_value][n], ranges, core, own) for n, own in enumerate(each)
            ]
            return tf.stack(drawn, along)

        spec = (output.shape, output.dtype, layout)
        flops, facts = math.prod(size), WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random", emit, inputs, [spec], flops=flops, facts=facts)[0])
