"""What all optimizers have in common: `minimize`, the types of weights, what their fields may be, and gin."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import gin
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.ops.variables.variable import Assign
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.configuration import read_configuration
from tests.optimize.interpreted_training import InterpretedTraining

INNER = mtf.Dimension("inner", 4)


def one_step(optimizer: optimize.Optimizer, dtype: tf.DType = tf.float32) -> np.ndarray:
    """Weights of 1 after a step, from gradients 1 to 4."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [INNER], dtype, initializer=mtf.ones)
        optimizer.minimize(mtf.real(mtf.reduce_sum(x * w)))
        return mtf.real(mtf.reduce_sum(w))

    training = InterpretedTraining(step, {"x": mtf.TensorSpec([INNER], dtype)}, "rows:2", "inner:rows")
    training.step(x=np.arange(1, 5).astype(dtype.as_numpy_dtype))
    return training["w"]


def test_first_adam_step_is_the_learning_rate() -> None:
    """Bias correction is exact at the start, where 1 - beta^t cancels in float32."""
    actual = one_step(optimize.AdamOptimizer(1e-3, beta_2=1 - 1e-6))
    assert_close(1 - actual, np.full(4, 1e-3), terms=1, magnitude=1.0)


@pytest.mark.parametrize("make", [optimize.AdamOptimizer, optimize.AdamWOptimizer, optimize.LambOptimizer])
def test_bias_corrections_are_made_once_for_all_weights(make: Callable[[float], optimize.Optimizer]) -> None:
    def count(weights: int) -> int:
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph)
        with graph:
            loss = sum(mtf.reduce_sum(mtf.get_variable(mesh, f"w_{n}", [INNER])) for n in range(weights))
            make(1e-3).minimize(loss)
        return sum("expm1" in operation.name for operation in graph.operations)

    assert count(3) == count(1) == 2


def test_betas_of_zero() -> None:
    actual = one_step(optimize.AdamOptimizer(0.5, beta_1=0, beta_2=0))
    assert_close(actual, np.full(4, 0.5), terms=2 * FUNCTION_TERMS)


def test_float64_weights_are_updated_in_float64() -> None:
    actual = one_step(optimize.MomentumOptimizer(2.0**-40, 0.9), tf.float64)
    np.testing.assert_array_equal(actual, 1 - np.arange(1, 5) * 2.0**-40)


def test_complex_weights_descend() -> None:
    assert_close(one_step(optimize.SgdOptimizer(0.1), tf.complex64), 1 - 0.1 * np.arange(1, 5), terms=2)


def test_adam_refuses_complex_weights() -> None:
    with pytest.raises(DtypeError, match=r"AdamOptimizer updates real weights, and w is complex64; give it to SgdOpt"):
        one_step(optimize.AdamOptimizer(0.1), tf.complex64)


def graph_with_variable(name: str = "w") -> tuple[mtf.Graph, mtf.Tensor]:
    graph = mtf.Graph()
    with graph:
        return graph, mtf.get_variable(mtf.Mesh(graph), name, [INNER])


def test_minimize_needs_a_scalar() -> None:
    graph, w = graph_with_variable()
    with graph, pytest.raises(GraphError, match=r"minimize needs a scalar loss, not .*w.*inner:4"):
        optimize.SgdOptimizer(0.1).minimize(w)


def test_adafactor_updates_weights_without_elements() -> None:
    def step(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        weights = [mtf.get_variable(mesh, name, shape) for name, shape in (("v", "d:0"), ("w", "a:0 b:3"))]
        return optimize.AdafactorOptimizer(0.1).apply_grads([mtf.zeros_like(w) for w in weights], weights)

    assert [found.shape for found in interpret(step, {}, "one:1").results] == [(0,), (0, 3)]


def test_minimize_names_what_the_loss_does_not_depend_on() -> None:
    graph, w = graph_with_variable()
    with graph:
        mtf.get_variable(w.mesh, "forgotten", [INNER])
        loss = mtf.reduce_sum(w)
        with pytest.raises(GraphError, match=r"does not depend on forgotten; .*variables="):
            optimize.SgdOptimizer(0.1).minimize(loss)
        assert len(optimize.SgdOptimizer(0.1).minimize(loss, variables=[graph.variables["w"]])) == 1


def test_variables_may_be_the_tensors_of_get_variable() -> None:
    graph, w = graph_with_variable()
    with graph:
        other = mtf.get_variable(w.mesh, "other", [INNER])
        loss = mtf.reduce_sum(mtf.square(w * other))
        optimize.SgdOptimizer(0.1).minimize(loss, variables=[w])
        optimize.SgdOptimizer(0.1).apply_grads([w], [other])
        for wrong in ("w", 2.0 * w, None):
            with pytest.raises(GraphError, match=r"is not a variable; give the result of mtf.get_variable"):
                optimize.SgdOptimizer(0.1).minimize(loss, variables=[wrong])  # type: ignore[list-item]
    assert [o.variable.full_name for o in graph.operations if isinstance(o, Assign)] == ["w", "other"]


def test_a_gradient_has_the_dimensions_of_its_variable() -> None:
    def step(x: mtf.Tensor) -> list[mtf.Tensor]:
        w = mtf.get_variable(x.mesh, "w", "rows:2 inner:3", initializer=mtf.ones)
        with pytest.raises(ShapeError, match=r'gradient of variable "w" \[rows:2 inner:3\] must have its dimensions'):
            optimize.SgdOptimizer(1.0).apply_grads([mtf.reduce_sum(x, reduced_dim="rows")], [w])
        with pytest.raises(GraphError, match=r"gradient must be an mtf.Tensor, not NoneType"):
            optimize.SgdOptimizer(1.0).apply_grads([None], [w])  # type: ignore[list-item]
        return optimize.SgdOptimizer(1.0).apply_grads([x], [w])

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    (new,) = interpret(step, {"x": ("inner:3 rows:2", x)}, "cores:2", "rows:cores").results
    np.testing.assert_array_equal(new, 1 - x.T)


def test_minimize_without_variables() -> None:
    graph = mtf.Graph()
    with graph, pytest.raises(GraphError, match=r"no trainable variable"):
        optimize.SgdOptimizer(0.1).minimize(mtf.zeros(mtf.Mesh(graph), []))


def test_a_step_updates_some_variables_and_each_once() -> None:
    """Of two gradients for one variable, the second would replace the first."""
    graph, w = graph_with_variable()
    sgd = optimize.SgdOptimizer(0.1)
    with graph:
        with pytest.raises(GraphError, match=r"w would be updated twice in one step; add the gradients"):
            sgd.apply_grads([w, 2.0 * w], [w, w])
        with pytest.raises(GraphError, match=r"apply_grads has no gradients and no variables"):
            sgd.apply_grads([], [])
        with pytest.raises(GraphError, match=r"variables is empty"):
            sgd.minimize(mtf.reduce_sum(w), variables=[])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimize.SgdOptimizer(-0.1), r"SgdOptimizer: learning_rate must be 0 or more, and is -0\.1"),
        (lambda: optimize.AdamOptimizer(0.1, epsilon=-1.0), r"AdamOptimizer: epsilon must be .* and is -1\.0"),
        (lambda: optimize.SgdOptimizer(math.nan), r"learning_rate must be 0 or more, and is nan"),
        (
            lambda: optimize.AdamOptimizer("fast"),
            r"AdamOptimizer: learning_rate must be a number, a scalar of the program or a schedule, and is 'fast'",
        ),
        (lambda: optimize.MomentumOptimizer(0.1, 1.5), r"momentum must be in \[0, 1\), and is 1\.5"),
        (lambda: optimize.AdamWOptimizer(1e-3, beta_2=1), r"beta_2 must be in \[0, 1\), and is 1"),
        (lambda: optimize.AdamWOptimizer(1e-3, beta_1="b"), r"beta_1 must be a number, and is 'b'"),
        (lambda: optimize.AdamWOptimizer(1e-3, weight_decay=-1), r"weight_decay must be 0 or more"),
        (
            lambda: optimize.AdamWOptimizer(1e-3, exclude_from_weight_decay="bias"),
            r"exclude_from_weight_decay must be a sequence of regular expressions, and is 'bias'",
        ),
        (
            lambda: optimize.LionOptimizer(1e-3, exclude_from_weight_decay=["["]),
            r"has '\[', which is not a regular expression",
        ),
        (lambda: optimize.AdafactorOptimizer(decay_exponent=0), r"decay_exponent must be above 0, and is 0"),
        (lambda: optimize.AdafactorOptimizer(factored="no"), r"factored must be True or False, and is 'no'"),
        (lambda: optimize.SgdOptimizer(10**400), r"SgdOptimizer: learning_rate must be 0 or more, and is 1000"),
        (lambda: optimize.SgdOptimizer(True), r"SgdOptimizer: learning_rate must be 0 or more, and is True"),
        (lambda: optimize.AdamWOptimizer(0.1, exclude_from_weight_decay=2.0), r"regular expressions, and is 2\.0"),
        (lambda: optimize.LarsOptimizer(1.0, trust_coefficient=-1), r"trust_coefficient must be above 0"),
    ],
)
def test_what_a_field_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_learning_rate_must_be_a_scalar() -> None:
    graph, w = graph_with_variable()
    with graph, pytest.raises(ValueError, match=r"learning_rate must be a floating scalar, and is w \[inner:4\]"):
        optimize.SgdOptimizer(w)


@pytest.fixture
def _clear_gin() -> Iterator[None]:
    yield
    gin.clear_config()


@pytest.mark.usefixtures("_clear_gin")
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "Own.update must return a list with the new value of each weight, not NoneType"),
        ([], "Own.update must return a list with the new value of each weight: it returned 0 for 1 weight"),
        ([1.0], "the new value of w must be an mtf.Tensor, not float"),
    ],
)
def test_what_an_own_update_cannot_return(returned: Any, message: str) -> None:
    class Own(optimize.Optimizer):
        def update(self, parameters: Any) -> Any:
            return returned

    mesh = mtf.Mesh(mtf.Graph())
    w = mtf.get_variable(mesh, "w", "n:3")
    with pytest.raises(GraphError, match=re.escape(message)):
        Own().minimize(mtf.reduce_sum(w))


@pytest.mark.parametrize("returned", [None, "n:3"])
def test_what_an_own_schedule_cannot_return(returned: str | None) -> None:
    class Own(optimize.Schedule):
        def __call__(self, step: mtf.Tensor) -> Any:
            return returned and mtf.zeros(step.mesh, returned)

    mesh = mtf.Mesh(mtf.Graph())
    w = mtf.get_variable(mesh, "w", "n:3")
    message = "the learning_rate of this step must be a number or a scalar of the program"
    with mesh.graph, pytest.raises(GraphError, match=message):
        optimize.SgdOptimizer(Own()).minimize(mtf.reduce_sum(w))


def test_gin_composes_optimizers_schedules_and_clips() -> None:
    read_configuration(
        [],
        [
            "MovingAverageOptimizer.optimizer = @ClippedOptimizer()",
            "ClippedOptimizer.clips = (@ClipByValue(), @ClipByGlobalNorm())",
            "ClipByValue.limit = 2.0",
            "ClipByGlobalNorm.max_norm = 1.0",
            "ClippedOptimizer.optimizer = @ParameterGroups()",
            "ParameterGroups.groups = [('^embedding/', @FrozenOptimizer())]",
            "ParameterGroups.default = @AdamWOptimizer()",
            "AdamWOptimizer.learning_rate = @WarmUpSchedule()",
            "WarmUpSchedule.num_steps = 100",
            "WarmUpSchedule.then = @CosineSchedule()",
            "CosineSchedule.start = 0.01",
            "CosineSchedule.num_steps = 1000",
        ],
    )
    expected = optimize.MovingAverageOptimizer(
        optimize.ClippedOptimizer(
            optimize.ParameterGroups(
                [("^embedding/", optimize.FrozenOptimizer())],
                optimize.AdamWOptimizer(optimize.WarmUpSchedule(100, optimize.CosineSchedule(0.01, 1000))),
            ),
            [optimize.ClipByValue(2.0), optimize.ClipByGlobalNorm(1.0)],
        )
    )
    assert str(gin.get_configurable("MovingAverageOptimizer")()) == str(expected)


@pytest.mark.usefixtures("_clear_gin")
def test_every_optimizer_and_schedule_is_known_to_gin() -> None:
    interfaces = {"GradientTransformation", "Optimizer", "Schedule"}
    for name in set(optimize.__all__) - interfaces - {"Parameter", "averaged"}:
        assert gin.get_configurable(name)


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        (optimize.MomentumOptimizer(0.1, 0.9), "w/momentum_v"),
        (optimize.AdamOptimizer(0.1), "w/adam_m"),
        (optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.1)), "w/ema"),
    ],
)
def test_state_is_not_updated_twice_in_a_program(optimizer: optimize.Optimizer, state: str) -> None:
    """The second update would start from the state before the first, and replace it."""
    graph = mtf.Graph()
    with graph:
        w = mtf.get_variable(mtf.Mesh(graph), "w", "d:3")
        optimizer.apply_grads([w], [w])
        with pytest.raises(GraphError, match=f"(?s)w is updated twice in this program, and {state} would.*{__file__}:"):
            optimizer.apply_grads([w], [w])


def test_updates_without_state_follow_one_another() -> None:
    def program(mesh: mtf.Mesh) -> None:
        w = mtf.get_variable(mesh, "w", "d:3", initializer=mtf.ones)
        for _ in range(2):
            optimize.SgdOptimizer(0.25).apply_grads([mtf.ones_like(w)], [w])

    np.testing.assert_array_equal(interpret(program, {}, "one:1").variables["w"], [0.5] * 3)


def test_an_optimizer_in_a_branch_is_refused() -> None:
    graph = mtf.Graph()
    with graph:
        w = mtf.get_variable(mtf.Mesh(graph), "w", "d:3")
        with pytest.raises(GraphError, match=r"(?s)an optimizer is called inside true_fn of mtf\.cond, .*at .*"):
            mtf.cond(mtf.reduce_any(w < 0.0), lambda: optimize.SgdOptimizer(0.1).apply_grads([w], [w]), lambda: [w])


def test_open_scopes_do_not_name_the_count_of_steps() -> None:
    graph = mtf.Graph()
    with graph, mtf.variable_scope("model"):
        for name in ("v", "w"):
            w = mtf.get_variable(mtf.Mesh(graph) if not graph.meshes else graph.meshes[0], name, "d:3")
            optimize.AdamOptimizer(0.1).apply_grads([w], [w])
    counts = [name for name in graph.variables if name.endswith("/step")]
    assert counts == ["adam/step", "adam_1/step"]
