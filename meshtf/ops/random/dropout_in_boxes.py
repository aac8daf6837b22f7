"""A dropout mask drawn box by box: the same bits, but each core holds only the box that it works on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import overload

import tensorflow as tf

from meshtf.dimension import DimensionLike, Shape, ShapeLike, shape_of
from meshtf.graph.mesh import Mesh, check_mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.ops.random._drawn_ranges import DrawnRange, cuts_of, drawn_part
from meshtf.ops.random._dropout_key import DropoutKey
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.takes_mesh import method_takes_mesh


class DropoutInBoxes:
    """The mask of a dropout, drawn as boxes at several places, any number of times.

    You choose where the box begins at each place. The random key is made together with this object. So boxes drawn in
    loops, and again in a gradient, belong to one mask. `mtf.dropout` draws the same mask if it has the same name, is
    called in the same place and gets the whole shape. Elements of a box beyond the end of the whole mask are arbitrary.

    Args:
      mesh: the mesh of the mask. May be left out.
      shape: the shape of the whole mask.
      inside: the box's dimension for each named dimension of the mask. Along all others, a box has the whole size.
      rate: the probability with which an element is dropped.
      name: the operation's name, a part of the random key.

    Examples:
      >>> mask = mtf.DropoutInBoxes("batch:4 length:16", {"length": "inside:4"}, rate=0.1, name="dropout")
      >>> mask.drawn({"length": mtf.constant([0, 8], "places:2", tf.int32)})
      dropout_boxes [places:2 batch:4 inside:4] bool
    """

    @overload
    def __init__(
        self, mesh: Mesh, shape: ShapeLike, inside: Mapping[str, DimensionLike], *, rate: float, name: str
    ) -> None: ...
    @overload
    def __init__(self, shape: ShapeLike, inside: Mapping[str, DimensionLike], *, rate: float, name: str) -> None: ...
    @method_takes_mesh
    def __init__(
        self, mesh: Mesh, shape: ShapeLike, inside: Mapping[str, DimensionLike], *, rate: float, name: str
    ) -> None:
        self.key, shape = DropoutKey(check_mesh(mesh), name, rate=rate), shape_of(shape)
        self.whole = Shape(
            [d for d in shape if self.key.vectorization is None or d.name != self.key.vectorization.along.name]
        )
        self.inside = {name: shape_of([dim])[0] for name, dim in inside.items()}

    def drawn(self, begins: Mapping[str, Tensor]) -> Tensor:
        """bool [places, box]: whether each element is kept.

        `begins` has int32 [places] for each name of `inside`: the position in the whole at which the boxes begin.
        """
        return _DropoutBoxes(self, [begins[name] for name in self.inside]).outputs[0]

    @property
    def box(self) -> Shape:
        """The shape of one box."""
        return Shape([self.inside.get(d.name, d) for d in self.whole])


class _DropoutBoxes(Operation):
    """One box at each place: [layers that are computed at once, places, the box]."""

    takes_padding = True

    def __init__(self, mask: DropoutInBoxes, begins: Sequence[Tensor]) -> None:
        told_by = mask.key.vectorization.inputs if mask.key.vectorization else []
        layers = [mask.key.vectorization.along] if mask.key.vectorization else []
        inputs, shape = [mask.key.outputs[0], *begins, *told_by], Shape([*layers, *begins[0].shape, *mask.box])
        super().__init__(inputs, [(shape, tf.bool)], name="dropout_boxes", mesh=mask.key.mesh)
        self._mask, self._num_layers = mask, len(layers)

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        (output,), mask = self.outputs, self._mask
        keys, others = self.inputs[0], self.inputs[1:]
        layout = planner.layouts[output]
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        of_layers, (of_places,) = layout.axes[: self._num_layers], layout.axes[self._num_layers : self._num_layers + 1]
        key = planner.read(keys, TensorLayout((*of_layers, ())))
        begins = [planner.read(x, TensorLayout((of_places,))) for x in others[: len(mask.inside)]]
        told_by = [planner.read(x, TensorLayout(of_layers)) for x in others[len(mask.inside) :]]
        ranges = self._ranges(planner, dict(zip(mask.inside, begins, strict=True)), told_by)
        inputs = list(dict.fromkeys([key, *begins, *told_by, *(value for s in ranges for _, value in s.cuts)]))

        # Positions of boxes are known only when the program runs, so each place draws bits by itself.
        def of_layer(core: Core, key_here: tf.Tensor, given: dict[Value, tf.Tensor]) -> tf.Tensor:
            at = [{**given, **{v: given[v][place] for v in begins}} for place in range(size[self._num_layers])]
            return tf.stack([drawn_part(mask.key.draw, key_here, ranges, core, own) for own in at])

        def emit(core: Core, *values: tf.Tensor) -> tf.Tensor:
            given = dict(zip(inputs, values, strict=True))
            if not self._num_layers:
                return of_layer(core, given[key], given)
            each = [{**given, **{v: given[v][n] for v in told_by}} for n in range(size[0])]
            return tf.stack([of_layer(core, given[key][n], own) for n, own in enumerate(each)])

        spec = (output.shape, output.dtype, layout)
        flops, facts = math.prod(size), WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random", emit, inputs, [spec], flops=flops, facts=facts)[0])

    def _ranges(self, planner: Planner, begins: Mapping[str, Value], told_by: Sequence[Value]) -> list[DrawnRange]:
        """The segment of each dimension of the whole that a core draws."""
        (output,), mask = self.outputs, self._mask
        layout, first = planner.layouts[output], self._num_layers + 1
        size = layout.slice_shape(output.shape, planner.mesh_shape)[first:]
        found, shape = [], Shape([*output.shape[: self._num_layers], *mask.whole])
        for whole, n, axes in zip(mask.whole, size, layout.axes[first:], strict=True):
            cuts = cuts_of(whole, shape, mask.key.vectorization, told_by[1:], planner)
            found.append(DrawnRange(whole.size, n, axes, *cuts, begins.get(whole.name)))
        return found
