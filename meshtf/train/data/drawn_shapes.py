"""Images of shapes on noise, with their boxes and their pixels: tasks of detection and segmentation."""

from __future__ import annotations

from collections.abc import Callable

import gin
import numpy as np

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.array_task import ArrayTask

SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 1,
    "disc": lambda x, y: x**2 + y**2 <= 1,
    "triangle": lambda x, y: (abs(x) <= (y + 1) / 2) & (y <= 1),
}
"""Whether points are inside each shape. Their coordinates are from -1 to 1 within the shape's box."""

_SMALLEST, _LARGEST = 0.25, 0.5  # of the image
_NOISE = 0.1


@gin.configurable(module="meshtf.train")
def drawn_objects(
    size: int = 32, max_objects: int = 3, num_train: int = 4096, num_held_out: int = 256, seed: int = 0
) -> ArrayTask:
    """The task of finding shapes: `images` [height, width, channels:3], `boxes` [objects, coordinates], `labels`.

    A box is left, top, right and bottom, in shares of the image. The labels [objects] are 1 for a square, 2 for a disc,
    3 for a triangle, and 0 for no object. Later shapes are drawn over earlier ones. The box of each covers at most half
    of an earlier one's, but several may together hide a shape.

    Args:
      size: the pixels on each side of an image, at least 8.
      max_objects: the most shapes in an image, which has one at least.
      num_train: how many images there are to train on.
      num_held_out: how many others there are to evaluate on.
      seed: decides everything that is drawn.

    Raises:
      ConfigurationError: if a number is not positive, or the size is less than 8.
    """
    _check("drawn_objects", size, max_objects, num_train, num_held_out)
    shapes = {
        "images": mtf.Shape([("height", size), ("width", size), ("channels", 3)]),
        "boxes": mtf.Shape([("objects", max_objects), ("coordinates", 4)]),
        "labels": mtf.Shape([("objects", max_objects)]),
    }
    parts = [_examples(size, max_objects, n, (seed, part)) for part, n in enumerate((num_train, num_held_out))]
    for part in parts:
        del part["classes"]
    return ArrayTask("drawn objects", shapes, *parts)


@gin.configurable(module="meshtf.train")
def drawn_regions(
    size: int = 32, max_objects: int = 3, num_train: int = 2048, num_held_out: int = 256, seed: int = 0
) -> ArrayTask:
    """The task of classifying each pixel: `images` [height, width, channels:3] and `labels` [height, width].

    The labels are 0 for the background, 1 for a square, 2 for a disc and 3 for a triangle. The images and the
    arguments are those of `drawn_objects`.

    Raises:
      ConfigurationError: if a number is not positive, or the size is less than 8.
    """
    _check("drawn_regions", size, max_objects, num_train, num_held_out)
    side = [("height", size), ("width", size)]
    shapes = {"images": mtf.Shape([*side, ("channels", 3)]), "labels": mtf.Shape(side)}
    found = [_examples(size, max_objects, n, (seed, part)) for part, n in enumerate((num_train, num_held_out))]
    parts = [{"images": part["images"], "labels": part["classes"]} for part in found]
    return ArrayTask("drawn regions", shapes, *parts)


def _check(name: str, size: int, *counts: int) -> None:
    if not all(isinstance(n, int) and n > 0 for n in (size, *counts)) or size < 8:
        raise ConfigurationError(
            f"{name} needs a size of 8 or more, and positive integers for max_objects, num_train and num_held_out; "
            f"they are {size!r}, {', '.join(map(repr, counts))}"
        )


def _examples(size: int, max_objects: int, count: int, seed: tuple[int, int]) -> dict[str, np.ndarray]:
    """`images`, `boxes`, `labels`, and the `classes` of all pixels, int32 [examples, height, width]."""
    generator = np.random.default_rng(seed)
    found = {
        "images": generator.normal(0.5, _NOISE, (count, size, size, 3)).astype(np.float32),
        "boxes": np.zeros((count, max_objects, 4), np.float32),
        "labels": np.zeros((count, max_objects), np.int32),
        "classes": np.zeros((count, size, size), np.int32),
    }
    for example in range(count):
        for _ in range(generator.integers(1, max_objects + 1)):
            _draw(found, example, generator)
    return found


def _draw(found: dict[str, np.ndarray], example: int, generator: np.random.Generator) -> None:
    """Draws one more shape, unless it hides too much."""
    image, classes = found["images"][example], found["classes"][example]
    size = len(image)
    width, height = generator.integers(int(size * _SMALLEST), int(size * _LARGEST) + 1, 2)
    left, top = generator.integers(0, size - width + 1), generator.integers(0, size - height + 1)
    label = int(generator.integers(1, len(SHAPES) + 1))
    y, x = np.mgrid[0:size, 0:size] + 0.5
    inside = [*SHAPES.values()][label - 1](2 * (x - left) / width - 1, 2 * (y - top) / height - 1)
    box = np.array([left, top, left + width, top + height], np.float32) / size
    if _hides_too_much(found, example, box):
        return
    colour = generator.uniform(0.0, 0.25, 3) + 0.75 * (generator.random(3) < 0.5)
    image[inside] = colour + generator.normal(0.0, _NOISE / 2, (inside.sum(), 3))
    classes[inside] = label
    place = int((found["labels"][example] > 0).sum())
    found["boxes"][example, place], found["labels"][example, place] = box, label


def _hides_too_much(found: dict[str, np.ndarray], example: int, box: np.ndarray) -> bool:
    """Whether a box covers more than half of an earlier one."""
    there = found["boxes"][example][found["labels"][example] > 0]
    sides = np.minimum(there[:, 2:], box[2:]) - np.maximum(there[:, :2], box[:2])
    areas = (there[:, 2:] - there[:, :2]).prod(1)
    return bool((sides.clip(0).prod(1) > 0.5 * areas).any())
