"""The key of a dropout mask that is drawn part by part, in loops and again in gradients."""

from __future__ import annotations

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Dimension, Shape
from meshtf.graph.mesh import Mesh
from meshtf.layout import TensorLayout
from meshtf.ops.random.random_operation import KeyedOperation
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner

_KEY = Dimension("random_key", 2)


class DropoutKey(KeyedOperation):
    """The key of a mask: uint32 [random_key:2], with a key for each layer that is computed at once."""

    def __init__(self, mesh: Mesh, name: str, *, rate: float) -> None:
        super().__init__(mesh, Shape([_KEY]), tf.uint32, name)
        self._keep = 1.0 - rate

    def draw(self, *where: object) -> tf.Tensor:
        """bool: whether each element is kept, for a part of the mask. The arguments are those of `random.keep_mask`."""
        return random.keep_mask(*where, keep_prob=self._keep)  # type: ignore[arg-type]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        axes = planner.layouts[output].axes[:-1]
        layout = TensorLayout((*axes, ()))
        told_by = self._told_by(planner, axes[0] if axes else ())
        counts = self._counts(planner, told_by)
        key = self._key(planner, counts)
        inputs = list(dict.fromkeys([*told_by, *(c for c in counts if isinstance(c, Value))]))
        layers = layout.slice_shape(output.shape, planner.mesh_shape)[0] if axes else 0

        def emit(core: Core, *numbers: tf.Tensor) -> tf.Tensor:
            given = dict(zip(inputs, numbers, strict=True))
            if not axes:
                return random.key_tensor(key(given))
            return tf.stack(
                [random.key_tensor(key({**given, **{v: given[v][n] for v in told_by}})) for n in range(layers)]
            )

        spec = (output.shape, output.dtype, layout)
        facts = WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random_key", emit, inputs, [spec], flops=0, facts=facts)[0])
