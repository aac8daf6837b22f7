"""Arrays that programs on accelerators are fed: copied once if they are the user's, and never if they are tensors."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.mesh_impl.pjrt.pjrt import Cores

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


def test_a_started_run_copies_an_array_once(summed: mtf.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    """With checks the copy is made before, to find a failure in. Without, the runtime makes it."""
    sent = _sent(monkeypatch)
    inputs = {"x": mtf.TensorSpec([("batch", 8), ("length", LENGTH)])}
    unchecked = mtf.function(mtf.square, mtf.GpuMeshImpl("all:2", "batch:all"), inputs)
    for step in (summed, unchecked):
        step.start(x=np.ones([8, LENGTH], np.float32))()
    assert [one for one in sent if one[0] == (4, LENGTH)] == [((4, LENGTH), False), ((4, LENGTH), True)]


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


def _sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], bool]]:
    """The shapes of the parts that go to the cores from now on, and whether the runtime must copy them at once."""
    sent: list[tuple[tuple[int, ...], bool]] = []
    put = Cores.put

    def counted(self: Cores, pieces: list[np.ndarray], **options: bool) -> object:
        sent.append((pieces[0].shape, options.get("may_change", False)))
        return put(self, pieces, **options)

    monkeypatch.setattr(Cores, "put", counted)
    return sent
