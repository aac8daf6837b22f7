"""The loss of connectionist temporal classification: labels without places in time (Graves et al. 2006).

At each place an alignment has a label or a blank. The labels `a b` fit three places in five ways: ab-, a-b, -ab, aab
and abb. They are not enumerated. A scan over the places carries, for each number of labels so far, the probability of
all ways to be there, at the last label or at a blank after it:

    to                     from, at the place before
    the blank after n      the blank after n, or label n
    label n                label n, the blank after n - 1, or label n - 1 if it is another one
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, ShapeError
from meshtf.layers._operands import DimensionLike, checked_operand
from meshtf.layers.losses._operands import wide_operand

_Step: TypeAlias = "Callable[[list[mtf.Tensor], list[mtf.Tensor]], tuple[list[mtf.Tensor], list[mtf.Tensor]]]"

_STATES = (
    "(states)"  # no layout rule can name it, so that the states, each of which needs the one before, are not split
)


@language_function
def ctc_loss(
    logits: mtf.Tensor,
    labels: mtf.Tensor,
    length_dim: DimensionLike,
    label_dim: DimensionLike,
    vocab_dim: DimensionLike,
    *,
    logit_lengths: mtf.Tensor | None = None,
    label_lengths: mtf.Tensor | None = None,
    blank_id: int = 0,
) -> mtf.Tensor:
    """Minus the logarithm of the probability of the labels, summed over all ways to align them with the logits.

    In an alignment, each place has a label or a blank. A label may stay for several places, and two equal labels in a
    row need a blank between them. The loss is infinite if there are too few places for the labels.

    Args:
      logits: [..., length_dim, vocab_dim], floating, before the softmax.
      labels: [..., label_dim], int32 or int64. A label that is no class makes the loss infinite.
      length_dim: the dimension of the places, or its name.
      label_dim: the dimension of the labels, or its name.
      vocab_dim: the dimension of the classes, or its name.
      logit_lengths: [...] int32: how many places count; by default all.
      label_lengths: [...] int32: how many labels count; by default all. A length that is negative, or above the size of
        `label_dim`, makes the loss infinite.
      blank_id: the class of the blank.

    Returns:
      [...], float32, or float64 where the logits are.

    Raises:
      ShapeError: `logits` or `labels` lack a dimension, their other dimensions differ, or `blank_id` is not a class.
      DtypeError: `logits` are not floating, or `labels` not int32 or int64.

    Examples:
      >>> logits, labels = mtf.zeros(mesh, "batch:2 length:3 vocab:4"), mtf.ones(mesh, "batch:2 labels:1", tf.int32)
      >>> loss = mtf.layers.ctc_loss(logits, labels, "length", "labels", "vocab")
      >>> value(mtf.exp(-loss) * 4.0**3).round(3)  # alignments: a--, -a-, --a, aa-, -aa, aaa
      array([6., 6.], dtype=float32)
    """
    logits, labels = wide_operand(logits, "the logits"), checked_operand(labels, "the labels")
    length, vocab = (logits.shape[logits.shape.axis(dim)] for dim in (length_dim, vocab_dim))
    label = labels.shape[labels.shape.axis(label_dim)]
    _check(logits, labels, (length, vocab, label), blank_id)
    log_p = mtf.log_softmax(logits, vocab)
    chain = _Chain(labels, label, vocab)
    places = [
        chain.of_labels(log_p),
        mtf.gather(log_p, blank_id, vocab),
        mtf.range(logits.mesh, length),
    ]
    start = chain.start(logits.shape - [length, vocab], logits)
    (blank, last), _ = mtf.scan(_step_of(chain, logit_lengths), start, places, length, name="ctc_loss")
    if label_lengths is None:
        label_lengths = mtf.constant(logits.mesh, label.size, labels.shape - [label], tf.int32)
    log_sums = mtf.gather(mtf.logaddexp(blank, last), label_lengths, chain.states)
    is_possible = mtf.logical_and(mtf.greater_equal(label_lengths, 0), mtf.less_equal(label_lengths, label.size))
    return mtf.negative(mtf.where(is_possible, log_sums, -math.inf, output_shape=log_sums.shape))


class _Chain:
    """The states of an alignment: after n labels, for n from 0 to all of them, either at label n or at a blank."""

    def __init__(self, labels: mtf.Tensor, label: mtf.Dimension, vocab: mtf.Dimension) -> None:
        self.states = mtf.Dimension(_STATES, label.size + 1)
        self._position = mtf.range(labels.mesh, self.states)
        named = mtf.rename_dimension(labels, label.name, _STATES)
        self._labels = mtf.pad(named, [1, 0], _STATES)  # state 0 is after no label
        self._vocab = vocab
        self.may_skip = mtf.not_equal(self._labels, mtf.shift(self._labels, 1, self.states, wrap=False))
        """Whether a label may follow the one before without a blank between them."""

    def of_labels(self, log_p: mtf.Tensor) -> mtf.Tensor:
        """The logarithms of the probabilities of each state's label, at each place."""
        is_class = mtf.logical_and(mtf.greater_equal(self._labels, 0), mtf.less(self._labels, self._vocab.size))
        is_class = mtf.logical_and(is_class, mtf.greater(self._position, 0))
        return mtf.where(is_class, mtf.gather(log_p, self._labels, self._vocab), -math.inf)

    def start(self, batch: mtf.Shape, like: mtf.Tensor) -> list[mtf.Tensor]:
        """The states before the first place: at a blank after no label."""
        shape = batch + [self.states]
        nowhere = mtf.fill(like.mesh, -math.inf, shape, like.dtype)
        at_start = mtf.where(mtf.equal(self._position, 0), mtf.zeros_like(nowhere), nowhere, output_shape=shape)
        return [at_start, nowhere]

    def before(self, x: mtf.Tensor) -> mtf.Tensor:
        """The values of the state with one label less."""
        moved = mtf.shift(x, 1, self.states, wrap=False)
        return mtf.where(mtf.greater(self._position, 0), moved, -math.inf, output_shape=x.shape)


def _step_of(chain: _Chain, logit_lengths: mtf.Tensor | None) -> _Step:
    """One place of time: what is carried are the logarithms of the probabilities of being at blanks and at labels."""

    def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        (blank, label), (of_label, of_blank, place) = carried, parts
        skipped = mtf.where(chain.may_skip, chain.before(label), -math.inf, output_shape=label.shape)
        entered = mtf.logaddexp(mtf.logaddexp(label, chain.before(blank)), skipped)
        new = [mtf.logaddexp(blank, label) + of_blank, mtf.add(entered, of_label, output_shape=label.shape)]
        if logit_lengths is not None:
            counts = mtf.less(place, logit_lengths)
            new = [mtf.where(counts, x, old, output_shape=old.shape) for x, old in zip(new, carried, strict=True)]
        return new, []

    return step


def _check(logits: mtf.Tensor, labels: mtf.Tensor, dims: tuple[mtf.Dimension, ...], blank_id: int) -> None:
    length, vocab, label = dims
    if labels.dtype not in (tf.int32, tf.int64):
        raise DtypeError(f"the labels must be int32 or int64, not {labels.dtype.name}; convert with mtf.cast")
    rest = logits.shape - [length, vocab]
    if set(rest) != set(labels.shape - [label]):
        raise ShapeError(f"the labels need the dimensions [{rest + [label]}], not [{labels.shape}]")
    if not 0 <= blank_id < vocab.size:
        raise ShapeError(f"blank_id {blank_id} is not a class of [{vocab}]")
