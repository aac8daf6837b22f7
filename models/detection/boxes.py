"""Boxes as four coordinates (left, top, right, bottom), in shares of the image, and as offsets from other boxes."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf

COORDINATES = mtf.Dimension("coordinates", 4)

VARIANCES = (0.1, 0.2)
"""The factors of offsets of centres and of the logarithms of sizes (Liu et al. 2016)."""

_SMALLEST = 1e-6


def overlaps(first: mtf.Tensor, second: mtf.Tensor) -> mtf.Tensor:
    """The intersection over union of boxes [..., coordinates]. The result has all other dimensions of both.

    It is 0 for two boxes without an area.
    """
    a, b = mtf.unstack(first, COORDINATES), mtf.unstack(second, COORDINATES)
    width, height = (mtf.relu(mtf.minimum(a[i + 2], b[i + 2]) - mtf.maximum(a[i], b[i])) for i in (0, 1))
    shared = width * height
    union = _area(a) + _area(b) - shared
    return shared / mtf.maximum(union, _SMALLEST)


def encoded(boxes: mtf.Tensor, anchors: mtf.Tensor) -> mtf.Tensor:
    """The offsets [..., coordinates] of boxes from anchors: of centres, and of logarithms of sizes."""
    box, anchor = _centred(boxes), _centred(anchors)
    of_centres = [(box[i] - anchor[i]) / anchor[i + 2] / VARIANCES[0] for i in (0, 1)]
    of_sizes = [mtf.log(mtf.maximum(box[i], _SMALLEST) / anchor[i]) / VARIANCES[1] for i in (2, 3)]
    return mtf.stack([*of_centres, *of_sizes], COORDINATES.name, axis=-1)


def decoded(offsets: mtf.Tensor, anchors: mtf.Tensor) -> mtf.Tensor:
    """The boxes [..., coordinates] of which these are the offsets."""
    offset, anchor = mtf.unstack(offsets, COORDINATES), _centred(anchors)
    centres = [anchor[i] + offset[i] * VARIANCES[0] * anchor[i + 2] for i in (0, 1)]
    halves = [anchor[i] * mtf.exp(offset[i] * VARIANCES[1]) * 0.5 for i in (2, 3)]
    low = [centre - half for centre, half in zip(centres, halves, strict=True)]
    high = [centre + half for centre, half in zip(centres, halves, strict=True)]
    return mtf.stack([*low, *high], COORDINATES.name, axis=-1)


def _area(box: Sequence[mtf.Tensor]) -> mtf.Tensor:
    return (box[2] - box[0]) * (box[3] - box[1])


def _centred(boxes: mtf.Tensor) -> list[mtf.Tensor]:
    """Two coordinates of the centre, the width and the height."""
    left, top, right, bottom = mtf.unstack(boxes, COORDINATES)
    return [(left + right) * 0.5, (top + bottom) * 0.5, right - left, bottom - top]
