"""Training kernels of a program with checks: one branch for all, and nothing of it where a check fails."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf import optimize
from meshtf.errors import NonFiniteError
from meshtf.lowering.emit.emission import EmittedProgram

WIDTH = 128
KERNELS = {
    "ResourceApplyGradientDescent": optimize.SgdOptimizer(0.1),
    "ResourceApplyMomentum": optimize.MomentumOptimizer(0.1, 0.9),
    "ResourceApplyAdam": optimize.AdamWOptimizer(0.1),
}


def training(optimizer: optimize.Optimizer, cores: int, *, is_checked: bool, is_divided: bool) -> mtf.Function:
    """Of two weights, which each core updates as a whole, unless updates are divided."""
    mtf.virtual_cpus(cores)

    def step(x: mtf.Tensor) -> mtf.Tensor:
        for name in ("a", "b"):
            w = mtf.get_variable(x.mesh, name, [x.shape.dims[-1], (f"{name}_out", WIDTH)])
            x = mtf.einsum([x, w], output_shape=[x.shape.dims[0], w.shape.dims[1]])
        loss = mtf.reduce_mean(mtf.square(x - 1.0))
        if is_checked:
            mtf.check_finite(loss)
        optimizer.minimize(loss)
        return loss

    mesh_impl = mtf.SpmdMeshImpl(f"all:{cores}", "batch:all", shard_weight_update=is_divided)
    return mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec([("batch", 8), ("in", WIDTH)])})


def kernels(step: mtf.Function) -> tuple[list[str], list[list[str]]]:
    """Those in the functions of cores; and those of each branch in them that has any."""
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    graphs = [f.graph for f in program.core_functions]
    branches = {o.get_attr("then_branch").name for g in graphs for o in g.get_operations() if o.type == "If"}
    library = [f for g in graphs for f in g.as_graph_def().library.function if f.signature.name in branches]
    inside = [[n.op for n in f.node_def if n.op in KERNELS] for f in library]
    return [o.type for g in graphs for o in g.get_operations() if o.type in KERNELS], [own for own in inside if own]


@pytest.mark.parametrize(("cores", "is_divided"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers_are_those_of_a_program_without_checks(kernel: str, cores: int, is_divided: bool) -> None:
    optimizer = KERNELS[kernel]
    checked, free = (
        training(optimizer, cores, is_checked=is_checked, is_divided=is_divided) for is_checked in (True, False)
    )
    x = np.random.default_rng(0).normal(size=(8, WIDTH)).astype(np.float32)
    for step in (checked, free):
        step(x=x)
    before = {name: np.array(value) for name, value in checked.variables.items()}
    with pytest.raises(NonFiniteError):
        checked(x=np.where(np.arange(WIDTH) == 3, np.inf, x))
    for name, value in before.items():
        np.testing.assert_array_equal(checked.variables[name], value, name)
    for step in (checked, free):
        step(x=x)
    for name, value in free.variables.items():
        np.testing.assert_array_equal(checked.variables[name], value, name)
        assert not np.array_equal(before[name], value)
    assert kernels(free) == ([kernel] * 2, [])
    # Nothing that a divided descent writes to is a variable, so that it need not wait.
    is_behind = not (is_divided and kernel == "ResourceApplyGradientDescent")
    assert kernels(checked) == (([], [[kernel] * 2]) if is_behind else ([kernel] * 2, []))
