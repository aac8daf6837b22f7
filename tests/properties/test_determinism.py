"""Random bits, dropout masks and initial values: the same to the last bit under every layout and order of devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from tests.house.sharpest import sharpest

# Odd slices, down to one of three elements, where vector kernels fall back to scalar paths that round otherwise.
A, B, C = mtf.Dimension("a", 24), mtf.Dimension("b", 40), mtf.Dimension("c", 9)
LAYOUTS = ["a:rows;b:cols", "a:cols+rows"]
FURTHER_LAYOUTS = ["a:rows", "b:cols", "b:rows+cols"]
MESH = "rows:2;cols:4"
DEVICES = [None, ["CPU:7", "CPU:2", "CPU:0", "CPU:5", "CPU:1", "CPU:6", "CPU:3", "CPU:4"]]

_INITIALIZERS: dict[str, Callable[..., mtf.Tensor]] = {
    "uniform": mtf.RandomUniform(-1.0, 3.0),
    "normal": mtf.RandomNormal(0.5, 2.0),
    "truncated": mtf.TruncatedNormal(0.0, 0.1),
    "composed": lambda mesh, shape, dtype: 2.0 * mtf.random_normal(mesh, shape, dtype) + 1.0,
}
_DRAWS = [
    (mtf.random_uniform, tf.float32),
    (mtf.random_normal, tf.float32),
    (mtf.random_truncated_normal, tf.float32),
    (mtf.random_normal, tf.float64),
    (mtf.random_truncated_normal, tf.bfloat16),
]


def program(mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    """Everything that draws random bits. What is computed from them is elementwise and exact."""
    x = mtf.range(mesh, A, tf.float32) + mtf.range(mesh, B, tf.float32)
    drawn = {
        "dropout": mtf.dropout(x, True, rate=0.25),
        "dropout of rows": mtf.dropout(x, True, keep_prob=0.5, noise_shape=[A]),
        "integers": mtf.random_uniform(mesh, [B, A], tf.int32, -5, 100),
    }
    for draw, dtype in _DRAWS:
        drawn[f"{draw.__name__} {dtype.name}"] = draw(mesh, [A, C, B], dtype)
    for name, initializer in _INITIALIZERS.items():
        mtf.get_variable(mesh, name, [A, B, C], initializer=initializer)
    return drawn


def bits(layout: str, seed: int = 3) -> dict[str, np.ndarray]:
    """All of it on the interpreter, in two mesh shapes' worth of slices."""
    done = mtf.testing.interpret(program, {}, MESH, layout, seed=seed)
    return dict(done.results)


def run(mesh_impl: mtf.SpmdMeshImpl, seed: int = 3) -> list[dict[str, np.ndarray]]:
    """Two steps on virtual CPUs, and the variables."""

    def body(mesh: mtf.Mesh) -> tuple[dict[str, mtf.Tensor], list[mtf.Tensor]]:
        drawn = program(mesh)
        return drawn, [v.value for v in mesh.graph.trainable_variables]

    step = mtf.function(body, mesh_impl, seed=seed, name="program")
    steps = [{k: v.numpy() for k, v in step()[0].items()} for _ in range(2)]
    return [*steps, {name: step.variables[name] for name in _INITIALIZERS}]


def assert_same_bits(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], where: str) -> None:
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        assert actual[name].tobytes() == array.tobytes(), f"{name} differs {where}"


@pytest.mark.plain_cpu
@pytest.mark.parametrize("layouts", sharpest([LAYOUTS, FURTHER_LAYOUTS], [LAYOUTS]))
def test_random_tensors_on_the_interpreter(layouts: list[str]) -> None:
    expected = bits("")
    for layout in layouts:
        assert_same_bits(bits(layout), expected, f'under layout "{layout}"')


def test_on_virtual_cpus() -> None:
    """Random tensors, dropout and initial values, on one core and on eight in either order of devices."""
    expected = run(mtf.SpmdMeshImpl("all:1", ""))
    assert_same_bits(bits(""), expected[0], "on the interpreter")
    for number, layout in enumerate(["a:rows;b:cols", "b:cols+rows"]):
        mesh_impl = mtf.SpmdMeshImpl(MESH, layout, DEVICES[number % 2])
        for actual, wanted in zip(run(mesh_impl), expected, strict=True):
            assert_same_bits(actual, wanted, f'under layout "{layout}", devices {mesh_impl.devices}')


@pytest.mark.plain_cpu
def test_parameters_laid_out_otherwise() -> None:
    expected = run(mtf.SpmdMeshImpl("all:1", ""))[2]
    mesh_impl = mtf.SpmdMeshImpl("rows:3", "a:rows", ["CPU:2", "CPU:0", "CPU:1"], parameter_layout="c:rows")
    assert_same_bits(run(mesh_impl)[2], expected, "with parameters split over another dimension")


def test_other_seeds_and_steps_give_other_bits() -> None:
    first, second, variables = run(mtf.SpmdMeshImpl("all:1", ""))
    other, _, other_variables = run(mtf.SpmdMeshImpl("all:1", ""), seed=4)
    for name, array in first.items():
        assert not np.array_equal(array, second[name]), f"{name} is the same in the next step"
        assert not np.array_equal(array, other[name]), f"{name} is the same with another seed"
    for name, array in variables.items():
        assert not np.array_equal(array, other_variables[name]), f"variable {name} is the same with another seed"


@pytest.mark.parametrize("layout", ["x:all", "y:all"])
def test_a_dropped_gradient_has_the_same_mask(layout: str) -> None:
    x = mtf.Dimension("x", 24), mtf.Dimension("y", 8)

    def fn(t: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.dropout(t, True, rate=0.5)
        return [y, *mtf.gradients([y], [t])]

    inputs = {"t": (x, np.ones([24, 8], np.float32))}
    y, grad = mtf.testing.interpret(fn, inputs, "all:8", layout).results
    np.testing.assert_array_equal(y, grad)
    assert 0.3 < np.mean(y == 0) < 0.7


def test_each_layer_of_a_stack_has_a_mask_of_its_own() -> None:
    """And the same whether the stack is a loop, or one layer after the other."""

    def masks(t: mtf.Tensor) -> list[mtf.Tensor]:
        found = [
            mtf.layer_stack(lambda x, _: (x, [mtf.dropout(x[0], True, rate=0.5)]), t, ("layers", 3), unroll=unroll)
            for unroll in (False, True)
        ]
        return [stacked for _, (stacked,) in found]

    inputs = {"t": ("x:24 y:8", np.ones([24, 8], np.float32))}
    scanned, unrolled = mtf.testing.interpret(masks, inputs, "all:2", "x:all").results
    assert len({mask.tobytes() for mask in scanned}) == 3
    assert [mask.tobytes() for mask in scanned] == [mask.tobytes() for mask in unrolled]
