"""print_tensor, depend, check_finite, export."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import testing
from meshtf.planning.plan import Branch, Compute

X = np.arange(8, dtype=np.float32)
INPUTS: dict[str, Any] = {"x": ("batch:8", X)}
SPECS = {"x": mtf.TensorSpec("batch:8")}


def mesh_of_eight(layout: str = "batch:rows") -> mtf.SpmdMeshImpl:
    return mtf.SpmdMeshImpl("rows:4;cols:2", layout)


def doubled(x: mtf.Tensor) -> mtf.Tensor:
    y = x * 2.0
    return mtf.print_tensor(y, [y, mtf.cast(x, tf.bfloat16)], "doubled:", summarize=-1)


@pytest.mark.parametrize("layout", ["", "batch:rows", "batch:cols+rows"])
def test_whole_tensors_are_printed_once(capfd: pytest.CaptureFixture[str], layout: str) -> None:
    step = mtf.function(doubled, mesh_of_eight(layout), inputs=SPECS)
    for _ in range(2):
        np.testing.assert_array_equal(step(X), 2 * X)
    printed = capfd.readouterr().err
    assert printed.count("doubled:") == 2
    assert printed.count("[0 2 4 6 8 10 12 14]") == 2
    assert printed.count("cast [batch:8] bfloat16 =") == 2


def test_printing_on_the_interpreter_and_without_use_of_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        mtf.Print(x, x, "the batch", summarize=1)
        return x

    np.testing.assert_array_equal(testing.interpret(body, INPUTS, "rows:8", "batch:rows").results, X)
    assert capfd.readouterr().err.count("the batch\nx [batch:8] float32 = [0 ... 7]") == 1


def test_printing_and_depending_let_gradients_and_pending_sums_pass() -> None:
    def body(x: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor | None]:
        y = mtf.depend(mtf.reduce_sum(mtf.square(x)), [x])
        z = mtf.print_tensor(y * 3.0, [], "three times") + mtf.reduce_sum(x)
        return z, mtf.gradients([z], [x])[0]

    done = testing.interpret(body, INPUTS, "rows:4", "batch:rows")
    total, gradient = done.results
    assert total == 3 * (X * X).sum() + X.sum()
    np.testing.assert_array_equal(gradient, 6 * X + 1)

    def silent(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.depend(mtf.reduce_sum(mtf.square(x)), [x]) * 3.0 + mtf.reduce_sum(x)

    assert [c.step.kind for c in testing.interpret(silent, INPUTS, "rows:4", "batch:rows").plan.collectives] == [
        "all_reduce"
    ]


def test_a_branch_waits_for_what_is_outside() -> None:
    def body(x: mtf.Tensor) -> list[mtf.Tensor]:
        before = mtf.square(x)
        is_positive = mtf.greater(mtf.reduce_sum(x), 0.0)
        return [before, *mtf.cond(is_positive, lambda: mtf.depend(2.0 * x, [before]), lambda: x)]

    plan = testing.plan(body, SPECS, "rows:4", "batch:rows")
    branches = [i for i in plan.instructions if isinstance(i, Branch)]
    waiting = [i for branch in branches for i in branch.if_true if isinstance(i, Compute) and i.kind == "depend"]
    assert [len(i.inputs) for i in waiting] == [2]


def test_order_of_prints(capfd: pytest.CaptureFixture[str]) -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        second = mtf.print_tensor(x, [x], "first")
        return mtf.print_tensor(mtf.depend(x, second), [second], "second")

    mtf.function(body, mesh_of_eight(), inputs=SPECS)(X)
    printed = capfd.readouterr().err
    assert 0 <= printed.index("first") < printed.index("second")


def test_depending_on_an_operation_brings_it_into_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    x = mtf.placeholder(mesh, "batch:8", name="x")
    printed = mtf.print_tensor(x, [x], "seen").operation
    y = mtf.depend(x + 1.0, [printed])
    lowering = mtf.Lowering(graph, {mesh: mesh_of_eight()})
    np.testing.assert_array_equal(lowering.export_to_tf_tensor(y, {"x": X}), X + 1)
    assert capfd.readouterr().err.count("seen") == 1
    np.testing.assert_array_equal(lowering.export_to_tf_tensor(x, {"x": X}), X)
    assert "seen" not in capfd.readouterr().err


def checked(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
    """Assigns before and after the check."""
    before = mtf.get_variable(mesh, "before", "batch:8", initializer=np.zeros(8))
    after = mtf.get_variable(mesh, "after", [], initializer=np.zeros([]))
    mtf.assign_add(before, x)
    total = mtf.check_finite(mtf.reduce_sum(mtf.log(x)), "the loss")
    mtf.assign(after, total)
    return total


@pytest.mark.parametrize("layout", ["", "batch:rows", "batch:rows+cols"])
def test_a_step_with_a_nan_assigns_nothing(layout: str) -> None:
    step = mtf.function(checked, mesh_of_eight(layout), inputs=SPECS)
    good = X + 1
    total = float(step(good))
    for bad in (np.where(X == 5, -1, good), np.where(X == 2, 0, good), np.where(X == 7, np.inf, good)):
        with pytest.raises(mtf.errors.NonFiniteError) as caught:
            step(bad.astype(np.float32))
        text = str(caught.value)
        assert "the loss: a NaN or an infinity in reduce_sum [] float32" in text
        assert "in operation check_finite" in text
        assert f"at {__file__}:{checked.__code__.co_firstlineno + 5} in checked" in text
        np.testing.assert_array_equal(step.variables["before"], good)
        assert step.variables["after"] == np.float32(total)
    step(good)
    np.testing.assert_array_equal(step.variables["before"], 2 * good)


def test_a_check_on_the_interpreter() -> None:
    with pytest.raises(mtf.errors.NonFiniteError, match="the loss: a NaN or an infinity"):
        testing.interpret(checked, {"x": ("batch:8", X - 3)}, "rows:2", "batch:rows")
    done = testing.interpret(checked, {"x": ("batch:8", X + 1)}, "rows:2", "batch:rows")
    np.testing.assert_array_equal(done.variables["before"], X + 1)


def test_the_first_failed_check_is_named_though_its_result_is_not_used() -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        mtf.check_finite(mtf.cast(x, tf.complex64), name="is_fine")
        mtf.check_finite(mtf.log(x), name="first")
        mtf.check_finite(mtf.sqrt(x), name="second")
        return x

    with pytest.raises(mtf.errors.NonFiniteError, match=r"a NaN or an infinity in log .*\n  in operation first"):
        mtf.function(body, mesh_of_eight(), inputs=SPECS)(-X)


def test_a_pending_sum_is_reduced_once_and_then_checked() -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        # Each core's term is finite, and their sum need not be.
        return mtf.check_finite(mtf.reduce_sum(x * 1e38)) * 2.0

    x = np.array([1, 1, -1, -1, 1, 1, -1, -1], np.float32)
    done = testing.interpret(body, {"x": ("batch:8", x)}, "rows:4", "batch:rows")
    assert [(c.step.kind, c.step.reduction) for c in done.plan.collectives] == [("all_reduce", "add")]
    with pytest.raises(mtf.errors.NonFiniteError):
        testing.interpret(body, {"x": ("batch:8", np.ones(8, np.float32))}, "rows:4", "batch:rows")


def test_a_check_lets_the_gradient_pass() -> None:
    def body(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        return mtf.gradients([mtf.square(mtf.check_finite(x))], [x])

    testing.assert_layout_invariant(body, INPUTS, ["batch:rows"], with_gradients=False)
    np.testing.assert_array_equal(testing.interpret(body, INPUTS, "rows:2", "").results[0], 2 * X)


def test_a_failed_check_inside_a_tf_function() -> None:
    step = mtf.function(checked, mesh_of_eight(), inputs=SPECS)

    @tf.function
    def train(batches: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([])
        for i in tf.range(3):
            total += step(batches[i])
        return total

    good, bad = X + 1, X - 1
    train(np.stack([good, good, good]))
    np.testing.assert_array_equal(step.variables["before"], 3 * good)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        train(np.stack([good, bad, good]))
    text = caught.value.message
    assert "the loss: a NaN or an infinity in reduce_sum" in text
    assert f"at {__file__}:{checked.__code__.co_firstlineno + 5} in checked" in text
    np.testing.assert_array_equal(step.variables["before"], 4 * good)
    train(np.stack([good, good, good]))  # the process is as good as new
    np.testing.assert_array_equal(step.variables["before"], 7 * good)


def test_only_floating_tensors_are_checked() -> None:
    graph = mtf.Graph()
    with pytest.raises(mtf.errors.DtypeError, match="int32 is always finite; check a floating tensor"):
        mtf.check_finite(mtf.range(mtf.Mesh(graph), ("batch", 4)))


def test_tensors_exported_by_name() -> None:
    def body(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
        with mtf.variable_scope("layer"):
            v = mtf.get_variable(mesh, "v", [], initializer=np.zeros([]))
            y = mtf.export(x * 2.0, "double")
            mtf.assign_add(v, mtf.reduce_sum(y))
        return mtf.reduce_sum(y)

    step = mtf.function(body, mesh_of_eight(), inputs=SPECS)
    np.testing.assert_array_equal(step.lowering.export_to_tf_tensor("layer/double", {"x": X}), 2 * X)
    assert "layer/v" not in step.variables
    np.testing.assert_array_equal(step.lowering.run(["layer/double"], {"x": X})[0], 2 * X)
    assert step.variables["layer/v"] == 56
    with pytest.raises(mtf.errors.GraphError, match=r'no tensor was exported as "layer/duble".*did you mean'):
        step.lowering.run("layer/duble", {"x": X})


def test_an_export_needs_a_name_of_its_own() -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    mtf.export(mtf.ones(mesh, "a:2"), "name")
    with pytest.raises(
        mtf.errors.GraphError, match=r'"name" already names constant .*, made at .*test_side_effects.py'
    ):
        mtf.export(mtf.ones(mesh, "a:2"), "name")


def test_a_dependency_of_another_graph() -> None:
    x, y = (mtf.ones(mtf.Mesh(mtf.Graph()), "a:2") for _ in range(2))
    with pytest.raises(mtf.errors.GraphError, match="belong to different graphs"):
        mtf.depend(x, [y])
