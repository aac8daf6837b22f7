"""Ids of classes, in the integer dtype that a user has them in."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf


def class_ids(x: mtf.Tensor) -> mtf.Tensor:
    """Integers of any dtype as int32, or as int64 if int32 does not have all of their values; others as they are."""
    if not x.dtype.is_integer or x.dtype in (tf.int32, tf.int64):
        return x
    return x.astype(tf.int32 if x.dtype.size < tf.int32.size else tf.int64)


def likeliest_classes(labels: mtf.Tensor, classes: mtf.Dimension) -> mtf.Tensor:
    """The class of each label: integers as `class_ids` gives them, or the likeliest of a distribution [.., classes]."""
    return labels.argmax(classes) if labels.dtype.is_floating else class_ids(labels)


def are_right(found: mtf.Tensor, right: mtf.Tensor) -> mtf.Tensor:
    """1 where the class that a model found, int32, is the right one, an integer of any dtype; else 0. float32."""
    right = class_ids(right)
    return mtf.equal(found.astype(right.dtype), right).astype(tf.float32)
