"""Training kernels behind a program's checks: unless all of these are passed, variables keep their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

from meshtf.lowering.passes.training_kernels import TrainingKernel

_Given = tuple[TrainingKernel, Mapping[int, tf.Tensor], Mapping[int, tf.Tensor]]
"""A kernel, and by number the handles of its variables, and what it is given."""


class GuardedKernels:
    """The training kernels of a stretch: at once where there are no checks, else in one branch at its end."""

    def __init__(self) -> None:
        self._waiting: list[_Given] = []
        self._guards: Sequence[tf.Tensor] = ()

    def add(
        self,
        kernel: TrainingKernel,
        handles: Mapping[int, tf.Tensor],
        values: Callable[[int], tf.Tensor],
        guards: Sequence[tf.Tensor],
    ) -> None:
        """One more.

        Args:
          kernel: it.
          handles, values: as its `emit` takes them.
          guards: bool scalars, what all checks of the program say: the same for all that wait.
        """
        if not guards:
            kernel.emit(handles, values)
            return
        self._guards = guards
        self._waiting.append((kernel, handles, {n: values(n) for n in kernel.needs}))

    def emit(self) -> None:
        """Those that have waited for checks."""
        if self._waiting:
            _emit_if(tf.reduce_all(self._guards), self._waiting)
            self._waiting = []


def _emit_if(predicate: tf.Tensor, kernels: Sequence[_Given]) -> None:
    """As `tf.cond`, which would pass each handle and gradient through an operation of its own."""
    arguments = [([*handles.values()], [*given.values()]) for _, handles, given in kernels]

    def update(arguments: Sequence[tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]]) -> None:
        for (kernel, handles, given), (own_handles, own_given) in zip(kernels, arguments, strict=True):
            values = dict(zip(given, own_given, strict=True))
            kernel.emit(dict(zip(handles, own_handles, strict=True)), values.__getitem__)

    def keep(arguments: Sequence[tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]]) -> None:
        """Changes nothing."""

    signature = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), arguments)
    then, otherwise = (
        cast("Any", tf.function(function, autograph=False)).get_concrete_function(signature)
        for function in (update, keep)
    )
    tf.raw_ops.If(cond=predicate, input=tf.nest.flatten(arguments), Tout=[], then_branch=then, else_branch=otherwise)
