"""Random bits of micro-batches are those that each example has in the whole batch, whatever its dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret
from tests.house.sharpest import sharpest

BATCH, LENGTH, D = mtf.Dimension("batch", 12), mtf.Dimension("length", 4), mtf.Dimension("d", 2)
X = np.ones([12, 4, 2], np.float32)

Model = Callable[[mtf.Tensor], mtf.Tensor]


def noise(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.random_uniform(x.mesh, x.shape)


def drawn_as(*dims: tuple[str, int]) -> Model:
    """Noise of each element of x [batch, length, d], drawn over other dimensions: a size of 0 is what is left."""

    def model(x: mtf.Tensor) -> mtf.Tensor:
        left = x.shape.size // mtf.Shape([dim for dim in dims if dim[1]]).size
        return mtf.reshape(noise(mtf.reshape(x, [(name, size or left) for name, size in dims])), x.shape)

    return model


def transposed(model: Model, *names: str) -> Model:
    def own(x: mtf.Tensor) -> mtf.Tensor:
        other = mtf.transpose(x, [x.shape.get_dim_by_name(name) for name in names])
        return mtf.transpose(model(other), x.shape)

    return own


def in_two_reshapes(x: mtf.Tensor) -> mtf.Tensor:
    groups = mtf.Dimension("groups", x.shape[0].size)
    merged = mtf.reshape(mtf.rename_dimension(x, "batch", "groups"), [("rows", groups.size * 4), D])
    return mtf.reshape(noise(merged), x.shape)


def pairs_under_another_name(x: mtf.Tensor) -> mtf.Tensor:
    """The same noise for all tokens of two examples."""
    pairs = mtf.reshape(x, [("batch", x.shape[0].size // 2), ("pair", 8), D])
    groups = mtf.rename_dimension(mtf.reduce_mean(pairs, reduced_dim="pair"), "batch", "groups")
    drawn = mtf.broadcast(noise(groups), [groups.shape[0], pairs.shape[1], D])
    return mtf.reshape(drawn, x.shape)


def by_example(recompute: str | None) -> Model:
    def model(x: mtf.Tensor) -> mtf.Tensor:
        (_, noises) = mtf.scan(
            lambda carried, parts: (carried, [noise(parts[0])]), [mtf.zeros(x.mesh, [])], [x], x.shape[0],
            recompute=recompute,
        )  # fmt: skip
        return noises[0]

    return model


MODELS: dict[str, Model] = {
    "as they are": noise,
    "under another name": drawn_as(("groups", 0), ("length", 4), ("d", 2)),
    "before what else there is": drawn_as(("tokens", 0), ("d", 2)),
    "behind what else there is": transposed(drawn_as(("tokens", 0), ("d", 2)), "length", "batch", "d"),
    "in parts": drawn_as(("batch", 0), ("part", 2), ("d", 2)),
    "in parts, under another name": drawn_as(("groups", 0), ("part", 2), ("d", 2)),
    "two in one position": drawn_as(("batch", 0), ("pair", 8), ("d", 2)),
    "all in one position": drawn_as(("group", 1), ("tokens", 0), ("d", 2)),
    "in rows of two": drawn_as(("row", 0), ("column", 2), ("length", 4), ("d", 2)),
    "with all else": drawn_as(("elements", 0)),
    "in two reshapes": in_two_reshapes,
    "one by one": by_example(None),
    "one by one, computed again": by_example("nested"),
}


def program(model: Model, num_splits: int) -> Callable[..., Any]:
    def outputs(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        x = features["x"]
        w = mtf.get_variable(x.mesh, "w", [], initializer=mtf.ones)
        drawn = model(x)
        return {"loss": mtf.reduce_sum(x * w * drawn), "drawn": drawn}

    def step(x: mtf.Tensor) -> mtf.Tensor:
        if not num_splits:
            return outputs({"x": x})["drawn"]
        return mtf.serialize_training_step({"x": x}, outputs, BATCH, num_splits)[1]["drawn"]

    return step


NEED_TWO = ("two in one position", "in rows of two")
SPLIT = ";".join(f"{name}:all" for name in ("batch", "groups", "tokens", "rows", "row", "elements"))


SHARPEST = (
    "under another name", "behind what else there is", "in parts, under another name", "two in one position",
    "in rows of two", "with all else", "in two reshapes", "one by one, computed again",
)  # fmt: skip


@pytest.mark.parametrize("case", sharpest(MODELS, SHARPEST))
def test_an_example_has_the_bits_that_it_has_in_the_whole_batch(case: str) -> None:
    feeds = {"x": (mtf.Shape([BATCH, LENGTH, D]), X)}
    whole = interpret(program(MODELS[case], 0), feeds, "all:1").results
    assert len(np.unique(whole)) == whole.size
    for num_splits, cores in [(2, 1), (2, 3), (3, 1)] + [(12, 1)] * (case not in NEED_TWO):
        found = interpret(program(MODELS[case], num_splits), feeds, f"all:{cores}", SPLIT if cores > 1 else "").results
        np.testing.assert_array_equal(found, whole, err_msg=f"{num_splits} micro-batches on {cores} cores")


@pytest.mark.parametrize(
    ("model", "drawn"), [(drawn_as(("rows", 4), ("elements", 0)), X.size), (pairs_under_another_name, 6 * D.size)]
)
def test_bits_are_drawn_once_where_the_border_between_examples_is_lost(model: Model, drawn: int) -> None:
    """They are not those of the whole batch, but none of them come twice."""
    feeds = {"x": (mtf.Shape([BATCH, LENGTH, D]), X)}
    found = interpret(program(model, 2), feeds, "all:1").results
    assert len(np.unique(found)) == drawn
