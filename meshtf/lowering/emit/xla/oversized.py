"""Programs that are themselves too large: for XLA's compiler, or for the format in which it is given them."""

from __future__ import annotations

import collections
import re

from meshtf.planning.plan import Plan, walk

_SAYS = re.compile(
    r"is it too large\?|protobuff? (limit|size)|size of 2 ?GiB|limit of 2 ?GB|than 2 ?Gi?B|overlay region size"
    r"|single block is too large",
    re.IGNORECASE,
)
_MOST_NAMED = 3
_LONGEST_FACT = 600

_OVERSIZED = """\
program "{program}" is itself too large to be compiled for {target}: {fact}
It has {count:,} instructions{hlo}. Most of them come from
{most}
A program has the layers of an mtf.layer_stack and the steps of an mtf.scan once; a Python loop, or unroll=True, \
repeats them. NumPy arrays that functions in mtf.slicewise or mtf.cwise close over are a part of the \
program; pass them as variables or inputs."""


def says_oversized(text: str) -> bool:
    """Whether this text of a compiler refuses a program for the program's own size, not for the memory that it
    needs."""
    return _SAYS.search(text) is not None


def oversized(fact: str, program: str, target: str, plan: Plan, hlo_bytes: int | None = None) -> str:
    """The message of a CompilationError.

    Args:
      fact: the refusal in the compiler's words.
      program: the program's name.
      target: the topology, or other target, that it was compiled for.
      plan: the program's plan. The lines that make the most instructions are named.
      hlo_bytes: the size of the program's HLO, if there is one.
    """
    sites = collections.Counter(i.operation.site for i, _ in walk(plan.instructions))
    most = [f"  {count:,} {site}" for site, count in sites.most_common(_MOST_NAMED)]
    return _OVERSIZED.format(
        program=program,
        target=target,
        fact=" ".join(fact.split())[:_LONGEST_FACT],
        count=sites.total(),
        hlo="" if hlo_bytes is None else f", and its HLO {hlo_bytes / 2**20:,.1f} MiB",
        most="\n".join(most),
    )
