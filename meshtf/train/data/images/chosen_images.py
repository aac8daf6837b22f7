"""Some of a source's images, and images that stay in memory once they are decoded."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import tensorflow as tf

from meshtf.train.data.fingerprints import crc_of
from meshtf.train.data.images.decoding import decoded
from meshtf.train.data.images.source import Images

NO_LABEL = -1


def chosen(images: Images, indices: np.ndarray) -> Images:
    """Returns the images with these indices, [n] int64, in this order."""
    table = tf.constant(indices, tf.int64)
    return Images(
        count=len(indices),
        read=lambda index: images.read(tf.gather(table, index)),
        place=lambda index: images.place(int(indices[index])),
        key=lambda index: images.key(int(indices[index])),
        contents=f"{images.contents} {crc_of(indices):08x}",
        class_names=images.class_names,
    )


def halves(images: Images, share: float) -> tuple[Images, Images]:
    """Splits images by a hash of their keys, into the rest and a share of about this size."""
    is_held_out = np.array([_hash(images.key(index)) < share for index in range(images.count)], bool)
    rest, held_out = (np.flatnonzero(each).astype(np.int64) for each in (~is_held_out, is_held_out))
    return chosen(images, rest), chosen(images, held_out)


def cached(images: Images, channels: int) -> Images:
    """Returns the same images. Each is decoded when it is first read, and stays in memory.

    A bad image gives the label `NO_LABEL`.
    """
    known: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def pixels_and_label(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if int(index) not in known:
            try:
                image, label = images.read(tf.constant(index))
                known[int(index)] = (decoded(image, channels).numpy(), label.numpy())
            except (tf.errors.OpError, OSError):  # it would be printed with the lines of this function
                return np.zeros([0, 0, channels], np.uint8), np.array(NO_LABEL)
        return known[int(index)]

    def read(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels, label = tf.numpy_function(pixels_and_label, [index], [tf.uint8, tf.int64])
        return tf.ensure_shape(pixels, [None, None, channels]), tf.ensure_shape(label, [])

    return dataclasses.replace(images, read=read)


def _hash(key: str) -> float:
    """Returns a number from 0 (inclusive) to 1 that depends on the key alone."""
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56
