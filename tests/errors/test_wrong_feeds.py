"""Arrays that no program can be fed, and calls that it cannot be called by."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, GraphError, UsageError

ARRAY, IDS = np.ones(4, np.float32), np.zeros(4, np.int32)
X = mtf.placeholder(mtf.Mesh(mtf.Graph()), "batch:4", name="x")
STEP = mtf.function(
    lambda x, ids: (mtf.reduce_sum(x), ids),
    mtf.PlanMeshImpl("rows:2", "batch:rows"),
    {"x": mtf.TensorSpec("batch:4"), "ids": mtf.TensorSpec("batch:4", tf.int32)},
    name="step",
)


class OnAGpu:
    """Becomes no array, as a tensor of PyTorch that is on a GPU."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("it is on cuda:0")


# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("missing", lambda: STEP(x=ARRAY),
     FeedError, 'input "ids" [batch:4] int32 is missing'),
    ("extra", lambda: STEP(x=ARRAY, ids=IDS, y=ARRAY),
     FeedError, 'no input "y"; the inputs are: x, ids'),
    ("dict", lambda: STEP({"x": ARRAY, "ids": IDS}),
     FeedError, 'program "step" was given a dict; inputs are given by name, as in'),
    ("twice", lambda: STEP(ARRAY, x=ARRAY),
     FeedError, 'program "step" was given input "x" twice'),
    ("three", lambda: STEP(ARRAY, IDS, ARRAY),
     FeedError, 'program "step" has 2 inputs (x, ids) and was given 3 arguments'),
    ("shape", lambda: STEP(x=np.ones(5, np.float32), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has shape [5]'),
    ("rank", lambda: STEP(x=np.ones([4, 1], np.float32), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has shape [4, 1]'),
    ("scalar", lambda: STEP(x=1.0, ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has shape []'),
    ("float64", lambda: STEP(x=np.ones(4), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has dtype float64; convert it, as'),
    ("int for float", lambda: STEP(x=IDS, ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has dtype int32; convert it, as'),
    ("ragged", lambda: STEP(x=[[1.0], [1.0, 2.0]], ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a list that is not an array: its'),
    ("ragged tensor", lambda: STEP(x=tf.ragged.constant([[1.0], [1.0, 2.0]]), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a RaggedTensor; make it dense first'),
    ("sparse", lambda: STEP(x=tf.sparse.from_dense(ARRAY), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a SparseTensor; make it dense first'),
    ("object", lambda: STEP(x=np.array([object()] * 4), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has dtype object; convert it, as'),
    ("strings", lambda: STEP(x=np.array(["a"] * 4), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has dtype str32; convert it, as'),
    ("None", lambda: STEP(x=None, ids=IDS),
     FeedError, 'input "x" [batch:4] float32 is missing'),
    ("None array", lambda: STEP(x=[None] * 4, ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a list of object, not an array of numbers'),
    ("ids float list", lambda: STEP(x=ARRAY, ids=[0.5] * 4),
     FeedError, 'input "ids" must be [batch:4] int32, and has float64 values'),
    ("ids beyond", lambda: STEP(x=ARRAY, ids=[2 ** 40] * 4),
     FeedError, 'input "ids" must be [batch:4] int32, and has values from 1099511627776 to'),
    ("beyond", lambda: STEP(x=[float("inf"), -1e300, 1.0, 2.0], ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has values from -1e+300 to 2.0, beyond float32'),
    ("bool", lambda: STEP(x=[True] * 4, ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has bool values'),
    ("mtf tensor", lambda: STEP(x=X, ids=IDS),
     UsageError, "x [batch:4] float32 is a tensor of the language, which has no value"),
    ("pandas-like generator", lambda: STEP(x=(i for i in range(4)), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a generator of object, not an array of numbers'),
    ("set", lambda: STEP(x={1.0, 2.0}, ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a set of object, not an array of numbers'),
    ("masked", lambda: STEP(x=np.ma.array(ARRAY, mask=[1, 0, 0, 0]), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a masked array; fill its masked elements'),
    ("no array", lambda: STEP(x=OnAGpu(), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and is a OnAGpu that does not become an array: it is on cuda:0'),
    ("masked part", lambda: STEP.local_inputs(x=np.ma.array(ARRAY, mask=[1, 0, 0, 0])),
     FeedError, 'batch 0 to 4: an array of float32 of shape [4]; the part is a masked array; fill its masked elements'),
    ("ragged part", lambda: STEP.local_inputs(x=[[1.0], [1.0, 2.0]]),
     FeedError, 'of input "x" [batch:4], this process feeds batch 0 to 4: an array of float32 of shape [4]; the part'),
    ("sparse part", lambda: STEP.local_inputs(x=tf.sparse.from_dense(ARRAY)),
     FeedError, "the part is a SparseTensor; make it dense first"),
    ("numpy structured", lambda: STEP(x=np.zeros(4, [("a", "f4")]), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has dtype void32; convert it, as'),
    ("datetime", lambda: STEP(x=np.zeros(4, "datetime64[s]"), ids=IDS),
     FeedError, 'input "x" must be [batch:4] float32, and has dtype datetime64[s]; convert'),
    ("deepcopy step", lambda: copy.deepcopy(STEP),
     UsageError, 'program "step" cannot be pickled or copied; build it again with'),
    ("pickle step", lambda: pickle.dumps(STEP),
     UsageError, 'program "step" cannot be pickled or copied; build it again with'),
    ("store missing", lambda: STEP.variables["w"],
     GraphError, 'no variable "w" in the store; the store is empty until a program that'),
    ("store update", lambda: STEP.variables.update({"w": 1.0}),
     GraphError, 'no variable "w" in the store; the store is empty until a program that'),
    ("initialize", lambda: STEP.initialize({"w": 1.0}),
     GraphError, 'program "step" has no variable "w"'),
    ("store set", lambda: STEP.variables.__setitem__("w", 1.0),
     GraphError, 'no variable "w" in the store; the store is empty until a program that'),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_cannot_be_fed_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
