"""Arrays that do not go together are refused, each by its name, before anything is made of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ArrayTask

X, Y = np.zeros([5, 3], np.float32), np.zeros([5], np.int32)
SHAPES = {"x": mtf.Shape([("width", 3)]), "y": mtf.Shape([])}


def task(train: Any, held_out: Any, shapes: Any = SHAPES) -> ArrayTask:
    return ArrayTask("odd", shapes, train, held_out)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, ml_dtypes.bfloat16, np.uint8, np.int64, np.bool_, np.complex64]
)
def test_arrays_of_any_numbers_go_together(dtype: Any) -> None:
    features = {"x": X.astype(dtype), "y": Y}
    assert str(task(features, {"x": X[:1].astype(dtype), "y": Y[:1]})) == "odd: 5 examples to train on, 1 held out"


@pytest.mark.parametrize(
    ("train", "held_out", "message"),
    [
        (
            {"x": X, "y": Y[:4]},
            {"x": X, "y": Y},
            'train must have the same number of examples for each feature: "x" has 5, "y" has 4',
        ),
        (
            {"x": X, "y": Y},
            {"x": X[:1], "y": Y},
            'held_out must have the same number of examples for each feature: "x" has 1, "y" has 5',
        ),
        ({"x": X[:0], "y": Y[:0]}, {"x": X, "y": Y}, "train has no example to train on; it must have at least one"),
        ({"x": X, "y": Y}, {"x": X[:0], "y": Y[:0]}, "held_out has no example by which to say what was learnt"),
        (
            {"x": X, "y": Y},
            {"x": X.astype(np.float64), "y": Y},
            'held_out["x"] is of float64, and train["x"] of float32',
        ),
        ({"x": X, "y": Y}, {"x": X, "y": Y.astype(np.int64)}, 'convert one, as in x.astype("int32")'),
        ({"x": X, "y": Y}, {"x": X, "y": Y.astype(bool)}, 'held_out["y"] is of bool, and train["y"] of int32'),
        ({"x": X}, {"x": X, "y": Y}, 'train lacks "y"'),
        ({"x": X, "y": Y}, {"xs": X, "y": Y}, 'held_out lacks "x"; did you mean "xs"?'),
        ({"x": X, "y": Y, "yy": Y}, {"x": X, "y": Y}, 'train has "yy", which shapes does not name'),
        ({"x": X[:, :2], "y": Y}, {"x": X, "y": Y}, 'train["x"] has shape [5, 2], and must be [examples width:3]'),
        (
            {"x": X, "y": Y},
            {"x": X[..., None], "y": Y},
            'held_out["x"] has shape [5, 3, 1], and must be [examples width:3]',
        ),
        ({"x": X, "y": Y[:, None]}, {"x": X, "y": Y}, 'train["y"] has shape [5, 1], and must be [examples]'),
        ({"x": X, "y": np.int32(3)}, {"x": X, "y": Y}, 'train["y"] is a single number, and must be [examples]'),
        (
            {"x": X.tolist(), "y": Y},
            {"x": X, "y": Y},
            'train["x"] must be a NumPy array, and is a list; np.asarray(...)',
        ),
        ({"x": X.astype(str), "y": Y}, {"x": X, "y": Y}, "and must be of numbers or bool"),
        ({"x": X.astype(object), "y": Y}, {"x": X, "y": Y}, 'train["x"] is of object, and must be of numbers or bool'),
        ({"x": X.astype("M8[s]"), "y": Y}, {"x": X, "y": Y}, 'train["x"] is of datetime64[s], and must be of numbers'),
        ([X, Y], {"x": X, "y": Y}, "train must be a dict of arrays by the names of features, and is a list"),
        ({"x": X, "y": Y}, None, "held_out must be a dict of arrays by the names of features, and is a NoneType"),
    ],
)
def test_what_does_not_go_together(train: Any, held_out: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        task(train, held_out)
    assert str(caught.value).startswith('the arrays of the task "odd" do not fit together:\n')
    assert message in str(caught.value)


def test_a_shape_may_be_text_or_a_list() -> None:
    arrays = {"x": X, "y": Y}
    batch = mtf.Dimension("batch", 2)
    for shapes in ({"x": "width:3", "y": ""}, {"x": [("width", 3)], "y": []}):
        assert task(arrays, arrays, shapes).inputs(batch) == task(arrays, arrays).inputs(batch)
    with pytest.raises(ShapeError, match="not a dimension: 3"):
        task(arrays, arrays, {"x": [3], "y": []})
    with pytest.raises(ConfigurationError, match="must be a dict by names of features, and not list"):
        task(arrays, arrays, [mtf.Shape([])])


def test_names_that_no_feature_can_have() -> None:
    with pytest.raises(ConfigurationError, match="shapes names no feature"):
        task({}, {}, shapes={})
    named = {"weights": X, "y": Y}
    with pytest.raises(
        ConfigurationError, match='no feature can be called "weights": an evaluation marks padding examples'
    ):
        task(named, named, shapes={"weights": SHAPES["x"], "y": SHAPES["y"]})


def test_all_faults_are_listed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        task({"x": X[:, :1], "y": Y[:, None]}, {"x": X, "y": Y.astype(str)})
    assert len(str(caught.value).splitlines()) == 4
