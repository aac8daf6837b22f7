"""Random numbers for rows with one key each. The bits of a row do not depend on the other rows.

Other random operations depend on positions in the whole tensor, and so on a row's place in its batch. Decoding uses
keys of rows, so that a text gets the same tokens in any batch, in any program and under any layout.
"""

from __future__ import annotations

import math

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Dimension, Shape
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.elementwise.bitwise import bitwise_and, right_shift
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.inputs.constants import range as range_along
from meshtf.ops.variables.program_step import program_step
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.random import row_keys

_LOW = 2**32 - 1
_PROMPTS = "prompts"


class SeedKey(Operation):
    """The packed key of the program's seed: an int64 scalar."""

    def __init__(self, mesh: Mesh, name: str = "seed_key") -> None:
        super().__init__([], [(Shape([]), tf.int64)], name=name, mesh=mesh)

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        key = planner.random_key(_PROMPTS)
        assert isinstance(key, tuple)

        def emit(core: Core) -> tf.Tensor:
            return tf.constant(row_keys.packed(key), tf.int64)

        spec, facts = (output.shape, output.dtype, planner.layouts[output]), WorkFacts(is_trivial=True)
        planner.write(output, planner.compute("random_key", emit, [], [spec], facts=facts)[0])


class RowGumbel(Operation):
    """Numbers of Gumbel's distribution along a new dimension, by each row's key: int64 [..] to float32 [.., dim]."""

    takes_padding = True

    def __init__(self, keys: Tensor, dim: Dimension, name: str = "row_gumbel") -> None:
        super().__init__([keys], [(keys.shape + [dim], tf.float32)], name=name)

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        (keys,), (output,) = self.inputs, self.outputs
        layout = planner.layouts[output]
        *rows, size = layout.slice_shape(output.shape, planner.mesh_shape)
        *row_axes, axes = layout.axes
        value = planner.read(keys, TensorLayout(tuple(row_axes)))

        def emit(core: Core, own: tf.Tensor) -> tf.Tensor:
            begin = tf.cast(core.coordinate(axes) * size if axes else 0, tf.int64)
            drawn = row_keys.gumbel_of_rows(tf.reshape(own, [math.prod(rows)]), begin, size)
            return tf.reshape(drawn, [*rows, size])

        spec, facts = (output.shape, output.dtype, layout), WorkFacts(draws_random_bits=True)
        (drawn,) = planner.compute("random", emit, [value], [spec], flops=math.prod(rows) * size, facts=facts)
        planner.write(output, drawn)


def prompt_keys(mesh: Mesh, rows: Shape) -> Tensor:
    """The packed keys of a batch of prompts, int64 [batch]. They depend on the program's seed and the prompt's number.

    Numbers continue from run to run: the first prompt of the second run follows the last prompt of the first run.
    """
    (batch,) = rows
    step = program_step(mesh)
    # A saved model has its own seed in the step's high word.
    number = bitwise_and(step, _LOW) * batch.size + range_along(mesh, batch, tf.int64)
    return with_count(with_count(SeedKey(mesh).outputs[0], right_shift(step, 32)), number)


def prompt_key(seed: int, number: int = 0) -> int:
    """The packed key that a prompt of this number has in the first runs of a program with this seed."""
    return row_keys.row_key(seed, random.stable_hash(_PROMPTS), 0, number)


def with_count(keys: Tensor, count: Tensor) -> Tensor:
    """The packed keys, with a count folded into each, such as a token's position."""
    wide = count if count.dtype == tf.int64 else cast(count, tf.int64)
    return ElementwiseOperation("fold_in", _folded, [keys, wide]).outputs[0]


def row_gumbel(keys: Tensor, dim: Dimension) -> Tensor:
    """Numbers of Gumbel's distribution, float32 [.., dim], for packed keys [..]. The value at a place along `dim`
    depends only on the row's key and the place."""
    return RowGumbel(keys, dim).outputs[0]


def row_uniform(keys: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), float64 [..]: one for each packed key, from the first 53 of its own bits.

    No other draw may use such a key.
    """
    return cast(bitwise_and(right_shift(keys, 11), 2**53 - 1), tf.float64) * 2.0**-53


def _folded(keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    shape = tf.broadcast_static_shape(keys.shape, counts.shape).as_list()
    flat = [tf.reshape(tf.broadcast_to(x, shape), [math.prod(shape)]) for x in (keys, counts)]
    return tf.reshape(row_keys.folded(*flat), shape)
