"""Low-rank adapters: nothing at first, then their product; what they are of alone is trained."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import AttentionConfig, LowRank, project_queries
from meshtf.optimize import FrozenOptimizer, ParameterGroups, SgdOptimizer
from meshtf.testing import assert_close, interpret

SHAPE = mtf.convert_to_shape("length:4 d_model:8")
CONFIG = AttentionConfig(num_heads=2, d_kv=4, query_scale=1.0, low_rank=LowRank(rank=2, alpha=4.0))


@pytest.mark.parametrize(("mesh_shape", "layout"), [("rows:1", ""), ("rows:2;cols:2", "lora_rank:rows;heads:cols")])
def test_adapters_alone_are_trained(mesh_shape: str, layout: str) -> None:
    x = np.random.default_rng(0).normal(size=[4, 8]).astype(np.float32)

    def step(x: mtf.Tensor) -> mtf.Tensor:
        q = project_queries(x, CONFIG)
        optimizer = ParameterGroups([("_lora_[ab]$", SgdOptimizer(0.1))], default=FrozenOptimizer())
        optimizer.minimize(mtf.reduce_sum(mtf.square(q)))
        return q

    done = interpret(step, {"x": (SHAPE, x)}, mesh_shape, layout)
    after = done.variables
    (q,) = [done.results] if not isinstance(done.results, list) else done.results
    assert after["q_lora_scale"] == 2.0
    kernel, a = after["q"], after["q_lora_a"]  # neither changed: the gradient of `a` is one of b, which was 0
    assert_close(q, np.tensordot(x, kernel, 1), terms=8)
    grad = 2.0 * np.einsum("lm,lhk->mhk", x, q)
    assert_close(after["q_lora_b"], -0.1 * 2.0 * np.einsum("mr,mhk->rhk", a, grad), terms=2 * (8 + 4 + 8 + 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank must be a positive integer"),
        ({"rank": 1, "projections": ("w",)}, "must be of q, k, v and o"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LowRank(**settings)  # type: ignore[arg-type]
