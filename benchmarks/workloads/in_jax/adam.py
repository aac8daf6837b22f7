"""Adam, hand-written in JAX (Kingma & Ba 2015), with decoupled weight decay (Loshchilov & Hutter 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def started(weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The state before the first step."""
    return {
        "weights": dict(weights),
        "m": {name: np.zeros_like(w) for name, w in weights.items()},
        "v": {name: np.zeros_like(w) for name, w in weights.items()},
        "powers": np.array([BETA_1, BETA_2], np.float32),
    }


def updated(
    state: dict[str, Any], grads: Mapping[str, jax.Array], learning_rate: float, decay: Mapping[str, float]
) -> dict[str, Any]:
    """The state after a step. `decay` is the weight decay by name of weight, to be multiplied by `learning_rate`."""
    m = jax.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * g * g, state["v"], grads)
    power_1, power_2 = state["powers"]
    unbiased_m, unbiased_v = (jax.tree.map(lambda x, p=p: x / (1 - p), x) for x, p in ((m, power_1), (v, power_2)))
    decayed = {name: w * (1 - learning_rate * decay.get(name, 0.0)) for name, w in state["weights"].items()}
    weights = jax.tree.map(
        lambda w, m, v: w - learning_rate * m / (jnp.sqrt(v) + EPSILON), decayed, unbiased_m, unbiased_v
    )
    powers = state["powers"] * jnp.array([BETA_1, BETA_2], jnp.float32)
    return {"weights": weights, "m": m, "v": v, "powers": powers}
