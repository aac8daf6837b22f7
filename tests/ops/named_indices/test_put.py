"""`x.at[...].set(v)` and `.add(v)`: the operations that they stand for, and NumPy's values under every layout."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from tests.ops.named_indices.drawing import brackets_of, coordinates
from tests.ops.named_indices.test_take import check_program
from tests.tensor_face.same_graph import assert_same_graph

INPUTS = {
    "x": mtf.TensorSpec("n:6 m:4"),
    "v": mtf.TensorSpec("m:4"),
    "w": mtf.TensorSpec("n:2 m:4"),
    "ids": mtf.TensorSpec("i:5", tf.int32),
    "u": mtf.TensorSpec("i:5 m:4"),
}


def _number(x: mtf.Tensor, n: int) -> mtf.Tensor:
    return mtf.constant(x.mesh, n, dtype=tf.int32)


# fmt: off
OLD_AND_NEW: dict[str, tuple[Any, Any]] = {
    "set one": (lambda t: mtf.scatter_update(t.x, _number(t.x, 2), t.v, "n"), lambda t: t.x.at["n", 2].set(t.v)),
    "set several": (lambda t: mtf.scatter_update(t.x, t.ids, t.u, "n"), lambda t: t.x.at[{"n": t.ids}].set(t.u)),
    "set a slice": (lambda t: mtf.dynamic_update_slice(t.x, t.w, _number(t.x, 1), "n"),
        lambda t: t.x.at["n", 1:3].set(t.w)),
    "set by broadcast": (
        lambda t: mtf.dynamic_update_slice(t.x, mtf.broadcast(t.v, "n:2 m:4"), _number(t.x, 1), "n"),
        lambda t: t.x.at["n", 1:3].set(t.v)),
    "add one": (lambda t: mtf.scatter_add(t.x, _number(t.x, 5), t.v, "n"), lambda t: t.x.at["n", -1].add(t.v)),
    "add several": (lambda t: mtf.scatter_add(t.x, t.ids, t.u, "n"), lambda t: t.x.at["n", t.ids].add(t.u)),
    "add a slice": (lambda t: t.x + mtf.pad(t.w, [1, 3], "n"), lambda t: t.x.at["n", 1:3].add(t.w)),
}
# fmt: on


@pytest.mark.parametrize("case", OLD_AND_NEW)
def test_places_make_the_operations_that_they_stand_for(case: str) -> None:
    assert_same_graph(*OLD_AND_NEW[case], INPUTS)


def check_places(seed: int, layouts: int) -> None:
    """One random set and add: values, and gradients to x and to the value, against NumPy's."""
    rng = random.Random(seed)
    drawn = brackets_of(rng)
    places, is_inside, shape = coordinates(drawn)
    x, value, weights = (drawn.numbers(rng, s) for s in (drawn.shape, shape, drawn.shape))
    flat, inside = places[is_inside], np.nonzero(is_inside.reshape(-1))[0]
    last = np.full(x.size, -1)
    last[flat] = inside  # of several that mean one place, the last in row-major order
    is_kept = last < 0
    updated = np.where(is_kept, x.reshape(-1), value.reshape(-1)[last] if value.size else 0).reshape(x.shape)
    added = x.reshape(-1).copy()
    np.add.at(added, flat, value.reshape(-1)[inside])
    own = np.zeros(value.size)
    own[last[~is_kept]] = weights.reshape(-1)[~is_kept]
    expected = [
        updated,
        added.reshape(x.shape),
        np.where(is_kept.reshape(x.shape), weights, 0) + weights,
        own.reshape(value.shape) + weights.reshape(-1)[places] * is_inside,
    ]

    def program(**tensors: mtf.Tensor) -> list[Any]:
        own, at = tensors["x"], tensors["x"].at[drawn.key(tensors)]
        update = mtf.constant(own.mesh, value, shape, tf.float64)
        results = [at.set(update), at.add(update)]
        factor = mtf.constant(own.mesh, weights, drawn.shape, tf.float64)
        loss = (results[0] * factor).sum() + (results[1] * factor).sum()
        return [*results, *mtf.gradients(loss, [own, update])]

    if _share_a_new_dimension(drawn):
        with pytest.raises(ShapeError, match="share dimension"):
            check_program(program, drawn, x, expected, rng, layouts)
    else:
        check_program(program, drawn, x, expected, rng, layouts)


def _share_a_new_dimension(drawn: Any) -> bool:
    return any(sum(own.has(new) for own, _ in drawn.index_inputs.values()) > 1 for new in "ij")


@pytest.mark.parametrize("seed", range(16))
def test_random_places_are_those_of_numpy(seed: int) -> None:
    check_places(seed, layouts=2)


@pytest.mark.long
def test_many_random_places_are_those_of_numpy() -> None:
    for seed in range(100, 300):
        check_places(seed, layouts=4)


def test_the_tensor_itself_stays_as_it_is() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [x.at["n", 0].set(7), x.at["n", ::2].add(1), x]

    done = mtf.testing.interpret(program, {"x": ("n:4", np.arange(4, dtype=np.int32))}, "rows:2", "n:rows")
    assert [list(y) for y in done.results] == [[7, 1, 2, 3], [1, 1, 3, 3], [0, 1, 2, 3]]
