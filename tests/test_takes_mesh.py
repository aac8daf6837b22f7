"""The mesh, left out where it is known: the same graph, for every function that takes it first."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import GraphError

pytestmark = pytest.mark.quick

STAGE = mtf.Dimension("stage", 2)


def make_a_weight(xs: list[mtf.Tensor]) -> list[mtf.Tensor]:
    mtf.get_variable("w", "d:4")
    return xs


# Each function that takes the mesh first, called with the mesh in front of the arguments, or with nothing there.
CALLS: dict[str, Callable[..., object]] = {
    "constant": lambda *mesh: mtf.constant(*mesh, [1.0, 2.0], "n:2"),
    "eye": lambda *mesh: mtf.eye(*mesh, ("rows", 2), ("columns", 2)),
    "fill": lambda *mesh: mtf.fill(*mesh, 7.0, "n:2"),
    "get_variable": lambda *mesh: mtf.get_variable(*mesh, "w", "d:4 h:8", initializer=mtf.zeros),
    "import_tf_tensor": lambda *mesh: mtf.import_tf_tensor(*mesh, np.ones(2), "n:2"),
    "vectorized_layers": lambda *mesh: mtf.vectorized_layers(*mesh, make_a_weight, [], [STAGE], STAGE),
    "linspace": lambda *mesh: mtf.linspace(*mesh, 0.0, 1.0, ("n", 3)),
    "ones": lambda *mesh: mtf.ones(*mesh, "n:8"),
    "placeholder": lambda *mesh: mtf.placeholder(*mesh, "n:8", name="y"),
    "random_normal": lambda *mesh: mtf.random_normal(*mesh, "n:8", stddev=2.0),
    "random_truncated_normal": lambda *mesh: mtf.random_truncated_normal(*mesh, "n:8"),
    "random_uniform": lambda *mesh: mtf.random_uniform(*mesh, "n:8", minval=0.5),
    "range": lambda *mesh: mtf.range(*mesh, ("n", 8)),
    "zeros": lambda *mesh: mtf.zeros(*mesh, shape="n:8"),
}  # fmt: skip


def operations_of(body: Callable[[mtf.Mesh], object]) -> list[tuple[object, ...]]:
    """What a graph is made of, after its function was called."""
    graph = mtf.Graph("program")
    mesh = mtf.Mesh(graph)
    with graph:
        body(mesh)
    return [(type(o), o.name, [x.name for x in o.inputs], list(map(str, o.outputs))) for o in graph.every_operation()]


def test_every_function_that_takes_the_mesh_first_is_tried() -> None:
    functions = {name: getattr(mtf, name) for name in mtf.__all__ if inspect.isfunction(getattr(mtf, name))}
    first = {name: next(iter(inspect.signature(fn).parameters), "") for name, fn in functions.items()}
    assert {name for name, parameter in first.items() if parameter == "mesh"} == set(CALLS)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_without_the_mesh_the_graph_is_the_same(name: str) -> None:
    with_mesh = operations_of(CALLS[name])
    assert with_mesh
    assert operations_of(lambda mesh: CALLS[name]()) == with_mesh


def test_the_mesh_may_be_named() -> None:
    by_name = operations_of(lambda mesh: mtf.get_variable(mesh=mesh, name="w", shape="d:4"))  # type: ignore[call-overload]
    assert by_name == operations_of(lambda mesh: mtf.get_variable(name="w", shape="d:4"))


def test_signatures_and_docstrings_are_those_of_the_function() -> None:
    assert list(inspect.signature(mtf.zeros).parameters) == ["mesh", "shape", "dtype"]
    assert (mtf.zeros.__name__, mtf.zeros.__doc__) == ("zeros", inspect.unwrap(mtf.zeros).__doc__)


def test_a_graph_of_no_mesh_or_of_two_is_an_error() -> None:
    graph = mtf.Graph("program")
    with graph, pytest.raises(GraphError, match=r'mtf\.ones: the mesh was left out, and graph "program" has none'):
        mtf.ones("n:8")
    mtf.Mesh(graph, "left"), mtf.Mesh(graph, "right")
    with graph, pytest.raises(GraphError, match='has several: "left", "right"; give one of them first'):
        mtf.ones("n:8")


def test_a_mistake_in_the_other_arguments_is_told_as_with_the_mesh() -> None:
    def messages(*mesh: mtf.Mesh) -> list[str]:
        found = []
        for wrong in (lambda: mtf.zeros(*mesh, "n:8", size=3), lambda: mtf.zeros(*mesh, "n"), lambda: mtf.zeros(*mesh)):
            with pytest.raises(mtf.errors.MeshtfError) as caught:
                wrong()
            found.append(str(caught.value).partition("\n  at ")[0])
        return found

    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        assert messages() == messages(mesh)
        assert "missing a required argument: 'shape'" in messages()[2]
