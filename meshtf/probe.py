"""Measures how fast this machine's virtual CPUs multiply, move memory, start operations and communicate.

It measures meshtf programs on `SpmdMeshImpl`, since predictions are for such programs. Each figure compares a short and
a long chain of the same operation, run one after the other: it is the difference of their times divided by the
difference of their lengths. This removes the fixed cost of a program. The median of several pairs counts, since a
processor's speed varies.

For example, if a chain of 16 products takes 20 ms, and one of 48 products takes 52 ms, a product takes 1 ms.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.costs import Machine, NetworkLevel
from meshtf.costs.seconds import RANDOM_BITS_OPERATIONS
from meshtf.dimension import Dimension
from meshtf.function.function import function
from meshtf.function.tensor_spec import TensorSpec
from meshtf.graph.tensor import Tensor
from meshtf.mesh_impl.host.host_memory import host_memory
from meshtf.mesh_impl.host.largest_cache import largest_cache
from meshtf.mesh_impl.virtual_cpus import num_processors, virtual_cpus
from meshtf.ops import add, cast, conv2d, einsum, exp, ones, random_uniform, reduce_sum, rename_dimension, sin, tanh
from meshtf.ops import slice as sliced

_FLOAT_BYTES = 4
_FEW = 8
"""The rows of a matrix product that takes only as long as reading its other operand."""

_FEW_CHANNELS, _CHANNELS, _MANY_CHANNELS = 2, 16, 32
"""Channels between two convolutions. `_FEW_CHANNELS` are fewer than a processor computes at once, and `_MANY_CHANNELS`
are a multiple of that."""

_SMALL_SIDE = 4
"""The side of an image so small that its convolution takes only as long as starting one."""

_LARGEST_TILE = 64
"""The most elements of a vector that any processor multiplies at once."""

_LEAST = 1e-9
"""The seconds reported for work that is too quick to measure."""

_Chain: TypeAlias = Callable[[Tensor, int], Tensor]
"""Makes a chain of operations, from the first tensor and the number of links."""

_Link: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Makes one link of a chain, from the latest tensor and the first."""


@dataclasses.dataclass(frozen=True)
class ProbeSizes:
    """The sizes of the programs that are measured.

    Attributes:
      cores: the number of virtual CPUs, an even number.
      side: the side of the matrices that are multiplied. A few rows are multiplied by a matrix of four times that side.
      image_side: the height and the width of the images that are convolved.
      elements: the elements of each core's arrays that are added, drawn and summed. Three such arrays fit in a
        processor's cache.
      many_elements: the elements of arrays that do not fit in the cache.
      chain: the number of products or large operations in a chain. Chains of small operations are longer, and chains of
        random bits have a quarter.
      runs: the number of runs of each program.
    """

    cores: int = 8
    side: int = 256
    image_side: int = 64
    elements: int = 1 << 19
    many_elements: int = 1 << 22
    chain: int = 16
    runs: int = 7


_SIZES = ProbeSizes()


def cpu_clock() -> float:
    """The seconds of CPU time of this process, per processor: a clock for a machine that others also use."""
    return time.process_time() / num_processors()


def probe(
    sizes: ProbeSizes = _SIZES,
    on_step: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Machine:
    """Measures a description of this machine for its virtual CPUs, in less than a minute.

    Links between processes are not measured, since predictions treat several processes like a single one.

    Args:
      sizes: how much is measured.
      on_step: called with the name of the next measurement.
      clock: returns the time in seconds.

    Raises:
      DeviceError: TensorFlow has started with fewer virtual CPUs.
    """
    virtual_cpus(sizes.cores)
    return _Probe(sizes, on_step, clock).machine()


class _Probe:
    def __init__(self, sizes: ProbeSizes, on_step: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._sizes, self._on_step, self._clock = sizes, on_step, clock
        self._measured, self._in_vain = "", dict[str, None]()
        half = sizes.cores // 2
        self._cores = [Dimension("outer", half), Dimension("inner", 2)]
        self._mesh = SpmdMeshImpl(f"outer:{half};inner:2", "outer:outer;inner:inner")

    def machine(self) -> Machine:
        sizes, cores = self._sizes, self._sizes.cores
        self._begin("operations")
        nothing = self._step(_linked(_unchanged), self._elements(1), tf.float32, 1)
        starting_step = min(self._seconds(nothing) for _ in range(sizes.runs))
        operation = self._each(_branched, self._elements(1), links=8 * sizes.chain) / 3
        self._begin("memory")
        elements, many = sizes.elements, sizes.many_elements
        adding = self._each(_added, self._elements(elements))
        kept = self._each_of(_kept, self._elements(elements), links=max(sizes.chain // 2, 1)) / 2
        kept_many = self._each_of(_kept, self._elements(many), links=1) / 2
        cache_bandwidth = 3 * _FLOAT_BYTES * elements * cores / self._less(kept, operation)
        memory_bandwidth = 3 * _FLOAT_BYTES * many * cores / self._less(kept_many, operation)
        self._begin("exponentials")
        curved = self._each(_curved, self._elements(elements)) / 2
        transcendental_flops = elements * cores / self._less(curved, operation)
        self._begin("products")
        sides = [*self._cores, Dimension("row", sizes.side), Dimension("column", sizes.side)]
        products = {dtype: self._each(_multiplied, sides, tf.as_dtype(dtype)) for dtype in ("float32", "bfloat16")}
        peak_flops = {d: 2 * sizes.side**3 * cores / self._less(each, operation) for d, each in products.items()}
        wide = 4 * sizes.side
        thin = self._each_of(_few_rows, [*self._cores, Dimension("row", wide), Dimension("column", wide)])
        product_bandwidth = wide * (wide + 2 * _FEW) * _FLOAT_BYTES * cores / self._less(thin, operation)
        self._begin("convolutions")
        preparing = self._less(self._each(_convolved(_CHANNELS), self._image(_SMALL_SIDE)) / 2, operation)
        tile = self._product_tile(operation + preparing)
        self._begin("random bits")
        drawn = self._each(_drawn, self._elements(elements), links=max(sizes.chain // 4, 1))
        vector_flops = RANDOM_BITS_OPERATIONS * elements * cores / self._less(drawn, adding)
        self._begin("collectives")
        starting, latency, bandwidth = self._collectives(operation, adding)
        return Machine(
            name="probed",
            source=self._source(),
            peak_flops=peak_flops,
            memory_bytes=float(host_memory().available),
            memory_bandwidth=memory_bandwidth,
            cache_bytes=float(largest_cache()),
            cache_bandwidth=cache_bandwidth,
            vector_flops=vector_flops,
            transcendental_flops=transcendental_flops,
            product_bandwidth=product_bandwidth,
            product_tile=(tile, tile, 1),
            step_seconds=starting_step,
            operation_seconds=operation * num_processors() / cores,
            convolution_seconds=preparing * num_processors() / cores,
            collective_seconds=starting,
            links=(NetworkLevel(None, bandwidth, latency),),
            processors=num_processors(),
        )

    def _begin(self, what: str) -> None:
        self._measured = what
        self._on_step(what)

    def _less(self, seconds: float, others: float) -> float:
        """The first minus the second. If nothing is left, notes that other work on this machine hid the measurement."""
        if seconds - others < _LEAST:
            self._in_vain[self._measured] = None
        return max(seconds - others, _LEAST)

    def _source(self) -> str:
        text = f"measured by meshtf-probe on {time.strftime('%Y-%m-%d')}, with {self._sizes.cores} virtual CPUs"
        if self._in_vain:
            text += f"; wrong for {', '.join(self._in_vain)}, which other work on the machine hid"
        return text

    def _image(self, side: int) -> list[Dimension]:
        return [*self._cores, Dimension("height", side), Dimension("width", side), Dimension("in", _CHANNELS)]

    def _product_tile(self, starting: float) -> int:
        """The rows or columns of a processor's tile: a product with fewer takes no less time.

        Measures two pairs of convolutions, with few and with many channels in between. The convolution to few channels
        takes as long as one to a whole tile of channels. The time of the others is proportional to their work. So the
        ratio of the two times gives the size of the tile.
        """
        few, many = (
            self._less(self._each(_convolved(channels), self._image(self._sizes.image_side)), 2 * starting)
            for channels in (_FEW_CHANNELS, _MANY_CHANNELS)
        )
        tile = 2 * _MANY_CHANNELS * few / many - _FEW_CHANNELS
        return 1 << round(math.log2(min(max(tile, 1), _LARGEST_TILE)))

    def _collectives(self, operation: float, adding: float) -> tuple[float, float, float]:
        """The seconds that a collective takes to start and for each further core; the bytes per second of all cores."""
        elements, cores = self._sizes.elements, self._sizes.cores
        links = 4 * self._sizes.chain
        of_two = self._less(self._each(_summed_in_pairs, self._elements(8), links=links), operation)
        of_all = self._less(self._each(_summed, self._elements(8), links=links), operation)
        latency = max(of_all - of_two, 0.0) / (2 * max(cores - 2, 1))
        whole = self._less(self._each(_summed, self._elements(elements)), of_all + adding)
        return max(of_two - 2 * latency, 0.0), latency, 2 * _FLOAT_BYTES * elements * (cores - 1) / whole

    def _elements(self, count: int) -> list[Dimension]:
        return [*self._cores, Dimension("elements", count)]

    def _each(
        self, link: _Link, shape: Sequence[Dimension], dtype: tf.DType = tf.float32, links: int | None = None
    ) -> float:
        """The seconds of one operation in a chain in which each reads the result of the one before."""
        return self._each_of(_linked(link), shape, dtype, links)

    def _each_of(
        self, chain: _Chain, shape: Sequence[Dimension], dtype: tf.DType = tf.float32, links: int | None = None
    ) -> float:
        links = links or self._sizes.chain
        short, long = (self._step(chain, shape, dtype, count) for count in (links, 3 * links))
        runs = [(self._seconds(short), self._seconds(long)) for _ in range(self._sizes.runs)]
        return self._less(statistics.median(b - a for a, b in runs), 0.0) / (2 * links)

    def _step(self, chain: _Chain, shape: Sequence[Dimension], dtype: tf.DType, links: int) -> Callable[[], object]:
        """A call of a program that has run once already."""

        def program(x: Tensor) -> Tensor:
            return reduce_sum(cast(chain(cast(x, dtype), links), tf.float32))

        step = function(program, self._mesh, inputs={"x": TensorSpec(shape, tf.float32)})
        x = tf.zeros([d.size for d in shape])
        step(x=x)
        return functools.partial(step, x=x)

    def _seconds(self, call: Callable[[], object]) -> float:
        began = self._clock()
        call()
        return self._clock() - began


def _linked(link: _Link) -> _Chain:
    return lambda first, links: functools.reduce(lambda y, _: link(y, first), range(links), first)


def _kept(x: Tensor, links: int) -> Tensor:
    """Makes `links` new arrays by additions, then reads them all again in reverse order for as many additions.

    A training step does the same: its gradient reads the arrays again. Additions in place would stay in the cache.
    """
    made = [x]
    for _ in range(links):
        made.append(made[-1] + x)
    return functools.reduce(add, reversed(made))


def _unchanged(y: Tensor, x: Tensor) -> Tensor:
    return y


def _branched(y: Tensor, x: Tensor) -> Tensor:
    """Makes three operations, two of which can run at the same time.

    A lone operation would never wait for another thread.
    """
    return tanh(y) + sin(y)


def _added(y: Tensor, x: Tensor) -> Tensor:
    return y + x


def _multiplied(y: Tensor, x: Tensor) -> Tensor:
    """Multiplies y [outer, inner, row, column] by x, along the columns of y and the rows of x."""
    w = rename_dimension(rename_dimension(x, "column", "next"), "row", "column")
    kept = [d for d in y.shape if d.name != "column"]
    return rename_dimension(einsum([y, w], [*kept, w.shape.get_dim_by_name("next")]), "next", "column")


def _convolved(channels: int) -> _Link:
    """Makes a link of two convolutions of [outer, inner, height, width, in]: to `channels` channels, and back."""
    made, window = Dimension("out", channels), [Dimension("filter_height", 3), Dimension("filter_width", 3)]

    def link(y: Tensor, x: Tensor) -> Tensor:
        own = y.shape.dims[-1]
        return conv2d(conv2d(y, ones(y.mesh, [*window, own, made])), ones(y.mesh, [*window, made, own]))

    return link


def _curved(y: Tensor, x: Tensor) -> Tensor:
    return exp(tanh(y))


def _few_rows(x: Tensor, links: int) -> Tensor:
    """Multiplies a few rows of x [outer, inner, row, column] by all of x, repeatedly."""
    w = rename_dimension(rename_dimension(x, "column", "next"), "row", "column")
    y = sliced(x, 0, _FEW, "row")
    for _ in range(links):
        kept = [d for d in y.shape if d.name != "column"]
        y = rename_dimension(einsum([y, w], [*kept, w.shape.get_dim_by_name("next")]), "next", "column")
    return y


def _drawn(y: Tensor, x: Tensor) -> Tensor:
    return y + random_uniform(y.mesh, y.shape)


def _summed_in_pairs(y: Tensor, x: Tensor) -> Tensor:
    return x + reduce_sum(y, reduced_dim="inner")


def _summed(y: Tensor, x: Tensor) -> Tensor:
    return x + reduce_sum(reduce_sum(y, reduced_dim="inner"), reduced_dim="outer")
