"""Rows at positions of their own: in caches of their own, and in the pages of one cache, against whole passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.layers import DynamicRotaryScaling
from meshtf.layers.attention.caches.pages import PageView
from meshtf.layers.transformer import DistanceBias, RelativeBias, Rotary, SelfAttention
from meshtf.models import TransformerLM
from meshtf.quantization import Quantization, quantized_weights
from meshtf.testing import assert_close
from tests.models import test_incremental_decoder as models
from tests.models.transformers import interpreted

LENGTH, PAGE = 6, 2
TARGETS, OFFSETS = models.ROWS["targets"], np.array([0, 2, 1, 1], np.int32)
TABLE = np.random.default_rng(1).permutation(16)[:12].reshape(4, 3).astype(np.int32)
READS = [
    [(0, 0), (0, 1), (0, 2), (2, 0), (1, 0)],  # rows of a step: which text, and which of its positions
    [(0, 3), (2, 1), (2, 2), (1, 1), (3, 0), (3, 1)],
    [(3, 2), (3, 3), (0, 4), (0, 5), (2, 3), (1, 2)],
]
BATCH, STEPS = mtf.Dimension("batch", 6), mtf.Dimension("steps", len(READS))
LAYOUT = "batch:rows;heads:cols;d_ff:cols;vocab:cols"

BY_LENGTH = Rotary(scaling=DynamicRotaryScaling(2.0, 4))

Program = Callable[..., list[mtf.Tensor]]


def in_own_caches(model: TransformerLM) -> Program:
    def program(targets: mtf.Tensor, offsets: mtf.Tensor) -> list[mtf.Tensor]:
        decoder, steps = model.incremental_decoder({}), mtf.Dimension("steps", LENGTH + OFFSETS.max().item())

        def one(state: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            position = parts[0] - offsets
            tokens = mtf.gather(targets, position - 1, "length")
            found, state = decoder.step(tokens, position, mtf.where(position >= LENGTH, -1, position), state)
            return state, [found]

        state = decoder.start(targets.mesh, targets.shape[:1], LENGTH, tf.float32)
        _, (logits,) = mtf.scan(one, state, [mtf.range(targets.mesh, steps)], steps)
        in_order = mtf.transpose(logits, [steps, targets.shape[0], decoder.vocab])
        return [model.logits({"targets": targets}, False), in_order]

    return program


def in_pages(model: TransformerLM) -> Program:
    def program(targets: mtf.Tensor, **rows: mtf.Tensor) -> list[mtf.Tensor]:
        decoder = model.incremental_decoder({})

        def one(state: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            now = dict(zip(rows, parts, strict=True))
            view = PageView.of(now["table"], now["position"], PAGE)
            # The last row's logits come first.
            wanted = BATCH.size - 1 - mtf.range(targets.mesh, BATCH)
            found, state = decoder.step_in_pages(now["tokens"], now["position"], view, state, wanted)
            return state, [found]

        state = decoder.start_pages(targets.mesh, 16 * PAGE, tf.float32)
        _, (logits,) = mtf.scan(one, state, list(rows.values()), STEPS)
        return [model.logits({"targets": targets}, False), mtf.transpose(logits, [STEPS, BATCH, decoder.vocab])]

    return program


def rows_of_steps() -> dict[str, tuple[mtf.Shape, np.ndarray]]:
    tokens, position = np.zeros([STEPS.size, BATCH.size], np.int32), np.full([STEPS.size, BATCH.size], -1, np.int32)
    table = np.full([STEPS.size, BATCH.size, 3], -1, np.int32)
    for step, reads in enumerate(READS):
        for row, (text, place) in enumerate(reads):
            tokens[step, row] = TARGETS[text, place - 1] if place else 0
            position[step, row], table[step, row] = place, TABLE[text]
    shape = mtf.Shape([STEPS, BATCH])
    return {"tokens": (shape, tokens), "position": (shape, position), "table": (shape + [("pages", 3)], table)}


@pytest.mark.parametrize(
    "variant",
    [
        "local, rotary, relative bias",
        *(
            pytest.param(variant, marks=pytest.mark.long)
            for variant in models.VARIANTS
            if variant != "local, rotary, relative bias"
            and not variant.startswith(("encoder", "lean, inputs"))
            and "start id" not in variant
        ),
    ],
)
def test_rows_at_positions_of_their_own(variant: str) -> None:
    model, size = models.VARIANTS[variant](False), models.VOCAB_SIZE
    given = {"targets": (models.TOKENS, TARGETS)}
    offsets = {"offsets": (models.TOKENS[:1], OFFSETS)}
    whole, steps = interpreted(in_own_caches(model), given | offsets, "rows:2;cols:1", LAYOUT).results
    for text, offset in enumerate(OFFSETS):
        for place in range(LENGTH):
            assert_close(steps[place + offset][text, :size], whole[text, place, :size], terms=models.TERMS)
    whole, steps = interpreted(in_pages(model), given | rows_of_steps(), "rows:2;cols:2", LAYOUT).results
    for logits, reads in zip(steps, READS, strict=True):
        for row, (text, place) in enumerate(reads):
            assert_close(logits[-1 - row, :size], whole[text, place, :size], terms=models.TERMS)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            models.language_model(SelfAttention(models.MULTI_HEAD), sees_prefix=True),
            "sees_prefix lets the tokens of a prompt see each other",
        ),
        (
            models.language_model(
                SelfAttention(models.MULTI_HEAD, rotary=Rotary(scaling=DynamicRotaryScaling(2.0, 4)))
            ),
            "DynamicRotaryScaling rotates keys by the length of their prompt",
        ),
    ],
)
def test_models_that_cannot_read_a_prompt_in_parts_are_refused(
    model: Callable[[bool], TransformerLM], message: str
) -> None:
    graph = mtf.Graph()
    with graph, pytest.raises(GraphError, match=message):
        model(False).incremental_decoder({}).start_pages(mtf.Mesh(graph), 8, tf.float32)


def test_pages_in_int8_are_refused() -> None:
    model, graph = models.language_model(SelfAttention(models.MULTI_HEAD))(False), mtf.Graph()
    with (
        graph,
        quantized_weights(Quantization(cache="int8")),
        pytest.raises(GraphError, match="leave out Quantization"),
    ):
        model.incremental_decoder({}).start_pages(mtf.Mesh(graph), 8, tf.float32)


def test_biases_by_distance_count_from_each_rows_own_position() -> None:
    for bias in (DistanceBias(models.GROUPED), RelativeBias(models.GROUPED, 8, 6)):
        model = models.language_model(SelfAttention(models.GROUPED), bias=bias)(False)
        given = {"targets": (models.TOKENS, TARGETS)} | rows_of_steps()
        whole, steps = interpreted(in_pages(model), given, "rows:1", "").results
        size = models.VOCAB_SIZE
        assert_close(steps[2][-4, :size], whole[0, 5, :size], terms=models.TERMS)
