"""The mesh, left out where it is known: the same graph, for every function that takes it first."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.layers.transformer import RmsNorm
from tests.docs.public_names import everything

pytestmark = pytest.mark.quick

STAGE = mtf.Dimension("stage", 2)


def make_a_weight(xs: list[mtf.Tensor]) -> list[mtf.Tensor]:
    mtf.get_variable("w", "d:4")
    return xs


CONFIG = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
LATENT = mtf.layers.LatentConfig(num_heads=2, d_kv=4, d_rotated=2, d_value=4, latent_size=3, norm=RmsNorm())
BEAM = mtf.Dimension("beam", 3)
FLOAT = tf.float32

# Each function that takes the mesh first, called with the mesh in front of the arguments, or with nothing there.
CALLS: dict[str, Callable[..., object]] = {
    "mtf.DropoutInBlocks": lambda *mesh: mtf.DropoutInBlocks(*mesh, "n:4", "n", 2, rate=0.5, name="dropout"),
    "mtf.DropoutInBoxes": lambda *mesh: mtf.DropoutInBoxes(*mesh, "n:4", {"n": "in:2"}, rate=0.5, name="dropout"),
    "mtf.RandomNormal.__call__": lambda *mesh: mtf.RandomNormal(stddev=2.0)(*mesh, "n:8", FLOAT),
    "mtf.RandomUniform.__call__": lambda *mesh: mtf.RandomUniform(0.5)(*mesh, "n:8", FLOAT),
    "mtf.TruncatedNormal.__call__": lambda *mesh: mtf.TruncatedNormal()(*mesh, "n:8", FLOAT),
    "mtf.constant": lambda *mesh: mtf.constant(*mesh, [1.0, 2.0], "n:2"),
    "mtf.eye": lambda *mesh: mtf.eye(*mesh, ("rows", 2), ("columns", 2)),
    "mtf.fill": lambda *mesh: mtf.fill(*mesh, 7.0, "n:2"),
    "mtf.get_variable": lambda *mesh: mtf.get_variable(*mesh, "w", "d:4 h:8", initializer=mtf.zeros),
    "mtf.import_tf_tensor": lambda *mesh: mtf.import_tf_tensor(*mesh, np.ones(2), "n:2"),
    "mtf.layers.BeamSlots.start": lambda *mesh: mtf.layers.BeamSlots.start(*mesh, [("batch", 4), BEAM], 16, BEAM),
    "mtf.layers.KeyValueCache.empty": lambda *mesh: mtf.layers.KeyValueCache.empty(*mesh, "batch:4", 16, CONFIG),
    "mtf.layers.LatentCache.empty": lambda *mesh: mtf.layers.LatentCache.empty(*mesh, "batch:4", 16, LATENT),
    "mtf.layers.LinearBias.make": lambda *mesh: mtf.layers.LinearBias.make(*mesh, CONFIG),
    "mtf.layers.RelativePositionBias.make": lambda *mesh: mtf.layers.RelativePositionBias.make(
        *mesh, CONFIG, is_bidirectional=False
    ),
    "mtf.layers.VocabularyEmbedding.weights": lambda *mesh: mtf.layers.VocabularyEmbedding(100).weights(
        *mesh, mtf.Dimension("d", 8)
    ),
    "mtf.layers.embedding_weights": lambda *mesh: mtf.layers.embedding_weights(*mesh, ("vocab", 8), ("d", 4)),
    "mtf.vectorized_layers": lambda *mesh: mtf.vectorized_layers(*mesh, make_a_weight, [], [STAGE], STAGE),
    "mtf.linspace": lambda *mesh: mtf.linspace(*mesh, 0.0, 1.0, ("n", 3)),
    "mtf.ones": lambda *mesh: mtf.ones(*mesh, "n:8"),
    "mtf.placeholder": lambda *mesh: mtf.placeholder(*mesh, "n:8", name="y"),
    "mtf.random_normal": lambda *mesh: mtf.random_normal(*mesh, "n:8", stddev=2.0),
    "mtf.random_truncated_normal": lambda *mesh: mtf.random_truncated_normal(*mesh, "n:8"),
    "mtf.random_uniform": lambda *mesh: mtf.random_uniform(*mesh, "n:8", minval=0.5),
    "mtf.range": lambda *mesh: mtf.range(*mesh, ("n", 8)),
    "mtf.zeros": lambda *mesh: mtf.zeros(*mesh, shape="n:8"),
}  # fmt: skip

# What is given the mesh by whoever calls it, which is no user's program.
GIVEN = {
    "mtf.Operation": "whoever writes an operation says its mesh, where no input has one",
    "mtf.Variable": "mtf.get_variable makes it",
    "mtf.VectorizedLayers": "mtf.vectorized_layers makes it",
    **dict.fromkeys(
        [f"mtf.optimize.Sparse{kind}Optimizer.scalars" for kind in ("Sgd", "Adam", "Adagrad")],
        "a step of the optimizer calls it, as its protocol says",
    ),
    "meshtf.layers.transformer.DecodingSpace": "a decoder makes it, and hands it to its sublayers",
    "meshtf.layers.transformer.DistanceBias.make": "the stack calls it, as the protocol StackBias says",
    "meshtf.layers.transformer.RelativeBias.make": "the stack calls it, as the protocol StackBias says",
    "meshtf.models.IncrementalDecoder.start": "decoding calls it, as the protocol StepDecoder says",
    "meshtf.models.IncrementalDecoder.start_pages": "the program of an engine's step calls it",
}


def operations_of(body: Callable[[mtf.Mesh], object]) -> list[tuple[object, ...]]:
    """What a graph is made of, after its function was called."""
    graph = mtf.Graph("program")
    mesh = mtf.Mesh(graph)
    with graph:
        body(mesh)
    return [(type(o), o.name, [x.name for x in o.inputs], list(map(str, o.outputs))) for o in graph.every_operation()]


def takers() -> set[str]:
    """Every public function, constructor and method with a parameter `mesh` for the mesh of a graph."""
    found = set[str]()
    for name, thing in everything().items():
        members = vars(thing) if inspect.isclass(thing) else {}
        methods = {m: getattr(thing, m) for m in members if m == "__call__" or m[0] != "_"}
        for shown, fn in {name: thing, **{f"{name}.{m}": method for m, method in methods.items()}}.items():
            if callable(fn) and not getattr(thing, "_is_protocol", False) and _annotation(fn).endswith("Mesh"):
                found.add(shown)
    return found


def _annotation(fn: Callable[..., object]) -> str:
    """How the parameter `mesh` is annotated, without `| None`; empty if there is none."""
    parameter = inspect.signature(fn).parameters.get("mesh")
    return "" if parameter is None else str(parameter.annotation).removesuffix(" | None")


def test_every_function_that_takes_the_mesh_may_be_called_without() -> None:
    assert takers() == {*CALLS, *GIVEN}


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
