"""oneDNN multiplies with the instructions that are said of it."""

from __future__ import annotations

import pytest

from tests.mesh_impl.of_onednn import said_by_onednn


@pytest.mark.parametrize(
    "setting",
    [{}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, {"DNNL_MAX_CPU_ISA": "sse41"}],
    ids=str,
)
def test_of_what_multiplies(setting: dict[str, str]) -> None:
    program = "from meshtf.mesh_impl.onednn_kernels import multiplies_by_avx2\nprint(multiplies_by_avx2())"
    said = said_by_onednn(program, {"TF_ENABLE_ONEDNN_OPTS": "0", **setting})
    assert said.printed == str("AVX2" in said.instructions)
