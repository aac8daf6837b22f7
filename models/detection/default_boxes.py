"""Default boxes: the boxes of several sizes and aspect ratios around each cell of a detector's feature maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import gin
import numpy as np

from meshtf.field_checks import check_kinds, check_sizes

_DIFFERENT = """\
DefaultBoxes: steps, aspect_ratios and scales must be for the same number of feature maps (scales has one number
more), and are for {steps}, {ratios} and {scales}"""


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class DefaultBoxes:
    """The boxes from which a detector predicts offsets (Liu et al. 2016, section 2.2), by default those of SSD300.

    A cell has a square box of the map's scale, and one of the geometric mean of this scale and the next map's. For each
    aspect ratio it has a wide and a tall box. No box is larger than the image.

    Attributes:
      image_size: the pixels on each side of an image.
      steps: for each feature map, the distance of two cells in pixels.
      scales: for each feature map, the side of its square boxes in pixels; and one number more, for the last mean.
      aspect_ratios: for each feature map, the ratios of its other boxes.

    Raises:
      ValueError: the settings are for different numbers of feature maps.
    """

    image_size: int = 300
    steps: Sequence[int] = (8, 16, 32, 64, 100, 300)
    scales: Sequence[float] = (21, 45, 99, 153, 207, 261, 315)
    aspect_ratios: Sequence[Sequence[float]] = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "image_size")
        given = [*self.steps, *self.scales, *(ratio for ratios in self.aspect_ratios for ratio in ratios)]
        if not all(number > 0 for number in given):
            raise ValueError(
                f"DefaultBoxes: steps, scales and aspect_ratios must be above 0, and one is {min(given)!r}"
            )
        counts = {"steps": len(self.steps), "ratios": len(self.aspect_ratios), "scales": len(self.scales) - 1}
        if len({*counts.values()}) != 1:
            raise ValueError(_DIFFERENT.format(**counts))

    @property
    def boxes_per_cell(self) -> tuple[int, ...]:
        """The number of boxes in a cell of each feature map."""
        return tuple(2 + 2 * len(ratios) for ratios in self.aspect_ratios)

    def corners(self, map_sizes: Sequence[tuple[int, int]]) -> np.ndarray:
        """The boxes, float32 [anchors, coordinates], of maps of these heights and widths.

        The order is by map, then by row, by column, and by aspect ratio.
        """
        return np.concatenate([self._of_map(number, *size) for number, size in enumerate(map_sizes)]).astype(np.float32)

    def _of_map(self, number: int, height: int, width: int) -> np.ndarray:
        forms = np.minimum([*self._forms(number)], 1.0)
        step = self.steps[number] / self.image_size
        y, x = np.meshgrid((np.arange(height) + 0.5) * step, (np.arange(width) + 0.5) * step, indexing="ij")
        centres = np.minimum(np.stack([x, y], axis=-1), 1.0)[:, :, np.newaxis]
        return np.concatenate([centres - forms / 2, centres + forms / 2], axis=-1).reshape(-1, 4)

    def _forms(self, number: int) -> Iterator[tuple[float, float]]:
        """Yields the width and the height of a cell's boxes."""
        scale, after = (self.scales[n] / self.image_size for n in (number, number + 1))
        yield scale, scale
        mean = (scale * after) ** 0.5
        yield mean, mean
        for ratio in self.aspect_ratios[number]:
            yield scale * ratio**0.5, scale / ratio**0.5
            yield scale / ratio**0.5, scale * ratio**0.5
