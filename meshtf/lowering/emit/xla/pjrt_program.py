"""A plan as one XLA program on the devices of a PJRT runtime."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.host_array import host_array
from meshtf.lowering.emit.feeds_and_fetches import NO_CHECK_FAILED, checked_fetches
from meshtf.lowering.emit.xla.hlo import kept_slices
from meshtf.mesh_impl.mesh_impl import Results
from meshtf.mesh_impl.pjrt.uninterrupted import uninterrupted
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.planning import core_positions
from meshtf.planning.plan import Feed, Plan, Value
from meshtf.tensorflow_private.xla_modules import parsed_hlo

if TYPE_CHECKING:
    from meshtf.mesh_impl.pjrt.buffers import BufferSlices
    from meshtf.mesh_impl.pjrt.pjrt import CoreArray, Cores, Executable

_COMPILE_SECONDS = 7200.0


class PjrtProgram:
    """A plan that every core of a runtime runs. Variables stay on the cores: a step takes their buffers, and returns
    new ones in the same memory.

    Args:
      plan: the plan that each core runs. Feeds are cut when they are sent to the cores.
      cores: the cores that run it. It is compiled when it first runs.
      hlo: returns the plan's HLO.
      slices: the slices of each variable.
    """

    def __init__(self, plan: Plan, cores: Cores, hlo: Callable[[], bytes], slices: Mapping[str, BufferSlices]) -> None:
        self._plan, self._cores, self._hlo = plan, cores, hlo
        self._variables = [slices[name] for name in plan.variable_names]
        self._none_failed: CoreArray | None = None
        self._earlier: CoreArray | None = None
        self._failures_seen = 0
        self._fed_before: dict[int, tuple[weakref.ref[tf.Tensor], CoreArray]] = {}

    def __call__(self, feeds: Sequence[tf.Tensor | np.ndarray]) -> Results:
        """Runs the program once. Returns the whole fetches, and the index of the check that failed or -1.

        Inside a tf.function, where the index cannot be read, a failed check raises InvalidArgumentError.
        """
        return self.start(feeds)() if tf.executing_eagerly() else self._traced(feeds)

    def start(self, feeds: Sequence[tf.Tensor | np.ndarray], *, may_change: bool = True) -> Callable[[], Results]:
        """Starts a run, and returns a function that waits for its results. Other runs may start before it is called.

        If a check of a run fails, the runs that were started after it assign nothing either, and fail in the same way.
        """
        program, assigned = self._compiled
        self._heed_another_program()
        pieces = [self._fed(number, x, may_change) for number, x in enumerate(feeds)]
        # A run receives the index of the check that failed in the run before it, and assigns nothing if there is one.
        if self._none_failed is None:
            self._none_failed = self._on_every_core(np.array(NO_CHECK_FAILED, np.int32))
        earlier = self._none_failed if self._earlier is None else self._earlier
        arguments = [*pieces, earlier, *(v.array for v in self._variables)]
        with uninterrupted():
            results = program.start(arguments)
            # The program has taken the buffers of these variables, and returns others in their place.
            for number, variable in assigned.items():
                variable.array = results[number]
        # The results that the host will read are sent at once, while later runs start.
        count = len(self._plan.fetches)
        if self._awaits_checks:
            self._cores.send(results[count])
        for sources, x in zip(self._sources, results[:count], strict=True):
            for position in sources:
                self._cores.send(x, position)
        if self._plan.checks:
            self._earlier, self._cores.last_checked = results[count], weakref.ref(self)
        return functools.partial(self._awaited, results[:count], results[count], self._failures_seen, arguments)

    def _heed_another_program(self) -> None:
        """Raises the error of a check that failed in the last run of another program, if both share a variable.

        Only runs of one program receive the failures of the runs before them. So this waits for that run.
        """
        other = self._cores.last_checked()
        if other is None or other is self or other._earlier is None:
            return
        if {*map(id, self._variables)}.isdisjoint(map(id, other._variables)):
            return
        index = int(self._cores.first(other._earlier))
        other._earlier = None
        if index != NO_CHECK_FAILED:
            other._failures_seen += 1
            raise other._plan.checks[index].failure()

    def _awaited(
        self, fetches: Sequence[CoreArray], failed: CoreArray, seen_before: int, arguments: list[CoreArray]
    ) -> Results:
        arguments.clear()  # hundreds of objects without memory; to delete them takes as long as to start a step
        index = int(self._cores.first(failed)) if self._awaits_checks else NO_CHECK_FAILED
        if index != NO_CHECK_FAILED and seen_before == self._failures_seen:  # else the failure was already counted
            self._failures_seen += 1
            self._earlier = None
        whole = zip(self._plan.fetches, self._sources, fetches, strict=True)
        arrays = [self._whole(value, sources, x) for value, sources, x in whole]
        # NumPy arrays are passed, because TensorFlow would cache Python numbers for ever, and return a cached 0.0 for
        # -0.0.
        return [tf.constant(x) for x in arrays], tf.constant(index, tf.int32)

    @property
    def _awaits_checks(self) -> bool:
        """Whether the caller waits for a step by the result that holds the index of the failed check.

        Without fetches, nothing else waits for the step, and its failure would go unnoticed.
        """
        return bool(self._plan.checks) or not self._plan.fetches

    def _traced(self, feeds: Sequence[tf.Tensor]) -> Results:
        """Does the same as an op of a tf.function, which the host runs."""
        fetches = self._plan.fetches

        def run(*arrays: tf.Tensor) -> list[tf.Tensor]:
            found, failed = self.start(arrays)()
            return [*found, failed]

        *found, failed = tf.py_function(run, list(feeds), [*(value.dtype for value in fetches), tf.int32])
        for value, x in zip(fetches, found, strict=True):
            x.set_shape(value.shape.to_integer_list)
        failed.set_shape([])
        return checked_fetches(self._plan, found, failed) if self._plan.checks else (found, failed)

    @functools.cached_property
    def _compiled(self) -> tuple[Executable, dict[int, BufferSlices]]:
        """The compiled program, and the variable of each assigned result, keyed by the result's index."""
        plan, hlo = self._plan, self._hlo()
        module = parsed_hlo(hlo)
        first = len(plan.feeds) + 1
        numbers = {e.output_shape_index[0]: e.parameter_number - first for e in module.input_output_alias.entries}
        kept = list(kept_slices(plan).values())
        given = [f.output.slice_shape for f in plan.feeds] + [(), *(shape for shape, _ in kept)]
        expected = [tuple(x.dimensions) for x in module.host_program_shape.parameters]
        assert given == expected, (given, expected)  # with other shapes the runtime crashes
        values = [(v.slice_shape, v.dtype) for v in plan.fetches]
        values += [((), tf.int32), *(kept[numbers[n]] for n in sorted(numbers))]
        program = self._cores.compile(hlo, [(shape, dtype.as_numpy_dtype) for shape, dtype in values])
        cluster = collective_runtime().cluster
        if cluster is not None and plan.process_of_core:
            # The cores of a runtime wait for one another for half a minute. One process may compile for longer than
            # that.
            cluster.barrier(cluster.meeting("compiled"), _COMPILE_SECONDS)
        return program, {number: self._variables[place] for number, place in numbers.items()}

    def _fed(self, number: int, given: tf.Tensor | np.ndarray, may_change: bool) -> CoreArray:
        """Sends each core its part of the array for one of the feeds.

        A tensor never changes, so the cores keep its parts while it lives and no other array is fed there.
        """
        if isinstance(given, np.ndarray):
            return self._cores.feed(self._cut(self._plan.feeds[number], given), may_change=may_change)
        before = self._fed_before.get(number)
        if before is not None and before[0]() is given:
            return before[1]
        parts = self._cores.feed(self._cut(self._plan.feeds[number], host_array(given)))
        kept = self._fed_before

        def forget(reference: weakref.ref[tf.Tensor]) -> None:
            if number in kept and kept[number][0] is reference:
                del kept[number]

        kept[number] = (weakref.ref(given, forget), parts)
        return parts

    def _cut(self, feed: Feed, array: np.ndarray) -> list[np.ndarray]:
        """Cuts an array into the part of each core."""
        axes, size = feed.output.layout.axes, feed.output.slice_shape
        if array.shape == size:  # each core has all of it
            return [np.ascontiguousarray(array).reshape(size)] * len(self._cores.numbers)
        parts: dict[tuple[int, ...], np.ndarray] = {}
        pieces: list[np.ndarray] = []
        for core in self._cores.numbers:
            block = core_positions.block(core, axes, self._plan.mesh_shape)
            if block not in parts:
                part = tuple(slice(b * n, (b + 1) * n) for b, n in zip(block, size, strict=True))
                held = array[part]
                ends = [(0, n - have) for n, have in zip(size, held.shape, strict=True)]
                parts[block] = np.ascontiguousarray(np.pad(held, ends) if any(map(any, ends)) else held).reshape(size)
            pieces.append(parts[block])
        return pieces

    def _on_every_core(self, array: np.ndarray) -> CoreArray:
        return self._cores.put([array] * len(self._cores.numbers))

    @functools.cached_property
    def _sources(self) -> list[Mapping[int, tuple[int, ...]]]:
        """The positions of the cores whose slices make each result whole, with the block that each core has.

        Equal slices are taken from the first core.
        """
        found: list[Mapping[int, tuple[int, ...]]] = []
        for value in self._plan.fetches:
            of_block: dict[tuple[int, ...], int] = {}
            for position, core in enumerate(self._cores.numbers):
                of_block.setdefault(core_positions.block(core, value.layout.axes, self._plan.mesh_shape), position)
            found.append({position: block for block, position in of_block.items()})
        return found

    def _whole(self, value: Value, sources: Mapping[int, tuple[int, ...]], array: CoreArray) -> np.ndarray:
        """Joins the slices of the cores to a whole result."""
        sizes = value.shape.to_integer_list
        if tuple(sizes) == value.slice_shape:
            return self._cores.first(array)
        whole = np.empty(sizes, value.dtype.as_numpy_dtype)
        for position, block in sources.items():
            begins = [b * n for b, n in zip(block, value.slice_shape, strict=True)]
            held = self._cores.piece(array, position)
            part = tuple(slice(b, b + n) for b, n in zip(begins, held.shape, strict=True))
            whole[part] = held[tuple(slice(max(n - b, 0)) for b, n in zip(begins, sizes, strict=True))]
        return whole
