"""The same steps on eight replicas of an XLA program and on one core of TensorFlow's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from xla_run import XlaRun, feeds_of

import meshtf as mtf
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.testing import assert_close, largest, terms_of
from tests.models.transformers import like

TORUS = "2x2"
Batch = Mapping[str, np.ndarray]


def tpu_function(
    fn: Callable[..., Any],
    inputs: Mapping[str, mtf.TensorSpec],
    mesh: str,
    layout: str,
    pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
    **options: Any,
) -> mtf.Function:
    """`mtf.function` for a TPU of eight cores. `options`: of the mesh."""
    mesh_impl = mtf.TpuMeshImpl(mesh, layout, physical_torus=TORUS, **options)
    return mtf.function(fn, mesh_impl, inputs=inputs, pass_options=pass_options)


@dataclasses.dataclass(frozen=True)
class OneCore:
    """A program's results, step by step, and its variables before and after."""

    fn: Callable[..., Any]
    specs: Mapping[str, mtf.TensorSpec]
    batches: Sequence[Batch]
    results: Sequence[Sequence[np.ndarray]]
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]
    terms: int
    """Roundings on the longest way through one step."""

    @classmethod
    def of(cls, fn: Callable[..., Any], specs: Mapping[str, mtf.TensorSpec], batches: Sequence[Batch]) -> OneCore:
        """Runs the program on one batch after the other."""
        step = mtf.function(fn, mtf.SpmdMeshImpl("one:1", "", ["CPU:0"]), inputs=specs)
        step.initialize()
        before = {name: step.variables[name] for name in step.variables}
        results = [[np.asarray(x) for x in tf.nest.flatten(step(**batch))] for batch in batches]
        after = {name: step.variables[name] for name in step.variables}
        return cls(fn, specs, batches, results, before, after, terms_of(step._execution.plan))

    def check(self, mesh: str, layout: str, *, on_interpreter: bool = False, **options: Any) -> None:
        """Runs the program for a TPU of eight cores. Its results and variables are those of one core, its collectives
        those of the report; `on_interpreter`: the first step of its plan gives the same there, too."""
        step = tpu_function(self.fn, self.specs, mesh, layout, **options)
        run = XlaRun.of(step, self.before)
        run.check_collectives()
        if on_interpreter:
            interpreter = Interpreter(run.plan, run.slices)
            first = interpreter.run(feeds_of(run.plan, self.batches[0]))
            self._check_results(first, 0, "on the interpreter")
        for number, batch in enumerate(self.batches):
            self._check_results(run(batch), number, f"of step {number}")
        for name, own in self.after.items():
            size, steps = largest(self.after[like(name)]), len(self.batches)
            assert_close(run.variable(name), own, terms=self.terms, magnitude=size, steps=steps, what=name)

    def _check_results(self, actual: Sequence[np.ndarray], step: int, what: str) -> None:
        for number, (x, own) in enumerate(zip(actual, self.results[step], strict=True)):
            magnitude = max(largest(own), largest(*self.batches[step].values()))
            assert_close(x, own, terms=self.terms, steps=step, magnitude=magnitude, what=f"result {number} {what}")
