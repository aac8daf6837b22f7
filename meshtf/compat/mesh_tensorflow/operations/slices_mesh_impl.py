"""The mesh as the `lower` of an operation class sees it: functions of slices, and collectives of slices.

A slice may differ along some mesh axes and be the same along others. `LaidOutTensor.axes` has the axes of the first
kind. The result of a function differs along every axis along which one of its inputs differs. For example, on a mesh
"rows:2;cols:2" the product of slices that differ along rows and slices that differ along cols differs along both.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from meshtf.compat.mesh_tensorflow._layout import TensorLayout as NumberedLayout
from meshtf.compat.mesh_tensorflow._layout import numbered
from meshtf.compat.mesh_tensorflow._mesh_impls import AnswersOfMesh, named_shape
from meshtf.compat.mesh_tensorflow.operations.laid_out_tensor import LaidOutTensor
from meshtf.dimension import Dimension, DimensionLike, Shape, ShapeLike
from meshtf.errors import GraphError, LayoutError, ShapeError
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, LayoutRules, TensorLayout
from meshtf.ops.slicewise.local_function import as_tensors, name_of, text_of, traced_results
from meshtf.ops.slicewise.slicewise import local_gradient
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.layouts.padding import uneven_dims, whole_in
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner

_REDUCTIONS: dict[str, Reduction] = {"SUM": "add", "MAX": "max", "MIN": "min"}


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One step of a `lower`: its inputs, its outputs and the way back for gradients.

    Attributes:
      inputs: the slices that the step took.
      outputs: the slices that the step made.
      transposed: a function from the outputs' gradients to the inputs' (None: unconnected). A gradient may differ along
        axes along which its slice does not differ. Over these axes it must still be summed.
    """

    inputs: tuple[LaidOutTensor, ...]
    outputs: tuple[LaidOutTensor, ...]
    transposed: Callable[[Sequence[LaidOutTensor | None]], Sequence[LaidOutTensor | None]]


class SlicesMeshImpl(AnswersOfMesh):
    """The result of `lowering.mesh_impl(self)` in the `lower` of an operation class.

    Mesh axes are given by number, as in Mesh TensorFlow, or by name.
    """

    def __init__(self, planner: Planner, operation: Operation) -> None:
        self._planner = planner
        self._operation = operation
        self.steps: list[Step] = []

    @property
    def shape(self) -> Shape:
        return self._planner.mesh_shape

    @property
    def layout_rules(self) -> LayoutRules:
        return self._planner.layouts.rules

    @property
    def supports_control_dependencies(self) -> bool:
        return True

    def tensor_layout(self, x: ShapeLike | Tensor) -> NumberedLayout:
        """The layout of an operand or result, as its slices have it.

        For another shape it returns the layout by the rules.

        In operation classes, dimensions whose sizes are not multiples of their axes are whole.
        """
        layouts, shape = self._planner.layouts, named_shape(x)
        if isinstance(x, Tensor) and x in self._tensors:
            return numbered(layouts[x], self.shape)
        layout = layouts.under_rules(shape).layout
        whole = [i for i, d in enumerate(shape) if d.name in self._whole_names]
        return numbered(whole_in(layout, [*whole, *uneven_dims(layout, shape, self.shape)]), self.shape)

    def tensor_dimension_to_mesh_axis(self, dim: DimensionLike) -> int | None:
        (axes,) = self.tensor_layout([dim]).axes
        return self.shape.axis(axes[0]) if axes else None

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        return (*self._operation.inputs, *self._operation.outputs)

    @functools.cached_property
    def _whole_names(self) -> frozenset[str]:
        """The dimensions that no operand or result has split."""
        found: dict[str, bool] = {}
        for t in self._tensors:
            for d, axes in zip(t.shape, self._planner.layouts[t].axes, strict=True):
                found[d.name] = found.get(d.name, True) and not axes
        return frozenset(name for name, is_whole in found.items() if is_whole)

    # Work on slices

    def slicewise(self, fn: Callable[..., Any], *inputs: Any) -> Any:
        """Applies a function of tf.Tensors to each core's slices.

        Returns its result, or a tuple if it returns several.

        Args:
          fn: the function. It is traced several times, so it should do nothing in Python but make TensorFlow
            operations.
          inputs: the function's arguments: slices and others.

        Raises:
          GraphError: an input is a tensor of the language.
          ExecutionError: the function raised an error.
          ShapeError: the size of a result is not known before the function runs.
        """
        for x in inputs:
            if not isinstance(x, LaidOutTensor) and hasattr(x, "operation") and hasattr(x, "mesh"):
                raise self._refused(f"slicewise was given {x}, which is no slice; give lowering.tensors[x]")
        given = tuple(x for x in inputs if isinstance(x, LaidOutTensor))
        several = False

        def of_slices(*slices: tf.Tensor) -> list[tf.Tensor]:
            nonlocal several
            rest = iter(slices)
            results = fn(*(next(rest) if isinstance(x, LaidOutTensor) else x for x in inputs))
            several = isinstance(results, list | tuple)
            return as_tensors(results)

        outputs = self._computed(name_of(fn, "slicewise"), of_slices, given)
        wrt = [i for i, x in enumerate(given) if is_differentiable(x.dtype)]

        def transposed(dys: Sequence[LaidOutTensor | None]) -> Sequence[LaidOutTensor | None]:
            known = {i: dy for i, dy in enumerate(dys) if dy is not None and is_differentiable(dy.dtype)}
            if not (wrt and known):
                return [None] * len(given)
            gradient = local_gradient(of_slices, len(given), wrt, list(known))
            found = self._computed("slicewise_gradient", gradient, (*given, *known.values()))
            by_input = dict(zip(wrt, found, strict=True))
            return [by_input.get(i) for i in range(len(given))]

        # `GenericGradOperation` differentiates these steps in reverse.
        self.steps.append(Step(given, outputs, transposed))
        return outputs if several else outputs[0]

    def slicewise_delay_allreduce(self, fn: Callable[..., Any], *inputs: Any) -> Any:
        """Calls `slicewise`. No slices are terms of a sum that is still to come."""
        return self.slicewise(fn, *inputs)

    def einsum(self, equation: str, *slices: LaidOutTensor) -> LaidOutTensor:
        """Calls `tf.einsum` with each core's slices."""
        return self.slicewise(lambda *xs: tf.einsum(equation, *xs), *slices)

    def broadcast_impl(self, slices: LaidOutTensor, old_shape: ShapeLike, new_shape: ShapeLike) -> LaidOutTensor:
        """Turns slices of a tensor of one shape into those of another shape.

        The other shape has the same dimensions in any order, and may have further ones.
        """
        old, new = named_shape(old_shape), named_shape(new_shape)
        order = [old.axis(d) for d in new if d in old]
        own = iter([slices.slice_shape[i] for i in order])
        thin = [next(own) if d in old else 1 for d in new]
        sizes = self.slice_shape(new)
        return self.slicewise(lambda x: tf.broadcast_to(tf.reshape(tf.transpose(x, order), thin), sizes), slices)

    def allsplit(
        self, x: LaidOutTensor, mesh_axis: int | str, split_axis: int, which: LaidOutTensor | None = None
    ) -> LaidOutTensor:
        """Each core's own part of its slice along `split_axis`.

        `which` says which part. By default it is the core's place along the mesh axis.
        """
        axis, parts = self._axis(mesh_axis)
        dim, sizes = self._dim(x, split_axis), x.slice_shape
        sizes[dim] = self._divided(x, dim, parts)

        def part(slice_: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            begin = [number * sizes[dim] if i == dim else 0 for i in range(len(sizes))]
            return tf.slice(slice_, begin, sizes)

        return self.slicewise(part, x, self.laid_out_pcoord(axis) if which is None else which)

    def import_tf_tensor(self, x: ShapeLike | Tensor, tf_x: Any) -> LaidOutTensor:
        """Each core's slice of a whole array or tf.Tensor, which has the shape of an operand or result `x`.

        Raises:
          GraphError: it is a tensor of the session's graph, in which the program does not run.
          ShapeError: it has other sizes.
        """
        if tf.is_symbolic_tensor(tf_x):
            raise self._refused(
                f"import_tf_tensor in `lower` was given {tf_x.name}, a tensor of the session's graph; make it an "
                f"operand, by mtf.import_tf_tensor(mesh, x, shape), or make it in `lower`"
            )
        shape, whole = named_shape(x), np.asarray(tf_x)
        if list(whole.shape) != shape.to_integer_list:
            raise ShapeError(self._text(f"import_tf_tensor was given sizes {list(whole.shape)} for [{shape}]"))
        layout = self.tensor_layout(x)
        sizes = list(layout.slice_shape(shape, self.shape))
        splits = [(i, axes) for i, axes in enumerate(layout.axes) if axes]

        def part(*numbers: tf.Tensor) -> tf.Tensor:
            begin: list[Any] = [0] * len(sizes)
            for (i, _), number in zip(splits, numbers, strict=True):
                begin[i] = number * sizes[i]
            return tf.slice(tf.constant(whole), begin, sizes)

        return self.slicewise(part, *(self._position(axes) for _, axes in splits))

    def laid_out_pnum(self) -> LaidOutTensor:
        """Each core's number, an int32 scalar."""
        return self._position(tuple(self.shape.dimension_names))

    def laid_out_pcoord(self, mesh_axis: int | str) -> LaidOutTensor:
        """Each core's place along a mesh axis, an int32 scalar."""
        return self._position((self._axis(mesh_axis)[0],))

    def laid_out_slice_num(self, tensor_shape: ShapeLike) -> LaidOutTensor:
        """The number of the slice of a tensor of this shape that each core has, an int32 scalar.

        Slices count row-major.
        """
        return self._position(tuple(a for axes in self.tensor_layout(tensor_shape).axes for a in axes))

    # Collectives

    def allreduce(self, x: LaidOutTensor, mesh_axes: Sequence[int | str], reduction_fn_string: str) -> LaidOutTensor:
        """The "SUM", "MAX" or "MIN" over the cores along these mesh axes, on each of these cores."""
        if reduction_fn_string not in _REDUCTIONS:
            raise self._refused(f'allreduce takes "SUM", "MAX" or "MIN", not {reduction_fn_string!r}')
        asked = {self._axis(a)[0] for a in mesh_axes}
        axes = tuple(d.name for d in self.shape if d.name in asked and d.size > 1)
        if not axes:
            return x
        lead, rest = x.axes - asked, (None,) * len(x.slice_shape)
        if reduction_fn_string == "SUM":
            # The planner sums values with a pending sum. So the slices are declared to be terms of one.
            reduced = self._planner.reduce_pending(self._labelled(x, lead, rest, pending=axes))
        else:
            reduction = _REDUCTIONS[reduction_fn_string]
            reduced = self._planner.all_reduce(self._labelled(x, lead, rest), axes, reduction)
        y = LaidOutTensor(reduced, len(lead))

        def transposed(dys: Sequence[LaidOutTensor | None]) -> Sequence[LaidOutTensor | None]:
            (dy,) = dys
            if dy is None or reduction_fn_string == "SUM":
                # If several cores have the same slice, the sum counts it several times.
                copies = math.prod(d.size for d in self.shape if d.name in set(axes) - x.axes)
                return [dy if dy is None or copies == 1 else self.slicewise(lambda d: d * copies, dy)]
            return [self.slicewise(lambda own, best, d: _where(tf.equal(own, best), d), x, y, dy)]

        self.steps.append(Step((x,), (y,), transposed))
        return y

    def allconcat(self, x: LaidOutTensor, mesh_axis: int | str, concat_axis: int) -> LaidOutTensor:
        """The slices of the cores along a mesh axis joined along `concat_axis`, on each of these cores."""
        axis, parts = self._axis(mesh_axis)
        if parts == 1:
            return x
        lead, dim = x.axes - {axis}, self._dim(x, concat_axis)
        gathered = self._planner.all_gather(self._labelled(x, lead, self._split(x, dim, axis)), len(lead) + dim)
        y = LaidOutTensor(gathered, len(lead))
        self.steps.append(Step((x,), (y,), lambda dys: [dy and self.allsplit(dy, axis, dim) for dy in dys]))
        return y

    def alltoall(self, x: LaidOutTensor, mesh_axis: int | str, split_axis: int, concat_axis: int) -> LaidOutTensor:
        """Gives each core along a mesh axis its part along `split_axis` of all slices, joined along `concat_axis`."""
        axis, parts = self._axis(mesh_axis)
        if parts == 1:
            return x
        lead, cut, joined = x.axes - {axis}, self._dim(x, split_axis), self._dim(x, concat_axis)
        self._divided(x, cut, parts)
        before = self._labelled(x, lead, self._split(x, joined, axis))
        count, axes = len(lead), before.layout.axes
        after = tuple((axis,) if i == count + cut else () if i == count + joined else a for i, a in enumerate(axes))
        step = AllToAll((axis,), count + cut, count + joined)
        y = LaidOutTensor(self._planner.collective(step, before, TensorLayout(after)), count)
        self.steps.append(Step((x,), (y,), lambda dys: [dy and self.alltoall(dy, axis, joined, cut) for dy in dys]))
        return y

    def receive(self, x: LaidOutTensor, mesh_axis: int | str, source_pcoord: Sequence[int | None]) -> LaidOutTensor:
        """The slice of the core at `source_pcoord[own place]` along a mesh axis. For None it returns zeros."""
        axis, parts = self._axis(mesh_axis)
        sources = list(source_pcoord)
        sending = [s for s in sources if s is not None]
        if len(sources) != parts or len({*sending}) != len(sending) or not {*sending} <= {*range(parts)}:
            raise self._refused(
                f"receive was given the sources {sources} along mesh axis {axis}:{parts}; give one for each of the "
                f"{parts} cores, None where there is none, and no core twice: for one slice on all of them call "
                f"allconcat"
            )
        # A permutation needs a destination for every core. An unused core sends to a core that gets zeros.
        idle = iter(sorted({*range(parts)} - {*sending}))
        place = {next(idle) if s is None else s: j for j, s in enumerate(sources)}
        lead, rest = x.axes | {axis} if parts > 1 else x.axes, (None,) * len(x.slice_shape)
        moved = self._planner.permute(self._labelled(x, lead, rest), (axis,), place.__getitem__)
        y = LaidOutTensor(moved, len(lead))
        if None in sources:
            receives = [s is not None for s in sources]
            y = LaidOutTensor(
                self._computed(
                    "received",
                    lambda own, at: [_where(tf.gather(tf.constant(receives), at), own)],
                    (y, self.laid_out_pcoord(axis)),
                )[0].value,
                len(lead),
            )
        back = [next((j for j, s in enumerate(sources) if s == i), None) for i in range(parts)]
        self.steps.append(Step((x,), (y,), lambda dys: [dy and self.receive(dy, axis, back) for dy in dys]))
        return y

    def shift_by_n_processors(self, x: LaidOutTensor, mesh_axis: int | str, offset: int, wrap: bool) -> LaidOutTensor:
        """The slice of the core that is `offset` places before along a mesh axis.

        Beyond the end there are zeros, or with `wrap` the slices of the other end.
        """
        parts = self._axis(mesh_axis)[1]
        sources = [(j - offset) % parts if wrap or 0 <= j - offset < parts else None for j in range(parts)]
        return self.receive(x, mesh_axis, sources)

    # Inside

    def _computed(
        self, kind: str, fn: Callable[..., list[tf.Tensor]], inputs: Sequence[LaidOutTensor]
    ) -> tuple[LaidOutTensor, ...]:
        """Applies a function to slices. The result differs along each axis along which one of the inputs differs."""
        specs = [tf.TensorSpec(x.slice_shape, x.dtype) for x in inputs]
        results = traced_results(self._operation, fn, specs, [str(x) for x in inputs])
        for y in results:
            if not y.shape.is_fully_defined():
                fact = (
                    f"tf_fn returned a tensor of shape {y.shape}, and sizes must be known; call tf.ensure_shape in it"
                )
                raise ShapeError(text_of(self._operation, fact, [str(x) for x in inputs]))
        # A result may differ wherever an input differs. The plan knows this from a dimension for each such axis.
        axes = self._in_order(frozenset().union(*(x.axes for x in inputs)))
        sizes = [tuple(y.shape.as_list()) for y in results]
        taken = [x.slice_shape if x.mesh_axes else None for x in inputs]
        lead = (1,) * len(axes)

        def emit(core: Core, *slices: tf.Tensor) -> list[tf.Tensor]:
            own = [s if size is None else tf.reshape(s, size) for s, size in zip(slices, taken, strict=True)]
            return [tf.reshape(y, (*lead, *size)) for y, size in zip(fn(*own), sizes, strict=True)]

        outputs = [(*self._whole(axes, size), y.dtype) for y, size in zip(results, sizes, strict=True)]
        values = self._planner.compute(
            kind,
            emit,
            [x.value for x in inputs],
            [(shape, dtype, layout) for shape, layout, dtype in outputs],
            flops=sum(map(math.prod, sizes)),
        )
        return tuple(LaidOutTensor(v, len(axes)) for v in values)

    def _position(self, axes: Axes) -> LaidOutTensor:
        """The row-major position of each core along mesh axes."""
        own = tuple(a for a in axes if self.shape.get_dim_by_name(a).size > 1)
        along = self._in_order(frozenset(own))
        shape, layout = self._whole(along, ())

        def emit(core: Core) -> tf.Tensor:
            return tf.reshape(core.coordinate(own) if own else tf.constant(0, tf.int32), (1,) * len(along))

        (value,) = self._planner.compute("position", emit, [], [(shape, tf.int32, layout)])
        return LaidOutTensor(value, len(along))

    def _labelled(
        self, x: LaidOutTensor, lead: Collection[str], splits: Sequence[str | None], pending: Axes = ()
    ) -> Value:
        """The slices as those of another value of the plan.

        The value has one slice for each place along `lead`. Its dimensions are split over `splits`, and a sum over
        `pending` is still to come.
        """
        axes = self._in_order(frozenset(lead))
        if axes == self._in_order(x.axes) and x.mesh_axes == len(axes) and not (any(splits) or pending):
            return x.value
        parts = [1 if axis is None else self._axis(axis)[1] for axis in splits]
        shape, layout = self._whole(axes, [n * p for n, p in zip(x.slice_shape, parts, strict=True)])
        layout = TensorLayout((*layout.axes[: len(axes)], *(() if axis is None else (axis,) for axis in splits)))
        size = (*(1,) * len(axes), *x.slice_shape)

        def emit(core: Core, slice_: tf.Tensor) -> tf.Tensor:
            return tf.reshape(slice_, size)

        return self._planner.compute("slice", emit, [x.value], [(shape, x.dtype, layout)], pending=pending)[0]

    def written(self, x: LaidOutTensor, shape: Shape, layout: TensorLayout) -> Value:
        """The slices as those of a tensor of the language."""
        if (x.value.shape, x.value.layout) == (shape, layout):
            return x.value
        size = tuple(x.slice_shape)

        def emit(core: Core, slice_: tf.Tensor) -> tf.Tensor:
            return tf.reshape(slice_, size)

        return self._planner.compute("slice", emit, [x.value], [(shape, x.dtype, layout)])[0]

    def _whole(self, axes: Axes, sizes: Sequence[int]) -> tuple[Shape, TensorLayout]:
        """Shape and layout of a value that has one slice of these sizes for each place along the mesh axes."""
        lead = [self.shape.get_dim_by_name(a) for a in axes]
        own = [Dimension(f"slice_dim_{i}", n) for i, n in enumerate(sizes)]
        return Shape([*lead, *own]), TensorLayout((*((a,) for a in axes), *((),) * len(own)))

    def _split(self, x: LaidOutTensor, dim: int, axis: str) -> list[str | None]:
        return [axis if i == dim else None for i in range(len(x.slice_shape))]

    def _in_order(self, axes: Collection[str]) -> Axes:
        return tuple(d.name for d in self.shape if d.name in axes)

    def _axis(self, mesh_axis: int | str) -> tuple[str, int]:
        """Name and size of a mesh axis."""
        if isinstance(mesh_axis, str) and self.shape.has(mesh_axis):
            return mesh_axis, self.shape.get_dim_by_name(mesh_axis).size
        if not isinstance(mesh_axis, int) or not 0 <= mesh_axis < self.shape.ndims:
            raise LayoutError(self._text(f"{mesh_axis!r} is no axis of the mesh [{self.shape}], nor its number"))
        dim = self.shape.dims[mesh_axis]
        return dim.name, dim.size

    def _dim(self, x: LaidOutTensor, dim: int) -> int:
        rank = len(x.slice_shape)
        if not -rank <= dim < rank:
            raise ShapeError(self._text(f"a slice {x} has no dimension {dim}"))
        return dim % rank

    def _divided(self, x: LaidOutTensor, dim: int, parts: int) -> int:
        if x.slice_shape[dim] % parts:
            raise ShapeError(self._text(f"dimension {dim} of a slice {x} cannot be cut into {parts} equal parts"))
        return x.slice_shape[dim] // parts

    def _refused(self, fact: str) -> GraphError:
        return GraphError(self._text(fact))

    def _text(self, fact: str) -> str:
        return f"{self._operation.name}: {fact}\n  at {self._operation.site}"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the mesh_impl of an operation's lower has no attribute {name!r} in meshtf; it has slicewise, einsum, "
            f"broadcast_impl, import_tf_tensor, "
            f"allreduce, allconcat, allsplit, alltoall, receive, shift_by_n_processors, laid_out_pnum, "
            f"laid_out_pcoord, and says sizes and layouts; what they cannot do is an operation of meshtf's, "
            f"made by meshtf.slicewise or derived from meshtf.Operation"
        )


def _where(condition: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Returns `x` where the condition holds, else zero."""
    return tf.where(condition, x, tf.zeros([], x.dtype))
