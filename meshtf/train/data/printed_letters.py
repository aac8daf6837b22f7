"""The letters of the fonts that Matplotlib includes, drawn as images of 16 x 16 pixels."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin
import numpy as np

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.array_task import ArrayTask

SIZE = 16
"""The pixels on each side of an image."""

TRAIN_FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-BoldOblique",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-BoldItalic",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBolIta",
    "STIXGeneralItalic",
    "cmb10",
    "cmmi10",
    "cmr10",
    "cmti10",
    "cmtt10",
)
HELD_OUT_FONTS = ("DejaVuSansMono-Oblique", "DejaVuSerif-Bold", "STIXGeneralBol", "cmss10")
"""Fonts that training does not see, one or more of each family."""

_POINTS, _DEGREES, _PLACES = (11, 13, 15), (-8, 0, 8), ((7, 7), (8, 8), (9, 8))

_MISSING = """\
the letters are drawn from Matplotlib's fonts, and {name} is not installed.
Install it with the project's extra: pip install 'meshtf[plots]'"""


@gin.configurable(module="meshtf.train")
def printed_letters(num_classes: int = 26) -> ArrayTask:
    """The task of naming a printed capital letter: `images` [height:16, width:16, channels:1] from 0 to 1, `labels` [].

    Each of 18 fonts is drawn in three sizes, at three angles and in three places, so there are 12,636 images to train
    on. The 936 held-out images are of four other fonts.

    Args:
      num_classes: the number of letters, starting with A.
    """
    if not isinstance(num_classes, int) or not 2 <= num_classes <= len(string.ascii_uppercase):
        raise ConfigurationError(f"printed_letters.num_classes must be from 2 to 26, and is {num_classes!r}")
    letters = string.ascii_uppercase[:num_classes]
    return ArrayTask(
        name="printed letters",
        shapes={
            "images": mtf.Shape([("height", SIZE), ("width", SIZE), ("channels", 1)]),
            "labels": mtf.Shape([]),
        },
        train=_examples(TRAIN_FONTS, letters, _PLACES),
        held_out=_examples(HELD_OUT_FONTS, letters, _PLACES[1:2]),
    )


def _examples(fonts: Sequence[str], letters: str, places: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    images = np.stack([*_drawn(fonts, letters, places)])
    count = len(images) // (len(fonts) * len(letters))
    labels = np.tile(np.repeat(np.arange(len(letters), dtype=np.int32), count), len(fonts))
    return {"images": images[..., np.newaxis].astype(np.float32) / 255, "labels": labels}


def _drawn(fonts: Sequence[str], letters: str, places: Sequence[tuple[int, int]]) -> Iterator[np.ndarray]:
    """Yields images [height, width] uint8: of each font, each letter in all its forms."""
    try:
        import matplotlib as mpl  # an optional dependency
        from PIL import Image, ImageDraw, ImageFont  # Matplotlib's own dependency
    except ImportError as error:
        raise ConfigurationError(_MISSING.format(name=error.name)) from error
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    for font in fonts:
        in_sizes = [ImageFont.truetype(str(folder / f"{font}.ttf"), points) for points in _POINTS]
        for letter, own, degrees, place in itertools.product(letters, in_sizes, _DEGREES, places):
            image = Image.new("L", (SIZE, SIZE))
            ImageDraw.Draw(image).text(place, letter, fill=255, font=own, anchor="mm")
            yield np.asarray(image.rotate(degrees, Image.Resampling.BILINEAR))
