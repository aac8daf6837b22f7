"""A source of tensors that no program made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.checkpoint import CheckpointFolder
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.chunks import Chunk

SHAPES = {"a": (3, 40, 5), "half": (64,), "scalar": (), "empty": (0, 4)}


def value_of(name: str, step: int) -> np.ndarray:
    dtype = np.float16 if name == "half" else np.float32
    return (np.arange(np.prod(SHAPES[name])) + step).reshape(SHAPES[name]).astype(dtype)


def save(folder: CheckpointFolder, step: int, state: Mapping[str, Any] | None = None) -> None:
    """A checkpoint whose tensor `a` is in many slices."""
    boxes = {name: [Box.whole(shape)] for name, shape in SHAPES.items()}
    boxes["a"] = list(Box.whole(SHAPES["a"]).subdivided(70))
    chunks = [
        Chunk(name, SHAPES[name], tf.as_dtype(value_of(name, 0).dtype), box, name, None, ())
        for name, own in boxes.items()
        for box in own
    ]
    folder.write(step, chunks, lambda c: tf.constant(value_of(c.tensor, step)[c.box.slices]), state or {"step": step})


def check(folder: CheckpointFolder, step: int) -> None:
    """That a checkpoint has what was saved."""
    saved = folder.open(step)
    saved.verify()
    assert dict(saved.state) == {"step": step}
    for name in SHAPES:
        np.testing.assert_array_equal(saved.read(name).numpy(), value_of(name, step))
