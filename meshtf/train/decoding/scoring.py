"""Computes how likely a model finds given text."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.train.decoding.step_decoder import TextModel
from meshtf.train.step_programs import LOSS


def token_log_likelihoods(model: TextModel, features: Mapping[str, mtf.Tensor]) -> mtf.Tensor:
    """Computes the log-likelihood of each target, given the targets before it: float32 [batch, length]. It is 0 where
    the weight is 0.

    Args:
      model: a model whose loss in an evaluation is minus the log-likelihood.
      features: `targets` and `targets_weights` [batch, length], and all other features of the model.

    Raises:
      GraphError: if the model's loss has no value for each target.
    """
    targets = features["targets"]
    # A prefix language model sees the whole prefix. With an empty prefix, each token is scored from those before it.
    features = {"targets_prefix": mtf.zeros_like(targets), **_lengths(features), **features}
    loss = model.metrics(features, is_training=False)[LOSS]
    values, weights = loss if isinstance(loss, tuple) else (loss, mtf.ones_like(targets))
    if values.shape != targets.shape:
        raise GraphError(
            f"the model's loss [{values.shape}] must have a value for each of the targets [{targets.shape}]"
        )
    weights = mtf.cast(weights, tf.float32)
    return mtf.where(mtf.not_equal(weights, 0.0), -mtf.cast(values, tf.float32), 0.0, output_shape=targets.shape)


def _lengths(features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
    """The length of each text, up to its last weight, as the feature `targets_lengths`.

    Rotary embeddings may depend on it. With the length of a batch, a text's score would depend on the longest text
    beside it. Rows of packed texts have none.
    """
    weights = features.get("targets_weights")
    if weights is None or "targets_segmentation" in features:
        return {}
    length = weights.shape["length"]
    ends = mtf.where(mtf.not_equal(weights, 0.0), mtf.range(weights.mesh, length) + 1, 0, output_shape=weights.shape)
    return {"targets_lengths": mtf.reduce_max(ends, reduced_dim=length)}
