"""XLA compiles a program's updates of variables while Python traces the program."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

from meshtf.garbage_collection import garbage_collection_paused
from meshtf.lowering.emit._grappler import grappler_off
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.passes.update_fusion import FusedUpdate
from meshtf.mesh_impl.virtual_cpus import num_processors

_MOST_BYTES = 256 << 20
"""Of arrays that updates are tried on. What needs more is compiled when it is first run."""


@contextlib.contextmanager
def updates_compiled_meanwhile(facts: PlanFacts, device: str) -> Iterator[None]:
    """Inside, a thread has XLA compile what updates variables in place, so that the first step finds it compiled.

    An update of another shape takes XLA about 60 ms, and tracing leaves all processors but one idle. A function is
    compiled when it is first run: updates run once, on variables of their own. What fails there is left to the step,
    which says where.

    Args:
      facts: of the program.
      device: where updates run, a CPU.
    """
    trials = _trials(facts)
    if not trials or num_processors() == 1:
        yield
        return
    thread = threading.Thread(target=_run, args=(trials, _all_of(trials), device), name="updates_compiled_meanwhile")
    thread.start()
    try:
        yield
    finally:
        thread.join()


@dataclasses.dataclass(frozen=True)
class _Trial:
    """An update; and by the number of an input that is a variable's, that of the result which the variable gets."""

    update: FusedUpdate
    assigned: Mapping[int, int]

    @property
    def bytes(self) -> int:
        return sum(math.prod(shape) * dtype.size for shape, dtype in self.update.inputs)

    @property
    def function(self) -> Any:
        """Of handles, and of other slices and guards."""
        return self.update.assigning(self.assigned, in_blocks=True)

    def arguments(self) -> tuple[list[tf.Variable], list[tf.Tensor]]:
        """Variables, whose handles the function takes, and what else it does."""
        zeros = {n: tf.zeros(shape, dtype) for n, (shape, dtype) in enumerate(self.update.inputs)}
        variables = [tf.Variable(zeros.pop(n), trainable=False) for n in self.assigned]
        return variables, [*zeros.values(), *[tf.constant(True)] * self.update.guards]


def _trials(facts: PlanFacts) -> Sequence[_Trial]:
    """Of updates that are compiled once, as many as there are bytes for."""
    found: dict[object, _Trial] = {}
    left = _MOST_BYTES
    for instruction, pairs in facts.in_place.items():
        trial = _Trial(cast("FusedUpdate", instruction.emit), {n: result for n, (result, _) in pairs.items()})
        key = (trial.update, *trial.assigned.items())
        is_compiled = trial.update.is_compiled and trial.update.training_kernel(trial.assigned) is None
        if is_compiled and key not in found and trial.bytes <= left:
            found[key] = trial
            left -= trial.bytes
    return list(found.values())


@garbage_collection_paused()
def _all_of(trials: Sequence[_Trial]) -> tf.types.experimental.ConcreteFunction:
    """A function that calls them, as a program does: what is called by itself is compiled as another."""

    def call(*arguments: tuple[list[tf.Tensor], list[tf.Tensor]]) -> None:
        for trial, own in zip(trials, arguments, strict=True):
            trial.function(*own)

    return tf.function(call, autograph=False).get_concrete_function(*(t.function.input_signature for t in trials))


def _run(trials: Sequence[_Trial], call: tf.types.experimental.ConcreteFunction, device: str) -> None:
    with contextlib.suppress(tf.errors.OpError), grappler_off(), tf.device(device):
        arguments = [t.arguments() for t in trials]
        call(*(([v.handle for v in variables], slices) for variables, slices in arguments))
