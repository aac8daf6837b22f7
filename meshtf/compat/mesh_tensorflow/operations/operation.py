"""The base of operations that programs define, with the interface of Mesh TensorFlow's class.

A subclass sets the outputs after construction, and its `lower` works on slices.
"""

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
    """The base of a program's own operation classes.

    A subclass calls this constructor and sets `self._outputs` to a list of `mtf.Tensor(self, shape, dtype)`. It defines
    `lower(self, lowering)`, which has three parts:

        lowering.tensors[x]                              the slices of an operand
        lowering.mesh_impl(self)                         works on slices: functions of tf.Tensors (`slicewise`) and
                                                         collectives (`allreduce`, `allconcat`, `allsplit`, `alltoall`,
                                                         `shift_by_n_processors`)
        lowering.set_tensor_lowering(outputs[0], slices) ends it

    For gradients it defines `gradient(self, grad_ys)`, which returns one for each input. They are tensors of the
    language, or `mtf.GenericGradOperation(self, grad_ys).outputs`.

    An output must be the same on all cores that have the same slice by its layout. This is checked, unlike in Mesh
    TensorFlow. A dimension whose size is not a multiple of its mesh axes is whole on every core.

    Args:
      inputs: tensors, all on one mesh.
      mesh: the mesh of an operation without inputs.
      name: the name of the operation. By default it follows from the class's name.

    Raises:
      GraphError: the inputs are on different meshes, or there are no inputs and no mesh.

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
        """Makes the outputs' slices from the operands'. A subclass must define it."""
        raise GraphError(
            f"{type(self).__name__} has no `lower`, which makes its outputs: define lower(self, lowering) in it, "
            f"or call a function of mtf\n  at {self.site}"
        )

    @property
    def _inputs(self) -> tuple[Tensor, ...]:
        return self.inputs

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
        """The dimensions that a layout may split and those that it may not.

        Only automatic layouts asked for them.
        """
        return self._initialize_splittable_and_unsplittable_dims("splittable")

    def _initialize_splittable_and_unsplittable_dims(
        self, default_splittability: str, exception_dims_iterable: Iterable[str] | None = None
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The dimensions that a layout may split and those that it may not.

        `default_splittability` is "splittable" or "unsplittable". It applies to all but the exceptions.
        """
        if default_splittability not in ("splittable", "unsplittable"):
            raise GraphError(f'dimensions are "splittable" or "unsplittable", and not {default_splittability!r}')
        names = frozenset(d.name for t in (*self.inputs, *self.outputs) for d in t.shape)
        exceptions = names & frozenset(exception_dims_iterable or ())
        rest = names - exceptions
        return (rest, exceptions) if default_splittability == "splittable" else (exceptions, rest)


class _Tensors(tuple[Tensor, ...]):
    """Inputs or outputs. Programs add lists to them."""

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]


def _lowered_on_slices(lower: Callable[[Any, Any], object]) -> Callable[[Any, Any], None]:
    """Makes the planner's `lower` from a class's own `lower`.

    If a subclass calls it with a `SliceLowering`, it runs the class's own `lower`.
    """

    @functools.wraps(lower)
    def planned(self: Operation, lowering: Planner | SliceLowering) -> None:
        if isinstance(lowering, Planner):
            on_slices = SliceLowering(lowering, self)
            on_slices.write(on_slices.lowered(lower))
        else:
            lower(self, lowering)

    return planned


def _one_for_each_input(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Checks what `gradient(grad_ys)` returns. A program that passes further arguments gets what its method returns."""

    @functools.wraps(gradient)
    def checked(self: Operation, grad_ys: Sequence[Tensor | None], *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return gradient(self, grad_ys, *args, **kwargs)
        found = list(gradient(self, list(grad_ys)))
        if len(found) != len(self.inputs):
            raise GraphError(
                f"gradient of {type(self).__name__} gave {counted(len(found), 'gradient')} for "
                f"{counted(len(self.inputs), 'input')}; give "
                f"one for each, None where there is none\n  at {self.site}"
            )
        return found

    return checked
