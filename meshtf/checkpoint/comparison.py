"""Finds the differences of two checkpoints."""

from __future__ import annotations

import dataclasses

import numpy as np

from meshtf.checkpoint.formats.tensor_source import TensorSource, parts_of


@dataclasses.dataclass(frozen=True)
class TensorDifference:
    """The difference of a tensor's values.

    Attributes:
      num_different: how many elements differ. Two NaNs count as equal.
      largest: the largest difference of two elements. Infinite if only one of them is finite.
      num_elements: how many elements the tensor has.
    """

    num_different: int
    largest: float
    num_elements: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The differences of a first and a second checkpoint, by name."""

    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    other_form: tuple[str, ...]
    differences: dict[str, TensorDifference]
    num_equal: int

    @property
    def are_equal(self) -> bool:
        return not (self.only_first or self.only_second or self.other_form or self.differences)


def compare(first: TensorSource, second: TensorSource, tolerance: float = 0.0) -> Comparison:
    """Compares the names, shapes, types and values of two sources. Reads the values part by part.

    Args:
      first: the first source.
      second: the second source.
      tolerance: a tensor counts as equal if no element differs by more.
    """
    shared = [name for name in first.tensors if name in second.tensors]
    alike = [name for name in shared if str(first.tensors[name]) == str(second.tensors[name])]
    differences = {name: _difference(first, second, name) for name in alike}
    differing = {name: d for name, d in differences.items() if d.num_different and d.largest > tolerance}
    return Comparison(
        tuple(name for name in first.tensors if name not in second.tensors),
        tuple(name for name in second.tensors if name not in first.tensors),
        tuple(name for name in shared if name not in alike),
        differing,
        len(alike) - len(differing),
    )


def _difference(first: TensorSource, second: TensorSource, name: str) -> TensorDifference:
    tensor = first.tensors[name]
    number, largest, elements = 0, 0.0, 0
    for box in parts_of(tensor):
        a, b = (source.read(name, box).numpy() for source in (first, second))
        different = (a != b) & ~((a != a) & (b != b))
        number += int(different.sum())
        elements += different.size
        if different.any():
            largest = max(largest, _largest_distance(a[different], b[different]))
    return TensorDifference(number, largest, elements)


def _largest_distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance of two elements. It is exact for integers, also for those that no float holds."""
    if a.dtype.kind in "iu":
        larger, smaller = np.maximum(a, b), np.minimum(a, b)
        return float((larger.astype(np.uint64) - smaller.astype(np.uint64)).max())  # modulo 2^64
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        distance = np.abs(a.astype(wide) - b.astype(wide))
    return float(np.nan_to_num(distance, nan=np.inf, posinf=np.inf).max())
