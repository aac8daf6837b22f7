"""A plan as one TensorFlow function, which starts every core of this process and returns whole results."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.garbage_collection import garbage_collection_paused
from meshtf.lowering.emit.cores import Cores
from meshtf.lowering.emit.feeds_and_fetches import asserted_fetches, first_of, whole_fetches
from meshtf.lowering.emit.function_calls import grappler_off
from meshtf.mesh_impl.mesh_impl import Results
from meshtf.planning.plan import Plan
from meshtf.tensorflow_private.traced_functions import NOT_INLINED


class SpmdProgram:
    """A plan on the devices of a mesh, traced when it is first called.

    Args:
      plan: the plan that each core runs.
      cores: the cores of this process.
      device: the device of the first core, which joins results.
      is_traced: whether the plan is traced at all. For a program that runs once and computes little, tracing takes
        several times as long as running operation by operation.
    """

    def __init__(self, plan: Plan, cores: Cores, device: str, *, is_traced: bool = True) -> None:
        self._plan, self._is_traced = plan, is_traced
        self.cores = cores
        self._device = device
        self._functions: dict[bool, tf.types.experimental.ConcreteFunction] = {}

    def __call__(self, feeds: Sequence[tf.Tensor]) -> Results:
        """Runs the program once. Returns the whole fetches, and the index of the check that failed or -1.

        Inside a tf.function, where the index cannot be read, a failed check raises InvalidArgumentError.
        """
        if not self._is_traced and tf.executing_eagerly():
            *fetches, failed = self._on_every_core(*feeds)
            return fetches, failed
        with grappler_off():
            *fetches, failed = self._function(asserted=bool(self._plan.checks) and not tf.executing_eagerly())(*feeds)
        return fetches, failed

    @garbage_collection_paused()
    def _function(self, *, asserted: bool) -> tf.types.experimental.ConcreteFunction:
        if asserted not in self._functions:
            specs = [tf.TensorSpec(f.output.shape.to_integer_list, f.output.dtype) for f in self._plan.feeds]
            body = self._on_every_core_asserted if asserted else self._on_every_core
            # If it were inlined into a user's function, it would be optimized together with the code around it.
            traced = tf.function(body, autograph=False, experimental_attributes=NOT_INLINED)
            self._functions[asserted] = traced.get_concrete_function(*specs)
        return self._functions[asserted]

    def _on_every_core(self, *feeds: tf.Tensor) -> list[tf.Tensor]:
        results = self.cores.results(feeds)
        with tf.device(self._device):
            return [*whole_fetches(self._plan, results), tf.identity(first_of(results)[-1])]

    def _on_every_core_asserted(self, *feeds: tf.Tensor) -> list[tf.Tensor]:
        results = self.cores.results(feeds)
        with tf.device(self._device):
            fetches, failed = asserted_fetches(self._plan, results)
            return [*fetches, failed]
