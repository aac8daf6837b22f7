"""Methods of tensors: each makes the operations that its function makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import UsageError
from meshtf.tensor_face.elements import Elements
from meshtf.tensor_face.rearranging import Rearranging
from meshtf.tensor_face.reductions import Reductions
from meshtf.testing import interpret
from tests.tensor_face.same_graph import assert_same_graph

N, M = mtf.Dimension("n", 6), mtf.Dimension("m", 4)
INPUTS = {
    "x": mtf.TensorSpec([N, M, ("k", 2)]),
    "b": mtf.TensorSpec([N, M], tf.bool),
    "z": mtf.TensorSpec([N], tf.complex64),
}
OF_REDUCTIONS = {"sum": "reduce_sum", "mean": "reduce_mean", "max": "reduce_max", "min": "reduce_min",
                 "prod": "reduce_prod", "var": "reduce_variance", "std": "reduce_std", "norm": "norm"}  # fmt: skip

Form = Callable[[Any], Any]

# fmt: off
OLD_AND_NEW: dict[str, tuple[Form, Form]] = {
    "any": (lambda t: mtf.reduce_any(t.b, reduced_dim="m"), lambda t: t.b.any("m")),
    "any of all": (lambda t: mtf.reduce_any(t.b), lambda t: t.b.any()),
    "all": (lambda t: mtf.reduce_all(t.b, output_shape=[]), lambda t: t.b.all("m", "n")),
    "var with ddof": (lambda t: mtf.reduce_variance(t.x, reduced_dim="m", ddof=1), lambda t: t.x.var("m", ddof=1)),
    "std with ddof": (lambda t: mtf.reduce_std(t.x, ddof=1), lambda t: t.x.std(ddof=1)),
    "norm of order 1": (lambda t: mtf.norm(t.x, reduced_dim="m", ord=1), lambda t: t.x.norm("m", ord=1)),
    "argmin": (lambda t: mtf.argmin(t.x, "m"), lambda t: t.x.argmin("m")),
    "cumprod": (lambda t: mtf.cumprod(t.x, "m", reverse=True), lambda t: t.x.cumprod("m", reverse=True)),
    "argmax": (lambda t: mtf.argmax(t.x, "m"), lambda t: t.x.argmax(M)),
    "softmax": (lambda t: mtf.softmax(t.x, "m"), lambda t: t.x.softmax("m")),
    "softmax with an extra logit": (
        lambda t: mtf.softmax(t.x, "m", extra_logit=0.0), lambda t: t.x.softmax("m", extra_logit=0.0)),
    "log_softmax": (lambda t: mtf.log_softmax(t.x, "m"), lambda t: t.x.log_softmax("m")),
    "logsumexp": (lambda t: mtf.reduce_logsumexp(t.x, "m"), lambda t: t.x.logsumexp("m")),
    "cumsum": (lambda t: mtf.cumsum(t.x, "m", exclusive=True), lambda t: t.x.cumsum("m", exclusive=True)),
    "argsort": (lambda t: mtf.argsort(t.x, "m", "DESCENDING"),
                lambda t: t.x.argsort("m", direction="DESCENDING")),
    "rename": (lambda t: mtf.rename_dimension(t.x, "n", "memory"), lambda t: t.x.rename(n="memory")),
    "rename to a dimension": (lambda t: mtf.rename_dimension(t.x, "n", "l"),
        lambda t: t.x.rename({"n": mtf.Dimension("l", 6)})),
    "rename nothing": (lambda t: t.x, lambda t: t.x.rename(n="n")),
    "rename two": (lambda t: mtf.reshape(t.x, "m:6 n:4 k:2", name="rename_dimension"),
        lambda t: t.x.rename(n="m", m="n")),
    "transpose": (lambda t: mtf.transpose(t.x, "k:2 n:6 m:4"), lambda t: t.x.transpose("k", "n", "m")),
    "transpose a text": (lambda t: mtf.transpose(t.x, "k:2 n:6 m:4"), lambda t: t.x.transpose("k n m")),
    "reshape": (lambda t: mtf.reshape(t.x, "a:48"), lambda t: t.x.reshape("a:48")),
    "split": (lambda t: mtf.split(t.x, "n", 3), lambda t: t.x.split("n", 3)),
    "split by sizes": (lambda t: mtf.split(t.x, "n", [4, 2]), lambda t: t.x.split(N, [4, 2])),
    "flatten": (lambda t: mtf.replace_dimensions(t.x, [N, M], mtf.Dimension("nm", 24)),
        lambda t: t.x.flatten(("n", "m"), "nm")),
    "flatten a text": (lambda t: mtf.replace_dimensions(t.x, [N, M], mtf.Dimension("nm", 24)),
        lambda t: t.x.flatten("n m", "nm")),
    "rearrange": (lambda t: mtf.rearrange(t.x, "... (a b) -> b ... a", a=2),
        lambda t: t.x.rearrange("... (a b) -> b ... a", a=2)),
    "unflatten": (lambda t: mtf.replace_dimensions(t.x, N, [("a", 2), ("b", 3)]),
        lambda t: t.x.unflatten("n", "a:2 b:3")),
    "astype": (lambda t: mtf.cast(t.x, tf.bfloat16), lambda t: t.x.astype(tf.bfloat16)),
    "clip": (lambda t: mtf.clip_by_value(t.x, 0.0, 1.0), lambda t: t.x.clip(0.0, 1.0)),
    "round": (lambda t: mtf.round(t.x), lambda t: t.x.round()),
    "conj": (lambda t: mtf.conj(t.z), lambda t: t.z.conj()),
    "real": (lambda t: mtf.real(t.z), lambda t: t.z.real),
    "imag": (lambda t: mtf.imag(t.z), lambda t: t.z.imag),
}
# fmt: on


@pytest.mark.parametrize("case", OLD_AND_NEW)
def test_a_method_makes_the_operations_of_its_function(case: str) -> None:
    old, new = OLD_AND_NEW[case]
    assert_same_graph(old, new, INPUTS)


@pytest.mark.parametrize("method", OF_REDUCTIONS)
def test_reductions_take_one_name_or_several(method: str) -> None:
    function = getattr(mtf, OF_REDUCTIONS[method])

    def old(t: Any) -> list[mtf.Tensor]:
        x = t.x
        one = [function(x, reduced_dim="n") for _ in range(3)]
        two = [function(x, output_shape=[M]) for _ in range(4)]
        return [*one, *two, function(x), function(x, output_shape=x.shape)]

    def new(t: Any) -> list[mtf.Tensor]:
        x = t.x
        reduce = getattr(x, method)
        one = [reduce("n"), reduce(N), reduce(["n"])]
        two = [reduce("n", "k"), reduce(["k", N]), reduce("n k"), reduce(mtf.Shape([N, ("k", 2)]))]
        return [*one, *two, reduce(), reduce([])]

    assert_same_graph(old, new, INPUTS)


def test_masks_refuse_what_a_comparison_of_tensors_as_objects_gives() -> None:
    def program(b: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
        for wrong in (lambda: b & (x == b), lambda: (x != b) & b, lambda: b | (x == b), lambda: (x == b) ^ b):
            with pytest.raises(UsageError, match=r"(?s)== or != of two tensors.*mtf\.equal.*test_methods\.py"):
                wrong()
        return mtf.logical_and(True, b) & np.bool_(True)

    done = interpret(program, {"b": ("n:2", [True, False]), "x": ("n:2", [1, 2])}, "rows:2", "n:rows")
    assert done.results.tolist() == [True, False]


def test_every_method_is_tested() -> None:
    methods = {name for face in (Reductions, Elements, Rearranging) for name in vars(face) if not name.startswith("_")}
    assert methods - {case.split()[0] for case in OLD_AND_NEW} - set(OF_REDUCTIONS) == set()


def test_methods_have_signatures_and_docstrings_that_name_their_functions() -> None:
    for face in (Reductions, Elements, Rearranging):
        for name, member in vars(face).items():
            if not name.startswith("_"):
                text = inspect.getdoc(member) or ""
                function = text.partition("see `mtf.")[2].partition("`")[0]
                assert callable(getattr(mtf, function)), name
    assert list(inspect.signature(mtf.Tensor.softmax).parameters) == ["self", "dim", "extra_logit"]


@pytest.mark.parametrize("layout", ["", "n:rows", "n:rows;m:cols", "m:rows+cols"])
def test_two_dimensions_exchange_their_names(layout: str) -> None:
    """A rename moves no element: what was n is m, whichever of the two the layout splits."""
    x = np.arange(16.0, dtype=np.float32).reshape(4, 4)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        exchanged = x.rename(n="m", m="n")
        return [exchanged, exchanged.sum("n")]

    done = interpret(program, {"x": ("n:4 m:4", x)}, "rows:2;cols:2", layout)
    np.testing.assert_array_equal(done.results[0], x)
    np.testing.assert_array_equal(done.results[1], x.sum(1))
