"""Programs that are themselves too large: the compilers' words for it, and ours."""

from __future__ import annotations

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.backends._running_on_pjrt import CoreMemory, running_on_pjrt
from meshtf.errors import CompilationError
from meshtf.lowering.ahead import compile_ahead
from meshtf.lowering.emit.xla.oversized import says_oversized
from meshtf.lowering.report.memory.what_fits import BY_OPERATION
from meshtf.mesh_impl.tpu.ahead_compiler import CompilerAnswer
from meshtf.tensorflow_private import xla_modules

TOO_LARGE = "INTERNAL: Failed to serialize TpuExecutableProto, is it too large? Core program byte size is: 2250000000"


def step_on(mesh_impl: object) -> mtf.Function:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        for _ in range(5):
            x = mtf.tanh(x)
        return mtf.reduce_sum(x)

    return mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec("batch:8")}, name="step")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TOO_LARGE, True),
        ("HLO program serialization exceeds max supported protobuff size of 2 GiB.", True),
        ("xla.HloModuleProto exceeded maximum protobuf size of 2GB: 2457603523", True),
        ("Fatal error, failed to build overlays, exceeding overlay region size: 9", True),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm.", False),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 2147483648 bytes, 2.0 GiB", False),
        ("", False),
    ],
)
def test_which_words_speak_of_the_program(text: str, found: bool) -> None:
    assert says_oversized(text) is found


def test_the_compiler_of_a_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_ahead, "compile_ahead", lambda *args: CompilerAnswer(refused=TOO_LARGE))
    with pytest.raises(CompilationError, match="is itself too large to be compiled for v5e:2x2: INTERNAL") as raised:
        step_on(mtf.PlanMeshImpl("all:4", "batch:all")).compile("v5e:2x2")
    first, second, third, *_, advice, _ = str(raised.value).splitlines()
    assert first.startswith('program "step" ')
    assert first.endswith("Core program byte size is: 2250000000")
    assert second.startswith("It has 8 instructions, and its HLO ")
    assert second.endswith(" MiB. Most of them come from")
    assert third.startswith(f"  5 {__file__}:")
    assert advice.startswith("A program has the layers of an mtf.layer_stack and the steps of an mtf.scan once")


def test_hlo_that_cannot_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_modules, "hlo_of", lambda *args: b"")
    with pytest.raises(CompilationError, match="large to be compiled for XLA: its HLO takes more than the 2 GiB"):
        step_on(mtf.PlanMeshImpl("all:4", "batch:all")).compile("v5e:2x2")
    refusal = tf.errors.InternalError(None, None, "HLO program serialization exceeds max supported protobuff size")

    def refused(*args: object) -> bytes:
        raise refusal

    monkeypatch.setattr(xla_modules, "hlo_of", refused)
    with pytest.raises(CompilationError, match="itself too large to be compiled for XLA: HLO program serialization"):
        step_on(mtf.PlanMeshImpl("all:4", "batch:all")).compile("v5e:2x2")


def test_the_runtime_of_a_tpu() -> None:
    from meshtf.mesh_impl.pjrt import pjrt

    step = step_on(mtf.PlanMeshImpl("all:4", "batch:all"))
    plan = step.lowering.plan_for([step.results])
    with (
        pytest.raises(
            CompilationError, match=r'"step" is itself too large to be compiled for mesh \[all:4\]: INTERNAL'
        ),
        running_on_pjrt("step", plan, lambda: CoreMemory(BY_OPERATION, None, None)),
    ):
        raise pjrt.PjrtError(TOO_LARGE)
