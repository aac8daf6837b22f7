"""Which operations a core runs: none that copies what may be read where it is, and the faster of two products."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.core_program import TracedCore
from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.mesh_impl.processor_kernels import ProcessorKernels
from meshtf.testing import assert_close, plan

pytestmark = pytest.mark.plain_cpu

ONE = mtf.SpmdMeshImpl("all:1", "")


def of_a_core(step: mtf.Function) -> tf.Graph:
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    (core_function,) = program.core_functions
    return core_function.graph


@pytest.mark.parametrize(("front", "copies"), [([], 0), ([("stage", 1)], 0), ([("stage", 2)], 1)])
def test_parts_that_lie_in_one_piece_are_not_copied(front: list[tuple[str, int]], copies: int) -> None:
    """A layer's weights, of all layers': behind one stage, and beside those of another."""
    layers, width = mtf.Dimension("layers", 3), mtf.Dimension("width", 4096)
    shape = mtf.Shape([*front, layers, width])
    weights = np.random.default_rng(0).uniform(0.5, 1.5, shape.to_integer_list).astype(np.float32)

    def step(x: mtf.Tensor) -> mtf.Tensor:
        own_weights = mtf.get_variable(x.mesh, "weights", shape, initializer=weights)
        (y,), _ = mtf.scan(lambda xs, own: ([xs[0] * own[0]], []), [x], [own_weights], layers)
        loss = mtf.reduce_sum(y)
        mtf.optimize.SgdOptimizer(0.5).minimize(loss)
        return loss

    x = mtf.TensorSpec([*front, width])
    program = mtf.function(step, ONE, inputs={"x": x})
    given = np.random.default_rng(1).uniform(0.5, 1.5, x.shape.to_integer_list).astype(np.float32)
    axis, expected = len(front), weights
    for _ in range(2):  # updates write where the views are of
        loss, product = float(program(x=given)), np.prod(expected, axis=axis, keepdims=True)
        assert_close(loss, np.sum(given * np.squeeze(product, axis)), terms=(shape.size, 3))
        expected = expected - 0.5 * np.expand_dims(given, axis) * product / expected
        assert_close(program.variables["weights"], expected, terms=(3, 3))
    inside = [f for f in of_a_core(program).as_graph_def().library.function if "while_body" in f.signature.name]
    assert [[n.op for n in f.node_def].count("GatherV2") for f in inside[:1]] == [copies]


@pytest.mark.parametrize("front", [[], [("batch", 1)]], ids=["matrices", "a batch of one"])
@pytest.mark.parametrize(
    ("names", "sizes", "kernel"),
    [
        ("m k|k n", (64, 1024, 256), "MatMul"),
        ("m k|n k", (64, 1024, 256), "BatchMatMulV2"),
        ("m k|n k", (4096, 1024, 256), "BatchMatMulV2"),
        ("m k|n k", (4096, 1024, 1024), "MatMul"),
        ("m k|n k", (8, 1024, 256), "MatMul"),
        ("m k|n k", (64, 64, 64), "MatMul"),
        ("k m|n k", (256, 1024, 256), "MatMul"),
    ],
)
def test_which_kernel_multiplies_two_matrices(
    front: list[tuple[str, int]],
    names: str,
    sizes: tuple[int, int, int],
    kernel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where TensorFlow computes by oneDNN with AVX-512."""
    kernels = ProcessorKernels(by_onednn=True, by_avx2=False, calls_onednn=False)
    monkeypatch.setattr(ProcessorKernels, "of_this_process", lambda: kernels)
    """Of a few rows by a large matrix that is read transposed, TensorFlow's product of batches is the faster one."""
    size_of = dict(zip("mkn", sizes, strict=True))
    a, b = (mtf.Shape([*front, *((n, size_of[n]) for n in own.split())]) for own in names.split("|"))
    output = mtf.Shape([*front, *((n, size_of[n]) for n in "mn")])
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s.to_integer_list).astype(np.float32) for s in (a, b))

    def step(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        return mtf.einsum([x, y], output_shape=output)

    program = mtf.function(step, ONE, inputs={"x": mtf.TensorSpec(a), "y": mtf.TensorSpec(b)})
    equation = f"{names.replace(' ', '').replace('|', ',')}->mn"
    x_matrix, y_matrix = (value.reshape(value.shape[len(front) :]) for value in (x, y))
    expected = np.einsum(equation, x_matrix, y_matrix, optimize=True)
    assert_close(program(x=x, y=y).numpy().reshape(expected.shape), expected, terms=sizes[1])
    found = [
        o.type for o in of_a_core(program).get_operations() if o.type.endswith("MatMul") or "BatchMatMul" in o.type
    ]
    assert found == [kernel]


def test_a_compiler_chooses_itself_and_so_does_another_process() -> None:
    with tf.Graph().as_default():
        own = plan(lambda mesh: mtf.ones(mesh, "x:1"), {}, "all:1")
        core = TracedCore(own, {}, on_processors=True, knows_processor=True)
        anywhere = TracedCore(own, {}, on_processors=True)
        a, b = tf.zeros([64, 1024]), tf.zeros([256, 1024])
        kernels = [c.product(a, b, transpose_a=False, transpose_b=True) for c in (core, core.compiled(), anywhere)]
    assert [kernel.op.type for kernel in kernels[1:]] == ["MatMul"] * 2
    assert kernels[0].op.type != "MatMul"


def test_what_a_saved_model_holds_is_known_to_every_tensorflow() -> None:
    def step(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        return mtf.einsum([x, y], output_shape="m:64 n:256")

    inputs = {"x": mtf.TensorSpec("m:64 k:1024"), "y": mtf.TensorSpec("n:256 k:1024")}
    own = plan(step, inputs, "all:1")
    kernels = []
    for is_saved in (True, False):
        (core_function,) = EmittedProgram(own, ONE, {}, is_saved=is_saved).core_functions
        kernels += [o.type for o in core_function.graph.get_operations() if "MatMul" in o.type]
    assert kernels[0] == "MatMul" != kernels[1]
