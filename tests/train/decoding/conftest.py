"""Models small enough that all sequences can be tried, and what they give by whole passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.initializers import NormalInitializer
from meshtf.layers.transformer import (
    CrossAttention,
    FeedForward,
    Rotary,
    SelfAttention,
    TokenEmbedding,
    TransformerStack,
)
from meshtf.models import EncoderDecoder, TransformerLM
from meshtf.train.decoding.programs import Sizes
from tests.optimize.interpreted_training import InterpretedTraining

VOCAB_SIZE, END = 5, 1
CONFIG = AttentionConfig(2, 4)
# Padded to 8; of so large a deviation that tokens differ much in likelihood.
EMBEDDING = TokenEmbedding(VocabularyEmbedding(VOCAB_SIZE, 4, NormalInitializer(stddev=0.7)))
SELF = SelfAttention(CONFIG, rotary=Rotary())


@pytest.fixture(scope="session")
def lm() -> TransformerLM:
    return TransformerLM(8, EMBEDDING, TransformerStack([SELF, FeedForward(8)], 1))


@pytest.fixture(scope="session")
def encoder_decoder() -> EncoderDecoder:
    encoder = TransformerStack([SELF, FeedForward(8)], 1)
    return EncoderDecoder(8, EMBEDDING, encoder, TransformerStack([SELF, CrossAttention(CONFIG), FeedForward(8)], 1))


@dataclasses.dataclass(frozen=True)
class WholePasses:
    """Log-probabilities [batch, length, vocab] of a model as its variables start, by one pass over whole sequences.

    A pass on the interpreter takes longer than a compiled one, but nothing is compiled: fifty cost as much.
    """

    program: InterpretedTraining
    length: int

    @classmethod
    def of(cls, model: TransformerLM | EncoderDecoder, sizes: Sizes) -> WholePasses:
        def log_probabilities(**features: mtf.Tensor) -> mtf.Tensor:
            logits = model.logits(features, is_training=False)
            return mtf.log_softmax(mtf.cast(logits, tf.float32), model.vocabulary.vocab)

        return cls(InterpretedTraining(log_probabilities, sizes.features, "cores:1", ""), sizes.targets)

    def __call__(self, **features: np.ndarray) -> np.ndarray:
        return self.program.result(**features)[..., :VOCAB_SIZE]

    def next_token(self, prefix: tuple[int, ...], **inputs: np.ndarray) -> np.ndarray:
        """[vocab], of the token behind a prefix; the batch is of size 1."""
        targets = np.array([[*prefix, *[0] * (self.length - len(prefix))]], np.int32)
        return self(targets=targets, **inputs)[0, len(prefix)]


MakeWholePasses = Callable[[object, Sizes], WholePasses]


@pytest.fixture(scope="session")
def whole_passes() -> MakeWholePasses:
    return WholePasses.of


Arrays = Mapping[str, tuple[mtf.Shape, np.ndarray]]


@pytest.fixture
def overrun(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the loops over tokens that may overrun go on until a position, whether all sequences have ended or not."""
    as_it_is = mtf.while_loop

    def until(end: int) -> None:
        def loop(cond_fn: object, *parts: Any, **options: Any) -> list[mtf.Tensor]:
            assert options.pop("may_overrun")
            options["maximum_iterations"] = end
            return as_it_is(lambda position, *_: mtf.less(position, end), *parts, **options)

        monkeypatch.setattr(mtf, "while_loop", loop)

    return until
