"""Named dimensions and shapes: the vocabulary of the language."""

from meshtf.dimension.dimension import Dimension, DimensionLike, Dims
from meshtf.dimension.shape import (
    Shape,
    ShapeLike,
    combined_dimension,
    convert_to_dimension,
    convert_to_shape,
    described,
    names_of,
    shape_of,
    unused_name,
)

__all__ = [
    "Dimension",
    "DimensionLike",
    "Dims",
    "Shape",
    "ShapeLike",
    "combined_dimension",
    "convert_to_dimension",
    "convert_to_shape",
    "described",
    "names_of",
    "shape_of",
    "unused_name",
]
