"""Elements of a tensor at indices along named dimensions: `x["n", 1:-1:2]`."""

from __future__ import annotations

from collections.abc import Iterable

from meshtf.dimension import Dimension
from meshtf.graph.tensor import Tensor
from meshtf.ops.indexing.gather import gather
from meshtf.ops.named_indices.picks import Pick, picked_shape, picks
from meshtf.ops.rearranging.concat_and_slice import pad, slice
from meshtf.ops.reductions.downsampling import stride_tensor_1d
from meshtf.ops.windows.shift import reverse


def take(x: Tensor, brackets: object) -> Tensor:
    """`x[...]` for the brackets; see `meshtf.tensor_face.indexing`."""
    return taken(x, picks(x, brackets))


def taken(x: Tensor, chosen: Iterable[Pick]) -> Tensor:
    """The elements of x that a plan chooses."""
    for pick in chosen:
        if isinstance(pick.index, range):
            x = _elements(x, pick.dim, pick.index)
        else:
            x = gather(x, pick.index, pick.dim, output_shape=picked_shape(x.shape, [pick]))
    return x


def _elements(x: Tensor, dim: Dimension, places: range) -> Tensor:
    if places.step < 0:
        return reverse(_elements(x, dim, places[::-1]), dim.name)
    if len(places) < 2 or places.step == 1:
        return slice(x, places.start if places else 0, len(places), dim.name)
    # Segments have the length of the step, and each begins with an element that is kept. The last may be too short.
    size = len(places) * places.step
    there = min(size, dim.size - places.start)
    segments = pad(slice(x, places.start, there, dim.name), [0, size - there], dim.name, pad_value=None)
    return stride_tensor_1d(segments, dim.name, places.step)
