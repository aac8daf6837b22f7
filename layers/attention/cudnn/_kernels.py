"""Attention and its gradient as functions of slices: the plain form, and the module of cuDNN's kernel.

Both compute scores and their softmax in float32, and round outputs once. The statistics are the logarithm of the sum of
exponentials of each row of scores, from which the gradient computes the weights again (Dao et al. 2022).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.layers.attention.cudnn._call_text import ELEMENTS, configuration_of
from meshtf.layers.attention.cudnn._module_text import backward_text, forward_text
from meshtf.layers.attention.cudnn._sizes import AttentionSizes

PLATFORM = "cuda"
_HIDDEN = float(tf.float32.min) / 2


@dataclasses.dataclass(frozen=True)
class AttentionForm:
    """The fixed part of a kernel.

    Attributes:
      batch_dims: the number of dimensions before `length`.
      is_causal: a query sees no key after its own index. There are then as many keys as queries.
      window: with `is_causal`, a query sees at most `window` keys, of which its own is the last.
      has_bias: whether scores have a bias.
      bias_has_batch: whether the bias has the dimensions of the batch.
      bias_has_heads: whether the bias has the dimensions of q's heads.
      is_bias_learned: whether the bias has a gradient.
    """

    batch_dims: int
    is_causal: bool = False
    window: int | None = None
    has_bias: bool = False
    bias_has_batch: bool = False
    bias_has_heads: bool = False
    is_bias_learned: bool = False

    def sizes(self, q: Any, k: Any) -> AttentionSizes:
        """The sizes of slices."""
        return AttentionSizes.of(q.shape.as_list(), k.shape.as_list(), self.batch_dims)

    def flops_of_product(self, q: Sequence[int], k: Sequence[int]) -> int:
        """The FLOPs of one product of the size of scores, as far as a causal mask leaves it."""
        sizes = AttentionSizes.of(q, k, self.batch_dims)
        whole = 2 * math.prod(sizes.scores) * sizes.size
        return whole // 2 if self.is_causal else whole

    def bias_shape(self, sizes: AttentionSizes) -> tuple[int, ...] | None:
        """[batch or 1, heads or 1, length, memory_length], or None if there is no bias."""
        if not self.has_bias:
            return None
        batch, heads, *rest = sizes.scores
        return (batch if self.bias_has_batch else 1, heads if self.bias_has_heads else 1, *rest)

    def scores(self, sizes: AttentionSizes, q: tf.Tensor, k: tf.Tensor, bias: Sequence[tf.Tensor]) -> tf.Tensor:
        """float32 [batch, memory_heads, queries of each, length, memory_length], with `_HIDDEN` for what is hidden."""
        scores = tf.einsum("btngh,bsnh->bngts", wide(q, sizes.grouped_q), wide(k, sizes.k))
        shape = self.bias_shape(sizes)
        if shape is not None:
            scores = tf.reshape(tf.reshape(scores, sizes.scores) + wide(bias[0], shape), tf.shape(scores))
        if self.is_causal:
            behind = tf.range(sizes.length)[:, None] - tf.range(sizes.memory_length)[None]
            is_seen = behind >= 0 if self.window is None else (behind >= 0) & (behind < self.window)
            scores = tf.where(is_seen, scores, _HIDDEN)
        return scores

    def configuration(self, sizes: AttentionSizes, dtype: tf.DType, *, is_backward: bool) -> dict[str, Any]:
        return configuration_of(sizes, dtype, is_causal=self.is_causal, window=self.window, is_backward=is_backward)


@dataclasses.dataclass(frozen=True)
class AttentionKernel:
    """Takes q [*batch, length, *heads, size], k and v [*batch, memory_length, *heads, size], and perhaps a bias.

    Returns the outputs, as q, and the statistics [*batch, *heads, length].
    """

    form: AttentionForm

    def __call__(self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, *bias: tf.Tensor) -> list[tf.Tensor]:
        sizes = self.form.sizes(q, k)
        scores = self.form.scores(sizes, q, k, bias)
        statistics = tf.reduce_logsumexp(scores, -1)
        y = tf.einsum("bngts,bsnh->btngh", tf.exp(scores - statistics[..., None]), wide(v, sizes.k))
        return [tf.reshape(tf.cast(y, q.dtype), q.shape), tf.reshape(statistics, self._statistics(q))]

    def module(self, platform: str, slices: Sequence[tf.TensorSpec]) -> str | None:
        q, k = slices[:2]
        if platform != PLATFORM or q.dtype not in ELEMENTS:
            return None
        sizes = self.form.sizes(q, k)
        configuration = self.form.configuration(sizes, q.dtype, is_backward=False)
        bias = self.form.bias_shape(sizes)
        return forward_text(slices, sizes, bias, configuration, statistics=self._statistics(q))

    def flops(self, slices: Sequence[Sequence[int]]) -> int:
        return 2 * self.form.flops_of_product(*slices[:2])

    def gradient_function(self) -> tuple[Callable[..., Any], Sequence[int]]:
        return AttentionGradientKernel(self.form), range(4 if self.form.is_bias_learned else 3)

    def _statistics(self, q: Any) -> tuple[int, ...]:
        n, shape = self.form.batch_dims, q.shape.as_list()
        return (*shape[:n], *shape[n + 1 : -1], shape[n])


@dataclasses.dataclass(frozen=True)
class AttentionGradientKernel:
    """Takes an AttentionKernel's operands, its outputs and statistics, and the outputs' gradient.

    Returns the gradients of q, k, v, and of a bias that is learned.
    """

    form: AttentionForm

    def __call__(self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, *others: tf.Tensor) -> list[tf.Tensor]:
        *bias, y, statistics, dy = others
        sizes = self.form.sizes(q, k)
        scores = self.form.scores(sizes, q, k, bias)
        weights = tf.exp(scores - tf.reshape(statistics, scores.shape[:-1])[..., None])
        wide_dy = wide(dy, sizes.grouped_q)
        of_weights = tf.einsum("btngh,bsnh->bngts", wide_dy, wide(v, sizes.k))
        mean = tf.einsum("btngh,btngh->bngt", wide_dy, wide(y, sizes.grouped_q))
        of_scores = weights * (of_weights - mean[..., None])
        found = [
            (tf.einsum("bngts,bsnh->btngh", of_scores, wide(k, sizes.k)), q),
            (tf.einsum("bngts,btngh->bsnh", of_scores, wide(q, sizes.grouped_q)), k),
            (tf.einsum("bngts,btngh->bsnh", weights, wide_dy), v),
        ]
        if self.form.is_bias_learned:
            found.append((self._of_bias(sizes, of_scores), bias[0]))
        return [tf.reshape(tf.cast(gradient, x.dtype), x.shape) for gradient, x in found]

    def module(self, platform: str, slices: Sequence[tf.TensorSpec]) -> str | None:
        q, k = slices[:2]
        if platform != PLATFORM or q.dtype not in ELEMENTS:
            return None
        sizes = self.form.sizes(q, k)
        configuration = self.form.configuration(sizes, q.dtype, is_backward=True)
        bias = self.form.bias_shape(sizes)
        return backward_text(slices, sizes, bias, configuration, is_bias_learned=self.form.is_bias_learned)

    def flops(self, slices: Sequence[Sequence[int]]) -> int:
        return 5 * self.form.flops_of_product(*slices[:2])

    def gradient_function(self) -> None:
        """No kernel computes second derivatives; TensorFlow differentiates the plain form."""

    def _of_bias(self, sizes: AttentionSizes, of_scores: tf.Tensor) -> tf.Tensor:
        summed = [n for n, has in enumerate((self.form.bias_has_batch, self.form.bias_has_heads)) if not has]
        return tf.reduce_sum(tf.reshape(of_scores, sizes.scores), summed)


def wide(x: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """x in float32 and another shape with the same elements."""
    return tf.reshape(tf.cast(x, tf.float32), shape)
