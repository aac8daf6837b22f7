from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from meshtf.train.data import SpanCorruption, TextPairs
from meshtf.train.data.objectives.uniforms import Uniforms


def test_ends_are_those_of_the_vocabulary() -> None:
    vocabulary = SimpleNamespace(size=100, end_id=50)
    tokens = np.arange(10, 30, dtype=np.int32)
    for objective, parts in ((SpanCorruption(), [tokens]), (TextPairs(), [tokens, tokens[:3]])):
        example = objective.example(parts, vocabulary, Uniforms(0, 0))
        for sequence in objective.sequences:
            assert example[sequence][-1] == 50
            assert 1 not in example[sequence]
