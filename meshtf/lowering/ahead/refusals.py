"""Turns refusals of the TPU's compiler into messages in the user's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from meshtf.lowering.ahead.advice import advice
from meshtf.lowering.ahead.changes import PlanWith
from meshtf.lowering.report.memory.compiled_memory import compiled_peak_memory
from meshtf.lowering.report.memory.peak_memory import working_memory
from meshtf.lowering.report.memory.what_fits import AS_FUSED, largest_texts
from meshtf.mesh_impl.tpu.topology import TpuTopology
from meshtf.planning.plan import Plan

_GIB = 2**30
_LONGEST_FACT = 600
_MOST_NAMED = 4
_TRANSFORM = "operand type for FFT"
_WORD = re.compile(r"[A-Za-z]\w*")

_REFUSED = """\
program "{program}" cannot be compiled for {topology}: libtpu says
  {fact}
  in operation {origin}
Write the operation in another way, or run the program on an mtf.SpmdMeshImpl."""

_TOO_LARGE = """\
program "{program}" does not fit {topology}, whose cores leave {available:.4g} GiB to a program: libtpu says
  {fact}
By the plan a core takes {peak:.3g} GiB at its peak{where}: variables {variables:.3g}, inputs {feeds:.3g}, gradients \
up to {gradients:.3g}, activations up to {activations:.3g}. The largest at that point:
{largest}
{advice}"""


def refused_by_compiler(
    text: str, program: str, topology: TpuTopology, scope_to_origin: Mapping[str, str], transforms: Sequence[str] = ()
) -> str:
    """The message of a CompilationError.

    Args:
      text: the text of the compiler's error.
      program: the program's name.
      topology: the topology for which it was compiled.
      scope_to_origin: the operation and the user's line of each instruction, by its name scope, such as `Compute_17`.
      transforms: scopes of Fourier transforms of 64-bit numbers. A text that refuses one names none.
    """
    scopes = [*_WORD.findall(text), *(transforms if _TRANSFORM in text else ())]
    origin = next((scope_to_origin[scope] for scope in scopes if scope in scope_to_origin), None)
    fact = " ".join(text.split())[:_LONGEST_FACT]
    named = origin or "that the compiler does not name"
    return _REFUSED.format(program=program, topology=topology, fact=fact, origin=named)


def too_large(text: str, program: str, plan: Plan, topology: TpuTopology, plan_with: PlanWith) -> str:
    """The message of a DeviceError, of a program that takes more memory than a core has."""
    peak, working, available = compiled_peak_memory(plan), working_memory(plan), topology.generation.memory_bytes
    largest = [f"  {text}" for text in largest_texts(plan, AS_FUSED, _MOST_NAMED)]
    # Activations are counted kernel by kernel, so they are limited to what the compiled program has.
    activations = min(working.activations, peak.total - peak.variables - peak.feeds)
    return _TOO_LARGE.format(
        program=program,
        topology=topology,
        available=available / _GIB,
        fact=" ".join(text.split())[:_LONGEST_FACT],
        peak=peak.total / _GIB,
        where="" if peak.operation is None else f" in {peak.operation.where}",
        variables=peak.variables / _GIB,
        feeds=peak.feeds / _GIB,
        gradients=working.gradients / _GIB,
        activations=activations / _GIB,
        largest="\n".join(largest),
        advice=advice(plan, activations, available, plan_with),
    )
