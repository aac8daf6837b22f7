"""Checks a task's batches before a program is fed with them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError
from meshtf.lowering.feeding import check_feeds
from meshtf.ops.inputs.placeholder import InputOperation


def check_features(which: str, program: mtf.Function, features: Mapping[str, np.ndarray | tf.Tensor]) -> None:
    """Checks that a batch has the names, shapes and types that the task declares.

    Raises:
      FeedError: if it has not. The message names the examples and every feature that does not fit.
    """
    inputs = {o.name: o for o in program.graph.operations if isinstance(o, InputOperation) and o.value is None}
    try:
        check_feeds([*inputs.values()], features, inputs, program.name, keeps_arrays=True)
    except FeedError as error:
        raise FeedError(f"{which} are not what its `inputs` say they are.\n{error}") from None


def first_non_finite_feature(features: Mapping[str, np.ndarray | tf.Tensor], first_example: int) -> str:
    """Returns a sentence on the feature of a batch, and the example, that hold a NaN or an infinity."""
    for name, value in features.items():
        array = np.asarray(value)
        if not np.issubdtype(array.dtype, np.inexact):
            continue
        is_wrong = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        if is_wrong.any():
            example = first_example + int(is_wrong.argmax())
            return f'The feature "{name}" holds a NaN or an infinity in example {example:,}.'
    return "All features of these examples are finite, so the model computed it from them."
