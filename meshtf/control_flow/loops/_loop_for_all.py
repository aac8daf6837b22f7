"""Makes a loop of a function of one element again, for all elements of a dimension: see `mtf.vmap`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from meshtf.control_flow._blocks import block_input
from meshtf.control_flow._elements import Elements
from meshtf.control_flow.loops.loop_spec import CarriedTensor, Iterations, LoopSpec, SlicedTensor
from meshtf.graph.blocks import Block
from meshtf.graph.tensor import Tensor
from meshtf.planning.microbatch_cut import MicrobatchCut

if TYPE_CHECKING:
    from meshtf.control_flow.loops.loop import LoopOperation


def loop_for_all(loop: LoopOperation, elements: Elements) -> LoopOperation:
    """The loop over all elements. Each iteration computes all of them.

    Raises:
      GraphError: its condition differs between elements, or it is a pipeline, or divides a batch.
    """
    spec = loop.spec
    if spec.pipeline is not None or isinstance(spec.numbering.counted, MicrobatchCut):
        elements.refuse(loop)
    mapped = _mapped_carried(spec, elements)
    carried = [(c, (elements.of_all if c.entering in mapped else elements.given)(c.initial)) for c in spec.carried]
    bound = {c.entering: _input(initial, c.entering) for c, initial in carried}
    sliced = [SlicedTensor(elements.given(s.whole), _part(s, elements)) for s in spec.sliced]
    bound |= {before.part: s.part for before, s in zip(spec.sliced, sliced, strict=True)}
    leaving = [c.leaving for c in spec.carried if c.entering in mapped]
    inside, operations = elements.inside(spec.operations, bound, leaving)
    made = dataclasses.replace(
        spec,
        iterations=_iterations(loop, elements, mapped),
        operations=operations,
        carried=tuple(CarriedTensor(initial, bound[c.entering], inside.get(c.leaving)) for c, initial in carried),
        sliced=tuple(sliced),
        stacked=tuple(dataclasses.replace(s, part=inside.given(s.part), gradient_of=None) for s in spec.stacked),
        accumulated=tuple(
            dataclasses.replace(a, term=inside.given(a.term), gradient_of=None) for a in spec.accumulated
        ),
    )
    return type(loop)(made, loop.outputs[0], loop.name)


def _mapped_carried(spec: LoopSpec, elements: Elements) -> set[Tensor]:
    """The carried values, at the start of an iteration, that differ between elements in some iteration."""
    mapped = {c.entering for c in spec.carried if elements.same(c.initial) is None}
    parts = [s.part for s in spec.sliced if elements.same(s.whole) is None]
    while True:
        reached = elements.reached(spec.operations, [*mapped, *parts])
        more = {c.entering for c in spec.carried if c.leaving in reached or c.leaving in elements} - mapped
        if not more:
            return mapped
        mapped |= more


def _input(initial: Tensor, entering: Tensor) -> Tensor:
    return entering if initial.shape == entering.shape else block_input(initial, entering.name)


def _part(sliced: SlicedTensor, elements: Elements) -> Tensor:
    if elements.same(sliced.whole) is not None:
        return sliced.part
    return block_input(elements.of_all(sliced.whole), sliced.part.name, elements.shape(sliced.part.shape))


def _iterations(loop: LoopOperation, elements: Elements, mapped: set[Tensor]) -> Iterations:
    own = loop.spec.iterations
    if own.count is not None:
        count = elements.same(own.count)
        if count is None:
            elements.refuse(loop, "its number of iterations differs between elements")
        return dataclasses.replace(own, count=count)
    if own.condition is None:
        return own
    block = own.condition
    differing = {x for x, c in zip(block.bound, loop.spec.carried, strict=True) if c.entering in mapped}
    reached = elements.reached(block.operations, differing)
    if block.outputs[0] in reached or block.outputs[0] in elements:
        elements.refuse(loop, "its condition differs between elements")
    bound = tuple(
        block_input(elements.of_all(c.initial), x.name) if x in differing else x
        for x, c in zip(block.bound, loop.spec.carried, strict=True)
    )
    kept = tuple(o for o in block.operations if reached.isdisjoint(o.outputs))
    return dataclasses.replace(own, condition=Block(kept, bound, block.outputs))
