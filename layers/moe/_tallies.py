"""The sums that a mixture of experts keeps while it routes tokens, and the observations made of them."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.moe.routing import Routing
from meshtf.layers.transformer.observations import AUXILIARY_LOSS

Tallies = dict[str, mtf.Tensor]


def tallied(
    routing: Routing,
    log_scores: mtf.Tensor,
    probabilities: mtf.Tensor,
    is_routed: mtf.Tensor | None,
    *,
    logits: mtf.Tensor | None,
) -> Tallies:
    """Sums over all groups and tokens, float32 [..] or [.., _experts]. Sums of the parts of a batch add up.

    Args:
      routing: the tokens' routing.
      log_scores: float32 [.., group, tokens, _experts].
      probabilities: their softmax.
      is_routed: bool [.., group, tokens], or None for all.
      logits: those of the gates, if log(sum(exp(logits)))² is summed, too. With softmax they are the `log_scores`.
    """
    *apart, group, tokens, experts = log_scores.shape

    def total(x: mtf.Tensor) -> mtf.Tensor:
        of_routed = x if is_routed is None else mtf.where(is_routed, x, 0.0, output_shape=x.shape)
        return of_routed.sum(group, tokens)

    # -sum(p log p) with log p = log_score - normaliser, and the probabilities sum to 1.
    normaliser = log_scores.logsumexp(experts)
    entropy = normaliser - (probabilities * log_scores).sum(experts)
    squares: Tallies = {}
    if logits is not None:
        of_logits = normaliser if logits is log_scores else logits.logsumexp(experts)
        squares = {"normaliser": total(mtf.square(of_logits))}
    everyone = mtf.zeros(log_scores.mesh, apart) + float(group.size * tokens.size)
    return {
        "balance": routing.balance,
        "choices": routing.choices,
        "droppable": routing.droppable,
        "dropped": routing.dropped,
        "entropy": total(entropy),
        "groups": _groups_with_tokens(routing.droppable, is_routed, group, tokens),
        "probability": total(probabilities),
        "tokens": everyone if is_routed is None else total(mtf.ones(log_scores.mesh, is_routed.shape)),
        **squares,
    }


def _groups_with_tokens(
    like: mtf.Tensor, is_routed: mtf.Tensor | None, group: mtf.Dimension, tokens: mtf.Dimension
) -> mtf.Tensor:
    """The number of groups that are more than padding, in the shape of `like`."""
    if is_routed is None:
        return mtf.zeros_like(like) + float(group.size)
    has_tokens = is_routed.any(tokens)
    return has_tokens.astype(tf.float32).sum(group)


def observations(tallies: Mapping[str, mtf.Tensor], balance_loss: float, z_loss: float) -> dict[str, mtf.Tensor]:
    """Shares and means, of the same shapes, from the sums of `tallied` over all parts of a batch.

    See `MixtureOfExperts.observed`. The arguments are the coefficients of two of its losses.
    """
    experts = tallies["choices"].shape[-1]
    num_tokens = mtf.maximum(tallies["tokens"], 1.0)
    load = tallies["choices"] / mtf.maximum(tallies["choices"].sum(experts), 1.0)
    balance = tallies["balance"] / mtf.maximum(tallies["groups"], 1.0)
    loss = balance_loss * balance
    if "normaliser" in tallies:
        loss += z_loss * tallies["normaliser"] / num_tokens
    return {
        AUXILIARY_LOSS: loss,
        "balance": balance,
        "dropped": tallies["dropped"] / mtf.maximum(tallies["droppable"], 1.0),
        "gate_entropy": tallies["entropy"] / num_tokens,
        "importance": tallies["probability"] / num_tokens,
        "largest_load": experts.size * load.max(experts),
        "load": load,
    }
