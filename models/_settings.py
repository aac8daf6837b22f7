"""Checks of models' settings, when a model is made."""

from __future__ import annotations

from meshtf.field_checks import check
from meshtf.layers.embedding import VocabularyEmbedding


def check_id(model: object, field: str, vocabulary: VocabularyEmbedding) -> None:
    """Checks that a field is an id of the vocabulary.

    Raises:
      ValueError: it is not.
    """
    size = vocabulary.vocab_size
    check(model, field, 0 <= getattr(model, field) < size, f"an id, from 0 to {size - 1}")
