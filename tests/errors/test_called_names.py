"""An error names what the user called: not an operation below it, nor a function that called the user's."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import _public_name
from meshtf.errors import MeshtfError, ShapeError
from meshtf.layers import moe, transformer

D = mtf.Dimension
X, IDS, IMAGE = "batch:4 d_model:8", "batch:4 vocab:10", "batch:2 depth:4 height:4 width:4 channels:3"

CALLS: list[tuple[str, Callable[[mtf.Mesh], object]]] = [
    ("mtf.layers.conv1d", lambda m: mtf.layers.conv1d(mtf.zeros(m, IMAGE), D("o", 2), 9, padding="VALID")),
    ("mtf.layers.conv2d", lambda m: mtf.layers.conv2d(mtf.zeros(m, IMAGE), D("o", 2), 9, padding="VALID")),
    ("mtf.layers.conv3d", lambda m: mtf.layers.conv3d(mtf.zeros(m, IMAGE), D("o", 2), padding="SAMMY")),
    ("mtf.layers.conv2d_transpose", lambda m: mtf.layers.conv2d_transpose(mtf.zeros(m, "c:3"), D("o", 2))),
    ("mtf.layers.conv3d_transpose", lambda m: mtf.layers.conv3d_transpose(mtf.zeros(m, "c:3"), D("o", 2))),
    ("mtf.layers.separable_conv1d", lambda m: mtf.layers.separable_conv1d(mtf.zeros(m, "c:3"), D("o", 2))),
    ("mtf.layers.dense", lambda m: mtf.layers.dense(mtf.zeros(m, X), [D("batch", 4)])),
    ("mtf.layers.embedding, in mtf.gather", lambda m: mtf.layers.embedding(
        mtf.zeros(m, IDS, tf.int32), D("vocab", 10), D("d_model", 8))),
    ("mtf.layers.layer_norm", lambda m: mtf.layers.layer_norm(mtf.zeros(m, X), D("hidden", 8))),
    ("mtf.layers.transformer.RmsNorm", lambda m: transformer.RmsNorm()(mtf.zeros(m, X), D("hidden", 8))),
    ("mtf.reduce_mean", lambda m: mtf.reduce_mean(mtf.zeros(m, X), reduced_dim="hidden")),
    ("mtf.sub", lambda m: True - mtf.zeros(m, X, tf.bool)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_the_name_is_that_of_what_was_called(name: str, call: Callable[[mtf.Mesh], object]) -> None:
    with mtf.Graph() as graph, pytest.raises(MeshtfError) as caught:
        call(mtf.Mesh(graph))
    text = str(caught.value)
    shown = text.partition(": ")[0]
    assert shown.partition(", in ")[0] == name.partition(", in ")[0], text
    assert ", in " not in name or shown == name
    assert text.count("\n  at ") == 1


def test_a_function_of_the_users_is_not_the_fault_of_what_calls_it() -> None:
    def wrong(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(x, reduced_dim="hidden")

    with mtf.Graph() as graph:
        x = mtf.zeros(mtf.Mesh(graph), X)
        with pytest.raises(ShapeError, match=r"^mtf\.reduce_sum: no dimension"):
            mtf.recompute_grad(wrong, [x])


def test_every_function_of_the_language_has_a_public_name() -> None:
    found = {id(function): function for function in language_functions()}
    assert len(found) > 150
    for function in found.values():
        public: Any = mtf
        for part in _public_name(function).split(".")[1:]:
            public = getattr(public, part, None)
        is_compat = function.__module__.startswith("meshtf.compat.")
        is_method = _public_name(function).startswith("x") and function.__module__.startswith("meshtf.tensor_face.")
        is_of_class = inspect.isclass(public) and function in (vars(public).get(m) for m in ("__call__", "__init__"))
        assert public is function or is_compat or is_method or is_of_class


def test_methods_are_named_as_they_are_written() -> None:
    names = {
        _public_name(f): f.__name__ for f in language_functions() if f.__module__.startswith("meshtf.tensor_face.")
    }
    assert names.pop("x[...]") == names.pop("x.at[...]") == "__getitem__"
    assert {name.rpartition(".")[2] for name in names} == set(names.values())
    assert all(name.startswith(("x.", "x.at[...].")) for name in names)


def language_functions() -> Iterator[FunctionType]:
    for package in (mtf.layers, mtf.models, transformer, moe):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for module in [module for name, module in sys.modules.items() if name.startswith("meshtf.")]:
        for value in list(vars(module).values()):
            members = vars(value).values() if isinstance(value, type) else ()
            yield from (x for x in (value, *members) if isinstance(x, FunctionType) and is_of_the_language(x))


def is_of_the_language(function: FunctionType) -> bool:
    code: Any = mtf.einsum
    return function.__code__ is code.__code__ and function.__module__.startswith("meshtf.")
