"""Cases of stacks of layers with variables of their own."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.cases.sources import on_one_core
from tests.properties.random_programs.program import Node, spread


def new_variables(b: Builder, known: set[str]) -> dict[str, Node]:
    """The variables that were made since, by name, with their initial values. Other programs' losses ignore them."""
    found = {}
    for name, variable in b.mesh.graph.variables.items():
        if name not in known:
            variable.trainable = False
            found[name] = b.known(variable.value, on_one_core(b, variable.value))
            b.program.variables[name] = found[name]
    return found


def layer_stack(unroll: bool) -> Case:
    def case(b: Builder) -> None:
        x = b.pick(least=1)
        if b.dtype.is_complex:
            raise RejectedError
        dim, shape = b.new_dim(b.rng.choice([1, 2, 3, 4])), mtf.Shape([d for d in x.shape if b.chance(0.6)])
        policy = b.rng.choice([None, True, "products", "nested"])
        scope, known = f"{dim.name}_stack", set(b.mesh.graph.variables)

        def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            w = mtf.get_variable(b.mesh, "w", shape, b.dtype, initializer=mtf.RandomUniform(-1.0, 1.0))
            h = mtf.sin(carried[0] * w) + carried[0] * 0.5
            return [h], [mtf.reduce_mean(h)]

        with mtf.variable_scope(scope):
            (last,), (means,) = mtf.layer_stack(layer, x.tensor, dim, unroll=unroll, recompute=policy)
        made = list(new_variables(b, known).values())

        def reference(p: tf.Tensor, *weights: tf.Tensor) -> list[tf.Tensor]:
            found = []
            for w in weights if unroll else tf.unstack(weights[0]):
                p = tf.sin(p * spread(w, shape.dimension_names, x.shape)) + p * 0.5
                found.append(tf.reduce_mean(p))
            return [p, tf.stack(found)]

        text = f"layer_stack[{dim}, weights {shape}, unroll={unroll}, recompute={policy}]"
        b.step(text, [x, *made], [last, means], reference, turns=dim.size)

    return case


CASES: dict[str, Case] = {
    "layer_stack": layer_stack(unroll=False),
    "layer_stack unrolled": layer_stack(unroll=True),
}
