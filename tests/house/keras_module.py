"""Keras, whose results are the reference of some tests. Only these import it, since it takes two seconds."""

from __future__ import annotations

import importlib
from typing import Any


def keras() -> Any:
    """Returns the module. tf.keras is switched off in tests/conftest.py."""
    return importlib.import_module("keras")
