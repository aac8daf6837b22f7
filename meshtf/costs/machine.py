"""The description of a machine's speed: how fast a core computes and reads its memory, and how cores are linked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import gin

from meshtf.errors import MachineError

_EFFICIENCIES = tuple(f"{what}_efficiency" for what in ("product", "unaligned", "kernel", "memory", "link"))
_DTYPES = ("float64", "float32", "bfloat16", "float16", "int32", "int8")


@gin.configurable(module="meshtf")
@dataclasses.dataclass(frozen=True)
class TorusLinks:
    """The links between the chips of a TPU: each chip has links to its neighbours along every axis of a torus.

    Attributes:
      axes: how many axes the torus has: 2 or 3.
      cores_per_chip: how many cores, as programs see them, share a chip's links.
      bandwidth: bytes per second of one link in one direction.
      hop_seconds: seconds that a message takes from chip to chip.
      ring_from: the least number of chips along an axis whose two ends are linked as well.
    """

    axes: int
    cores_per_chip: int
    bandwidth: float
    hop_seconds: float
    ring_from: int = 4

    def __post_init__(self) -> None:
        if not _is_integer(self.axes) or self.axes not in (2, 3):
            raise MachineError(f"TorusLinks.axes is 2 or 3, and not {self.axes!r}")
        if not _is_integer(self.cores_per_chip) or self.cores_per_chip not in (1, 2):
            raise MachineError(f"TorusLinks.cores_per_chip is 1 or 2, and not {self.cores_per_chip!r}")
        if not _is_integer(self.ring_from) or self.ring_from < 1:
            raise MachineError(f"TorusLinks.ring_from is a positive number of chips, and not {self.ring_from!r}")
        _check_positive(self, "bandwidth")
        _check_not_negative(self, "hop_seconds")


@gin.configurable(module="meshtf")
@dataclasses.dataclass(frozen=True)
class NetworkLevel:
    """A level of a network, such as the links between devices of one host, or between hosts.

    Attributes:
      cores: how many cores it joins. None: all.
      bandwidth: bytes per second that each core can send through it, in one direction, while all cores send.
      latency_seconds: seconds of latency of a message.
    """

    cores: int | None
    bandwidth: float
    latency_seconds: float

    def __post_init__(self) -> None:
        if self.cores is not None and (not _is_integer(self.cores) or self.cores < 1):
            raise MachineError(f"NetworkLevel.cores is a positive number of cores or None, and not {self.cores!r}")
        _check_positive(self, "bandwidth")
        _check_not_negative(self, "latency_seconds")


@gin.configurable(module="meshtf")
@dataclasses.dataclass(frozen=True)
class Machine:
    """The speed of a machine. All figures are for one core of the mesh, unless cores are virtual.

    Attributes:
      name: its usual name.
      source: the source of its figures.
      peak_flops: floating-point operations per second of matrix products, by dtype. A dtype that is missing counts as
        the slowest one.
      memory_bytes: bytes of a core's memory.
      memory_bandwidth: bytes per second between a core and its memory.
      cache_bytes: bytes of the largest cache. An operation uses it if everything that it reads and writes fits into it.
        0 if every operation goes to memory.
      cache_bandwidth: bytes per second between a core and that cache.
      links: a torus, or levels of a network from the innermost outwards.
      vector_flops: operations per second of elementwise work.
      transcendental_flops: exponentials, logarithms, sines and the like per second. Infinite if they take no longer
        than other elementwise work.
      product_bandwidth: bytes per second at which matrix products read and write. Infinite if only the memory limits
        them. Libraries for processors copy operands into blocks before they multiply (Goto and van de Geijn 2008).
      product_efficiency: the share of the peak that large products reach.
      product_tile: (rows, columns, contracted): products are computed in whole blocks of these sizes.
      product_seconds: seconds that each product takes in addition to `operation_seconds`.
      product_alignment: bytes. A product is slower if the bytes of a row of one of its matrices are not a multiple of
        this.
      unaligned_efficiency: the share of a product's speed that is left if it is not aligned.
      kernel_platform: XLA's name of the platform whose own kernels programs may use, such as "cuda"; "" if it has none.
      kernel_efficiency: the share of the peak that one of the platform's own kernels reaches, such as fused attention.
      memory_efficiency: the share of the memory's bandwidth that long reads reach.
      link_efficiency: the share of the links' bandwidth that long messages reach.
      step_seconds: seconds that every step takes in addition.
      operation_seconds: seconds that each operation takes in addition.
      convolution_seconds: seconds that each convolution takes in addition to `operation_seconds`.
      collective_seconds: seconds that each collective takes in addition to its hops.
      fuses: whether chains of elementwise work take one pass over memory (XLA), or each operation takes one.
      products_fuse: whether such a chain also includes the product whose result it reads or whose operand it makes, as
        on a TPU. On a GPU a product is a kernel of a library, which reads its operands from memory and writes its
        result there.
      host_bandwidth: bytes per second at which a core receives its part of a step's inputs from its host's memory.
        Infinite if they are on the core already.
      overlaps: whether collectives run while a core computes work that does not wait for them.
      processors: for virtual cores, the number of real ones. Then the figures are for all real cores together, and the
        cores of a mesh have equal shares. None if cores are real.

    Examples:
      >>> machine = mtf.costs.load_machine("v5p")
      >>> machine.peak_flops["bfloat16"]
      459000000000000.0
      >>> dataclasses.replace(machine, product_efficiency=0.5).name
      'v5p'
    """

    name: str
    source: str
    peak_flops: Mapping[str, float]
    memory_bytes: float
    memory_bandwidth: float
    links: TorusLinks | tuple[NetworkLevel, ...]
    cache_bytes: float = 0.0
    cache_bandwidth: float = math.inf
    vector_flops: float = math.inf
    transcendental_flops: float = math.inf
    product_bandwidth: float = math.inf
    product_efficiency: float = 1.0
    product_tile: tuple[int, int, int] = (1, 1, 1)
    product_seconds: float = 0.0
    product_alignment: int = 1
    unaligned_efficiency: float = 1.0
    kernel_platform: str = ""
    kernel_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    link_efficiency: float = 1.0
    step_seconds: float = 0.0
    operation_seconds: float = 0.0
    convolution_seconds: float = 0.0
    collective_seconds: float = 0.0
    fuses: bool = False
    products_fuse: bool = True
    host_bandwidth: float = math.inf
    overlaps: bool = False
    processors: int | None = None

    def __post_init__(self) -> None:
        _check_texts(self, "name", "source")
        _check_flags(self, "fuses", "products_fuse", "overlaps")
        self._check_peaks()
        _check_positive(self, "memory_bytes", "memory_bandwidth")
        _check_positive(self, "cache_bandwidth", "vector_flops", "transcendental_flops", "product_bandwidth")
        _check_positive(self, "host_bandwidth")
        _check_not_negative(self, "cache_bytes", "step_seconds", "operation_seconds")
        _check_not_negative(self, "product_seconds", "convolution_seconds", "collective_seconds")
        if not _is_integer(self.product_alignment) or self.product_alignment < 1:
            raise MachineError(f"Machine.product_alignment is a positive integer, and not {self.product_alignment!r}")
        if self.kernel_platform not in ("", "cuda"):
            raise MachineError(f'Machine.kernel_platform is "cuda" or empty, and not {self.kernel_platform!r}')
        for name in _EFFICIENCIES:
            _check_positive(self, name)
            if getattr(self, name) > 1:
                raise MachineError(f"Machine.{name} is a share, at most 1, and not {getattr(self, name)!r}")
        tile = self.product_tile
        if not isinstance(tile, tuple) or len(tile) != 3 or not all(_is_integer(n) and n > 0 for n in tile):
            raise MachineError(f"Machine.product_tile is three positive integers, and not {tile!r}")
        if not isinstance(self.links, TorusLinks):
            self._check_levels(self.links)
        if self.processors is not None and isinstance(self.links, TorusLinks):
            raise MachineError("Machine.processors is for virtual cores, which no torus connects")
        if self.processors is not None and (not _is_integer(self.processors) or self.processors < 1):
            raise MachineError(f"Machine.processors is a positive number or None, and not {self.processors!r}")

    def peak_of(self, dtype: str) -> float:
        """Returns the floating-point operations per second of products in a dtype."""
        if dtype in self.peak_flops:
            return self.peak_flops[dtype]
        return min(self.peak_flops.values())

    def seconds_of_moving(self, bytes_moved: float) -> float:
        """Returns the seconds in which one operation reads and writes its bytes, through the cache if they all
        fit into it.
        """
        if bytes_moved <= self.cache_bytes:
            return bytes_moved / self.cache_bandwidth
        return bytes_moved / (self.memory_bandwidth * self.memory_efficiency)

    def shared_by(self, cores: int) -> Machine:
        """Returns the machine as seen by one of `cores` cores: its share if cores are virtual, else the machine
        itself."""
        if self.processors is None:
            return self
        return dataclasses.replace(
            self,
            processors=None,
            peak_flops={dtype: flops / cores for dtype, flops in self.peak_flops.items()},
            memory_bytes=self.memory_bytes / cores,
            memory_bandwidth=self.memory_bandwidth / cores,
            cache_bytes=self.cache_bytes / self.processors,  # as many cores are at work at once
            cache_bandwidth=self.cache_bandwidth / cores,
            vector_flops=self.vector_flops / cores,
            transcendental_flops=self.transcendental_flops / cores,
            product_bandwidth=self.product_bandwidth / cores,
            operation_seconds=self.operation_seconds * cores / self.processors,
            convolution_seconds=self.convolution_seconds * cores / self.processors,
            links=tuple(dataclasses.replace(level, bandwidth=level.bandwidth / cores) for level in self._levels),
        )

    @property
    def _levels(self) -> tuple[NetworkLevel, ...]:
        assert not isinstance(self.links, TorusLinks)
        return self.links

    def _check_peaks(self) -> None:
        if not isinstance(self.peak_flops, Mapping) or not self.peak_flops:
            raise MachineError(f"Machine.peak_flops has a number for each dtype, and is {self.peak_flops!r}")
        for dtype, flops in self.peak_flops.items():
            if dtype not in _DTYPES:
                raise MachineError(f'Machine.peak_flops has no dtype "{dtype}"; there are {", ".join(_DTYPES)}')
            if not _is_number(flops) or not 0 < flops < math.inf:
                raise MachineError(f"Machine.peak_flops of {dtype} is a positive number, and not {flops!r}")

    def _check_levels(self, levels: Any) -> None:
        if not isinstance(levels, tuple | list) or not levels or not all(isinstance(x, NetworkLevel) for x in levels):
            raise MachineError(f"Machine.links is a TorusLinks, or a list of NetworkLevels, and not {levels!r}")
        object.__setattr__(self, "links", tuple(levels))
        sizes = [level.cores for level in levels]
        if sizes[-1] is not None or None in sizes[:-1] or sizes[:-1] != sorted(set(sizes[:-1])):
            raise MachineError(
                f"Machine.links has levels from the innermost outwards, each of more cores and the last of all (None), "
                f"not of {sizes}"
            )


def _check_texts(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, str) or not value:
            raise MachineError(f"{type(owner).__name__}.{name} is a text, not empty, and not {value!r}")


def _check_flags(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, bool):
            raise MachineError(f"{type(owner).__name__}.{name} is true or false, and not {value!r}")


def _check_positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not _is_number(value) or not value > 0:
            raise MachineError(f"{type(owner).__name__}.{name} is a positive number, and not {value!r}")


def _check_not_negative(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not _is_number(value) or not 0 <= value < math.inf:
            raise MachineError(f"{type(owner).__name__}.{name} is a number, not negative, and not {value!r}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
