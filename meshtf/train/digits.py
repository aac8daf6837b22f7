"""The handwritten digits that scikit-learn includes: 1,797 images of 8 x 8 pixels (Alpaydin & Kaynak 1998)."""

from __future__ import annotations

import hashlib

import gin
import numpy as np

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.array_task import ArrayTask

MISSING_SCIKIT_LEARN = """\
the digits are scikit-learn's, which is not installed.
Install it with the project's extra: pip install 'meshtf[examples]'"""

BRIGHTEST = 16  # the images count black pixels in blocks of 4 x 4


@gin.configurable(module="meshtf.train")
def digits(num_held_out: int = 360, num_validation: int = 0, *, as_images: bool = False) -> ArrayTask:
    """The task of classifying digits: `images` [pixels:64] from 0 to 1, `labels` [] from 0 to 9.

    Args:
      num_held_out: how many examples are not trained on. A hash of their pixels chooses them, so neither the order of
        the data set nor a random generator's version matters.
      num_validation: if not 0, this many training examples are set aside, and evaluations use them instead of the
        held-out ones. Choose hyperparameters with them, so that the held-out accuracy of the choice stays meaningful.
    """
    try:
        from sklearn import datasets  # an optional dependency
    except ImportError as error:
        raise ConfigurationError(MISSING_SCIKIT_LEARN) from error
    raw, labels = map(np.asarray, datasets.load_digits(return_X_y=True))
    if not 0 < num_held_out < len(raw):
        raise ConfigurationError(f"digits.num_held_out must be from 1 to {len(raw) - 1}, and is {num_held_out}")
    if not 0 <= num_validation < len(raw) - num_held_out:
        raise ConfigurationError(
            f"digits.num_validation must be from 0 to {len(raw) - num_held_out - 1}, and is {num_validation}"
        )
    order = _order_by_hash(raw)
    held_out, train = order[:num_held_out], order[num_held_out:]
    if num_validation:
        held_out, train = train[:num_validation], train[num_validation:]
    shape = mtf.Shape([("height", 8), ("width", 8), ("channels", 1)] if as_images else [("pixels", raw.shape[1])])
    images = (raw / BRIGHTEST).astype(np.float32).reshape(-1, *shape.to_integer_list)
    features = {"images": images, "labels": labels.astype(np.int32)}
    return ArrayTask(
        name="handwritten digits, to choose parameters by" if num_validation else "handwritten digits",
        shapes={"images": shape, "labels": mtf.Shape([])},
        train={name: array[train] for name, array in features.items()},
        held_out={name: array[held_out] for name, array in features.items()},
    )


def _order_by_hash(images: np.ndarray) -> np.ndarray:
    """Returns the examples' indices, [examples], sorted by a hash of their pixels, [examples, pixels]."""
    hashes = [hashlib.sha256(image.astype(np.uint8).tobytes()).digest() for image in images]
    return np.array(sorted(range(len(images)), key=hashes.__getitem__))
