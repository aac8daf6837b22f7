"""Training kernels behind a program's checks: unless all of these are passed, variables keep their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

from meshtf.lowering.emit._cheap_operations import know_shape
from meshtf.lowering.emit.own_variable import variable_of_its_own
from meshtf.lowering.passes.training_kernels import TrainingKernel


@dataclasses.dataclass(frozen=True, eq=False)
class GivenKernel:
    """A kernel, and what it works on.

    Attributes:
      kernel: it.
      handles: of variables, by the number of the input that is their value.
      parts: by number, inputs that become another value, as variables do, but are none.
      values: what else is given, by number.
      take: is given the number of each part, and its new value.
    """

    kernel: TrainingKernel
    handles: Mapping[int, tf.Tensor]
    parts: Mapping[int, tf.Tensor]
    values: Callable[[int], tf.Tensor]
    take: Callable[[int, tf.Tensor], None]

    def emit(self) -> None:
        """Does it."""
        own = {n: variable_of_its_own(x) for n, x in self.parts.items()}
        self.kernel.emit({**self.handles, **own}, self.values)
        for n, handle in own.items():
            self.take(n, tf.raw_ops.ReadVariableOp(resource=handle, dtype=self.parts[n].dtype))


class GuardedKernels:
    """The training kernels of a stretch: at once where there are no checks, else together in a branch at its end, or
    as soon as a part is used that one of them makes."""

    def __init__(self) -> None:
        self._waiting: list[GivenKernel] = []
        self._guards: Sequence[tf.Tensor] = ()

    def add(self, kernel: GivenKernel, guards: Sequence[tf.Tensor]) -> None:
        """One more.

        Args:
          kernel: it.
          guards: bool scalars, what all checks of the program say: the same for all that wait.
        """
        if not guards:
            kernel.emit()
            return
        self._guards = guards
        known = {n: kernel.values(n) for n in kernel.kernel.needs}
        self._waiting.append(dataclasses.replace(kernel, values=known.__getitem__))

    def emit(self) -> None:
        """Those that have waited for checks."""
        if self._waiting:
            _emit_if(tf.reduce_all(self._guards), self._waiting)
            self._waiting = []


def _emit_if(predicate: tf.Tensor, kernels: Sequence[GivenKernel]) -> None:
    """As `tf.cond`, which would pass each handle and gradient through an operation of its own."""
    arguments = [
        (list(k.handles.values()), list(k.parts.values()), [k.values(n) for n in k.kernel.needs]) for k in kernels
    ]

    def update(arguments: Any) -> list[tf.Tensor]:
        made: list[tf.Tensor] = []
        for k, (handles, parts, given) in zip(kernels, arguments, strict=True):
            new: dict[int, tf.Tensor] = {}
            values = dict(zip(k.kernel.needs, given, strict=True)).__getitem__
            own_handles, own_parts = dict(zip(k.handles, handles, strict=True)), dict(zip(k.parts, parts, strict=True))
            GivenKernel(k.kernel, own_handles, own_parts, values, new.__setitem__).emit()
            made += [new[n] for n in k.parts]
        return made

    def keep(arguments: Any) -> list[tf.Tensor]:
        """Changes nothing."""
        return [tf.identity(part) for _, parts, _ in arguments for part in parts]

    signature = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), arguments)
    then, otherwise = (
        cast("Any", tf.function(function, autograph=False)).get_concrete_function(signature)
        for function in (update, keep)
    )
    parts = [(k, n) for k in kernels for n in k.parts]
    types = [k.parts[n].dtype for k, n in parts]
    made = tf.raw_ops.If(
        cond=predicate, input=tf.nest.flatten(arguments), Tout=types, then_branch=then, else_branch=otherwise
    )
    for (k, n), new in zip(parts, made if parts else (), strict=True):
        know_shape(new, k.parts[n].shape.as_list())
        k.take(n, new)
