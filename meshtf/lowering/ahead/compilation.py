"""The result of the TPU's compiler for a program, as data. `str` formats it as text."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from meshtf.lowering.report.text_table import Column, bytes_text, flops_text, seconds_text, table

_TITLE = "{program} on mesh [{mesh}], compiled by libtpu {libtpu} for {topology}, {cores} cores, {how}"
_SHARE = "{peak} of {available} ({share:.0%}) of the core's memory; the plan says {planned} at the peak"
_COST = "{flops}, {read} read and written, {seconds} a step at best; the body of a loop is counted once"


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledMemory:
    """The bytes that a program needs in one core's memory.

    Attributes:
      arguments: variables and inputs.
      results: new values of variables, and fetches.
      aliased: the results that reuse the memory of arguments.
      temporaries: the high-bandwidth memory that is reserved for all other values of a step.
      code: the program itself.
      peak: the arguments, and the most other memory in use at once, in high-bandwidth or on-chip memory, whichever is
        more. The compiler compares it with `available`.
      available: the memory of a core.
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
    """A program as the TPU's own compiler sees it. `print` it, or call `to_dict()`.

    Attributes:
      program: the program's name.
      topology: the topology for which it was compiled, such as "v5e:4x4".
      mesh: names and sizes of the mesh's axes.
      cores: the number of cores.
      memory: the memory on each core.
      planned_peak: the peak bytes of one core, as computed from the plan for a program that XLA compiles.
      flops, bytes_accessed, seconds: the compiler's estimates for a step on one core, with the body of a loop counted
        once; None if it makes no estimate. The seconds assume the chip's peak speed.
      compile_seconds: the time that the compiler took.
      is_cached: whether the result comes from the cache of an earlier compilation.
      libtpu: the compiler's version.
      hlo: the optimized and scheduled program, as text.
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
        how = "reused from an earlier compilation" if self.is_cached else f"in {self.compile_seconds:.1f} s"
        m = self.memory
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
            return "this compiler gives no estimate for this generation"
        read = _trimmed(bytes_text(int(self.bytes_accessed)))
        flops = _trimmed(flops_text(int(self.flops)))
        return _COST.format(flops=flops, read=read, seconds=seconds_text(self.seconds))


def _trimmed(text: str) -> str:
    return text.strip()
