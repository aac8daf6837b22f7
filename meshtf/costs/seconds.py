"""The cost model: seconds of one piece of work, and of one collective, on a machine.

Work takes the longer of two times: computing its FLOPs, and moving its bytes (roofline model, Williams et al. 2009). On
a core with 100 TFLOP/s and 1 TB/s, the product of two bfloat16 matrices [1024, 1024] has 2.15 GFLOP and moves 6.3 MB.
Computing takes 21 us and moving 6 us, so the product takes 21 us. With 64 rows in the first matrix, computing takes 1.3
us and moving 2.4 us, so the product takes 2.4 us.

A collective takes the longer of sending its bytes over the slowest links and moving them through memory, and then its
latency. An allgather among n cores of a ring with links of b bytes per second brings each core whole * (n - 1) / n
bytes from both sides, so it sends for whole * (n - 1) / n / (2 * b) seconds.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from meshtf.costs.machine import Machine, TorusLinks
from meshtf.costs.placement import Extent, Footprint, Placement
from meshtf.layout import Axes
from meshtf.planning.local_work.work_facts import MatrixProduct

RANDOM_BITS_OPERATIONS = 100
"""Integer operations for one element of random bits: twenty rounds of Threefry, and the conversion to a number."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Local work of one core, done once.

    Attributes:
      flops: all FLOPs, with those of products.
      bytes_moved: bytes read and written in the core's memory.
      dtype: the name of its dtype.
      products: the matrix products in it.
      transcendentals: exponentials, logarithms, sines and the like, which are among the FLOPs.
      has_kernel: whether one of the platform's own kernels does it, if the machine has such kernels.

    Examples:
      >>> product = mtf.costs.MatrixProduct(batch=1, rows=4096, columns=4096, contracted=4096)
      >>> work = mtf.costs.Work(product.flops, 3 * 4096 * 4096 * 2, "bfloat16", (product,))
      >>> round(1e3 * mtf.costs.seconds_of(work, mtf.costs.load_machine("v3")), 1)
      2.6
    """

    flops: int
    bytes_moved: int
    dtype: str
    products: tuple[MatrixProduct, ...] = ()
    transcendentals: int = 0
    has_kernel: bool = False


def seconds_of(work: Work, machine: Machine) -> float:
    """Computes the seconds of local work: the longer of computing and moving bytes, and the additional time of an
    operation.

    A product is computed in whole tiles of the machine, at a share of its peak, and more slowly if its rows are not
    aligned. Operands in another memory order are transposed first. A product that is a separate kernel writes its
    result after it has computed it, and not meanwhile. A platform's own kernel has its own share of the peak. (Roofline
    model, Williams et al. 2009.)
    """
    moving, preparing = machine.seconds_of_moving(work.bytes_moved), 0.0
    if work.products:
        size = tf.as_dtype(work.dtype).size
        computing = sum(_computing(product, size, machine) for product in work.products) / machine.peak_of(work.dtype)
        moving = max(moving, work.bytes_moved / machine.product_bandwidth)
        preparing = sum(_preparing(product, size, machine) for product in work.products)
        if not machine.products_fuse:
            preparing += _written_apart(work, size, machine)
    elif work.has_kernel and machine.kernel_platform:
        computing = work.flops / (machine.peak_of(work.dtype) * machine.kernel_efficiency)
    else:
        computing = work.flops / machine.vector_flops + work.transcendentals / machine.transcendental_flops
    return preparing + max(computing, moving) + machine.operation_seconds


def collective_seconds(kind: str, slice_bytes: int, axes: Axes, placement: Placement) -> float:
    """Computes the seconds of a collective among the cores that differ along mesh axes, while all other groups do the
    same.

    Args:
      kind: "all_gather", "reduce_scatter", "all_reduce" or "all_to_all".
      slice_bytes: bytes of each core's input slice.
      axes: the mesh axes.
      placement: the mesh on a machine.

    On a torus a group's bytes are divided among all its axes and, on a ring, both directions. They move along all of
    these at once. An alltoall is as slow as the links across the middle of its longest axis. An allreduce of few bytes
    goes round once and not twice: each core receives the slices of all cores, and sums them. On a network, a collective
    goes level by level.
    """
    footprint, machine = placement.footprint(axes), placement.machine
    if footprint.members == 1:
        return 0.0
    whole = slice_bytes * (footprint.members if kind == "all_gather" else 1)
    if isinstance(machine.links, TorusLinks):
        moving = _torus_seconds(kind, whole, footprint, machine, machine.links)
    else:
        moving = _network_seconds(kind, whole, footprint, machine)
    in_memory = _passes(kind) * machine.seconds_of_moving(whole)
    seconds = max(moving, in_memory) + _latency(kind, footprint, machine)
    if kind == "all_reduce" and isinstance(machine.links, TorusLinks):
        seconds = min(seconds, _once_round_seconds(whole, footprint, machine, machine.links))
    return seconds + machine.collective_seconds


def permute_seconds(slice_bytes: int, destinations: tuple[int, ...], placement: Placement) -> float:
    """Computes the seconds in which all cores send their slices to other cores at once. The farthest core determines
    the hops."""
    machine, links, hops = placement.machine, placement.machine.links, placement.hops(destinations)
    if all(core == destination for core, destination in enumerate(destinations)):
        return 0.0
    in_memory = machine.seconds_of_moving(2 * slice_bytes)
    if isinstance(links, TorusLinks):
        moving = slice_bytes * links.cores_per_chip * hops / (links.bandwidth * machine.link_efficiency)
        latency = hops * links.hop_seconds
    else:
        level = links[min(hops, len(links)) - 1]
        moving, latency = slice_bytes / (level.bandwidth * machine.link_efficiency), level.latency_seconds
    return max(moving, in_memory) + latency + machine.collective_seconds


def _computing(product: MatrixProduct, size: int, machine: Machine) -> float:
    """Returns the FLOPs that take as long at the peak as the product takes. `size`: the bytes of a number."""
    efficiency = machine.product_efficiency
    sides = (product.rows, product.columns, product.contracted)
    if not product.is_convolution and any(n > 1 and n * size % machine.product_alignment for n in sides):
        efficiency *= machine.unaligned_efficiency
    return _tiled_flops(product, machine) / efficiency


def _preparing(product: MatrixProduct, size: int, machine: Machine) -> float:
    """Returns the seconds in which a product starts, and in which operands in another memory order are transposed."""
    seconds = machine.product_seconds + machine.convolution_seconds * product.is_convolution
    if not machine.fuses:
        seconds += machine.seconds_of_moving(2 * product.transposed * size)
    return seconds


def _written_apart(work: Work, size: int, machine: Machine) -> float:
    """Returns the seconds in which kernels of a GPU's library move bytes but do not compute.

    The last blocks of a product are written when no block is left to compute. A float32 convolution moves all its
    tensors to another order: XLA keeps them with the channels first (its layout assignment), and the library multiplies
    them with the channels last.
    """
    moved = sum(product.batch * product.rows * product.columns * size for product in work.products)
    if work.dtype == "float32" and any(product.is_convolution for product in work.products):
        moved += 2 * work.bytes_moved
    return machine.seconds_of_moving(moved)


def _tiled_flops(product: MatrixProduct, machine: Machine) -> float:
    """Returns the FLOPs of a product in whole tiles. Rows and columns are exchanged if this fills the tiles better."""
    across, down, deep = machine.product_tile
    contracted = _whole(product.contracted, deep)
    one = _whole(product.rows, across) * _whole(product.columns, down)
    other = _whole(product.columns, across) * _whole(product.rows, down)
    return 2.0 * product.batch * min(one, other) * contracted


def _whole(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _passes(kind: str) -> int:
    """Returns how often the bytes of a whole group's tensor go through each core's memory."""
    return 2 if kind == "all_reduce" else 1


def _torus_seconds(kind: str, whole: float, footprint: Footprint, machine: Machine, links: TorusLinks) -> float:
    bandwidth = links.bandwidth * machine.link_efficiency
    chips = math.prod(e.chips for e in footprint.extents)
    if chips == 1:
        return 0.0
    if kind == "all_to_all":
        of_a_chip = whole * links.cores_per_chip
        return max(of_a_chip * _across_the_middle(e) for e in footprint.extents) / bandwidth
    ways = sum(2 if e.is_ring else 1 for e in footprint.extents)
    # Each chip has its own part already, and receives the parts of the others.
    received = whole * (chips - 1) / chips * footprint.groups_per_chip
    return _passes(kind) * received / (ways * bandwidth)


def _once_round_seconds(whole: float, footprint: Footprint, machine: Machine, links: TorusLinks) -> float:
    """Returns the seconds of an allreduce that goes round once.

    Axis by axis, each core receives the slices of all cores in its row, and sums them itself. This takes half the hops,
    and many times the bytes. (Short vectors in Thakur et al. 2005.)
    """
    bandwidth = links.bandwidth * machine.link_efficiency
    memory = machine.memory_bandwidth * machine.memory_efficiency
    seconds = 0.0
    for extent in footprint.extents:
        received = whole * (extent.chips - 1) * footprint.groups_per_chip
        moving = received / ((2 if extent.is_ring else 1) * bandwidth)
        seconds += max(moving, whole * extent.chips / memory) + _hops(extent) * links.hop_seconds
    return seconds if footprint.extents else math.inf


def _across_the_middle(extent: Extent) -> float:
    """Returns the share of a chip's bytes to its row that goes over each link in the middle of the row.

    Half of the chips send half of their bytes to the other half. On a line of n chips the one link in the middle gets n
    / 4 times a chip's bytes. On a ring two links share this in each direction.
    """
    return extent.chips / (8 if extent.is_ring else 4)


def _network_seconds(kind: str, whole: float, footprint: Footprint, machine: Machine) -> float:
    seconds, within = 0.0, 1
    for level, parts in footprint.levels:
        bandwidth = level.bandwidth * machine.link_efficiency
        if parts > 1:
            share = (parts - 1) / parts
            # On an outer level, the cores of one part have the same data, so each core sends its share of the data.
            own = whole * share if kind == "all_to_all" or within == 1 else whole * share / within
            seconds += _passes(kind) * own / bandwidth
        within *= parts
    return seconds


def _latency(kind: str, footprint: Footprint, machine: Machine) -> float:
    if isinstance(machine.links, TorusLinks):
        return _passes(kind) * sum(map(_hops, footprint.extents)) * machine.links.hop_seconds
    return sum(_passes(kind) * (parts - 1) * level.latency_seconds for level, parts in footprint.levels)


def _hops(extent: Extent) -> int:
    """Returns the hops between the two chips of a row that are farthest apart."""
    return extent.chips // 2 if extent.is_ring else extent.chips - 1
