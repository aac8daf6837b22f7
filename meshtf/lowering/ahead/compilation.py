"""The answer of the TPU's compiler to a program, as data. `str` gives text."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from meshtf.lowering.report.text_table import Column, bytes_text, flops_text, seconds_text, table

_TITLE = "{program} on mesh [{mesh}], compiled by libtpu {libtpu} for {topology}, {cores} cores, {how}"
_SHARE = "{peak} of {available} ({share:.0%}) of the core's memory; the plan says {planned} at the peak"
_COST = "{flops}, {read} read and written, {seconds} a step at best; what a loop does is counted once"


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledMemory:
    """Bytes of one core's memory.

    arguments: variables and inputs. results: new values of variables, and fetches; aliased: those of them that are in
    the memory of arguments. temporaries: what is set aside in high-bandwidth memory for all else that a step makes.
    code: the program itself. peak: arguments, and the most that is in use at once besides, in high-bandwidth memory or
    in that on the chip, whichever is more; this is what the compiler compares with what is available to a program.
    """

    arguments: int
    results: int
    aliased: int
    temporaries: int
    code: int
    peak: int
    available: int


@dataclasses.dataclass(frozen=True, slots=True)
class Compilation:
    """A program as the TPU's own compiler sees it. `print` it, or ask for `to_dict()`.

    Attributes:
      program: the program's name.
      topology: the topology for which it was compiled, such as "v5e:4x4".
      mesh: names and sizes of the mesh's axes.
      cores: the number of cores.
      memory: the memory on each core.
      planned_peak: bytes of one core at the peak, by the plan of a program that XLA compiles.
      flops, bytes_accessed, seconds: the compiler's estimates for a step on one core, with the body of a loop counted
        once; None where it gives none. The seconds are at best, at the chip's peak.
      compile_seconds: the time that the compiler took.
      is_cached: whether it was compiled before, and the answer kept.
      libtpu: the compiler's version.
      hlo: the program as it was optimized and scheduled, as text.
    """

    program: str
    topology: str
    mesh: tuple[tuple[str, int], ...]
    cores: int
    memory: CompiledMemory
    planned_peak: int
    flops: float | None
    bytes_accessed: float | None
    seconds: float | None
    compile_seconds: float
    is_cached: bool
    libtpu: str
    hlo: str = dataclasses.field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Converts to dictionaries, lists, texts and numbers, fit for JSON. Leaves out the text of the HLO."""
        data = json.loads(json.dumps(dataclasses.asdict(self)))
        del data["hlo"]
        return data

    def __str__(self) -> str:
        m, how = self.memory, "as kept from before" if self.is_cached else f"in {self.compile_seconds:.1f} s"
        title = _TITLE.format(
            program=self.program,
            mesh=" ".join(f"{name}:{size}" for name, size in self.mesh),
            libtpu=self.libtpu,
            topology=self.topology,
            cores=f"{self.cores:,}",
            how=how,
        )
        share = _SHARE.format(
            peak=_trimmed(bytes_text(m.peak)),
            available=_trimmed(bytes_text(m.available)),
            share=m.peak / m.available,
            planned=_trimmed(bytes_text(self.planned_peak)),
        )
        titles = ("arguments", "results", "in place", "temporaries", "code", "peak")
        numbers = (m.arguments, m.results, m.aliased, m.temporaries, m.code, m.peak)
        rows = table([Column(t, True) for t in titles], [tuple(map(bytes_text, numbers))], 120)
        return "\n".join([title, "memory per core", *rows, f"  {share}", f"cost of a step: {self._cost()}"])

    def _cost(self) -> str:
        if self.flops is None or self.bytes_accessed is None or self.seconds is None:
            return "this compiler estimates none for this generation"
        read = _trimmed(bytes_text(int(self.bytes_accessed)))
        flops = _trimmed(flops_text(int(self.flops)))
        return _COST.format(flops=flops, read=read, seconds=seconds_text(self.seconds))


def _trimmed(text: str) -> str:
    return text.strip()
