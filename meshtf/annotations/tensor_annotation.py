"""The annotation of a tensor: its element type, and its shape."""

from __future__ import annotations

import dataclasses
from typing import Any, Union

import tensorflow as tf

from meshtf.annotations.shape_pattern import ShapePattern, parse_shape_pattern
from meshtf.call_sites import says_where
from meshtf.errors import ShapeError

_SHORT_NAMES = {
    tf.bfloat16: "bf16",
    tf.float16: "f16",
    tf.float32: "f32",
    tf.float64: "f64",
    tf.int8: "i8",
    tf.int16: "i16",
    tf.int32: "i32",
    tf.int64: "i64",
    tf.uint8: "u8",
    tf.complex64: "c64",
    tf.complex128: "c128",
    tf.bool: "bool_",
    None: "Tensor",
}


@dataclasses.dataclass(frozen=True, slots=True)
class TensorAnnotation:
    """The annotation of a tensor. `mtf.f32` allows any shape; `mtf.f32["batch:64"]` states one.

    Attributes:
      dtype: the tensor's dtype; None for any.
      pattern: its shape; None for any.
    """

    dtype: tf.DType | None
    pattern: ShapePattern | None = None

    @says_where
    def __getitem__(self, text: object) -> TensorAnnotation:
        if self.pattern is not None:
            raise ShapeError(f"{self} already has a shape, and takes no second one, {text!r}")
        return dataclasses.replace(self, pattern=parse_shape_pattern(text))

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007  # typing's, which takes any object

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __str__(self) -> str:
        shape = "" if self.pattern is None else f'["{self.pattern}"]'
        return f"mtf.{_SHORT_NAMES[self.dtype]}{shape}"

    __repr__ = __str__
