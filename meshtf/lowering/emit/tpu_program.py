"""A plan as one program on the cores of a TPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import tensorflow as tf

from meshtf.lowering.emit._xla_emission import emit_for_xla
from meshtf.lowering.emit.core_results import CoreResults, asserted_fetches, first_of, whole_fetches
from meshtf.mesh_impl.mesh_impl import Slices
from meshtf.planning.plan import Plan


class TpuProgram:
    """A plan as a TensorFlow function, which hands every core of a TPU the same XLA program and its own slices.

    Built and looked at where there is no TPU; never run, for lack of one.

    Args:
      plan: what each core runs.
      device_assignment: puts replica number c of the program at the place of core c.
      slices: of each variable, by core.
    """

    def __init__(
        self,
        plan: Plan,
        device_assignment: tf.tpu.experimental.DeviceAssignment,
        slices: Mapping[str, Slices],
    ) -> None:
        self._plan = plan
        self._assignment = device_assignment
        self._slices = slices
        self._traced: dict[bool, Callable[..., tuple[list[tf.Tensor], tf.Tensor]]] = {}

    def __call__(self, feeds: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Runs the program once. Returns the fetches, whole, and the index of the check that failed, or -1.

        Inside a tf.function, where nobody can look at the index, a failed check is an InvalidArgumentError.
        """
        return self.traced(asserted=bool(self._plan.checks) and not tf.executing_eagerly())(*feeds)

    def traced(self, *, asserted: bool) -> Callable[..., tuple[list[tf.Tensor], tf.Tensor]]:
        """The function of the feeds; traced when first asked for."""
        if asserted not in self._traced:
            body = self._on_every_core_asserted if asserted else self._on_every_core
            specs = [tf.TensorSpec(f.output.slice_shape, f.output.dtype) for f in self._plan.feeds]
            self._traced[asserted] = tf.function(body, autograph=False).get_concrete_function(*specs)
        return self._traced[asserted]

    def _on_every_core(self, *feeds: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        results = self._started(feeds)
        return whole_fetches(self._plan, results), tf.identity(first_of(results)[-1])

    def _on_every_core_asserted(self, *feeds: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        return asserted_fetches(self._plan, self._started(feeds))

    def _started(self, feeds: Sequence[tf.Tensor]) -> CoreResults:
        names = self._plan.variable_names
        arguments = [
            [*feeds, *(self._slices[name][core].handle for name in names)] for core in range(self._plan.mesh_shape.size)
        ]

        def program(*given: tf.Tensor) -> list[tf.Tensor]:
            return emit_for_xla(self._plan, given[: len(feeds)], given[len(feeds) :])

        # What TPUStrategy.run calls. A strategy's own variables are the same on every core; ours are slices.
        results = tf.compat.v1.tpu.replicate(program, arguments, device_assignment=self._assignment)
        return dict(enumerate(cast("Sequence[Sequence[tf.Tensor]]", results)))
