"""Converts tensors between another library and meshtf by rules. Each part is computed when it is read."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.conversion.axes import Region
from meshtf.checkpoint.conversion.names import Labels
from meshtf.checkpoint.conversion.rule import Side, TensorRule
from meshtf.checkpoint.formats.tensor_source import TensorSource, described
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError

_MOST_LINES = 20

_DOES_NOT_FIT = """\
{what} does not fit:
{lines}
{remedy}"""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The size of each axis of a model, and the labels of axes that have names instead of numbers."""

    axes: Mapping[str, int]
    labels: Labels


@dataclasses.dataclass(frozen=True)
class _Made:
    """A tensor that a rule makes, or a part of it: the sides of the rule, and the numbers in the tensor's name."""

    source: Side
    target: Side
    numbers: Mapping[str, int]


class ConvertedSource:
    """A `TensorSource` whose tensors are made by rules from those of another source.

    A `read` needs memory for its result, and for the part of the source that it reads.

    Args:
      source: the source whose tensors are read.
      rules: pairs (source, target).
      sizes: the sizes of the model.
      dtype: the dtype of floating tensors. None keeps the dtype of each.
      dtypes: the dtypes of tensors that need another one, by their new names.
      state: the state of the result. Its step is the source's.

    Attributes:
      missing: tensors that rules read but the source lacks.
      other_form: lines about tensors with another shape than the sizes require.
      unused: tensors of the source that no rule reads.
    """

    def __init__(
        self,
        source: TensorSource,
        rules: Sequence[tuple[Side, Side]],
        sizes: Sizes,
        dtype: tf.DType | None = None,
        dtypes: Mapping[str, tf.DType] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.step, self.state = source.step, state or {}
        self._source, self._sizes, self._dtype, self._dtypes = source, sizes, dtype, dtypes or {}
        self._made: dict[str, list[_Made]] = {}
        self.tensors: dict[str, SavedTensor] = {}
        self.missing: list[str] = []
        self.other_form: list[str] = []
        used: set[str] = set()
        for from_side, to_side in rules:
            used |= self._add(from_side, to_side)
        self.unused = [name for name in source.tensors if name not in used]

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it."""
        made, tensor = self._made[name], self.tensors[name]
        wanted = box or Box.whole(tensor.shape)
        value = self._joined(made, wanted) if made[0].target.axes.parts else self._single(made[0], wanted)
        return tf.cast(tf.constant(np.ascontiguousarray(value)), tensor.dtype)

    def _single(self, made: _Made, wanted: Box) -> np.ndarray:
        """A box of a tensor that one rule makes."""
        region = made.target.axes.region_of(wanted, self._sizes.axes)
        around, _ = made.target.axes.box_of(region, self._sizes.axes)
        return self._of_region(made, region).reshape(around.size)[wanted.relative_to(around).slices]

    def _joined(self, parts: Sequence[_Made], wanted: Box) -> np.ndarray:
        """A box of a tensor that several rules make, each a part."""
        found: np.ndarray | None = None
        for made in parts:
            region = made.target.axes.region_of(wanted, self._sizes.axes)
            if any(first >= end for first, end in region.values()):
                continue
            value = self._of_region(made, region)
            found = np.empty(wanted.size, value.dtype) if found is None else found
            places = [
                index - start
                for index, start in zip(made.target.axes.indices(region, self._sizes.axes), wanted.start, strict=True)
            ]
            inside = [(at >= 0) & (at < size) for at, size in zip(places, wanted.size, strict=True)]
            value = value.reshape([len(at) for at in places])[np.ix_(*inside)]
            found[np.ix_(*(at[own] for at, own in zip(places, inside, strict=True)))] = value
        assert found is not None
        return found

    def _of_region(self, made: _Made, region: Region) -> np.ndarray:
        """The values of a region, in the order of the target's axes."""
        region = {**region, **{axis: (number, number + 1) for axis, number in made.numbers.items()}}
        value, order = self._gathered(made, region)
        kept = [axis for axis in order if axis in made.target.axes.names]
        value = value.reshape([region[axis][1] - region[axis][0] for axis in kept])
        return value.transpose([kept.index(axis) for axis in made.target.axes.names])

    def _gathered(self, made: _Made, region: Region) -> tuple[np.ndarray, list[str]]:
        """The values of a region, read from all tensors of the source that have a part of it, and the order of axes."""
        side, axes = made.source, self._sizes.axes
        box, covered = side.axes.box_of(region, axes)
        inside = tuple(slice(region[a][0] - covered[a][0], region[a][1] - covered[a][0]) for a in side.axes.names)
        whole = [covered[axis][1] - covered[axis][0] for axis in side.axes.names]
        # Axes in the name, such as a layer's number, select the tensors. The other axes select a box of each.
        ranges = [range(*region[axis]) for axis in side.name.axes]
        parts = []
        for numbers in itertools.product(*ranges):
            name = side.name.at(dict(zip(side.name.axes, numbers, strict=True)), self._sizes.labels)
            read = self._source.read(name, box).numpy()
            if side.axes.parts:
                # The elements are interleaved with those of other rules, such as queries with keys and values.
                places = side.axes.indices(covered, axes)
                read = read[np.ix_(*(at - start for at, start in zip(places, box.start, strict=True)))]
            parts.append(read.reshape(whole)[inside])
        value = parts[0] if len(parts) == 1 else np.stack(parts)
        shape = [*map(len, ranges), *(region[axis][1] - region[axis][0] for axis in side.axes.names)]
        return value.reshape(shape), [*side.name.axes, *side.axes.names]

    def _add(self, from_side: Side, to_side: Side) -> set[str]:
        """Adds a rule. Returns the names of the tensors that it reads from the source."""
        axes, labels = self._sizes.axes, self._sizes.labels
        used: set[str] = set()
        shape = from_side.axes.shape(axes)
        for values in itertools.product(*(range(axes[axis]) for axis in to_side.name.axes)):
            numbers = dict(zip(to_side.name.axes, values, strict=True))
            shared = {axis: numbers[axis] for axis in from_side.name.axes if axis in numbers}
            sources = list(from_side.names(shared, axes, labels))
            used.update(sources)
            if not self._fit(sources, shape):
                continue
            name = to_side.name.at(numbers, labels)
            dtype = self._source.tensors[sources[0]].dtype
            if dtype.is_floating:
                dtype = self._dtypes.get(name, self._dtype or dtype)
            self.tensors[name] = described(to_side.axes.shape(axes), dtype)
            self._made.setdefault(name, []).append(_Made(from_side, to_side, numbers))
        return used

    def _fit(self, names: Sequence[str], shape: tuple[int, ...]) -> bool:
        """Whether the source has these tensors in this shape. Records those that it lacks or has in another shape."""
        found = self._source.tensors
        missing = [name for name in names if name not in found]
        other = [
            f"{name} is {list(found[name].shape)}, and must be {list(shape)}"
            for name in names
            if name in found and found[name].shape != shape
        ]
        self.missing += [name for name in missing if name not in self.missing]
        self.other_form += [text for text in other if text not in self.other_form]
        return not (missing or other)

    def check(self, what: str, remedy: str, *, allows_unused: bool = False) -> None:
        """Raises CheckpointError if a tensor is missing, has another shape or, unless allowed, is read by no rule."""
        unused = [] if allows_unused else [f"{name} {self._source.tensors[name]}" for name in self.unused]
        lines = [
            *listed("missing", self.missing),
            *listed("of another shape", self.other_form),
            *listed("taken by no rule", unused),
        ]
        if lines:
            raise CheckpointError(_DOES_NOT_FIT.format(what=what, lines="\n".join(lines), remedy=remedy))


def listed(title: str, entries: Sequence[str]) -> list[str]:
    """Lines of a message that list entries, up to a limit. Without entries there are no lines."""
    if not entries:
        return []
    more = [f"    and {len(entries) - _MOST_LINES} more"] if len(entries) > _MOST_LINES else []
    return [f"  {title} ({len(entries)}):", *(f"    {entry}" for entry in entries[:_MOST_LINES]), *more]


def to_here(rule: TensorRule) -> tuple[Side, Side]:
    """The source and the target of a rule for import."""
    return rule.there, rule.here


def to_there(rule: TensorRule) -> tuple[Side, Side]:
    """The source and the target of a rule for export."""
    return rule.here, rule.there
