"""Random brackets, and which elements they mean by NumPy's arithmetic."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np

import meshtf as mtf

MESHES = ["rows:1", "rows:2;cols:2", "cores:4", "rows:2;cols:3"]


@dataclasses.dataclass
class Brackets:
    """The shape of x, and for some of its dimensions a number, a slice, or an index tensor: its shape and values."""

    shape: mtf.Shape
    indices: dict[str, Any]

    @property
    def index_inputs(self) -> dict[str, Any]:
        return {f"of_{name}": given for name, given in self.indices.items() if isinstance(given, tuple)}

    def key(self, tensors: dict[str, mtf.Tensor]) -> dict[str, Any]:
        return {name: tensors.get(f"of_{name}", given) for name, given in self.indices.items()}

    def numbers(self, rng: random.Random, shape: mtf.Shape) -> np.ndarray:
        return np.array([float(rng.randint(-9, 9)) for _ in range(shape.size)]).reshape(shape.to_integer_list)


def brackets_of(rng: random.Random) -> Brackets:
    """Up to three dimensions of sizes 1 to 6, one or two of them indexed."""
    shape = mtf.Shape([(name, rng.randint(1, 6)) for name in "abc"[: rng.randint(1, 3)]])
    names = rng.sample(shape.dimension_names, rng.randint(1, min(2, shape.ndims)))
    kept = [d for d in shape if d.name not in names]
    return Brackets(shape, {name: _index(rng, shape.get_dim_by_name(name).size, kept) for name in names})


def _index(rng: random.Random, size: int, kept: list[mtf.Dimension]) -> Any:
    kind = rng.choice(["number", "slice", "slice", "tensor", "tensor"])
    if kind == "number":
        return rng.randint(-size, size - 1)
    if kind == "slice":
        ends = [rng.choice([None, rng.randint(-size, size)]) for _ in range(2)]
        return slice(*ends, rng.choice([None, 1, 2, 3, -1, -2]))
    own = mtf.Shape([*rng.sample(kept, rng.randint(0, len(kept))), *rng.choice([[], [("i", 3)], [("j", 2)]])])
    values = np.array([rng.randint(-1, size) for _ in range(own.size)], np.int32)  # some are outside
    return own, values.reshape(own.to_integer_list)


def coordinates(drawn: Brackets) -> tuple[np.ndarray, np.ndarray, mtf.Shape]:
    """For each element of the result its position in x, flat, and whether it is inside; and the result's shape."""
    dims: list[Any] = []
    for dim in drawn.shape:
        given = drawn.indices.get(dim.name, slice(None))
        if isinstance(given, slice):
            dims.append((dim.name, len(range(dim.size)[given])))
        if isinstance(given, tuple):
            dims += [d for d in given[0] if not drawn.shape.has(d) and d not in dims]
    result = mtf.Shape(dims)
    along = [_along(drawn.indices.get(d.name, slice(None)), d, result) for d in drawn.shape]
    is_inside = np.ones(result.to_integer_list, bool)
    for index, dim in zip(along, drawn.shape, strict=True):
        is_inside &= (index >= 0) & (index < dim.size)
    clipped = [np.clip(index, 0, dim.size - 1) for index, dim in zip(along, drawn.shape, strict=True)]
    flat = np.ravel_multi_index(tuple(clipped), tuple(drawn.shape.to_integer_list))
    return flat, is_inside, result


def _along(given: Any, dim: mtf.Dimension, result: mtf.Shape) -> np.ndarray:
    """The index along one dimension of x, for each element of the result."""
    if isinstance(given, tuple):
        own, values = given
        order = [own.axis(d.name) for d in result if own.has(d)]
        sizes = [d.size if own.has(d) else 1 for d in result]
        return np.broadcast_to(values.transpose(order).reshape(sizes), result.to_integer_list)
    whole = np.arange(dim.size)[given]
    sizes = [d.size if d.name == dim.name and np.ndim(whole) else 1 for d in result]
    return np.broadcast_to(whole.reshape(sizes), result.to_integer_list)
