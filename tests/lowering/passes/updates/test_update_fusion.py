"""Updates that write to variables where they are: never what a failed check refuses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.lowering.passes.updates.update_fusion import in_order, updates_in_place
from meshtf.planning.plan import Compute, Value
from tests.house.sharpest import sharpest

pytestmark = pytest.mark.plain_cpu

BATCH, ROWS, COLUMNS = mtf.Dimension("batch", 4), mtf.Dimension("rows", 64), mtf.Dimension("columns", 128)

Finite = Callable[[mtf.Tensor, mtf.Tensor], None]


def no_check(loss: mtf.Tensor, weight: mtf.Tensor) -> None:
    """Takes what comes."""


def loss_is_checked(loss: mtf.Tensor, weight: mtf.Tensor) -> None:
    mtf.check_finite(loss)


def gradient_is_checked(loss: mtf.Tensor, weight: mtf.Tensor) -> None:
    (grad,) = mtf.gradients([loss], [weight])
    mtf.check_finite(mtf.reduce_sum(mtf.square(grad)))


def program(finite: Finite, mesh_shape: str, layout: str, **options: Any) -> mtf.Function:
    def step(x: mtf.Tensor) -> mtf.Tensor:  # [batch, rows]
        weight = mtf.get_variable(x.mesh, "weight", [ROWS, COLUMNS])
        loss = mtf.reduce_mean(mtf.square(mtf.einsum([x, weight], [BATCH, COLUMNS]) - 1.0))
        finite(loss, weight)
        mtf.optimize.AdamWOptimizer(0.1).minimize(loss)
        return loss

    mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout, **options)
    return mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, ROWS])})


def state(step: mtf.Function) -> dict[str, np.ndarray]:
    return {name: np.array(step.variables[name]) for name in step.variables}


GOOD = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
BAD = np.where(np.arange(4 * 64).reshape(4, 64) == 7, np.nan, GOOD).astype(np.float32)


CHECKED: list[tuple[Any, bool, tuple[str, str], dict[str, Any]]] = [
    (finite, share_memory, mesh, options)
    for finite in (loss_is_checked, gradient_is_checked)
    for share_memory in (True, False)
    for mesh, options in (
        (("all:2", "batch:all"), {"parameter_layout": "rows:all"}),
        (("all:1", ""), {}),
        (("all:2", "batch:all"), {"shard_weight_update": False}),  # written where they are, behind the checks
    )
]


@pytest.mark.parametrize(("finite", "share_memory", "mesh", "options"), sharpest(CHECKED, CHECKED[::5]))
def test_a_step_that_a_check_refuses_changes_no_variable(
    finite: Finite, mesh: tuple[str, str], options: dict[str, Any], share_memory: bool
) -> None:
    """Neither where cores share their memory, nor where TensorFlow's collectives are between them."""
    checked, free = (program(f, *mesh, share_memory=share_memory, **options) for f in (finite, no_check))
    for step in (checked, free):
        step(x=GOOD)
    before = state(checked)
    with pytest.raises(NonFiniteError):
        checked(x=BAD)
    assert all(np.array_equal(before[name], value) for name, value in state(checked).items())
    for step in (checked, free):
        step(x=GOOD)
    expected = state(free)
    assert all(np.array_equal(expected[name], value) for name, value in state(checked).items())
    assert not np.array_equal(before["weight"], expected["weight"])


@pytest.mark.parametrize("finite", [no_check, loss_is_checked, gradient_is_checked])
def test_weights_and_slots_are_updated_where_they_are(finite: Finite) -> None:
    plan = program(finite, "all:1", "").lowering.plan
    (names,) = ({name for _, name in pairs.values()} for pairs in updates_in_place(plan).values())
    assert {"weight", *(n for n in names if n.startswith("weight/"))} == names
    assert len(names) == 3


def test_what_a_check_reads_is_not_written_before_it() -> None:
    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        weight = mtf.get_variable(mesh, "weight", [ROWS, COLUMNS], initializer=mtf.ones)
        moment = mtf.get_variable(mesh, "moment", [ROWS, COLUMNS], initializer=mtf.ones, trainable=False)
        new_moment = (moment + weight) * 2.0
        mtf.assign(moment, new_moment)
        mtf.assign(weight, mtf.check_finite(mtf.log(weight - new_moment)))
        return mtf.zeros(mesh, [])

    function = mtf.function(step, mtf.SpmdMeshImpl("all:1", ""))
    with pytest.raises(NonFiniteError):
        function()
    assert updates_in_place(function.lowering.plan) == {}
    assert {name: np.unique(value).tolist() for name, value in state(function).items()} == {
        "weight": [1.0],
        "moment": [1.0],
    }


def test_an_update_moves_to_its_gradient_with_a_long_chain_that_it_needs() -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        weight, rate = (mtf.get_variable(x.mesh, name, [ROWS]) for name in ("weight", "rate"))
        (grad,) = mtf.gradients([mtf.reduce_sum(x * weight)], [weight])
        for _ in range(1000):
            rate = rate * 0.999
        mtf.assign(weight, weight - rate * grad)
        return x

    inputs = {"x": mtf.TensorSpec([BATCH, ROWS])}
    plan = mtf.function(step, mtf.PlanMeshImpl("rows:2", "batch:rows"), inputs=inputs).lowering.plan
    assert len(plan.instructions) > 1000


def test_an_order_moves_only_an_update_that_waits_and_what_it_needs() -> None:
    """`far` and `behind` need nothing, and stay where they are all the same. Chains may be long."""
    places: dict[Value, str] = {}

    def made(kind: str, *needed: Compute) -> Compute:
        value = Value(len(places), mtf.Shape([]), tf.float32, mtf.TensorLayout(()), (), ())
        places[value] = kind
        inputs = tuple(v for each in needed for v in each.outputs)
        return Compute(None, kind, inputs, (value,), lambda core: [])  # type: ignore[arg-type]

    first, read, gradient = made("first"), made("read"), made("gradient")
    asked, patient = made("asked", first, read), made("patient", gradient)
    heavy, far, behind = made("heavy", asked), made("far"), made("behind")
    order = [first, asked, patient, heavy, far, read, gradient, behind]
    expected = ["first", "read", "asked", "heavy", "far", "gradient", "patient", "behind"]
    assert [i.kind for i in in_order(order) if isinstance(i, Compute)] == expected
    chain = [first]
    for number in range(1500):
        chain.append(made(str(number), chain[-1]))
    assert in_order(chain[::-1]) == chain
