"""Seconds of one piece of work, and of one collective, on a machine."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from meshtf.costs.machine import Machine, TorusLinks
from meshtf.costs.placement import Extent, Footprint, Placement
from meshtf.layout import Axes
from meshtf.planning.local_work.work_facts import MatrixProduct

RANDOM_BITS_OPERATIONS = 100
"""Integer operations for one element of random bits: twenty rounds of Threefry, and what makes of them a number."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Local work of one core, once.

    Attributes:
      flops: of all of it; those of products are among them.
      bytes_moved: read and written, through the core's memory.
      dtype: by its name.
      products: of matrices, that it is.
      transcendentals: exponentials, logarithms, sines and the like; they are among the flops.

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


def seconds_of(work: Work, machine: Machine) -> float:
    """Seconds of local work: the longer of computing and of moving bytes, and what each operation takes besides.

    A product is done in whole tiles of the machine's, at a share of its peak, when its operands stand in the order that
    it needs. (Roofline model, Williams et al. 2009.)
    """
    moving, preparing = machine.seconds_of_moving(work.bytes_moved), 0.0
    if work.products:
        peak = machine.peak_of(work.dtype) * machine.product_efficiency
        computing = sum(_tiled_flops(product, machine) for product in work.products) / peak
        moving = max(moving, work.bytes_moved / machine.product_bandwidth)
        if not machine.fuses:
            size = tf.as_dtype(work.dtype).size
            preparing = sum(machine.seconds_of_moving(2 * product.transposed * size) for product in work.products)
        preparing += machine.convolution_seconds * sum(product.is_convolution for product in work.products)
    else:
        computing = work.flops / machine.vector_flops + work.transcendentals / machine.transcendental_flops
    return preparing + max(computing, moving) + machine.operation_seconds


def collective_seconds(kind: str, slice_bytes: int, axes: Axes, placement: Placement) -> float:
    """Seconds of a collective among the cores that differ along mesh axes, while all other groups do the same.

    Args:
      kind: "all_gather", "reduce_scatter", "all_reduce" or "all_to_all".
      slice_bytes: of what each core gives.
      axes: of the mesh.
      placement: of the mesh on a machine.

    On a torus a group's bytes go along all its axes at once, both ways round a ring, in as many parts; an alltoall is
    as slow as the links across the middle of its longest axis; an allreduce of few bytes goes round once and not twice,
    each core summing what all have. On a network a collective goes level by level.
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
    """Seconds of moving each core's slice to another core, all at once, as far as the farthest."""
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


def _tiled_flops(product: MatrixProduct, machine: Machine) -> float:
    """With those of the places by which tiles overhang; rows and columns stand as they fill the tiles better."""
    across, down, deep = machine.product_tile
    contracted = _whole(product.contracted, deep)
    one = _whole(product.rows, across) * _whole(product.columns, down)
    other = _whole(product.columns, across) * _whole(product.rows, down)
    return 2.0 * product.batch * min(one, other) * contracted


def _whole(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _passes(kind: str) -> int:
    """How often the bytes of a whole group's tensor go through each core's memory."""
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
    received = whole * (chips - 1) / chips * footprint.groups_per_chip
    return _passes(kind) * received / (ways * bandwidth)


def _once_round_seconds(whole: float, footprint: Footprint, machine: Machine, links: TorusLinks) -> float:
    """Of an allreduce in which, axis by axis, each core is sent what all of its row have, and sums it itself: half the
    hops, and many times the bytes. (Short vectors in Thakur et al. 2005.)"""
    bandwidth = links.bandwidth * machine.link_efficiency
    memory = machine.memory_bandwidth * machine.memory_efficiency
    seconds = 0.0
    for extent in footprint.extents:
        received = whole * (extent.chips - 1) * footprint.groups_per_chip
        moving = received / ((2 if extent.is_ring else 1) * bandwidth)
        seconds += max(moving, whole * extent.chips / memory) + _hops(extent) * links.hop_seconds
    return seconds if footprint.extents else math.inf


def _across_the_middle(extent: Extent) -> float:
    """Of what a chip sends to all of a row, how much goes over each link in its middle: half of what half of them
    send, over the links that there are."""
    return extent.chips / (8 if extent.is_ring else 4)


def _network_seconds(kind: str, whole: float, footprint: Footprint, machine: Machine) -> float:
    seconds, within = 0.0, 1
    for level, parts in footprint.levels:
        bandwidth = level.bandwidth * machine.link_efficiency
        if parts > 1:
            share = (parts - 1) / parts
            # Of a level further out each core sends its share of what its part of the group has in common.
            own = whole * share if kind == "all_to_all" or within == 1 else whole * share / within
            seconds += _passes(kind) * own / bandwidth
        within *= parts
    return seconds


def _latency(kind: str, footprint: Footprint, machine: Machine) -> float:
    if isinstance(machine.links, TorusLinks):
        return _passes(kind) * sum(map(_hops, footprint.extents)) * machine.links.hop_seconds
    return sum(_passes(kind) * (parts - 1) * level.latency_seconds for level, parts in footprint.levels)


def _hops(extent: Extent) -> int:
    """Between the chips of a row that are farthest apart."""
    return extent.chips // 2 if extent.is_ring else extent.chips - 1
