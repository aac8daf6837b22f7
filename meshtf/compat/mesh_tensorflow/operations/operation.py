"""Operations as programs derive them from Mesh TensorFlow's class: outputs set after the base, lowered on slices."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import meshtf as language
from meshtf.compat.mesh_tensorflow._dimension import own_shape
from meshtf.compat.mesh_tensorflow.operations.slice_lowering import SliceLowering
from meshtf.dimension import shape_of
from meshtf.errors import GraphError, counted
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor, check_tensor, check_tensors
from meshtf.planning.planner import Planner


class Operation(language.Operation):
    """What operation classes of a program's own derive from.

    A subclass calls this constructor, sets `self._outputs` to a list of `mtf.Tensor(self, shape, dtype)`, and defines
    `lower(self, lowering)`: operands' slices are `lowering.tensors[x]`, `lowering.mesh_impl(self)` works on slices with
    functions of tf.Tensors (`slicewise`) and with collectives (`allreduce`, `allconcat`, `allsplit`, `alltoall`,
    `shift_by_n_processors`), and `lowering.set_tensor_lowering(self.outputs[0], slices)` ends it. Where
    gradients are wanted, `gradient(self, grad_ys)` returns one for each input: tensors of the language, or
    `mtf.GenericGradOperation(self, grad_ys).outputs`.

    That an output is the same on cores that its layout says have the same is checked, as Mesh TensorFlow did not.
    A dimension that its mesh axes do not divide is whole on every core here.

    Args:
      inputs: tensors, all on one mesh.
      mesh: where it is, if it has no inputs.
      name: by default the class's.

    Raises:
      GraphError: inputs of different meshes, or none and no mesh.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> class Mish(old.Operation):
      ...     def __init__(self, x):
      ...         super().__init__([x])
      ...         self._outputs = [old.Tensor(self, x.shape, x.dtype)]
      ...
      ...     def lower(self, lowering):
      ...         mesh_impl = lowering.mesh_impl(self)
      ...         y = mesh_impl.slicewise(lambda x: x * tf.tanh(tf.math.softplus(x)), lowering.tensors[self.inputs[0]])
      ...         lowering.set_tensor_lowering(self.outputs[0], y)
      ...
      ...     def gradient(self, grad_ys):
      ...         return old.GenericGradOperation(self, grad_ys).outputs
      >>> Mish(old.ones(old.Mesh(old.Graph(), "mesh"), "batch:4")).outputs[0]
      mish [batch:4] float32
    """

    why_not_compiled = "has a function of yours, which may do what XLA cannot"

    def __init__(self, inputs: Iterable[Tensor], mesh: Mesh | None = None, name: str | None = None) -> None:
        own = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()
        super().__init__(check_tensors(inputs), [], name=name or own, mesh=mesh)
        self.inputs: tuple[Tensor, ...] = _Tensors(self.inputs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, wrap in (("lower", _lowered_on_slices), ("gradient", _one_for_each_input)):
            if name in vars(cls):
                setattr(cls, name, wrap(vars(cls)[name]))

    def lower(self, lowering: Any) -> None:
        """Makes the outputs' slices of the operands': a subclass says how."""
        raise GraphError(
            f"{type(self).__name__} has no `lower`, which makes its outputs: define lower(self, lowering) in it, "
            f"or call a function of mtf\n  at {self.site}"
        )

    @property
    def _outputs(self) -> tuple[Tensor, ...]:
        return self.outputs

    @_outputs.setter
    def _outputs(self, tensors: Sequence[Tensor]) -> None:
        for index, y in enumerate(tensors):
            if check_tensor(y, "output").operation is not self:
                raise GraphError(
                    f"{y} is set as an output of {self.name}, and is one of {y.operation.name}; make outputs with "
                    f"mtf.Tensor(self, shape, dtype)\n  at {self.site}"
                )
            y.shape, y.dtype, y.index = own_shape(shape_of(y.shape)), dtype_of(y.dtype), index
        self.outputs = _Tensors(tensors)

    def _initialize_all_dimensions_as_splittable(self) -> tuple[frozenset[str], frozenset[str]]:
        """Which dimensions a layout may split, and which not; of automatic layouts alone, and ignored."""
        return self._initialize_splittable_and_unsplittable_dims("splittable")

    def _initialize_splittable_and_unsplittable_dims(
        self, default_splittability: str, exception_dims_iterable: Iterable[str] | None = None
    ) -> tuple[frozenset[str], frozenset[str]]:
        """As above: all dimensions are "splittable" or "unsplittable", but for the exceptions."""
        if default_splittability not in ("splittable", "unsplittable"):
            raise GraphError(f'dimensions are "splittable" or "unsplittable", and not {default_splittability!r}')
        names = frozenset(d.name for t in (*self.inputs, *self.outputs) for d in t.shape)
        exceptions = names & frozenset(exception_dims_iterable or ())
        rest = names - exceptions
        return (rest, exceptions) if default_splittability == "splittable" else (exceptions, rest)


class _Tensors(tuple[Tensor, ...]):
    """Inputs or outputs, which programs join with lists."""

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]


def _lowered_on_slices(lower: Callable[[Any, Any], object]) -> Callable[[Any, Any], None]:
    """The planner's `lower` from the class's; one that is called with a lowering, by a subclass's own, is that."""

    @functools.wraps(lower)
    def planned(self: Operation, lowering: Planner | SliceLowering) -> None:
        if isinstance(lowering, Planner):
            on_slices = SliceLowering(lowering, self)
            on_slices.write(on_slices.lowered(lower))
        else:
            lower(self, lowering)

    return planned


def _one_for_each_input(gradient: Callable[[Any, Any], Any]) -> Callable[[Any, Any], list[Tensor | None]]:
    @functools.wraps(gradient)
    def checked(self: Operation, grad_ys: Sequence[Tensor | None]) -> list[Tensor | None]:
        found = list(gradient(self, list(grad_ys)))
        if len(found) != len(self.inputs):
            raise GraphError(
                f"gradient of {type(self).__name__} gave {counted(len(found), 'gradient')} for "
                f"{counted(len(self.inputs), 'input')}; give "
                f"one for each, None where there is none\n  at {self.site}"
            )
        return found

    return checked
