"""Measures how fast this machine's GPUs run programs that XLA compiles: products by size, memory, starts, inputs, sums.

Each figure compares a short and a long program of the same kind: it is the difference of their times divided by the
difference of their work. This removes the fixed cost of a program. Many steps start before the host waits for the
first, so the host's time does not count. The time of a step whose result the host waits for is a separate figure.

For example, if a chain of 4 products takes 2 ms, and one of 12 products takes 5 ms, a product takes 0.375 ms.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.backends.gpu_mesh_impl import GpuMeshImpl
from meshtf.costs import Machine, NetworkLevel, load_machine
from meshtf.dimension import Dimension
from meshtf.function.function import Function, function
from meshtf.function.tensor_spec import TensorSpec
from meshtf.graph.tensor import Tensor
from meshtf.mesh_impl.host.host_memory import host_memory
from meshtf.mesh_impl.pjrt.kinds import GPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator
from meshtf.ops import cast, einsum, exp, ones, random_uniform, reduce_max, reduce_sum, rename_dimension
from meshtf.planning.local_work.work_facts import MatrixProduct

_FLOAT_BYTES = 4
_LEAST = 1e-9
"""The seconds reported for work that is too quick to measure."""

_LIKE = "h200"
"""The machine from which figures are copied that are not measured: vectors, tiles, alignment, cuDNN's attention, and
links of one GPU."""


@dataclasses.dataclass(frozen=True)
class GpuProbeSizes:
    """The sizes of the programs that are measured.

    Attributes:
      sides: the sides of the matrices that are multiplied, from small to large. The largest gives the peak, and the
        smallest the time that a product takes to begin.
      elements: the elements of arrays that are read and written.
      fed: the elements of an array that is passed to a step.
      chain: the number of operations in a short chain. A long one has three times as many.
      runs: the number of steps under way at once, and of comparisons.
    """

    sides: Sequence[int] = (256, 1024, 2048, 4096, 8192)
    elements: int = 1 << 27
    fed: int = 1 << 24
    chain: int = 8
    runs: int = 10


_SIZES = GpuProbeSizes()


def probe_gpus(
    sizes: GpuProbeSizes = _SIZES,
    on_step: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Machine:
    """Measures a description of this machine's GPUs, or of its virtual ones.

    Args:
      sizes: how much is measured.
      on_step: called with the name of the next measurement, and with the rates of products.
      clock: returns the time in seconds.

    Raises:
      DeviceError: no GPU is usable.
    """
    return _GpuProbe(sizes, on_step, clock).machine()


class _GpuProbe:
    def __init__(self, sizes: GpuProbeSizes, on_step: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._sizes, self._on_step, self._clock = sizes, on_step, clock
        self._one = GpuMeshImpl("all:1", "")
        self._count = len(accelerator(GPU, 1, None).cores)

    def machine(self) -> Machine:
        sizes, like = self._sizes, load_machine(_LIKE)
        self._on_step("operations")
        operation = self._each(_normalized, [Dimension("elements", 256)], 8 * sizes.chain)
        step = self._waited(self._program(_unchanged, [Dimension("elements", 1)], 1))
        self._on_step("memory")
        array = [Dimension("elements", sizes.elements)]
        one = self._each(_normalized, array, 2)
        bandwidth = 2 * _FLOAT_BYTES * sizes.elements / max(one - operation, _LEAST)
        self._on_step("products")
        peaks, starting = {}, 0.0
        for dtype in ("bfloat16", "float32"):
            seconds = {side: self._product(side, dtype) for side in sizes.sides}
            rates = [2 * side**3 / max(seconds[side] - operation, _LEAST) for side in sizes.sides]
            self._on_step(f"products in {dtype}: {_rates(sizes.sides, rates)} TFLOP/s")
            peaks[dtype] = max(rates)
            smallest = MatrixProduct(1, sizes.sides[0], sizes.sides[0], sizes.sides[0])
            starting = max(seconds[sizes.sides[0]] - operation - smallest.flops / peaks[dtype], 0.0)
        self._on_step("inputs")
        fed = self._waited(self._program(_unchanged, [Dimension("elements", sizes.fed)], 1))
        self._on_step("collectives" if self._count > 1 else "no collectives, since there is one GPU")
        latency, links = self._links()
        return Machine(
            name="probed",
            source=self._source(),
            peak_flops=peaks,
            memory_bytes=self._memory_bytes(),
            memory_bandwidth=bandwidth,
            vector_flops=like.vector_flops,
            product_tile=like.product_tile,
            product_alignment=like.product_alignment,
            unaligned_efficiency=like.unaligned_efficiency,
            kernel_platform=self._one.kernel_platform,
            kernel_efficiency=like.kernel_efficiency / like.product_efficiency,  # of the peak that products reach here
            product_seconds=starting,
            host_bandwidth=_FLOAT_BYTES * sizes.fed / max(fed - step, _LEAST),
            step_seconds=step,
            operation_seconds=operation,
            collective_seconds=latency,
            fuses=True,
            products_fuse=False,
            overlaps=True,
            links=links,
        )

    def _source(self) -> str:
        measured = f"measured by meshtf-probe on {time.strftime('%Y-%m-%d')}, {self._count} of {self._one.devices[0]}"
        text = f"{measured}; vectors, alignment and attention as {_LIKE}"
        return text if self._count > 1 else f"{text}; links as {_LIKE}, since there is one GPU"

    def _memory_bytes(self) -> float:
        cores = accelerator(GPU, 1, None).on(self._one.shape, None, ())
        return float(cores.memory_bytes or host_memory().available)

    def _links(self) -> tuple[float, tuple[NetworkLevel, ...]]:
        """Returns the seconds that an allreduce takes to start, and the links between GPUs."""
        like = load_machine(_LIKE)
        if self._count == 1:
            assert isinstance(like.links, tuple)
            return like.collective_seconds, like.links
        mesh = GpuMeshImpl(f"all:{self._count}", "all:all")
        cores = Dimension("all", self._count)
        few, many = (
            self._each(_summed, [cores, Dimension("elements", n)], self._sizes.chain, mesh)
            for n in (8, self._sizes.elements)
        )
        passed = 2 * _FLOAT_BYTES * self._sizes.elements * (self._count - 1) / self._count
        return few, (NetworkLevel(None, passed / max(many - few, _LEAST), 0.0),)

    def _product(self, side: int, dtype: str) -> float:
        """The seconds of a product of two square matrices."""
        sides = [Dimension("row", side), Dimension("column", side)]
        return self._each(_multiplied, sides, self._sizes.chain, dtype=tf.as_dtype(dtype))

    def _each(
        self,
        link: Callable[[Tensor, Tensor], Tensor],
        shape: Sequence[Dimension],
        links: int,
        mesh: GpuMeshImpl | None = None,
        dtype: tf.DType = tf.float32,
    ) -> float:
        """The seconds of one operation in a chain in which each reads the result of the one before."""
        short, long = (self._made_there(link, shape, n, mesh or self._one, dtype) for n in (links, 3 * links))
        pairs = [(self._under_way(short), self._under_way(long)) for _ in range(self._sizes.runs)]
        return max(statistics.median(b - a for a, b in pairs), 0.0) / (2 * links)

    def _made_there(
        self,
        link: Callable[[Tensor, Tensor], Tensor],
        shape: Sequence[Dimension],
        links: int,
        mesh: GpuMeshImpl,
        dtype: tf.DType,
    ) -> Function:
        """A program that makes its own first array on the GPU. It has run once already."""

        def program(seed: Tensor) -> Tensor:
            x = cast(random_uniform(seed.mesh, shape), dtype)
            y = functools.reduce(lambda y, _: link(y, x), range(links), x)
            return reduce_sum(cast(y, tf.float32)) + seed

        made = function(program, mesh, inputs={"seed": TensorSpec([])})
        made(seed=np.float32(0))
        return made

    def _program(
        self, link: Callable[[Tensor, Tensor], Tensor], shape: Sequence[Dimension], links: int
    ) -> Callable[[], object]:
        """A step that receives its first array from the host. It has run once already.

        The array is of NumPy, so it is copied to the GPU each time. A tensor would be copied only once.
        """

        def program(x: Tensor) -> Tensor:
            return reduce_sum(functools.reduce(lambda y, _: link(y, x), range(links), x))

        made = function(program, self._one, inputs={"x": TensorSpec(shape)})
        step = functools.partial(made, x=np.ones([d.size for d in shape], np.float32))
        step()
        return step

    def _under_way(self, step: Function) -> float:
        """The mean seconds of a step when several are started before the first is waited for."""
        began = self._clock()
        waiting = [step.start(seed=np.float32(0)) for _ in range(self._sizes.runs)]
        for wait in waiting:
            wait()
        return (self._clock() - began) / self._sizes.runs

    def _waited(self, step: Callable[[], object]) -> float:
        """The fewest seconds of a step whose result the host waits for."""
        return min(self._timed(step) for _ in range(self._sizes.runs))

    def _timed(self, step: Callable[[], object]) -> float:
        began = self._clock()
        step()
        return self._clock() - began


def _rates(sides: Sequence[int], rates: Sequence[float]) -> str:
    return ", ".join(f"{side}: {rate / 1e12:.3g}" for side, rate in zip(sides, rates, strict=True))


def _unchanged(y: Tensor, x: Tensor) -> Tensor:
    return y


def _normalized(y: Tensor, x: Tensor) -> Tensor:
    """Needs its own pass over the array: the next operation cannot begin before the maximum is known."""
    return exp(y - reduce_max(y, reduced_dim="elements"))


def _multiplied(y: Tensor, x: Tensor) -> Tensor:
    """Multiplies y [row, column] by x, along the columns of y and the rows of x, scaled to keep the same magnitude."""
    w = rename_dimension(rename_dimension(x, "column", "next"), "row", "column")
    row, scale = y.shape.get_dim_by_name("row"), 2.0 / math.sqrt(x.shape.dims[0].size)
    return rename_dimension(einsum([y, w * scale], [row, w.shape.get_dim_by_name("next")]), "next", "column")


def _summed(y: Tensor, x: Tensor) -> Tensor:
    """Adds x to the sum of y over all GPUs; all are [all, elements]."""
    return x + reduce_sum(y, reduced_dim="all") * ones(y.mesh, [y.shape.dims[0]])
