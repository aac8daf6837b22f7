"""A program that needs more memory than there is is refused before any is taken; a way to insist is named."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.errors import DeviceError, UsageError
from meshtf.lowering.report.memory import memory_check
from meshtf.mesh_impl.host.host_memory import HostMemory, host_memory

TOO_LARGE = (
    host_memory().available * 4 // 4096
)  # elements of 4 bytes, for four cores together: four times of what there is


def program(size: int, mesh_impl: mtf.SpmdMeshImpl | mtf.PlanMeshImpl, width: int = 4096) -> mtf.Function:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [mtf.Dimension("rows", size // 4), mtf.Dimension("width", width)])
        return mtf.reduce_sum(w) + mtf.reduce_sum(x)

    return mtf.function(body, mesh_impl, {"x": mtf.TensorSpec("batch:4")}, name="large")


def refusal(use: Callable[[], object]) -> str:
    with pytest.raises(DeviceError) as caught:
        use()
    return str(caught.value)


def test_the_message_has_the_numbers_and_what_to_do() -> None:
    large = program(TOO_LARGE, mtf.SpmdMeshImpl("cores:4", "batch:cores"))
    messages = {refusal(large.initialize), refusal(large.check_memory), refusal(lambda: large(np.zeros(4, np.float32)))}
    for message in messages:
        assert message.startswith('program "large" needs more memory than there is: ')
        assert "GiB on 4 cores, and " in message
        assert "Each core takes " in message
        assert "at its peak" in message
        assert "give the mesh check_memory=False, or in gin\nTraining.check_memory = False." in message
    assert not large.variables


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many bytes are left."""

    def leave(available: int) -> None:
        monkeypatch.setattr(memory_check, "host_memory", lambda: HostMemory(available, "this test has left"))

    return leave


def test_the_largest_batch_that_fits_is_named_and_fits(room: Callable[[int], None]) -> None:
    def squared(batch: int) -> mtf.Function:
        inputs = {"x": mtf.TensorSpec([("batch", batch), ("width", 1024)])}
        return mtf.function(mtf.square, mtf.SpmdMeshImpl("cores:2", "batch:cores"), inputs)

    room(10_000_000)
    message = refusal(squared(1024).check_memory)
    (found,) = re.findall(r'"batch" of (\d+) instead of 1,024 would fit', message)
    # An example's inputs, their slices and their squares take 4 KiB each. Two cores share the batch.
    assert int(found) == 10_000_000 // (3 * 4096) // 2 * 2
    squared(int(found)).check_memory()
    room(4096)
    assert "would fit" not in refusal(squared(1024).check_memory)


def test_what_fits_to_the_byte_is_not_refused(room: Callable[[int], None]) -> None:
    """One core, and four that share the memory; variables that are there take no more of it."""
    for mesh, cores in (("cores:1", 1), ("cores:4", 4)):
        for layout in ("", "rows:cores"):
            need = program(64, mtf.SpmdMeshImpl(mesh, layout)).report().memory.peak * cores
            room(need - 1)
            assert f"on {cores} core" in refusal(program(64, mtf.SpmdMeshImpl(mesh, layout)).initialize)
            program(64, mtf.SpmdMeshImpl(mesh, layout, check_memory=False)).initialize()
            room(need)
            first = program(64, mtf.SpmdMeshImpl(mesh, layout))
            first.initialize()
            room(need - 1)
            first(np.zeros(4, np.float32))  # has been looked at
            assert "with the batches made ahead" in refusal(partial(first.check_memory, besides=2 * need))
            step = mtf.function(
                lambda x: mtf.get_variable(x.mesh, "w", "rows:16 width:4096") + mtf.reduce_sum(x),
                first.lowering.mesh_impl,
                {"x": mtf.TensorSpec("batch:4")},
                variables=first.variables,
            )
            step.check_memory()  # the variable is there


def test_a_checkpoint_is_not_restored_into_too_little(room: Callable[[int], None], tmp_path: Path) -> None:
    mesh = mtf.SpmdMeshImpl("cores:2", "rows:cores")
    first = program(64, mesh)
    first.initialize()
    folder = CheckpointFolder(tmp_path)
    folder.save(1, first.variables, {})
    room(1000)
    second = program(64, mesh)
    assert "this test has left" in refusal(lambda: restore(folder.open(1), [second]))
    assert not second.variables


def test_a_mesh_on_paper_has_room_for_everything() -> None:
    assert program(TOO_LARGE, mtf.PlanMeshImpl("cores:4", "")).report().memory.peak > TOO_LARGE
    program(TOO_LARGE, mtf.PlanMeshImpl("cores:4", "")).check_memory()


def test_the_option_is_true_or_false() -> None:
    assert not dataclasses.replace(mtf.MeshOptions(), check_memory=False).check_memory
    with pytest.raises(UsageError, match="check_memory must be True or False, and is 'no'"):
        mtf.MeshOptions(check_memory="no")  # type: ignore[arg-type]
