"""Placeholder images, for plans."""

from __future__ import annotations

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.train.data.array_task import ArrayTask


@gin.configurable(module="meshtf.train")
def images_on_paper(size: int, dtype: str = "bfloat16") -> ArrayTask:
    """The task of a plan: `images` [height, width, channels:3] and `labels` []. There is one image, and it is black.

    Args:
      size: the height and the width.
      dtype: the dtype of the images, as a model with activations in bfloat16 reads them.
    """
    shapes = {"images": mtf.Shape([("height", size), ("width", size), ("channels", 3)]), "labels": mtf.Shape([])}
    own = {"images": np.zeros([1, size, size, 3], tf.as_dtype(dtype).as_numpy_dtype), "labels": np.zeros([1], np.int32)}
    return ArrayTask("images on paper", shapes, own, own)
