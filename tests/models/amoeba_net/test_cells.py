from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import PipelineSchedule, pipeline_with_sums
from meshtf.models.amoeba_net.cells import NORMAL, REDUCTION, Cell
from meshtf.models.amoeba_net.operations import OPERATIONS, Normalization, halved
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret


def in_rows(cell: Cell) -> tuple[list[str], list[int]]:
    """The operations and their states, in the order in which published descriptions give them."""
    steps = [step for pair in cell.pairs for step in pair]
    return [name for name, _ in steps], [state for _, state in steps]


def test_the_cells_are_the_published_ones() -> None:
    """As the authors' own code lists them. States that no operation reads are put together, and in it so is state 0."""
    names, states = in_rows(NORMAL)
    assert names == [
        "1x1",
        "max_pool_3x3",
        "none",
        "1x7_7x1",
        "1x1",
        "1x7_7x1",
        "max_pool_3x3",
        "none",
        "avg_pool_3x3",
        "1x1",
    ]
    assert states == [1, 1, 1, 0, 0, 0, 2, 2, 1, 5]
    assert NORMAL.result == (0, *(n for n in range(7) if n not in states))
    names, states = in_rows(REDUCTION)
    expected = "max_pool_2x2 max_pool_3x3 none 3x3 1x7_7x1 max_pool_3x3 none max_pool_2x2 avg_pool_3x3 1x1"
    assert names == expected.split()
    assert states == [0, 0, 2, 1, 2, 2, 3, 1, 2, 3]
    assert REDUCTION.result == tuple(n for n in range(7) if n not in states)
    assert {name for cell in (NORMAL, REDUCTION) for name in in_rows(cell)[0]} == {*OPERATIONS}


def test_a_halved_image_has_all_pixels_of_the_diagonal() -> None:
    """Sizes 5 and 6: beyond the last odd row is a row of zeros. Then the formula of batch normalization."""
    images = np.random.default_rng(0).normal(size=(3, 5, 6, 4)).astype(np.float32)

    def program(images: mtf.Tensor) -> list[mtf.Tensor]:
        y = halved(images, 6, Normalization(is_training=True, epsilon=1e-3), name="halve")
        return [y, *(v.value for v in images.graph.trainable_variables)]

    inputs = {"images": ("batch:3 height:5 width:6 channels:4", images)}
    found, *weights = interpret(program, inputs, "a:3;b:2", "height:a;filters:b").results
    even, odd = (w[0, 0].astype(np.float64) for w in weights if w.ndim == 4)
    x = np.pad(np.maximum(images, 0).astype(np.float64), [(0, 0), (0, 1), (0, 0), (0, 0)])
    y = np.concatenate([x[:, ::2, ::2] @ even, x[:, 1::2, 1::2] @ odd], axis=-1)
    y = (y - y.mean((0, 1, 2))) / np.sqrt(y.var((0, 1, 2)) + 1e-3)
    assert_close(found, y, terms=(4, 27, 27, 6 * FUNCTION_TERMS))


def test_a_cell_keeps_its_number_of_filters() -> None:
    graph = mtf.Graph()
    with graph:
        x = mtf.zeros(mtf.Mesh(graph), "batch:2 height:8 width:6 filters:10")
        normalize = Normalization(is_training=True, epsilon=1e-3)
        assert str(NORMAL(x, x, 4, normalize).shape) == "batch:2 height:8 width:6 filters:16"
        with mtf.variable_scope("half"):
            half = REDUCTION(x, x, 8, normalize)
        assert str(half.shape) == "batch:2 height:4 width:3 filters:24"
        with mtf.variable_scope("after"):
            assert str(NORMAL(half, x, 8, normalize).shape) == "batch:2 height:4 width:3 filters:32"
        assert [name for name, _ in normalize.moments] == [
            v.full_name for v in graph.variables.values() if isinstance(v, mtf.Variable) and not v.trainable
        ]


@pytest.mark.parametrize("is_training", [False, True])
def test_cells_in_stages_are_those_in_a_row(is_training: bool) -> None:
    """Two micro-batches have the same images each, so that their statistics are those of the whole batch."""
    rng = np.random.default_rng(1)
    images = [rng.normal(size=(2, 4, 4, 16)).repeat(2, axis=0) for _ in range(2)]

    def program(xs: list[mtf.Tensor], schedule: PipelineSchedule | None) -> list[mtf.Tensor]:
        def layer(carried: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            normalize = Normalization(is_training, epsilon=1e-3)
            y = NORMAL(*carried, 4, normalize)
            return [y, carried[0]], [value for _, value in normalize.moments]

        if schedule is None:
            ys, moments = mtf.layer_stack(lambda carried, _: layer(carried), xs, "cells:2")
        else:
            ys, sums = pipeline_with_sums(lambda carried, _: layer(carried), xs, "cells:2", schedule)
            moments = [value / float(schedule.num_microbatches) for value in sums]
        return [*ys, *moments]

    inputs = {name: ("batch:4 height:4 width:4 filters:16", x) for name, x in zip("xy", images, strict=True)}
    expected, found = (
        interpret(lambda x, y, own=own: program([x, y], own), inputs, "stages:2", layout).results
        for own, layout in ((None, ""), (PipelineSchedule(2, 2), "stage:stages"))
    )
    for own, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, value, rtol=1e-9, atol=1e-12)
