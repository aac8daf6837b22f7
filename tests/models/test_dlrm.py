"""DLRM beside NumPy, under several layouts."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.models import DLRM
from meshtf.testing import interpret

MODEL = DLRM((9, 5, 2), embedding_size=4, bottom_sizes=(6,), top_sizes=(8,), num_stripes=4, capacity_factor=4.0)
GENERATOR = np.random.default_rng(0)
INPUTS = {
    "numbers": ("batch:8 numbers:3", GENERATOR.normal(size=(8, 3)).astype(np.float32)),
    "ids": ("batch:8 tables:3 bag:2", GENERATOR.integers(-1, 2, (8, 3, 2)).astype(np.int32)),
    "labels": ("batch:8", np.arange(8, dtype=np.int32) % 2),
}


def outcome(layout: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    def program(numbers: mtf.Tensor, ids: mtf.Tensor, labels: mtf.Tensor) -> dict[str, mtf.Tensor]:
        features = {"numbers": numbers, "ids": ids, "labels": labels}
        with_auc = MODEL.metrics(features, is_training=False)
        auc = with_auc.pop("auc")
        assert isinstance(auc, dict)
        return {**with_auc, "auc": auc["scores"], "logits": MODEL.logits(features)}  # type: ignore[dict-item]

    made = interpret(program, INPUTS, "rows:2;cols:2", layout, seed=3)
    return made.results, made.variables


def test_the_logits_are_those_of_the_paper_under_every_layout() -> None:
    results, weights = outcome("")
    numbers, ids = INPUTS["numbers"][1], INPUTS["ids"][1]

    def dense(x: np.ndarray, name: str, relu: bool = True) -> np.ndarray:
        y = x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
        return np.maximum(y, 0) if relu else y

    bottom = dense(dense(numbers, "bottom/hidden_0"), "bottom/output")
    table = weights["embedding_tables"]
    vectors = [bottom]
    for t in range(3):
        rows = table[MODEL.tables.row_numbers(t)]
        vectors.append((rows[ids[:, t]] * (ids[:, t] >= 0)[..., None]).sum(1))
    pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(4) for j in range(i)]
    top = dense(np.concatenate([bottom, np.stack(pairs, 1)], 1), "top/hidden_0")
    wanted = dense(top, "top/output", relu=False)[:, 0]
    assert set(results) == {"loss", "accuracy", "auc", "logits"}
    np.testing.assert_allclose(results["logits"], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(results["auc"], results["logits"])
    for layout in ("batch:rows+cols;rows:rows+cols", "batch:rows;rows:cols", "batch:rows;rows:rows;hidden:cols"):
        for name, value in outcome(layout)[0].items():
            np.testing.assert_allclose(value, results[name], rtol=1e-4, atol=1e-5, err_msg=f"{layout} {name}")


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="top_sizes a sequence of them"):
        DLRM((3, 3), top_sizes=(0,))
