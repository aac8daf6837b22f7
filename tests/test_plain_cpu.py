"""Which machines run tests a second time."""

from __future__ import annotations

import pytest

from benchmarks.measuring.plain_cpu import flags_of_this_cpu, is_plain, restricted
from tests.plain_cpu import main

ZEN_3 = "fpu sse sse2 ssse3 fma sse4_1 sse4_2 avx f16c avx2 sha_ni vaes vpclmulqdq"
ZEN_5 = f"{ZEN_3} avx512f avx512dq avx512_bf16 avx_vnni"


def test_a_cpu_is_plain_without_wider_vectors_than_avx2() -> None:
    cpuinfo = "processor\t: 0\nmodel name\t: some\nflags\t\t: {}\nbugs\t\t: avx512_none\n\n"
    cpuinfo += "processor\t: 1\nflags\t\t: avx512f\n"
    assert is_plain(flags_of_this_cpu(cpuinfo.format(ZEN_3)))
    assert not is_plain(flags_of_this_cpu(cpuinfo.format(ZEN_5)))
    assert is_plain(flags_of_this_cpu("processor\t: 0\nFeatures\t: fp asimd\n"))


def test_xla_flags_that_are_there_stay() -> None:
    environment = restricted({"XLA_FLAGS": "--xla_one=1", "HOME": "/"})
    assert environment == {
        "XLA_FLAGS": "--xla_one=1 --xla_cpu_max_isa=AVX2",
        "HOME": "/",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }


def test_nothing_runs_again_on_a_plain_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.plain_cpu.this_cpu_is_plain", lambda: True)
    assert main(["no_such_file"]) == 0
    assert "this machine has no AVX-512" in capsys.readouterr().out


def test_the_status_of_the_second_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.plain_cpu.this_cpu_is_plain", lambda: False)
    assert main(["--noconftest", "no_such_file"]) == pytest.ExitCode.USAGE_ERROR
