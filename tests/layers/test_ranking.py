"""The area under the curve, beside a count of all pairs, with equal scores and on many cores."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.testing import interpret


@pytest.mark.parametrize("layout", ["", "n:all"])
def test_the_area_is_the_share_of_pairs_in_order(layout: str) -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 5, 24).astype(np.float32)  # many are equal
    labels = generator.integers(0, 2, 24).astype(np.int32)
    ones, zeros = scores[labels == 1][:, None], scores[labels == 0]
    wanted = ((ones > zeros) + 0.5 * (ones == zeros)).mean()
    inputs = {"scores": ("n:24", scores), "labels": ("n:24", labels)}
    found = interpret(lambda scores, labels: list(mtf.layers.area_under_curve(scores, labels)), inputs, "all:4", layout)
    np.testing.assert_allclose(found.results, [wanted, 1.0], rtol=1e-6)


def test_labels_that_are_all_equal_have_no_weight() -> None:
    inputs = {"x": ("n:3", np.ones(3, np.float32))}
    assert interpret(lambda x: list(mtf.layers.area_under_curve(x, x)), inputs, "all:1", "").results[1] == 0


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="have one dimension, the same for both"):
        interpret(lambda x: mtf.layers.area_under_curve(x, x)[0], {"x": ("a:1 b:2", np.ones((1, 2)))}, "all:1", "")
