"""Many steps of a program as one TensorFlow graph, which does the work of all cores: far cheaper than to interpret."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from meshtf.layout import Axes
from meshtf.lowering.interpreter import KnownCore
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.plan import AssignVariable, Collective, Compute, Feed, Plan, ReadVariable, Value
from tests.optimize.interpreted_training import InterpretedTraining, known

Slices = list[tf.Tensor]
"""What each core holds of a value."""

_COMBINE: dict[str, Callable[[Sequence[tf.Tensor]], tf.Tensor]] = {
    "add": tf.add_n,
    "max": functools.partial(functools.reduce, tf.maximum),
    "min": functools.partial(functools.reduce, tf.minimum),
}


class TracedTraining(InterpretedTraining):
    """As `InterpretedTraining`, of which it has the plan and the initial values, for plans without loops."""

    def losses(self, batches: Sequence[Mapping[str, np.ndarray]]) -> list[float]:
        """Of one step after the other. Fails where cores that should hold the same of a variable do not."""
        step = tf.function(_TracedPlan(self.plan).step, autograph=False)
        variables = {name: list(map(tf.constant, slices)) for name, slices in self._interpreter.variables.items()}
        losses = []
        for batch in batches:
            loss, variables = step(variables, {**known(self.plan), **batch})
            losses.append(float(loss))
        self._interpreter.variables = {name: [x.numpy() for x in slices] for name, slices in variables.items()}
        assert self.variables
        return losses


class _TracedPlan:
    """A plan without loops and branches, as operations of one TensorFlow graph."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._cores = [KnownCore(plan, number) for number in range(plan.mesh_shape.size)]

    def step(
        self, variables: Mapping[str, Slices], feeds: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, Slices]]:
        """The first core's result, and the variables after the step."""
        slices: dict[Value, Slices] = {}
        after = dict(variables)
        for instruction in self._plan.instructions:
            match instruction:
                case Compute():
                    slices.update(self._compute(instruction, slices))
                case Collective():
                    slices[instruction.output] = self._collective(instruction.step, slices[instruction.input])
                case Feed():
                    slices[instruction.output] = self._cut(feeds[instruction.name], instruction.output)
                case ReadVariable():
                    slices[instruction.output] = variables[instruction.name]
                case AssignVariable():
                    after[instruction.name] = slices[instruction.input]
                case _:
                    raise AssertionError(f"the training programs of these tests have no {type(instruction).__name__}")
        return slices[self._plan.fetches[0]][0], after

    def _cut(self, fed: tf.Tensor, value: Value) -> Slices:
        """Each core's slice; the same tensor where cores have the same, so that what they do with it is done once."""
        parts = value.layout.parts(self._plan.mesh_shape)
        positions = [tuple(core.position(axes) for axes in value.layout.axes) for core in self._cores]
        found = {}
        for position in dict.fromkeys(positions):
            part = tf.convert_to_tensor(fed)
            for axis, (number, own) in enumerate(zip(parts, position, strict=True)):
                part = tf.split(part, number, axis)[own]
            found[position] = part
        return [found[position] for position in positions]

    def _compute(self, instruction: Compute, slices: Mapping[Value, Slices]) -> dict[Value, Slices]:
        done: list[_Done] = []
        by_core: list[Slices] = []
        for number, core in enumerate(self._cores):
            inputs = [slices[value][number] for value in instruction.inputs]
            same = next((d for d in done if d.applies_to(core, inputs)), None)
            if same is None:
                core.asked = {}
                result = instruction.emit(core, *inputs)
                same = _Done(inputs, core.asked, list(result) if isinstance(result, list | tuple) else [result])
                done.append(same)
            by_core.append(same.outputs)
        return dict(zip(instruction.outputs, map(list, zip(*by_core, strict=True)), strict=True))

    def _collective(self, step: CollectiveStep, slices: Slices) -> Slices:
        if step.kind == "permute":
            return [slices[step.destinations.index(number)] for number in range(len(slices))]
        others = [name for name in self._plan.mesh_shape.dimension_names if name not in step.axes]
        groups: dict[tuple[int, ...], list[KnownCore]] = {}
        for core in self._cores:
            groups.setdefault(tuple(core.position((name,)) for name in others), []).append(core)
        result = list(slices)
        for group in groups.values():
            numbers = [self._cores.index(core) for core in sorted(group, key=lambda core: core.position(step.axes))]
            received = _received(step, [slices[n] for n in numbers])
            for number, x in zip(numbers, received, strict=True):
                result[number] = x
        return result


@dataclasses.dataclass(frozen=True)
class _Done:
    """Local work of one core: on which tensors, after which answers about itself, with which results."""

    inputs: Slices
    asked: Mapping[Axes, int]
    outputs: Slices

    def applies_to(self, core: KnownCore, inputs: Slices) -> bool:
        return all(x is y for x, y in zip(self.inputs, inputs, strict=True)) and all(
            core.position(axes) == answer for axes, answer in self.asked.items()
        )


def _received(step: CollectiveStep, group: Slices) -> Slices:
    """What each core of a group holds after a collective."""
    count = len(group)
    match step.kind:
        case "all_reduce":
            return [_COMBINE[step.reduction](group)] * count
        case "reduce_scatter":
            return tf.split(_COMBINE[step.reduction](group), count, step.split_dim)
        case "all_gather":
            return [tf.concat(group, step.concat_dim)] * count
        case "all_to_all":
            blocks = [tf.split(x, count, step.split_dim) for x in group]
            return [tf.concat([own[position] for own in blocks], step.concat_dim) for position in range(count)]
    raise AssertionError(f"updates of weights send no {step.kind}")
