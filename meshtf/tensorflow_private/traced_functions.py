"""Attributes of a traced function, which tell TensorFlow how to treat it.

Public ways that do not do:

- `_noinline`: `tf.function` documents `experimental_attributes`, and not which there are. Nothing else keeps the body
  of a function out of its callers.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_INLINED: Mapping[str, bool] = {"_noinline": True}
"""Attributes of a function that stays one: its callers run it as a whole, and are optimized without it."""
