"""How much a draft has helped, over batches whose last rows may be no texts."""

from __future__ import annotations

import numpy as np

from meshtf.train.decoding.drafts.draft_counts import DraftCounts


def test_rows_that_are_no_texts_do_not_count() -> None:
    counts = DraftCounts(4)
    assert str(counts) == "0.00 tokens for each step of the model, which accepted 0 of 0 drafted tokens (0%)"
    counts.add({"steps": np.array([2, 1]), "accepted": np.array([6, 0]), "lengths": np.array([11, 4])}, [3, 3])
    counts.add({"steps": np.array([2, 9]), "accepted": np.array([3, 9]), "lengths": np.array([7, 99])}, [2])
    assert str(counts) == "2.80 tokens for each step of the model, which accepted 9 of 20 drafted tokens (45%)"
