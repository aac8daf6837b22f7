"""Cross-entropies, computed in float32, or in float64 for float64 logits."""

from __future__ import annotations

import math

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.layers._operands import DimensionLike, checked_operand
from meshtf.layers.class_ids import class_ids
from meshtf.layers.losses._operands import widened
from meshtf.number_checks import is_number

_TARGETS_ADVICE = """\
to ignore some targets, give softmax_cross_entropy_with_logits `weights` that are 0 there; \
with check_targets=False nothing is checked, and the loss of a target outside the vocabulary is 0"""


@language_function
def softmax_cross_entropy_with_logits(
    logits: mtf.Tensor,
    targets: mtf.Tensor,
    vocab_dim: DimensionLike,
    z_loss: float = 0.0,
    *,
    label_smoothing: float = 0.0,
    vocab_size: int | None = None,
    weights: mtf.Tensor | None = None,
    check_targets: bool = True,
) -> mtf.Tensor:
    """The cross-entropy of the softmax of `logits` over `vocab_dim`, with soft or hard targets.

    The normaliser is a log-sum-exp relative to the maximum. It is exact even if `vocab_dim` is split. For hard targets,
    cores look up and send only the logits that the targets choose. A logit of -inf costs nothing if its target is 0.
    Logits in bfloat16 or float16 keep their dtype, and sums over them are in float32. So a compiler that fuses
    elementwise work makes no float32 array of their size.

    Args:
      logits: [..., vocab_dim], floating; those from `vocab_size` on are masked, as `VocabularyEmbedding` does.
      targets: floating, [..., vocab_dim], a distribution; or integers of any dtype, [...], each the right index. A
        step with an index that is negative, or not below `vocab_size`, raises IndexRangeError: see `mtf.check_indices`.
      vocab_dim: the dimension of the classes, or its name.
      z_loss: coefficient of log(Z)^2, which keeps the normaliser Z near 1 (a common choice is 1e-4).
      label_smoothing: the share of each target that is divided equally among all classes (Szegedy et al. 2016).
      vocab_size: how many classes there are, if `vocab_dim` is padded. The padding gets no share of the targets.
      weights: numbers over the dimensions of integer targets, or over some of them. If a weight is 0, its target may be
        any number, such as -1 or -100 for padding. If that is no class, the loss is 0. The loss is not multiplied by
        the weights.
      check_targets: whether integer targets are checked; if not, the loss of a target that is no class is 0.

    Returns:
      [...], float64 if the logits are, else float32.

    Raises:
      ShapeError: the two do not have the dimensions above, or `vocab_size` is not in 1 .. size of `vocab_dim`.
      DtypeError: `logits` are not floating, or `targets` neither floating nor integer.
      GraphError: `label_smoothing` is not in [0, 1].

    Examples:
      >>> logits, targets = mtf.zeros(mesh, "batch:4 vocab:16"), mtf.zeros(mesh, "batch:4", tf.int32)
      >>> loss = mtf.layers.softmax_cross_entropy_with_logits(logits, targets, "vocab")
      >>> loss.shape, value(loss).round(3)
      (Shape[batch:4], array([2.773, 2.773, 2.773, 2.773], dtype=float32))
    """
    checked_operand(logits, "the logits")
    targets = class_ids(checked_operand(targets, "the targets"))
    classes = logits.shape[logits.shape.axis(vocab_dim)]
    size = classes.size if vocab_size is None else vocab_size
    _check(logits, targets, classes)
    _check_numbers(size, classes, label_smoothing)
    if check_targets and targets.dtype.is_integer:
        mtf.check_indices(targets, size, weights=weights, message="a target", advice=_TARGETS_ADVICE)
    is_hard = targets.dtype.is_integer
    if is_hard and logits.dtype in (tf.bfloat16, tf.float16):
        weight, chosen, log_z = _of_narrow(logits, targets, classes, size)
    else:
        logits = widened(logits)
        weight, chosen = _chosen(logits, targets, classes, size)
        log_z = mtf.reduce_logsumexp(logits, classes)
    loss = _weighted(log_z - chosen, weight) if is_hard else _weighted(log_z, weight) - chosen
    if label_smoothing:
        even = log_z - _mean_of_first(widened(logits), classes, size)
        loss = loss * (1.0 - label_smoothing) + _weighted(even, weight) * label_smoothing
    return loss + _weighted(mtf.square(log_z), weight) * z_loss if z_loss else loss


@language_function
def sigmoid_cross_entropy_with_logits(logits: mtf.Tensor, targets: mtf.Tensor) -> mtf.Tensor:
    """-targets · log(sigmoid(logits)) - (1 - targets) · log(1 - sigmoid(logits)), elementwise, without overflow.

    Args:
      logits: floating.
      targets: floating, of the same dimensions, probabilities.

    Returns:
      The shape of `logits`; float32, or float64 where the logits are.

    Raises:
      ShapeError: the dimensions differ.
      DtypeError: one of the two is not floating.

    Examples:
      >>> logits = mtf.constant(mesh, [-100.0, 0.0], "n:2")
      >>> value(mtf.layers.sigmoid_cross_entropy_with_logits(logits, mtf.ones_like(logits))).round(3)
      array([100.   ,   0.693], dtype=float32)
    """
    for name, x in (("logits", logits), ("targets", targets)):
        if not checked_operand(x, name).dtype.is_floating:
            raise DtypeError(f"{name} must be floating, not {x.dtype.name}")
    if set(targets.shape) != set(logits.shape):
        raise ShapeError(f"targets need the dimensions of the logits, [{logits.shape}], not [{targets.shape}]")
    logits = widened(logits)
    targets = mtf.cast(targets, logits.dtype)
    # Each logarithm is taken by itself, so that neither loses the small losses of confident predictions.
    return _weighted(mtf.softplus(mtf.negative(logits)), targets) + _weighted(mtf.softplus(logits), 1.0 - targets)


@language_function
def weights_nonzero(targets: mtf.Tensor, dtype: tf.DType = tf.float32) -> mtf.Tensor:
    """1 where `targets` are not 0, else 0: the weights of a loss whose padding is 0.

    Examples:
      >>> value(mtf.layers.weights_nonzero(mtf.constant(mesh, [7, 3, 0], "length:3", tf.int32)))
      array([1., 1., 0.], dtype=float32)
    """
    return mtf.cast(mtf.not_equal(targets, 0), dtype)


def _chosen(
    logits: mtf.Tensor, targets: mtf.Tensor, vocab_dim: mtf.Dimension, size: int
) -> tuple[mtf.Tensor, mtf.Tensor]:
    """The total of each target, and the sum of logits with the target's weights."""
    if targets.dtype.is_integer:
        is_class, inside = _classes(targets, size)
        chosen = mtf.gather(logits, inside, vocab_dim, output_shape=logits.shape - [vocab_dim])
        return mtf.cast(is_class, logits.dtype), chosen
    targets = mtf.cast(targets, logits.dtype)
    total = mtf.reduce_sum(targets, reduced_dim=vocab_dim)
    logits = _where_it_counts(logits, targets)
    return total, mtf.einsum([logits, targets], output_shape=logits.shape - [vocab_dim])


def _classes(targets: mtf.Tensor, size: int) -> tuple[mtf.Tensor, mtf.Tensor]:
    """Whether each target is a class, and the targets, with -1 in place of the others."""
    is_class = mtf.logical_and(mtf.greater_equal(targets, 0), mtf.less(targets, size))
    return is_class, mtf.where(is_class, targets, -1)  # the padding's logits may be infinite


def _of_narrow(
    logits: mtf.Tensor, targets: mtf.Tensor, vocab_dim: mtf.Dimension, size: int
) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
    """The total of each target, its logit, and the normaliser, all in float32, for hard targets of narrow logits.

    The gradient of both is one elementwise expression of the logits, which is rounded to their dtype once. It widens
    them again: XLA would otherwise write the wide logits once for both passes, and a copy of them in another order. For
    NVIDIA's GPUs XLA may merge the passes: it writes no wide logits there, and masks the padding again in each kernel.
    """
    is_class, inside = _classes(targets, size)

    def forward(narrow: mtf.Tensor) -> list[mtf.Tensor]:
        chosen = mtf.gather(narrow, inside, vocab_dim, output_shape=narrow.shape - [vocab_dim])
        return [mtf.cast(chosen, tf.float32), mtf.reduce_logsumexp(narrow, vocab_dim, dtype=tf.float32)]

    def backward(
        explicit_inputs: list[mtf.Tensor],
        all_inputs: list[mtf.Tensor],
        forward_operations: object,
        outputs: list[mtf.Tensor],
        output_grads: list[mtf.Tensor | None],
    ) -> list[mtf.Tensor | None]:
        (narrow,), (_, log_z), terms = explicit_inputs, outputs, list[mtf.Tensor]()
        of_chosen, of_log_z = output_grads
        if of_chosen is not None:
            is_chosen = mtf.one_hot(inside, vocab_dim, dtype=tf.float32)
            terms.append(mtf.multiply(is_chosen, of_chosen, output_shape=narrow.shape))
        if of_log_z is not None:
            finite = mtf.where(mtf.equal(log_z, -math.inf), 0.0, log_z)  # the exponential is then 0, not NaN
            share = mtf.exp(mtf.sub(mtf.cast(narrow, tf.float32), finite, output_shape=narrow.shape))
            terms.append(mtf.multiply(share, of_log_z, output_shape=narrow.shape))
        total = mtf.add_n(terms)
        assert isinstance(total, mtf.Tensor)  # a gradient is asked for if one of the outputs has one
        return [mtf.cast(total, narrow.dtype), *(None for _ in all_inputs[1:])]

    may_merge = logits.graph.kernels.is_cuda
    chosen, log_z = mtf.custom_gradient(forward, backward, [logits], computes_again=not may_merge)
    return mtf.cast(is_class, tf.float32), chosen, log_z


def _weighted(x: mtf.Tensor, weight: mtf.Tensor) -> mtf.Tensor:
    """x times a weight. The result is 0 where the weight is 0, whatever x is."""
    return _where_it_counts(x, weight) * weight


def _where_it_counts(x: mtf.Tensor, weight: mtf.Tensor) -> mtf.Tensor:
    """x with 0 in place of infinities whose weight is 0."""
    is_lost = mtf.logical_and(mtf.equal(weight, 0.0), mtf.equal(mtf.abs(x), math.inf), output_shape=x.shape)
    return mtf.where(is_lost, 0.0, x)


def _mean_of_first(logits: mtf.Tensor, vocab_dim: mtf.Dimension, size: int) -> mtf.Tensor:
    if size < vocab_dim.size:
        is_class = mtf.less(mtf.range(logits.mesh, vocab_dim, tf.int32), size)
        logits = mtf.where(is_class, logits, 0.0, output_shape=logits.shape)
    return mtf.reduce_sum(logits, reduced_dim=vocab_dim) / size


def _check(logits: mtf.Tensor, targets: mtf.Tensor, vocab_dim: mtf.Dimension) -> None:
    if not logits.dtype.is_floating:
        raise DtypeError(f"logits must be floating, not {logits.dtype.name}")
    if not (targets.dtype.is_integer or targets.dtype.is_floating):
        raise DtypeError(f"targets must be floating (a distribution) or integer (an index), not {targets.dtype.name}")
    wanted = logits.shape - [vocab_dim]
    if targets.dtype.is_floating:
        wanted += [vocab_dim]
    if set(targets.shape) != set(wanted):
        raise ShapeError(f"targets of type {targets.dtype.name} need the dimensions [{wanted}], not [{targets.shape}]")


def _check_numbers(size: int, vocab_dim: mtf.Dimension, label_smoothing: float) -> None:
    if not 1 <= size <= vocab_dim.size:
        raise ShapeError(f"vocab_size is {size}, and must be from 1 to the size of [{vocab_dim}]")
    if not is_number(label_smoothing) or not 0.0 <= label_smoothing <= 1.0:
        raise GraphError(f"label_smoothing must be in [0, 1], and is {label_smoothing!r}")
