"""Logits and weights of attention: the steps that all ways to attend share."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError, nearest
from meshtf.layers.attention.options import DROPOUT, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import D_KV


def check_operands(
    q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, memory_name: str | None = None, beside: str | None = None
) -> None:
    """Checks that q, k and v fit together.

    Args:
      q: the queries.
      k: the memory's keys.
      v: the memory's values.
      memory_name: the name of the dimension that k and v have, and q lacks.
      beside: the name of another such dimension.

    Raises:
      DtypeError: they are not floating, or differ.
      ShapeError: dimensions are missing, misspelt or of other sizes.
    """
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        if not tensor.dtype.is_floating or tensor.dtype != q.dtype:
            raise DtypeError(
                f"q, k and v must have the same floating dtype; q is {q.dtype.name}, {name} is {tensor.dtype.name}"
            )
        tensor.shape.axis(D_KV)
    if {*k.shape} != {*v.shape}:
        raise ShapeError(f"k [{k.shape}] and v [{v.shape}] must have the same dimensions")
    if memory_name is not None:
        k.shape.axis(memory_name)
        if q.shape.has(memory_name):
            raise ShapeError(f'q [{q.shape}] has dimension "{memory_name}"; rename it to "length" in the queries')
    for dim in k.shape:
        if dim.name not in (memory_name, beside) and not q.shape.has(dim.name):
            hint = nearest(dim.name, q.shape.dimension_names)
            raise ShapeError(f'k [{k.shape}] has dimension "{dim.name}", which q [{q.shape}] lacks{hint}')


def logits_shape(q: mtf.Shape, k: mtf.Shape, memory_name: str) -> mtf.Shape:
    """The dimensions that q and k share, then those of q alone, then the memory's: the order of a batched matrix
    product.
    """
    of_q = [d for d in q if d.name != D_KV]
    shared, own = [d for d in of_q if k.has(d.name)], [d for d in of_q if not k.has(d.name)]
    return mtf.Shape([*shared, *own, k[memory_name]])


def logits_dtype(q: mtf.Tensor, options: AttentionOptions) -> tf.DType:
    is_narrow = q.dtype in (tf.float16, tf.bfloat16)
    return tf.float32 if options.float32_logits and is_narrow else q.dtype


def masked_value(dtype: tf.DType) -> float:
    """The logit of a token that is not visible: below all others, but finite, so that a row without visible tokens is
    not NaN.
    """
    return float(dtype.min) / 2


def make_logits(
    q: mtf.Tensor, k: mtf.Tensor, pattern: AttentionPattern, options: AttentionOptions, memory_name: str
) -> tuple[mtf.Tensor, mtf.Tensor | None]:
    """q . k + bias, with `masked_value` for what is not visible; and the visible places (bool), or None if all are."""
    shape, dtype = logits_shape(q.shape, k.shape, memory_name), logits_dtype(q, options)
    products = mtf.einsum([q.astype(dtype), k.astype(dtype)], output_shape=shape)
    return biased_and_masked(products, pattern, options)


def biased_and_masked(
    logits: mtf.Tensor, pattern: AttentionPattern, options: AttentionOptions
) -> tuple[mtf.Tensor, mtf.Tensor | None]:
    """The logits of `make_logits`, from q . k."""
    shape, dtype = logits.shape, logits.dtype
    if options.logit_cap is not None:
        # The cap comes before the bias and the mask: a capped mask would let hidden tokens through.
        logits = mtf.tanh(logits * (1.0 / options.logit_cap)) * options.logit_cap
    query, memory = pattern.query, pattern.memory
    if pattern.bias is not None:
        if query.positions is None or memory.positions is None:
            raise GraphError("a bias needs the tokens' positions, but they have none; give Tokens(positions=..)")
        bias = pattern.bias(query.positions, memory.positions)
        _check_dims(bias, "bias", shape)
        logits = mtf.add(logits, bias.astype(dtype), output_shape=shape)
    visible = pattern.mask.visible(query, memory)
    if visible is None:
        return logits, None
    _check_dims(visible, "mask", shape)
    return mtf.where(visible, logits, masked_value(dtype), output_shape=shape), visible


def attend(
    q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, pattern: AttentionPattern, options: AttentionOptions, memory_name: str
) -> mtf.Tensor:
    """Weighted means of values, from the whole matrix of scores. It applies `options.dropout_rate` as it is."""
    logits, visible = make_logits(q, k, pattern, options, memory_name)
    weights = softmax_weights(logits, options, memory_name)
    if options.dropout_rate:
        noise_shape = options.noise_shape(weights.shape)
        weights = mtf.dropout(weights, True, rate=options.dropout_rate, noise_shape=noise_shape, name=DROPOUT)
    return where_any_visible(visible, mtf.einsum([weights.astype(v.dtype), v], output_shape=q.shape), memory_name)


def softmax_weights(logits: mtf.Tensor, options: AttentionOptions, memory_name: str) -> mtf.Tensor:
    """The softmax of logits [.., memory], with the extra logit if there is one."""
    return mtf.softmax(logits, memory_name, extra_logit(options, logits.shape[:-1], logits.dtype))


def where_any_visible(visible: mtf.Tensor | None, y: mtf.Tensor, memory_name: str) -> mtf.Tensor:
    """The means y, and 0 for queries that see nothing."""
    if visible is None:
        return y
    return mtf.where(visible.any(memory_name), y, 0.0, output_shape=y.shape)


def extra_logit(options: AttentionOptions, rows: mtf.Shape, dtype: tf.DType) -> mtf.Tensor | float | None:
    """The extra logit of rows with these dimensions, checked, in the logits' dtype."""
    extra = options.extra_logit
    if not isinstance(extra, mtf.Tensor):
        return extra
    _check_dims(extra, "extra_logit", rows)
    return extra.astype(dtype)


def _check_dims(tensor: mtf.Tensor, what: str, shape: mtf.Shape) -> None:
    for dim in tensor.shape:
        if not shape.has(dim.name):
            hint = nearest(dim.name, shape.dimension_names)
            raise ShapeError(f'the {what} [{tensor.shape}] has dimension "{dim.name}", which [{shape}] lacks{hint}')
        shape.axis(dim)
