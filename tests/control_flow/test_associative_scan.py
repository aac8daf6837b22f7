"""`associative_scan` gives what `scan` gives, with its gradients, on any mesh."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.testing import assert_close, interpret

pytestmark = pytest.mark.quick

LAYOUTS = {3: "", 8: "time:rows", 13: "batch:rows;d:cols", 16: "time:rows+cols"}
Pair = tuple[mtf.Tensor, mtf.Tensor]


def next_state(before: Pair, own: Pair) -> Pair:
    (a, b), (own_a, own_b) = before, own
    return a * own_a, own_a * b + own_b


def in_steps(a: mtf.Tensor, b: mtf.Tensor, reverse: bool) -> mtf.Tensor:
    def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        state = parts[0] * carried[0] + parts[1]
        return [state], [state]

    start = mtf.zeros([d for d in a.shape if d.name != "time"], a.dtype)
    _, (states,) = mtf.scan(step, start, [a, b], "time", reverse=reverse)
    return mtf.transpose(states, a.shape)


@pytest.mark.parametrize(("size", "reverse"), [(3, True), *itertools.product([8, 13, 16], [False, True])])
def test_a_linear_recurrence_with_its_gradients(size: int, reverse: bool) -> None:
    shape = f"batch:2 time:{size} d:2"
    rng = np.random.default_rng(size)
    inputs = {"a": rng.uniform(-1, 1, [2, size, 2]), "b": rng.uniform(-1, 1, [2, size, 2])}

    def program(a: mtf.Tensor, b: mtf.Tensor) -> list[Any]:
        found = [mtf.associative_scan(next_state, (a, b), "time", reverse=reverse)[1], in_steps(a, b, reverse)]
        return [[h, *mtf.gradients(mtf.reduce_sum(mtf.sin(h)), [a, b])] for h in found]

    of_all, one_by_one = interpret(
        program, {name: (shape, x) for name, x in inputs.items()}, "rows:2;cols:2", LAYOUTS[size]
    ).results
    for got, expected in zip(of_all, one_by_one, strict=True):
        # Magnitudes stay below the number of terms, since no |a| is above 1.
        assert_close(got, expected, terms=size * size, magnitude=size)


def test_fn_may_check_its_results() -> None:
    """It is called for all places at once, and is never given zeros that are no elements."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        def shares(before: mtf.Tensor, own: mtf.Tensor) -> mtf.Tensor:
            product = before * own
            return mtf.check_finite(product / product.sum("d"))

        return mtf.associative_scan(shares, x, "time")

    x = np.random.default_rng(0).dirichlet(np.ones(2), 5).astype(np.float32)
    step = mtf.function(program, mtf.SpmdMeshImpl("rows:2", "time:rows"), {"x": mtf.TensorSpec("time:5 d:2")})
    expected = np.cumprod(x, 0)
    np.testing.assert_allclose(step(x=x), expected / expected.sum(1, keepdims=True), rtol=1e-5)


def test_any_structure_kind_of_number_and_number_of_calls() -> None:
    calls = []

    def both(before: dict[str, mtf.Tensor], own: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        calls.append(before["sum"].shape)
        return {"sum": before["sum"] + own["sum"], "last": own["last"]}

    def program(x: mtf.Tensor) -> Any:
        one = mtf.associative_scan(mtf.maximum, mtf.constant([7], "n:1", x.dtype), "n")
        return mtf.associative_scan(both, {"sum": x, "last": x}, "n"), one

    numbers = np.array([3, 1, 4, 1, 5, 9, 2], np.int32)
    found, one = interpret(program, {"x": ("n:7", numbers)}, "rows:2").results
    np.testing.assert_array_equal(found["sum"], np.cumsum(numbers))
    np.testing.assert_array_equal(found["last"], numbers)
    assert one.tolist() == [7]
    assert list(map(str, calls)) == ["n:7"] * 3


@pytest.mark.parametrize("reverse", [False, True])
def test_places_without_earlier_ones_add_nothing_to_gradients(reverse: bool) -> None:
    """There `fn` computes logarithms of zeros."""
    numbers = np.array([1.5, 2.0, 0.5, 3.0, 1.25])

    def program(x: mtf.Tensor) -> list[Any]:
        y = mtf.associative_scan(lambda a, b: mtf.exp(mtf.log(a) + mtf.log(b)), x, "n", reverse=reverse)
        return [y, mtf.gradients(mtf.reduce_sum(mtf.log(y)), x)[0]]

    y, grad = interpret(program, {"x": ("n:5", numbers)}, "rows:2").results
    assert_close(y, np.cumprod(numbers[::-1])[::-1] if reverse else np.cumprod(numbers), terms=20, magnitude=6)
    assert_close(grad * numbers, np.arange(1.0, 6.0)[:: 1 if reverse else -1], terms=50)


def test_mapped_over_a_batch() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.vmap(lambda row: mtf.associative_scan(mtf.add, row, "n"), "batch")(x), mtf.cumsum(x, "n")]

    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(*interpret(program, {"x": ("batch:2 n:6", x)}, "rows:2", "batch:rows").results)


# fmt: off
WRONG: list[tuple[str, Callable[[mtf.Tensor], Any], type[Exception], str]] = [
    ("no function", lambda x: mtf.associative_scan(3, x, "n"),  # type: ignore[arg-type,type-var]
     GraphError, "fn must be a function of two elements, and is 3"),
    ("no tensor", lambda x: mtf.associative_scan(mtf.add, [], "n"),  # type: ignore[arg-type]
     GraphError, "associative_scan needs at least one tensor, and was given none"),
    ("no dimension", lambda x: mtf.associative_scan(mtf.add, x, "m"),
     ShapeError, 'no dimension "m" in [n:3]'),
    ("another structure", lambda x: mtf.associative_scan(lambda a, b: a[0], [x, x], "n"),  # type: ignore[arg-type]
     GraphError, "fn must return the structure of its arguments, and returned"),
    ("another shape", lambda x: mtf.associative_scan(lambda a, b: mtf.reduce_sum(a), x, "n"),
     ShapeError, "fn was given [n:3] and returned []"),
    ("another dtype", lambda x: mtf.associative_scan(lambda a, b: mtf.to_int32(a), x, "n"),
     DtypeError, "fn was given float32 and returned int32; convert it with mtf.cast"),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_mistakes_are_named(wrong: Callable[[mtf.Tensor], Any], kind: type[Exception], words: str) -> None:
    graph = mtf.Graph()
    mtf.Mesh(graph)
    with graph, pytest.raises(kind) as caught:
        wrong(mtf.ones("n:3"))
    assert words in str(caught.value)
