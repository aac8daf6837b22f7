"""The line that reports and errors show: the user's own, or that of the built-in layer, with its scope."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import place_text
from meshtf.errors import ShapeError
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.attention.projections import project_queries
from meshtf.layers.transformer import FeedForward, LearnedPositions, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import TransformerLM

MODEL = TransformerLM(
    8,
    TokenEmbedding(mtf.layers.VocabularyEmbedding(32), LearnedPositions(4)),
    TransformerStack([SelfAttention(AttentionConfig(2, 4)), FeedForward(16)], 2),
)


def line_of(fn: Callable[..., object], text: str) -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def training_step(targets: mtf.Tensor) -> mtf.Tensor:
    values, weights = MODEL.metrics({"targets": targets}, True)["loss"]
    loss = mtf.reduce_sum(values * weights) / mtf.reduce_sum(weights)
    mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
    return loss


@pytest.fixture(scope="module")
def operations() -> list[mtf.Operation]:
    with mtf.Graph() as graph:
        training_step(mtf.zeros(mtf.Mesh(graph), "batch:2 length:4", tf.int32))
    return list(graph.every_operation())


def places(operations: list[mtf.Operation], label: str) -> set[str]:
    found = {o.site.place for o in operations if o.label == label}
    assert found, sorted({o.label for o in operations})
    return found


def test_a_built_in_layer_shows_its_own_line_and_the_layers_scope(operations: list[mtf.Operation]) -> None:
    line = line_of(project_queries, "_projected(")
    assert places(operations, "decoder/layer_*/self_attention/einsum") == {
        f"layers/attention/projections.py:{line} in project_queries"
    }
    assert not any("_observed" in o.site.place for o in operations if "decoder" in o.label)


def test_a_gradient_shows_what_it_is_the_gradient_of(operations: list[mtf.Operation]) -> None:
    label = "decoder/layer_*/self_attention/einsum"
    (forward,), gradients = places(operations, label), places(operations, f"gradient of {label}")
    assert gradients == {forward}
    assert not any(o.label.startswith("gradients") for o in operations)
    site = next(o.site for o in operations if o.label == f"gradient of {label}")
    assert str(site) == f"gradient of {site.text}"


def test_an_update_shows_its_variable(operations: list[mtf.Operation]) -> None:
    line = line_of(training_step, "minimize(")
    assert places(operations, "update of decoder/layer_*/feed_forward/wi/kernel") == {
        f"{place_text(__file__, line)} in training_step"
    }
    assigned = {o.label for o in operations if type(o).__name__ == "Assign"}
    unnamed = {label for label in assigned if not label.startswith("update of ")}
    assert all("step" in label or label.startswith("assign") for label in unnamed)
    assert len(unnamed) <= 1  # the count of steps, which is no variable's


def test_a_line_of_the_users_own_is_shown_although_a_layer_made_the_operation() -> None:
    def own(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.dense(x, [mtf.Dimension("d_ff", 4)], name="mine")

    with mtf.Graph() as graph:
        y = own(mtf.zeros(mtf.Mesh(graph), "batch:2 d_model:8"))
        (grad,) = mtf.gradients([y], [y.graph.variables["mine/kernel"].outputs[0]])
    place = f"{place_text(__file__, line_of(own, 'dense('))} in own"
    assert grad is not None
    assert {o.site.place for o in graph.operations if o.label.startswith("mine/")} == {place}
    assert grad.operation.site.place == place
    assert grad.operation.label == "gradient of mine/einsum"


def test_an_error_in_a_built_in_model_names_the_users_line_first_and_then_the_layers() -> None:
    def predictions(ids: mtf.Tensor) -> mtf.Tensor:
        return MODEL.logits({"targets": ids}, False)

    with mtf.Graph() as graph, pytest.raises(ShapeError) as caught:
        predictions(mtf.zeros(mtf.Mesh(graph), "batch:2 length:7", tf.int32))
    *_, users, layers = str(caught.value).splitlines()
    assert users == f"  at {__file__}:{line_of(predictions, 'logits(')} in predictions"
    assert layers.startswith("  in embedding, at ")
    assert "layers/transformer/embedding.py:" in layers


def test_places_are_short() -> None:
    assert place_text(inspect.getsourcefile(place_text) or "", 7) == "call_sites.py:7"
    assert place_text(inspect.unwrap(project_queries).__code__.co_filename, 7) == "layers/attention/projections.py:7"
    assert place_text("/nowhere/at/all/step.py", 7) == "all/step.py:7"
