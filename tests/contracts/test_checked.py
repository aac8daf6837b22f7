"""Contracts: what fits, and every way not to fit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ContractError, GraphError

pytestmark = pytest.mark.quick

Ids = mtf.i32["batch length"]


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    graph = mtf.Graph()
    mtf.Mesh(graph)
    with graph:
        yield


def ones(shape: str, dtype: tf.DType = tf.float32) -> mtf.Tensor:
    return mtf.ones(shape, dtype)


def faults(call: Callable[[], object]) -> list[str]:
    """The mismatches of a call, which the error lists between its head and the line of the user."""
    with pytest.raises(ContractError) as caught:
        call()
    head, *lines, where = str(caught.value).split("\n  ")
    assert f" ({__file__}:" in head
    assert head.endswith(" was called against its annotations:")
    assert where.startswith(f"at {__file__}:")
    return lines


@mtf.checked
def attend(
    q: mtf.f32["... length d_kv:8"], k: mtf.f32["... memory:length d_kv"], ids: mtf.i32["batch"] | None = None
) -> mtf.f32["... length memory"]:
    return mtf.einsum([q, k], reduced_dims=[("d_kv", 8)])


def test_what_fits_is_returned() -> None:
    q, k = ones("batch:2 length:3 d_kv:8"), ones("batch:2 memory:3 d_kv:8")
    assert str(attend(q, k, ones("batch:2", tf.int32)).shape) == "batch:2 length:3 memory:3"
    assert attend(k=ones("d_kv:8 memory:3"), q=q).shape == attend(q, k).shape, "the order of dimensions does not matter"


def test_all_mismatches_are_told_at_once() -> None:
    assert faults(lambda: attend(ones("length:3 d_kv:4"), ones("memory:5 d_kv:8", tf.int32), np.ones(2))) == [
        'q [length:3 d_kv:4] has "d_kv:4", and the annotation says 8',
        "k [memory:5 d_kv:8] is int32, and not float32; convert it with mtf.cast",
        'k [memory:5 d_kv:8] has "memory:5", and length is 3: q [length:3 d_kv:4] fixed it',
        'ids is a numpy.ndarray, and not an mtf.Tensor, mtf.i32["batch"]',
    ]


def test_names_that_are_missing_or_too_many() -> None:
    @mtf.checked
    def f(x: mtf.Tensor["batch hidden"]) -> None:
        pass

    assert faults(lambda: f(ones("batch:2 hiden:3"))) == [
        'x [batch:2 hiden:3] does not fit "batch hidden": it lacks "hidden"; did you mean "hiden"?'
    ]
    assert faults(lambda: f(ones("batch:2 hidden:3 heads:4"))) == [
        'x [batch:2 hidden:3 heads:4] does not fit "batch hidden": it has "heads", too'
    ]
    f(ones("batch:2 hidden:3", tf.int32))


def test_the_result_is_compared() -> None:
    @mtf.checked
    def mean(x: mtf.f32["batch hidden"]) -> tuple[mtf.f32["batch"], mtf.f32[""]]:
        return mtf.reduce_mean(x, reduced_dim="batch"), mtf.reduce_mean(x)

    assert faults(lambda: mean(ones("batch:2 hidden:3"))) == [
        'the result[0] [hidden:3] does not fit "batch": it lacks "batch"'
    ]


def test_parts_of_lists_dicts_and_more_arguments() -> None:
    @mtf.checked
    def f(
        several: list[mtf.f32["n"]],
        pair: tuple[mtf.f32["n"], int],
        named: Mapping[str, mtf.f32["n"]],
        *more: mtf.f32["n"],
        **others: mtf.f32["n"],
    ) -> None:
        pass

    n, m = ones("n:2"), ones("n:3")
    f([n, n], (n, 3), {"a": n}, n, other=n)
    shown = [line.partition(" has ")[0] for line in faults(lambda: f([n, m], (m, 3), {"a": m}, n, m, other=m))]
    assert shown == ["several[1] [n:3]", "pair[0] [n:3]", "named['a'] [n:3]", "more[1] [n:3]", "other [n:3]"]
    assert faults(lambda: f(n, (n,), [n])) == [
        "several is a meshtf.graph.tensor.Tensor, and not a list or a tuple of tensors",
        "pair has 1 parts, and not 2",
        "named is a list, and not a dict of tensors",
    ]


def test_a_union_takes_what_fits_one_of_its_parts() -> None:
    @mtf.checked
    def f(x: mtf.f32["batch"] | mtf.f32["batch hidden"] | float, y: mtf.f32["batch"]) -> None:
        pass

    f(ones("batch:2"), ones("batch:2"))
    f(ones("batch:2 hidden:3"), ones("batch:2"))
    f(3.0, ones("batch:5"))
    assert faults(lambda: f(ones("batch:2 hidden:3"), ones("batch:3"))) == [
        'y [batch:3] has "batch:3", and batch is 2: x [batch:2 hidden:3] fixed it'
    ]
    assert faults(lambda: f(ones("hidden:3"), ones("batch:3")))[0].startswith('x [hidden:3] does not fit "batch"')
    f(3, ones("batch:5"))


def test_parts_of_a_union_that_are_no_class() -> None:
    @mtf.checked
    def f(
        mode: mtf.f32["n"] | Literal["none"], names: mtf.f32["n"] | list[str], rest: mtf.f32["n"] | Any = None
    ) -> None:
        pass

    f("none", ["a"], 3)
    wrong = ones("m:2")
    assert len(faults(lambda: f(wrong, wrong, wrong))) == 3
    assert [line[:14] for line in faults(lambda: f("none", {"a"}))] == ["names is a set"]


def test_annotations_may_be_names_of_any_scope() -> None:
    Local = mtf.f32["batch:2"]  # noqa: N806

    @mtf.checked
    def f(ids: Ids, x: Local, annotated: Annotated[mtf.Tensor, mtf.f32["batch"]]) -> None:
        pass

    f(ones("batch:2 length:3", tf.int32), ones("batch:2"), ones("batch:2"))
    assert len(faults(lambda: f(ones("batch:3 length:3", tf.int32), ones("batch:2"), ones("batch:2", tf.int32)))) == 3


def test_methods_and_wrapped_functions() -> None:
    def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any) -> Any:
            return fn(*args)

        return wrapper

    class Layer:
        @mtf.checked
        @wrapped
        def forward(self, x: mtf.f32["n:2"]) -> mtf.f32["n"]:
            return x

    Layer().forward(ones("n:2"))
    assert len(faults(lambda: Layer().forward(ones("n:3")))) == 1


def test_a_wrong_number_of_arguments_is_python_s_own_error() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'k'"):
        attend(ones("length:3 d_kv:8"))  # type: ignore[call-arg]


def test_functions_classes_and_iterators_are_not_looked_into() -> None:
    @mtf.checked
    def f(
        x: mtf.f32["n"],
        activation: Callable[[mtf.Tensor], mtf.f32["n"]],
        either: mtf.f32["n"] | Callable[[mtf.Tensor], mtf.Tensor] | None = None,
        kind: type[mtf.Tensor] = mtf.Tensor,
        more: Iterator[mtf.f32["n"]] | None = None,
    ) -> mtf.f32["n"]:
        return mtf.add_n([activation(x), *(more or ())])

    n, m = ones("n:2"), ones("n:3")
    assert f(n, mtf.relu, mtf.relu, mtf.Tensor, iter([n, n])).shape == n.shape
    assert f(n, mtf.relu, n).shape == n.shape
    assert [line.partition(" has ")[0] for line in faults(lambda: f(n, mtf.relu, m))] == ["either [n:3]"]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("mtf.f33['n']", "the annotation of \"x\" of f, mtf.f33['n'], cannot be evaluated: AttributeError"),
        ("mtf.f32['n:']", 'cannot be evaluated: "n:" is not a dimension'),
        ("Unknown", "cannot be evaluated: NameError: name 'Unknown' is not defined"),
        ("float", 'no annotation of f says anything of a tensor; write one, as in def f(x: mtf.f32["batch hidden"])'),
    ],
)
def test_annotations_that_say_nothing(annotation: str, message: str) -> None:
    def f(x: Any) -> None:
        pass

    f.__annotations__["x"] = annotation
    with pytest.raises(GraphError) as caught:
        mtf.checked(f)
    assert message in str(caught.value)
    assert f"\n  at {__file__}:" in str(caught.value)


@pytest.mark.parametrize("given", [3, int], ids=str)
def test_only_functions_have_a_contract(given: Any) -> None:
    with pytest.raises(GraphError, match=r"mtf\.checked takes a function, and not"):
        mtf.checked(given)
