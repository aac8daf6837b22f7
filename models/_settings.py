"""Checks of models' settings, when a model is made."""

from __future__ import annotations

from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.number_checks import is_number


def check_size(model: object, name: str) -> None:
    """Checks that the setting of this name is a positive integer.

    Raises:
      ValueError: it is not.
    """
    size = getattr(model, name)
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"{type(model).__name__}: {name} must be a positive integer, and is {size!r}")


def check_share(model: object, name: str) -> None:
    """Checks that the setting of this name is a number from 0 to 1.

    Raises:
      ValueError: it is not.
    """
    share = getattr(model, name)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"{type(model).__name__}: {name} must be a number from 0 to 1, and is {share!r}")


def check_epsilon(model: object, name: str) -> None:
    """Checks that the setting of this name is a finite number, 0 or more.

    Raises:
      ValueError: it is not.
    """
    epsilon = getattr(model, name)
    if not is_number(epsilon) or epsilon < 0:
        raise ValueError(f"{type(model).__name__}: {name} must be a number, 0 or more, and is {epsilon!r}")


def check_id(model: object, name: str, vocabulary: VocabularyEmbedding) -> None:
    """Checks that the setting of this name is an id of the vocabulary.

    Raises:
      ValueError: it is not.
    """
    token = getattr(model, name)
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocabulary.vocab_size:
        raise ValueError(
            f"{type(model).__name__}: {name} must be an id, from 0 to {vocabulary.vocab_size - 1}, and is {token!r}"
        )


def check_parts(model: object, may_be_none: tuple[str, ...] = (), **kinds: type | tuple[type, ...]) -> None:
    """Raises ValueError unless each setting is of its kind, or of one of several, or None where it may be."""
    for name, kind in kinds.items():
        part = getattr(model, name)
        if not (isinstance(part, kind) or (part is None and name in may_be_none)):
            names = [each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,))]
            raise ValueError(
                f"{type(model).__name__}: {name} must be a {' or a '.join(names)}, and is {part!r}; in gin "
                f"@{names[0]}() makes one, parentheses included"
            )
