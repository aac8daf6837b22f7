"""Checks of the arguments of callbacks."""

from __future__ import annotations

from meshtf.number_checks import is_integer, is_number
from meshtf.train.configuration import ConfigurationError


def check_integer(name: str, value: object, least: int) -> None:
    """Raises ConfigurationError if the value is not an integer, or is too small."""
    if not is_integer(value, least):
        raise ConfigurationError(f"{name} must be an integer, {least} or more, and is {value!r}")


def check_number(name: str, value: object) -> None:
    """Raises ConfigurationError if the value is not a finite number, or is negative."""
    if not is_number(value) or value < 0:
        raise ConfigurationError(f"{name} must be a number, 0 or more, and is {value!r}")


def check_text(name: str, value: object, *, may_be_none: bool = False) -> None:
    """Raises ConfigurationError if the value is not a text, or is empty."""
    if value is None and may_be_none:
        return
    if not isinstance(value, str) or not value:
        wanted = "a text, or None" if may_be_none else "a text"
        raise ConfigurationError(f"{name} must be {wanted}, and is {value!r}")
