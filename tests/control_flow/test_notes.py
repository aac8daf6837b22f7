"""Notes leave stacks of layers, scans and recomputed parts, and are refused where they cannot leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.control_flow.notes import note, noting
from meshtf.errors import GraphError
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

X = np.random.default_rng(0).normal(size=[4, 6]).astype(np.float32)


def layer(carried: list[mtf.Tensor], parts: Sequence[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    """Doubles, and notes its largest input, inside a recomputed part."""

    def doubled(x: mtf.Tensor) -> mtf.Tensor:
        note("largest", mtf.reduce_max(x))
        return 2.0 * x * mtf.get_variable(x.mesh, "one", [], initializer=mtf.ones)

    return [mtf.recompute_grad(doubled, carried)], []


@pytest.mark.parametrize("recompute", [None, "nested"])
@pytest.mark.parametrize("unroll", [False, True])
def test_notes_leave_stacks_of_layers(unroll: bool, recompute: str | None) -> None:
    """A scan's notes have its dimension. The notes of unrolled layers are one after the other."""

    def body(x: mtf.Tensor) -> list[mtf.Tensor]:
        with noting(x.graph) as notes:
            (y,), _ = mtf.layer_stack(layer, x, ("layers", 4), unroll=unroll, recompute=recompute)
            mtf.gradients([mtf.reduce_sum(y)], [x])
        assert {name for name, _ in notes} == {"largest"}
        return [largest for _, largest in notes]

    done = interpret(body, {"x": ("batch:4 hidden:6", X)}, "rows:2;cols:2", "batch:rows;hidden:cols").results
    np.testing.assert_array_equal(np.stack(done) if unroll else done[0], X.max() * 2.0 ** np.arange(4))


def test_notes_that_cannot_leave_are_refused() -> None:
    def noted(*xs: mtf.Tensor) -> list[mtf.Tensor]:
        note("largest", mtf.reduce_max(xs[-1]))
        return list(xs)

    def in_branch(x: mtf.Tensor) -> Any:
        return mtf.cond(mtf.reduce_max(x) > 0.0, lambda: noted(x), lambda: [x])

    def in_pipeline(x: mtf.Tensor) -> Any:
        stage = mtf.Dimension("stage", 2)
        inputs = [(mtf.Shape([stage, *x.shape]), x.dtype)]
        return mtf.vectorized_layers(x.mesh, lambda xs: noted(*xs), inputs, [stage], stage)

    for body, message in (
        (in_branch, r'for "largest" inside .*, out of which no note leads: only stacks of layers, scans and recom'),
        (in_pipeline, 'for "largest" inside a pipeline, whose stages also compute while they wait'),
    ):
        with mtf.Graph() as graph, noting(graph):
            x = mtf.ones(mtf.Mesh(graph), "batch:4")
            with pytest.raises(GraphError, match=message):
                body(x)
