"""Large updates, block by block: the same numbers, in the memory of the variables."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.errors import NonFiniteError
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.update_in_blocks import Blocks, BlockSizes, UpdateInBlocks
from meshtf.testing import FUNCTION_TERMS, assert_close

LARGE = (1024, 1024)
SMALL_BLOCKS = BlockSizes(largest=1 << 10, smallest=1 << 8, longest_row=1 << 6)
IN_ONE_PIECE = BlockSizes(fewest=1 << 40)
OPTIMIZERS = {
    "adamw": optimize.AdamWOptimizer(0.01),
    "momentum": optimize.MomentumOptimizer(0.01, 0.9, nesterov=True),
    "lion": optimize.LionOptimizer(0.01),
    "average": optimize.MovingAverageOptimizer(optimize.AdamOptimizer(0.01), 0.9),
}
TERMS = 3 * 6 * FUNCTION_TERMS
"""Three updates of each element by itself, of gradients that the same operations make."""


def trained(optimizer: optimize.Optimizer, shape: tuple[int, int], block_sizes: BlockSizes) -> dict[str, np.ndarray]:
    """The variables after three steps and one that a check refuses."""
    rows, columns = mtf.Dimension("rows", shape[0]), mtf.Dimension("columns", shape[1])

    def step(x: mtf.Tensor) -> mtf.Tensor:
        weight = mtf.get_variable(x.mesh, "weight", [rows, columns])
        loss = mtf.check_finite(mtf.reduce_mean(mtf.square(mtf.einsum([x, weight], [columns]) - 1.0)))
        optimizer.minimize(loss)
        return loss

    mesh_impl, options = mtf.SpmdMeshImpl("all:1", ""), PassOptions(block_sizes=block_sizes)
    function = mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec([rows])}, pass_options=options)
    x = np.linspace(-1, 1, shape[0], dtype=np.float32)
    for _ in range(3):
        function(x=x)
    with pytest.raises(NonFiniteError):
        function(x=x * np.float32("nan"))
    return {name: np.array(function.variables[name]) for name in function.variables}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_variables_are_those_of_an_update_in_one_piece(name: str) -> None:
    found = trained(OPTIMIZERS[name], (512, 160), SMALL_BLOCKS)
    expected = trained(OPTIMIZERS[name], (512, 160), IN_ONE_PIECE)
    assert found.keys() == expected.keys()
    for variable, value in expected.items():
        assert_close(found[variable], value, terms=TERMS, what=variable)
        assert np.any(value)


def test_a_variable_that_is_really_large() -> None:
    found = trained(OPTIMIZERS["adamw"], LARGE, BlockSizes())
    for variable, value in trained(OPTIMIZERS["adamw"], LARGE, IN_ONE_PIECE).items():
        assert_close(found[variable], value, terms=TERMS, what=variable)


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((1024, 4096), Blocks(1024, 4096, 64)),
        ((1 << 22,), Blocks(1024, 4096, 64)),
        ((512, 512), None),  # of one block
        ((2097143,), None),  # a prime
        ((0, 4096), None),
    ],
)
def test_how_a_slice_is_cut(shape: tuple[int, ...], blocks: Blocks | None) -> None:
    assert Blocks.of(shape, BlockSizes()) == blocks


def of(written: dict[int, int], *steps: tuple[int, ...]) -> UpdateInBlocks | None:
    blocks = Blocks.of(LARGE, BlockSizes())
    assert blocks is not None
    return UpdateInBlocks.of([(tf.add, operands) for operands in steps], 3, written, blocks)


def test_what_is_made_of_a_new_value_follows_it() -> None:
    made = of({0: 3, 1: 4, 2: 5}, (0, 0), (1, 3), (2, 4))
    assert made is not None
    assert [(r.variable, r.behind) for r in made.results] == [(0, 0), (1, 1), (2, 2)]


def test_what_needs_the_old_value_of_another_variable_is_done_in_one_piece() -> None:
    assert of({0: 3, 1: 4}, (0, 2), (1, 0)) is None
    assert of({0: 3, 1: 4}, (0, 2), (1, 2)) is not None


def test_one_result_is_done_in_one_piece() -> None:
    assert of({0: 3}, (0, 2)) is None
