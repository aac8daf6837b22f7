"""Promise 1, as an assertion: a layout never changes a result."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.autodiff import gradients
from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.dimension import Shape, ShapeLike, convert_to_shape
from meshtf.errors import LayoutError
from meshtf.function.function import function
from meshtf.function.tensor_spec import TensorSpec
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.layout import LayoutLike, LayoutRules, convert_to_layout_rules
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.testing.closeness import assert_close, largest
from meshtf.testing.interpret import check_inputs, plan
from meshtf.testing.legal_layouts import legal_layouts, shapes_of
from meshtf.testing.terms import terms_of


def assert_layout_invariant(
    fn: Callable[..., Any],
    inputs: Mapping[str, tuple[ShapeLike, Any]],
    layouts: Iterable[LayoutLike] | None = None,
    mesh_shape: ShapeLike = "rows:2;cols:2",
    *,
    devices: Sequence[str] | None = None,
    with_gradients: bool = True,
    terms: int | Sequence[int] | None = None,
    seed: int = 0,
) -> None:
    """Runs `fn` on one core and under each layout on virtual CPUs, and compares everything that it computes.

    It compares the results, the final variables, and the gradients of the sum of all floating results with respect to
    the floating inputs and the trainable variables.

    Args:
      fn: a function as for `mtf.function`.
      inputs: named shape and array of each input.
      layouts: the layouts to try. The default is eight of the program's legal ones.
      mesh_shape: the mesh. There must be a virtual CPU for each core.
      devices: the devices of the mesh, in order. The default is the first CPUs.
      with_gradients: whether to compare gradients as well.
      terms: the roundings that lead to a result, see `mtf.testing.rounding_bound`. By default `mtf.testing.terms_of`
        counts them along the longest path through the program. The magnitude is that of the result or of the largest
        input. Intermediate values are assumed to be no larger.
      seed: the seed of the random bits.

    Raises:
      AssertionError: if a result differs. The message names the layout and the result.
      FeedError: if an input is no pair of a named shape and an array.
      LayoutError: if `layouts` is one layout and no list, or a layout does not fit.
    """
    check_inputs(inputs)
    if isinstance(layouts, str | Mapping | LayoutRules):
        raise LayoutError(f"layouts must be a list of layouts, and is the one layout {layouts!r}; write [{layouts!r}]")
    mesh = convert_to_shape(mesh_shape)
    program = _Program(fn, {n: (convert_to_shape(s), np.asarray(a)) for n, (s, a) in inputs.items()}, with_gradients)
    one_core = Shape([(axis.name, 1) for axis in mesh])  # the same axes, since overrides in `fn` may name them
    expected, shapes = program.run(SpmdMeshImpl(one_core, ""), seed)
    planned = plan(program.body, program.specs, one_core)
    inputs_size = largest(*(array for _, array in inputs.values()))
    chosen = legal_layouts(shapes, mesh, limit=8) if layouts is None else layouts
    for layout in map(convert_to_layout_rules, chosen):
        actual, _ = program.run(SpmdMeshImpl(mesh, layout, devices), seed)
        assert actual.keys() == expected.keys(), f'under layout "{layout}" other results are there'
        for name, value in actual.items():
            magnitude = max(inputs_size, largest(expected[name]))
            what = f'{name} on mesh [{mesh}] under layout "{_text(layout.rules)}"'
            counted = terms_of(planned, value.dtype) if terms is None else terms
            assert_close(value, expected[name], terms=counted, magnitude=magnitude, what=what)


@dataclasses.dataclass(frozen=True)
class _Program:
    fn: Callable[..., Any]
    inputs: Mapping[str, tuple[Shape, np.ndarray]]
    with_gradients: bool

    @property
    def specs(self) -> dict[str, TensorSpec]:
        return {n: TensorSpec(s, tf.as_dtype(a.dtype)) for n, (s, a) in self.inputs.items()}

    def run(self, mesh_impl: MeshImpl, seed: int) -> tuple[dict[str, np.ndarray], list[Shape]]:
        step = function(
            self.body, mesh_impl, inputs=self.specs, seed=seed, name=getattr(self.fn, "__name__", "program")
        )
        results, grads = step(**{n: a for n, (_, a) in self.inputs.items()})
        values = {f"result {i}": x.numpy() for i, x in enumerate(tf.nest.flatten(results)) if tf.is_tensor(x)}
        values |= {f"gradient by {n}": x.numpy() for n, x in grads.items()}
        values |= {f'variable "{n}"': step.variables[n] for n in step.variables}
        return values, shapes_of(step.graph)

    def body(self, mesh: Mesh, **inputs: Tensor) -> tuple[Any, dict[str, Tensor]]:
        arguments: dict[str, Any] = dict(inputs)
        if "mesh" in inspect.signature(self.fn).parameters and "mesh" not in inputs:
            arguments["mesh"] = mesh
        results = self.fn(**arguments)
        ys = [x for x in tf.nest.flatten(results) if isinstance(x, Tensor) and is_differentiable(x.dtype)]
        if not (self.with_gradients and ys):
            return results, {}
        xs = {n: x for n, x in inputs.items() if is_differentiable(x.dtype)}
        xs |= {v.full_name: v.value for v in mesh.graph.trainable_variables}
        found = zip(xs, gradients(ys, list(xs.values())), strict=True)
        return results, {name: grad for name, grad in found if grad is not None}


def _text(rules: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    return ";".join(f"{name}:{'+'.join(axes)}" for name, axes in rules)
