"""Does fused updates of large variables block by block.

XLA's CPU compiler makes one loop for each result of a fused update. If no cache holds the variable, the second loop
reads from memory again what the first loop has read and written. With blocks the data is still in the cache.

XLA writes the blocks in place as long as nothing needs both the old and the new value of an element. But a result may
be made from another result, as a weight is made from its moments. So it follows that result one block behind, and takes
the new value from the variable. For example, in turn 3 Adam writes block 3 of m and v, and then block 2 of the weight,
from the new block 2 of m and v.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from meshtf.planning.work_facts import Kernel

Step = tuple[Kernel, tuple[int, ...]]
"""A kernel and the numbers of its operands: inputs are counted first, then steps in order."""


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """The sizes of updates that are done block by block, and of their blocks.

    largest, smallest: elements of a block. A cache holds a few arrays of the largest one. fewest: the fewest blocks
    that are worth a loop. longest_row: elements of a row, which is never divided.
    """

    largest: int = 1 << 18
    smallest: int = 1 << 15
    fewest: int = 4
    longest_row: int = 1 << 12


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a slice: its elements are in rows, and a block is some rows. Loops run over the rows of a block
    in parallel.
    """

    num_rows: int
    row: int
    block_rows: int

    @classmethod
    def of(cls, shape: Sequence[int], sizes: BlockSizes) -> Blocks | None:
        """Returns the blocks of a slice, or None if it is small or cannot be divided."""
        size = math.prod(shape)
        if size < sizes.fewest * sizes.smallest:
            return None
        row = _largest_divisor(size, sizes.longest_row)
        block_rows = _largest_divisor(size // row, sizes.largest // row)
        if block_rows * row < sizes.smallest or size < sizes.fewest * block_rows * row:
            return None
        return cls(size // row, row, block_rows)

    @property
    def count(self) -> int:
        return self.num_rows // self.block_rows

    def rows(self, x: tf.Tensor) -> tf.Tensor:
        """Returns a slice as [num_rows, row], and a scalar as it is."""
        return tf.reshape(x, [self.num_rows, self.row]) if x.shape.rank else x

    def block(self, x: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Returns block `number` [block_rows, row] of [num_rows, row], and a scalar as it is."""
        if not x.shape.rank:
            return x
        sizes = tf.constant([self.block_rows, self.row])
        block = gen_xla_ops.xla_dynamic_slice(x, self._begin(number), sizes)
        return tf.ensure_shape(block, [self.block_rows, self.row])

    def with_block(self, x: tf.Tensor, block: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Returns [num_rows, row] with a new block at `number`."""
        return gen_xla_ops.xla_dynamic_update_slice(x, block, self._begin(number))

    def _begin(self, number: tf.Tensor) -> tf.Tensor:
        return tf.stack([number * self.block_rows, tf.zeros_like(number)])


def _largest_divisor(number: int, limit: int) -> int:
    return next(n for n in range(min(number, limit), 0, -1) if number % n == 0)


@dataclasses.dataclass(frozen=True)
class _Result:
    """A new value of a variable.

    Attributes:
      number: its number among inputs and steps.
      variable: the number of the input that is the old value.
      inputs: the inputs that it is made of.
      results: the other results that it is made of.
      behind: by how many blocks it is behind the first results.
    """

    number: int
    variable: int
    inputs: frozenset[int]
    results: frozenset[int]
    behind: int


@dataclasses.dataclass(frozen=True)
class UpdateInBlocks:
    """An update whose results are all new values of variables.

    steps: the kernels and their operands. num_inputs: the number of inputs. results: in order of `behind`.
    """

    steps: Sequence[Step]
    num_inputs: int
    results: tuple[_Result, ...]
    blocks: Blocks

    @classmethod
    def of(
        cls, steps: Sequence[Step], num_inputs: int, written: Mapping[int, int], blocks: Blocks
    ) -> UpdateInBlocks | None:
        """Returns the update in blocks. Returns None if there is only one result, which XLA makes in one loop, or if
        the update cannot be done in place.

        Args:
          steps: the steps of the update.
          num_inputs: how many inputs it has.
          written: the number of each new value, by the number of the input with the old one.
          blocks: how all inputs except scalars are cut.
        """
        if len(written) == 1 or len(set(written.values())) < len(written):
            return None
        results: dict[int, _Result] = {}
        for variable, number in sorted(written.items(), key=lambda pair: pair[1]):
            inputs, used = _made_of(number, steps, num_inputs, set(written.values()))
            # The old value of another variable may be overwritten already when this result would read it.
            if not used <= set(results) or not inputs & set(written) <= {variable}:
                return None
            # A result follows the results that it reads by one turn, when their block is written.
            behind = max((1 + results[r].behind for r in used), default=0)
            results[number] = _Result(number, variable, inputs, used, behind)
        ordered = sorted(results.values(), key=lambda result: result.behind)
        return cls(steps, num_inputs, tuple(ordered), blocks)

    def run(self, inputs: Sequence[tf.Tensor], is_kept: tf.Tensor | None) -> dict[int, tf.Tensor]:
        """Returns the new values, by the number of the input that is the old one.

        Args:
          inputs: slices and scalars.
          is_kept: a bool scalar. If it is false, the new values are the old ones.
        """
        rows = [self.blocks.rows(x) for x in inputs]
        variables = {r.variable: rows[r.variable] for r in self.results}
        last, count = self.results[-1].behind, self.blocks.count

        def turn(number: tf.Tensor, present: Mapping[int, tf.Tensor], taken: Iterable[_Result]) -> dict[int, tf.Tensor]:
            changed = dict(present)
            for result in taken:
                given = {n: changed.get(n, rows[n]) for n in range(self.num_inputs)}
                changed[result.variable] = self._with_new_block(result, number - result.behind, given, is_kept)
            return changed

        for number in range(last):
            variables = turn(tf.constant(number), variables, [r for r in self.results if r.behind <= number])
        names = list(variables)

        def body(number: tf.Tensor, *present: tf.Tensor) -> list[tf.Tensor]:
            return [number + 1, *turn(number, dict(zip(names, present, strict=True)), self.results).values()]

        # In the first `last` turns some results have no block to do yet. In the last turns some have no block left.
        start = [tf.constant(last), *variables.values()]
        end, *present = tf.while_loop(lambda number, *_: number < count, body, start)
        variables = dict(zip(names, present, strict=True))
        for number in range(last):
            variables = turn(end + number, variables, [r for r in self.results if r.behind > number])
        return {n: tf.reshape(x, inputs[n].shape) for n, x in variables.items()}

    def _with_new_block(
        self, result: _Result, number: tf.Tensor, present: Mapping[int, tf.Tensor], is_kept: tf.Tensor | None
    ) -> tf.Tensor:
        variable_of = {r.number: r.variable for r in self.results}
        known = {n: self.blocks.block(present[n], number) for n in result.inputs}
        known |= {n: self.blocks.block(present[variable_of[n]], number) for n in result.results}
        new = tf.broadcast_to(self._value(result.number, known), [self.blocks.block_rows, self.blocks.row])
        if is_kept is not None:
            old = self.blocks.block(present[result.variable], number)
            new = tf.where(is_kept, new, old)
        return self.blocks.with_block(present[result.variable], new, number)

    def _value(self, number: int, known: dict[int, tf.Tensor]) -> tf.Tensor:
        if number not in known:
            kernel, operands = self.steps[number - self.num_inputs]
            known[number] = kernel(*(self._value(n, known) for n in operands))
        return known[number]


def _made_of(
    number: int, steps: Sequence[Step], num_inputs: int, results: set[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the inputs, and the other results, that a result is made of."""
    inputs: set[int] = set()
    used: set[int] = set()
    waiting = list(steps[number - num_inputs][1])
    while waiting:
        operand = waiting.pop()
        if operand < num_inputs:
            inputs.add(operand)
        elif operand in results:
            used.add(operand)
        else:
            waiting.extend(steps[operand - num_inputs][1])
    return frozenset(inputs), frozenset(used)
