"""The example operation of meshtf/planning/README.md works as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.interpreter import Interpreter

PAGE = Path(__file__).resolve().parents[2] / "meshtf" / "planning" / "README.md"
BATCH, LENGTH = mtf.Dimension("batch", 8), mtf.Dimension("length", 16)


@pytest.fixture(scope="module")
def flip() -> Any:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, str(PAGE), "exec"), names)
    return names["flip"]


@pytest.mark.parametrize("layout", ["", "batch:rows", "length:cols", "batch:rows;length:cols", "length:cols+rows"])
def test_flip_and_its_gradient(flip: Any, layout: str) -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = flip(x, LENGTH)
        weights = mtf.cast(mtf.range(x.mesh, LENGTH), tf.float32)
        return [y, *mtf.gradients([mtf.reduce_sum(y * weights)], [x])]

    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:4", layout)
    step = mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, LENGTH])})
    x = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    y, grad = Interpreter(step.lowering.execution(step._fetches).plan).run({"x": x})
    np.testing.assert_array_equal(y, x[:, ::-1])
    np.testing.assert_array_equal(grad, np.broadcast_to(np.arange(15.0, -1.0, -1.0), (8, 16)))


def test_flip_refuses_a_dimension_that_is_not_there(flip: Any) -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return flip(x, mtf.Dimension("lenght", 16))

    with pytest.raises(mtf.errors.ShapeError, match=r"lenght.*length"):
        mtf.function(program, mtf.SpmdMeshImpl("rows:2", ""), inputs={"x": mtf.TensorSpec([BATCH, LENGTH])})
