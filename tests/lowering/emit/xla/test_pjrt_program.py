"""Arrays that programs on accelerators are fed: copied once if they are the user's, and never if they are tensors."""

from __future__ import annotations

import signal
from collections.abc import Callable

import jax
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.mesh_impl.pjrt.pjrt import Cores, Executable

LENGTH = 1 << 20


@pytest.fixture(scope="module")
def summed() -> mtf.Function:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(mtf.check_finite(x, "the input"), reduced_dim="length")

    inputs = {"x": mtf.TensorSpec([("batch", 8), ("length", LENGTH)])}
    return mtf.function(program, mtf.GpuMeshImpl("all:2", "batch:all"), inputs=inputs)


def test_an_array_may_change_once_a_run_has_been_started(summed: mtf.Function) -> None:
    """A large one is the runtime's to copy. A failure is found in the array as it was."""
    x = np.ones([8, LENGTH], np.float32)
    waits = []
    for n in range(3):
        x[...] = n
        waits.append(summed.start(x=x))
    x[2, 5] = np.nan
    failing = summed.start(x=x)
    x[...] = 7
    for n, wait in enumerate(waits):
        np.testing.assert_array_equal(wait(), np.full([8], n * LENGTH, np.float32))
    with pytest.raises(NonFiniteError, match="batch 2, length 5"):
        failing()


def test_a_second_failure_is_found_without_compiling(summed: mtf.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who skips steps that fail would wait for the compiler each time, and lose memory to it."""
    x = np.ones([8, LENGTH], np.float32)
    for row in (3, 6):
        x[row, 4] = np.nan
        with pytest.raises(NonFiniteError, match=f"batch {row}, length 4"):
            summed(x=x)
        x[row, 4] = 1.0
        monkeypatch.setattr(Cores, "compile", None)


def test_an_array_may_change_whose_parts_several_cores_share() -> None:
    """The runtime copies it for each of them, before the start returns."""
    inputs = {"x": mtf.TensorSpec([("batch", 2), ("length", LENGTH)])}
    mesh_impl = mtf.GpuMeshImpl("rows:2;cols:2", "batch:rows")
    step = mtf.function(lambda x: mtf.reduce_sum(x, reduced_dim="length"), mesh_impl, inputs)
    x = np.repeat(np.array([[1.0], [2.0]], np.float32), LENGTH, axis=1)
    wait = step.start(x=x)
    x[...] = 7
    np.testing.assert_array_equal(wait(), [LENGTH, 2 * LENGTH])


def test_a_started_run_copies_an_array_once(summed: mtf.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is made before, if the place of a failure is looked for in it. Else the runtime makes it."""

    def with_checked_loss(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.check_finite(mtf.reduce_mean(x), "the loss")  # which has no places

    sent = _sent(monkeypatch)
    inputs = {"x": mtf.TensorSpec([("batch", 8), ("length", LENGTH)])}
    others = [mtf.function(f, mtf.GpuMeshImpl("all:2", "batch:all"), inputs) for f in (mtf.square, with_checked_loss)]
    for step in (summed, *others):
        step.start(x=np.ones([8, LENGTH], np.float32))()
    assert [may_change for shape, may_change in sent if shape == (4, LENGTH)] == [False, True, True]


def test_a_tensor_is_sent_once(summed: mtf.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = _sent(monkeypatch)
    one, two = (tf.fill([8, LENGTH], value) for value in (1.0, 2.0))
    for x, expected in ((one, 1), (one, 1), (two, 2), (two, 2), (one, 1)):
        np.testing.assert_array_equal(summed(x=x), np.full([8], expected * LENGTH, np.float32))
    assert sent.count(((4, LENGTH), False)) == 3


def test_an_imported_array_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = _sent(monkeypatch)

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return x + mtf.import_tf_tensor(np.arange(3.0, dtype=np.float32), "n:3")

    added = mtf.function(program, mtf.GpuMeshImpl("all:2", ""), inputs={"x": mtf.TensorSpec("batch:5 n:3")})
    for _ in range(3):
        np.testing.assert_array_equal(added(x=np.ones([5, 3], np.float32)), np.tile([1.0, 2.0, 3.0], (5, 1)))
    assert sent.count(((3,), False)) == 1


def test_a_run_without_results_is_waited_for() -> None:
    """Nothing else would hear that it failed."""
    size = mtf.Dimension("size", 512)

    def program(mesh: mtf.Mesh) -> None:
        held = mtf.get_variable(mesh, "held", [size, ("columns", 512)], initializer=mtf.ones)
        new = held
        for _ in range(8):
            product = mtf.einsum([new, held.rename({"columns": "others", "size": "columns"})], [size, ("others", 512)])
            new = product.rename({"others": "columns"}) * (1 / 512)
        mtf.assign(held, new)

    step = mtf.function(program, mtf.GpuMeshImpl("all:1", ""))
    for _ in range(2):
        step()
        assert all(v.array.is_ready() for v in step._execution.program._variables)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(step.variables["held"], np.ones([512, 512]))


def test_after_a_failed_check_steps_of_other_sizes_assign_nothing_either() -> None:
    """They are other programs, with the same variables. A program with variables of its own goes on."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        total = mtf.get_variable("total", "columns:4", initializer=mtf.zeros)
        return mtf.assign_add(total, mtf.check_finite(mtf.reduce_sum(x, reduced_dim="batch")))

    mesh_impl, inputs = mtf.GpuMeshImpl("all:2", "batch:all"), {"x": mtf.f32["batch columns:4"]}
    step, unrelated = mtf.function(program, mesh_impl, inputs), mtf.function(program, mesh_impl, inputs)
    two, four = np.ones([2, 4], np.float32), np.ones([4, 4], np.float32)
    step.start(x=np.nan * two)
    other = unrelated.start(x=two)
    failing = step.start(x=two)
    with pytest.raises(NonFiniteError):
        step.start(x=four)
    np.testing.assert_array_equal(step.variables["total"], np.zeros(4))
    with pytest.raises(NonFiniteError):
        failing()
    np.testing.assert_array_equal(other(), np.full(4, 2.0))
    np.testing.assert_array_equal([step.start(x=x)() for x in (four, two)], [[4.0] * 4, [6.0] * 4])


def test_an_interrupt_leaves_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes their buffers. If it did not put others in their place, the next step would crash the process."""
    step = mtf.function(lambda x: mtf.assign_add(mtf.get_variable("w", x.shape, initializer=mtf.ones), x),
                        mtf.GpuMeshImpl("all:2", "n:all"), {"x": mtf.TensorSpec("n:4")})  # fmt: skip
    x = np.ones(4, np.float32)
    step(x=x)
    start = Executable.start

    def interrupted(self: Executable, arguments: list[jax.Array]) -> list[jax.Array]:
        results = start(self, arguments)
        signal.raise_signal(signal.SIGINT)
        return results

    monkeypatch.setattr(Executable, "start", interrupted)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            step(x=x)
    finally:
        signal.signal(signal.SIGINT, handler)
    monkeypatch.undo()
    np.testing.assert_array_equal(step.variables["w"], 3 * x)
    np.testing.assert_array_equal(step(x=x), 4 * x)


def test_a_result_of_one_element_keeps_its_sign() -> None:
    """TensorFlow has one tensor for Python's 0.0, and takes -0.0 for it."""
    step = mtf.function(lambda x: -x, mtf.GpuMeshImpl("all:1", ""), {"x": mtf.TensorSpec([])})
    signs = [np.signbit(step(x=np.float32(x)).numpy()) for x in (-0.0, 0.0)]
    assert signs == [False, True]


def test_arrays_in_the_other_order_of_bytes() -> None:
    """Files of other machines have them, as FITS does."""
    x = np.array([1.0, 2.0, 3.0])
    for mesh_impl in (mtf.GpuMeshImpl("all:1", ""), mtf.SpmdMeshImpl("all:1", "")):
        step = mtf.function(mtf.square, mesh_impl, {"x": mtf.TensorSpec("n:3")})
        np.testing.assert_array_equal(step(x=x.astype(">f4")), x**2)


def _sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], bool]]:
    """The shapes of the parts that go to the cores from now on, and whether the runtime must copy them at once."""
    sent: list[tuple[tuple[int, ...], bool]] = []
    put = Cores.put

    def counted(self: Cores, pieces: list[np.ndarray], **options: bool) -> object:
        sent.append((pieces[0].shape, options.get("may_change", False)))
        return put(self, pieces, **options)

    monkeypatch.setattr(Cores, "put", counted)
    return sent


@pytest.mark.parametrize(("check", "expected"), [(mtf.identity, [()]), (mtf.check_finite, [(), ()])])
def test_only_results_come_to_the_host(
    check: Callable[[mtf.Tensor], mtf.Tensor], expected: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of a failed check stays where it is if nothing is checked."""
    sent = list[tuple[int, ...]]()
    send = Cores.send

    def counted(cores: Cores, array: jax.Array, position: int = 0) -> None:
        sent.append(array.shape)
        send(cores, array, position)

    def mean(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_mean(check(x))

    monkeypatch.setattr(Cores, "send", counted)
    step = mtf.function(mean, mtf.GpuMeshImpl("all:2", "batch:all"), inputs={"x": mtf.TensorSpec("batch:4")})
    sent.clear()
    y = step(x=np.array([1, 2, 3, 5], np.float32))
    assert (y.dtype, y.shape.rank, float(y)) == (tf.float32, 0, 2.75)
    assert sent == expected
