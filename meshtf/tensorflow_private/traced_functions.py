"""Attributes that tell TensorFlow how to treat a traced function.

Public alternatives that are not sufficient:

- `_noinline`: `tf.function` documents `experimental_attributes`, but not which attributes exist. Nothing else keeps
  TensorFlow from inlining a function.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_INLINED: Mapping[str, bool] = {"_noinline": True}
"""Attributes of a function that is not inlined. Its callers run it as a whole, and are optimized separately."""
