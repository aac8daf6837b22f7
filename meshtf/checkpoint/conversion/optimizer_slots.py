"""The state of Mesh TensorFlow's optimizers, converted to that of meshtf's optimizers.

Adam's moments, and Adafactor's mean of updates, have the axes of their variable. Adafactor's second moment is whole, or
is kept as two means. In Mesh TensorFlow each mean is over one of the two largest dimensions. In meshtf it is over one
side of a matrix. If these are the same axes, the numbers are the same.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.conversion.axes import Axes
from meshtf.checkpoint.conversion.converted import ConvertedSource, Sizes
from meshtf.checkpoint.conversion.names import NamePattern
from meshtf.checkpoint.conversion.rule import Side, TensorRule
from meshtf.checkpoint.formats.tensor_source import OfAnother, TensorSource, described
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError

Sides = tuple[tuple[int, ...], tuple[int, ...]]
"""The two sides of a weight as a matrix, the smaller one first. Each side is a list of the weight's dimensions."""

FactoredSides = Mapping[str, Sides | None]
"""The two sides of each weight over which its second moment is averaged. None if the moment is kept whole."""

STEP = "global_step"

_WHOLE = {"_slot_m": "/adafactor_m", "/adam_m": "/adam_m", "/adam_v": "/adam_v"}
_MOMENT, _ROWS, _COLUMNS = "_slot_v", "_slot_vr", "_slot_vc"
_SLOT = re.compile(r".*(_slot_(?:m|v|vr|vc)|/adam_[mv])")

_NOTHING = """\
{what} has no optimizer's state that meshtf can use: no *_slot_v, *_slot_vr and *_slot_vc of Adafactor, no */adam_m
and */adam_v of Adam. Nothing was written; leave out --optimizer_state to start with a new one."""
_REMEDY = """\
Nothing was written. Leave out --optimizer_state to import the weights alone."""


@dataclasses.dataclass(frozen=True)
class OptimizerSlots:
    """The state of optimizers that was found and checked.

    Attributes:
      tensors: the tensors that are converted, by their names in meshtf, including the numbers of steps.
      left_out: the tensors that are not converted, each with the reason.
    """

    _converted: ConvertedSource
    _steps: Mapping[str, tf.Tensor]
    left_out: tuple[str, ...]

    @classmethod
    def of(
        cls, what: str, source: TensorSource, rules: list[TensorRule], sizes: Sizes, factored: FactoredSides
    ) -> OptimizerSlots:
        """Finds the state for the weights that rules take.

        Args:
          what: the name of the source in messages.
          source: all tensors, under their names in Mesh TensorFlow.
          rules: the rules for the weights.
          sizes: the sizes of the model.
          factored: the sides of weights, by their names in meshtf.

        Raises:
          CheckpointError: if there is no state, a shape does not fit its weight, or the number of steps is missing.
        """
        found: list[tuple[Side, Side]] = []
        reasons: dict[str, str] = {}
        for rule in rules:
            for ending, slots in _slots(rule, source, sizes, factored).items():
                if isinstance(slots, str):
                    names = (f"{name}{ending}" for name in rule.there.names({}, sizes.axes, sizes.labels))
                    reasons.update({name: slots for name in names if name in source.tensors})
                else:
                    found.append(slots)
        if not found:
            raise CheckpointError(_NOTHING.format(what=what))
        converted = ConvertedSource(source, found, sizes, tf.float32)
        if STEP not in source.tensors:
            converted.missing.append(STEP)
        converted.check(f"the optimizer's state of {what}", _REMEDY, allows_unused=True)
        unused = [name for name in converted.unused if _SLOT.fullmatch(name)]
        left_out = tuple(f"{name}: {reasons.get(name, 'no rule takes its variable')}" for name in unused)
        step = tf.cast(source.read(STEP), tf.int32)
        scopes = sorted({re.split(r"[/_]", name.rpartition("/")[2])[0] for name in converted.tensors})
        return cls(converted, {f"{scope}/step": step for scope in scopes}, left_out)

    @property
    def tensors(self) -> Mapping[str, SavedTensor]:
        return {
            **self._converted.tensors,
            **{name: described((), step.dtype) for name, step in self._steps.items()},
        }

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it."""
        return self._steps[name] if name in self._steps else self._converted.read(name, box)


@dataclasses.dataclass(frozen=True)
class WithSlots(OfAnother):
    """Weights and the optimizer's state for them. The step and the run's state are those of the weights."""

    slots: OptimizerSlots

    @property
    def tensors(self) -> Mapping[str, SavedTensor]:
        return {**self.source.tensors, **self.slots.tensors}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it."""
        return (self.slots if name in self.slots.tensors else self.source).read(name, box)


def _slots(
    rule: TensorRule, source: TensorSource, sizes: Sizes, factored: FactoredSides
) -> dict[str, tuple[Side, Side] | str]:
    """The rule for each ending of slots that a rule's weights have in the source, or the reason why there is none."""
    names = list(rule.there.names({}, sizes.axes, sizes.labels))

    def has(ending: str) -> bool:
        return any(f"{name}{ending}" in source.tensors for name in names)

    slots: dict[str, tuple[Side, Side] | str] = {
        there: (_side(rule.there, there), _side(rule.here, here)) for there, here in _WHOLE.items() if has(there)
    }
    here_names = rule.here.names({}, sizes.axes, sizes.labels)
    kinds = {factored[name] for name in here_names if name in factored}
    if has(_MOMENT):
        is_whole = kinds == {None}
        slots[_MOMENT] = (
            (_side(rule.there, _MOMENT), _side(rule.here, "/adafactor_v"))
            if is_whole
            else "the checkpoint keeps it whole, and meshtf as means of rows and columns"
        )
    if has(_ROWS) or has(_COLUMNS):
        slots.update(_means(rule, sizes, kinds))
    return slots


def _means(rule: TensorRule, sizes: Sizes, kinds: set[Sides | None]) -> dict[str, tuple[Side, Side] | str]:
    """The rules for both means. The first is over the largest dimension there, and over the larger side here."""
    groups = rule.there.axes.groups
    largest, second = (
        sorted(groups, key=lambda g: -Axes((g,)).shape(sizes.axes)[0])[:2] if len(groups) > 1 else ((), ())
    )
    kind = next(iter(kinds)) if len(kinds) == 1 else None
    if kind is None:
        why = "the checkpoint keeps it as means, and meshtf keeps it whole"
        return dict.fromkeys((_ROWS, _COLUMNS), why)
    smaller, larger = (tuple(a for i in side for a in rule.here.axes.groups[i]) for side in kind)
    if {frozenset(largest), frozenset(second)} != {frozenset(smaller), frozenset(larger)}:
        why = (
            f"its means are over ({' '.join(largest)}) and ({' '.join(second)}) in the checkpoint, and over "
            f"({' '.join(larger)}) and ({' '.join(smaller)}) in meshtf"
        )
        return dict.fromkeys((_ROWS, _COLUMNS), why)
    # If both have the same size, the first one counts as the largest there, but as the smaller one here.
    is_swapped = frozenset(largest) != frozenset(larger)
    rows, columns = ("/adafactor_vc", "/adafactor_vr") if is_swapped else ("/adafactor_vr", "/adafactor_vc")
    return {
        _ROWS: (_side(rule.there, _ROWS, largest), _side(rule.here, rows, largest)),
        _COLUMNS: (_side(rule.there, _COLUMNS, second), _side(rule.here, columns, second)),
    }


def _side(side: Side, ending: str, without: tuple[str, ...] = ()) -> Side:
    """The slots of a side's tensors, without some axes."""
    groups = tuple(group for group in side.axes.groups if not group or not set(group) <= set(without))
    return Side(NamePattern(side.name.text + ending), Axes(groups))
