"""The names of annotations, and annotations as values."""

from __future__ import annotations

import typing

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.annotations import element_types
from meshtf.annotations.tensor_annotation import TensorAnnotation

pytestmark = pytest.mark.quick


def test_each_name_has_its_element_type() -> None:
    names = {
        "bf16": tf.bfloat16, "f16": tf.float16, "f32": tf.float32, "f64": tf.float64, "bool_": tf.bool,
        "i8": tf.int8, "i16": tf.int16, "i32": tf.int32, "i64": tf.int64, "c64": tf.complex64, "c128": tf.complex128,
        "u8": tf.uint8,
    }  # fmt: skip
    found = {name: x.dtype for name, x in vars(element_types).items() if isinstance(x, TensorAnnotation)}
    assert found == names
    assert all(getattr(mtf, name) is getattr(element_types, name) for name in names)
    assert [repr(getattr(mtf, name)["n"]) for name in names] == [f'mtf.{name}["n"]' for name in names]
    assert repr(mtf.Tensor["n:4"]) == 'mtf.Tensor["n:4"]'


def test_annotations_are_values() -> None:
    assert mtf.f32["a b:3"] == mtf.f32["a,  b:3"] != mtf.f32["b:3 a"]
    assert len({mtf.f32["a"], mtf.f32["a"], mtf.i32["a"], mtf.f32}) == 3
    assert typing.get_args(mtf.f32["a"] | None) == (mtf.f32["a"], type(None))
    assert typing.get_args(None | mtf.f32["a"]) == (type(None), mtf.f32["a"])
