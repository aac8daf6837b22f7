"""Recomputation outside of loops: XLA gets what was kept through barriers, and does not merge both passes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import meshtf as mtf
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.testing import assert_close, terms_of

BATCH, D, HIDDEN = mtf.Dimension("batch", 8), mtf.Dimension("d", 8), mtf.Dimension("hidden", 16)


def opcodes(step: mtf.Function) -> Counter[str]:
    hlo = step.hlo()
    assert hlo is not None
    return Counter(i.opcode for computation in parsed_hlo(hlo).computations for i in computation.instructions)


@pytest.mark.parametrize("layout", [pytest.param("", marks=pytest.mark.long), "batch:rows;hidden:cols"])
def test_what_a_gradient_computes_again_is_behind_barriers(layout: str) -> None:
    """The block has one argument. XLA would merge the two tanh, of one product, and keep the result."""

    def program(x: mtf.Tensor, *, recompute: str) -> list[mtf.Tensor | None]:
        w = mtf.get_variable(x.mesh, "w", [D, HIDDEN])
        y = mtf.recompute_grad(lambda x: mtf.sin(mtf.tanh(mtf.einsum([x, w], [BATCH, HIDDEN]))), x, recompute)
        return [y, *mtf.gradients([mtf.reduce_sum(y)], [x, w])]

    results, found = {}, {}
    for recompute in ("everything", "nothing"):
        inputs = {"x": mtf.TensorSpec([BATCH, D])}
        mesh_impl = mtf.GpuMeshImpl("rows:2;cols:2", layout)
        step = mtf.function(lambda x, how=recompute: program(x, recompute=how), mesh_impl, inputs=inputs)
        results[recompute] = step(x=np.random.default_rng(0).normal(size=[8, 8]).astype(np.float32))
        found[recompute] = opcodes(step)
        terms = terms_of(step._execution.plan)
    assert [found[how]["opt-barrier"] for how in results] == [0, 1]
    assert [found[how]["tanh"] for how in results] == [1, 2]
    for one, other in zip(*results.values(), strict=True):
        assert_close(one, other, terms=terms)
