"""Programs for searches: small random ones, and a perceptron whose best layout can be said without a search."""

from __future__ import annotations

import random

import meshtf as mtf

PAPER = mtf.PlanMeshImpl("rows:2;cols:2", "")


def perceptron(batch_size: int = 64, d_ff_size: int = 256) -> mtf.Function:
    """One step of training of [batch, d_model] through [d_ff] and back."""
    batch, d_model, d_ff = ("batch", batch_size), ("d_model", 32), ("d_ff", d_ff_size)

    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [d_model, d_ff])
        v = mtf.get_variable(x.mesh, "v", [d_ff, d_model])
        y = mtf.einsum([mtf.relu(mtf.einsum([x, w], [batch, d_ff])), v], [batch, d_model])
        loss = mtf.reduce_mean(mtf.square(y))
        for variable, gradient in zip([w, v], mtf.gradients(loss, [w, v]), strict=True):
            mtf.assign_sub(variable, 0.1 * gradient)
        return loss

    return mtf.function(step, PAPER, {"x": mtf.TensorSpec([batch, d_model])})


def random_program(seed: int) -> mtf.Function:
    """Two or three products of tensors of three or four names, with sums, squares and an update of weights."""
    chance = random.Random(seed)
    dims = [mtf.Dimension(name, chance.choice([8, 16, 32, 64])) for name in "abcd"[: chance.choice([3, 3, 4])]]

    def program(x: mtf.Tensor) -> mtf.Tensor:
        weights = []
        for number in range(chance.choice([1, 2, 2])):
            summed = chance.choice(list(x.shape))
            new = chance.choice([d for d in dims if not x.shape.has(d)] or [None])
            kept = [d for d in x.shape if d != summed] + ([] if new is None else [new])
            weights.append(mtf.get_variable(x.mesh, f"w_{number}", [summed] if new is None else [summed, new]))
            x = mtf.einsum([x, weights[-1]], kept)
            x = mtf.relu(x) if chance.random() < 0.5 else 2.0 * x
        loss = mtf.reduce_mean(mtf.square(x))
        if chance.random() < 0.7:
            for weight, gradient in zip(weights, mtf.gradients(loss, weights), strict=True):
                mtf.assign_sub(weight, 0.1 * gradient)
        return loss

    return mtf.function(program, PAPER, {"x": mtf.TensorSpec(dims[:2])})


def two_towers() -> mtf.Function:
    """A step of training of two perceptrons with the same names: many rows and few weights, and the reverse."""

    def losses(x: mtf.Tensor, name: str, d_ff: mtf.Dimension) -> mtf.Tensor:
        rows, d_model = x.shape.dims
        with mtf.variable_scope(name):
            w = mtf.get_variable(x.mesh, "w", [d_model, d_ff])
            loss = mtf.reduce_mean(mtf.square(mtf.einsum([x, w], [rows, d_ff])))
            mtf.assign_sub(w, mtf.gradients(loss, [w])[0])
            return loss

    def program(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        return losses(x, "many_rows", mtf.Dimension("d_ff", 1024)) + losses(y, "few_rows", mtf.Dimension("d_ff", 32768))

    inputs = {"x": mtf.TensorSpec("batch:65536 d_model:512"), "y": mtf.TensorSpec("batch:64 d_model:4096")}
    return mtf.function(program, PAPER, inputs)
