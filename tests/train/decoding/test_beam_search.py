"""Beam search, against all sequences there are, and against the same search written out."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import UsageError
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.transformer import (
    Context,
    DecodingSpace,
    DistanceBias,
    FeedForward,
    RelativeBias,
    SelfAttention,
    TransformerStack,
)
from meshtf.models import EncoderDecoder, TransformerLM
from meshtf.ops.indexing.gather import GatherOperation
from meshtf.planning.plan import Compute, Loop, walk
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, plan
from meshtf.thresholds import MOST_MULTIPLIED_QUERIES
from meshtf.train.decoding import GnmtRules, Prompts, beam_search
from meshtf.train.decoding.programs import Sizes
from tests.train.decoding.conftest import EMBEDDING, SELF

BATCH, LENGTH = mtf.Dimension("batch", 2), mtf.Dimension("length", 4)
IDS = np.array([[3, 9, 9, 9], [9, 9, 9, 9]], np.int32)
LENGTHS, ENDS = np.array([1, 0], np.int32), np.array([4, 3], np.int32)
ROWS = {"ids": ([BATCH, LENGTH], IDS), "lengths": ([BATCH], LENGTHS), "ends": ([BATCH], ENDS)}
INPUTS = np.array([[2, 3, 1], [4, 1, 0]], np.int32)

SIZES = Sizes(1, LENGTH.size)

Next = Callable[[tuple[int, ...]], np.ndarray]
TERMS = 3 * (3 * 8 + 4 * 8 + 2 * 6 + 2 * 8 + 6 * FUNCTION_TERMS) + 8 + 5 + 2 * FUNCTION_TERMS
"""At most three layers of attention and one feed-forward layer each, the logits, and their logarithms."""


def search(model: Any, beam_size: int, alpha: float, stop_ids: tuple[int, ...]) -> Callable[..., Any]:
    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor, **inputs: mtf.Tensor) -> dict[str, mtf.Tensor]:
        decoder, prompts = model.incremental_decoder(inputs), Prompts(ids, lengths, ends)
        return beam_search(decoder, prompts, stop_ids, beam_size=beam_size, rules=GnmtRules(alpha)).by_name()

    return program


def found_by(
    model: Any, beam_size: int, alpha: float, stop_ids: tuple[int, ...] = (1,), layout: str = ""
) -> dict[str, np.ndarray]:
    arrays: dict[str, Any] = dict(ROWS)
    if isinstance(model, EncoderDecoder):
        arrays["inputs"] = ([BATCH, mtf.Dimension("length", 3)], INPUTS)
    return interpret(search(model, beam_size, alpha, stop_ids), arrays, "rows:2;cols:2", layout).results


@pytest.mark.long
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_searches_that_have_ended_stay_as_they_are(
    alpha: float, lm: TransformerLM, overrun: Callable[[int], None]
) -> None:
    """Bit for bit, when the loop goes on far behind their ends, as it may on a GPU."""
    expected = found_by(lm, 2, alpha, (1, 3), "batch:rows")
    overrun(LENGTH.size + 4)
    for name, found in found_by(lm, 2, alpha, (1, 3), "batch:rows").items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


def score_of(log_likelihood: float, count: int, alpha: float) -> float:
    return log_likelihood / ((5 + count) / 6) ** alpha


def all_sequences(
    next_token: Next, prompt: tuple[int, ...], count: int, stop_ids: tuple[int, ...], alpha: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Every sequence that ends with a stop, or after `count` tokens, with its score; the best first."""
    scored, open_ones = [], [(0.0, prompt)]
    for number in range(1, count + 1):
        following = []
        for likelihood, ids in open_ones:
            for token, more in enumerate(next_token(ids)):
                one = (likelihood + float(more), (*ids, token))
                if token in stop_ids or number == count:
                    scored.append((score_of(one[0], number, alpha), one[1]))
                else:
                    following.append(one)
        open_ones = following
    return sorted(scored, reverse=True)


def searched(
    next_token: Next, prompt: tuple[int, ...], count: int, stop_ids: tuple[int, ...], beam_size: int, alpha: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Beam search of one prompt, written out; it never ends early."""
    finished: list[tuple[float, tuple[int, ...]]] = []
    open_ones = [(0.0, prompt)]
    for number in range(1, count + 1):
        candidates = [
            (likelihood + float(more), (*ids, token))
            for likelihood, ids in open_ones
            for token, more in enumerate(next_token(ids))
        ]
        candidates = sorted(candidates, reverse=True)[: beam_size * (1 + len(stop_ids))]
        ends = [c for c in candidates if c[1][-1] in stop_ids or number == count]
        finished = sorted(finished + [(score_of(c[0], number, alpha), c[1]) for c in ends], reverse=True)[:beam_size]
        open_ones = [c for c in candidates if c not in ends][:beam_size]
    return finished


def assert_found(
    found: dict[str, np.ndarray], row: int, expected: list[tuple[float, tuple[int, ...]]], terms: int = TERMS
) -> None:
    count = min(len(expected), found["ids"].shape[1])
    assert_close(found["scores"][row, :count], [s for s, _ in expected[:count]], terms=terms)
    for ids, length, (_, wanted) in zip(found["ids"][row], found["lengths"][row], expected, strict=False):
        assert tuple(ids[:length]) == wanted
        assert not ids[length:].any()


def nexts(passes: Any, row: int, *, has_inputs: bool) -> Next:
    seen: dict[tuple[int, ...], np.ndarray] = {}

    def next_token(prefix: tuple[int, ...]) -> np.ndarray:
        if prefix not in seen:
            inputs = {"inputs": INPUTS[row : row + 1]} if has_inputs else {}
            seen[prefix] = passes.next_token(prefix, **inputs)
        return seen[prefix]

    return next_token


@pytest.mark.parametrize(
    ("kind", "alpha", "stop_ids", "layout"),
    [
        pytest.param("lm", 0.6, (1,), "", marks=pytest.mark.long),
        pytest.param("lm", 0.0, (1, 4), "batch:rows;vocab:cols", marks=pytest.mark.long),
        pytest.param("encoder_decoder", 1.0, (1,), "batch:rows;heads:cols;d_ff:cols", marks=pytest.mark.long),
        ("encoder_decoder", 0.6, (1, 2), "beam:cols;d_model:rows"),
    ],
)
def test_a_wide_beam_finds_the_best_of_all_sequences(
    kind: str,
    alpha: float,
    stop_ids: tuple[int, ...],
    layout: str,
    whole_passes: Any,
    request: pytest.FixtureRequest,
) -> None:
    model, has_inputs = request.getfixturevalue(kind), kind == "encoder_decoder"
    found = found_by(model, 16, alpha, stop_ids, layout)
    passes = whole_passes(model, Sizes(1, LENGTH.size, 3 if has_inputs else None))
    for row, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        next_token = nexts(passes, row, has_inputs=has_inputs)
        assert_found(found, row, all_sequences(next_token, tuple(IDS[row, :length]), end - length, stop_ids, alpha))


def test_a_narrow_beam_is_the_search_written_out(lm: TransformerLM, whole_passes: Any) -> None:
    alpha = 2.0
    found = found_by(lm, 2, alpha, (1,), "batch:rows;heads:cols")
    next_token = nexts(whole_passes(lm, Sizes(1, LENGTH.size)), 0, has_inputs=False)
    for row, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        assert_found(found, row, searched(next_token, tuple(IDS[row, :length]), end - length, (1,), 2, alpha))


@dataclasses.dataclass(frozen=True)
class MeanOfPast:
    """A sublayer of a user's, whose state of the tokens so far knows nothing of slots: it adds their mean."""

    name: str = "mean"
    num_states: int = 1

    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        return self.fill(x, context)[0]

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        length = x.shape.get_dim_by_name("length")
        count = mtf.cast(mtf.range(x.mesh, length) + 1, tf.float32)
        return mtf.divide(mtf.cumsum(x, length), count, output_shape=x.shape), [x]

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        return [mtf.zeros(space.mesh, space.batch_dims + [("length", space.max_length), ("d_model", 8)])]

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        now = context.tokens.positions
        assert now is not None
        past = mtf.scatter_update(state[0], position, x, "length")
        is_past = mtf.less_equal(mtf.range(x.mesh, past.shape.get_dim_by_name("length")), now)
        total = mtf.reduce_sum(mtf.where(is_past, past, 0.0, output_shape=past.shape), output_shape=x.shape)
        return total / mtf.cast(now + 1, tf.float32), [past]


def language_model(*sublayers: Any, num_layers: int = 2, **options: Any) -> TransformerLM:
    return TransformerLM(8, EMBEDDING, TransformerStack([*sublayers, FeedForward(8)], num_layers, **options))


GROUPED, MULTI_QUERY = AttentionConfig(4, 4, num_kv_heads=2), AttentionConfig(2, 4, num_kv_heads=1)
MODELS = {
    "grouped, window, ALiBi": language_model(SelfAttention(GROUPED, window=2), bias=DistanceBias(GROUPED)),
    "multi-query, relative bias": language_model(SelfAttention(MULTI_QUERY), bias=RelativeBias(MULTI_QUERY, 8, 6)),
    "a window as long as the sequence": language_model(dataclasses.replace(SELF, window=LENGTH.size), unroll=True),
    "a state of one's own": language_model(SELF, MeanOfPast(), num_layers=1),
}


@pytest.mark.parametrize(
    ("kind", "beam_size", "layout"),
    [
        ("grouped, window, ALiBi", 3, "batch:rows;heads:cols"),
        pytest.param("multi-query, relative bias", 4, "memory_length:rows;beam:cols", marks=pytest.mark.long),
        pytest.param("a window as long as the sequence", 3, "beam_slots:rows;batch:cols", marks=pytest.mark.long),
        ("a state of one's own", 4, "batch:rows;beam:cols"),
    ],
)
def test_hypotheses_keep_their_past_when_they_change_their_beams(
    kind: str, beam_size: int, layout: str, whole_passes: Any
) -> None:
    found, passes = found_by(MODELS[kind], beam_size, 0.6, layout=layout), whole_passes(MODELS[kind], SIZES)
    for row, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        next_token = nexts(passes, row, has_inputs=False)
        expected = searched(next_token, tuple(IDS[row, :length]), end - length, (1,), beam_size, 0.6)
        assert_found(found, row, expected)


@pytest.mark.parametrize(
    ("mesh_shape", "layout"),
    [
        pytest.param("cores:1", "", marks=pytest.mark.long),
        ("cols:2", "heads:cols;vocab:cols"),
        pytest.param("rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols;vocab:cols", marks=pytest.mark.long),
    ],
)
def test_a_compiled_loop_is_the_search_written_out(mesh_shape: str, layout: str, whole_passes: Any) -> None:
    model, length, batch = MODELS["grouped, window, ALiBi"], mtf.Dimension("length", 32), mtf.Dimension("batch", 4)
    specs = {name: mtf.TensorSpec([batch], np.int32) for name in ("lengths", "ends")}
    specs["ids"] = mtf.TensorSpec([batch, length], np.int32)
    program = mtf.function(search(model, 3, 2.0, (1,)), mtf.SpmdMeshImpl(mesh_shape, layout), inputs=specs)
    assert [loop.refusal for loop in program.report().loops] == [""]
    ids = np.random.default_rng(0).integers(2, 5, size=[4, 32]).astype(np.int32)
    lengths, ends = np.array([1, 0, 28, 24], np.int32), np.array([8, 6, 31, 32], np.int32)
    found = {name: x.numpy() for name, x in program(ids=ids, lengths=lengths, ends=ends).items()}
    next_token = nexts(whole_passes(model, Sizes(1, length.size)), 0, has_inputs=False)
    for row, (start, end) in enumerate(zip(lengths, ends, strict=True)):
        expected = searched(next_token, tuple(ids[row, :start]), end - start, (1,), 3, 2.0)
        assert_found(found, row, expected, terms=length.size * TERMS)


def gathered_in_the_loop(model: Any, beam_size: int, layout: str) -> list[list[str]]:
    """The dimensions of what the search gathers along `beam` in its steps."""
    specs = {name: mtf.TensorSpec(shape, np.int32) for name, (shape, _) in ROWS.items()}
    planned = plan(search(model, beam_size, 0.6, (1,)), specs, "rows:2;cols:2", layout)
    (loop,) = [i for i in planned.instructions if isinstance(i, Loop) and any(v.shape.has("beam") for v in i.outputs)]
    return [
        i.inputs[0].shape.dimension_names
        for i, _ in walk(loop.body)
        if isinstance(i, Compute) and isinstance(i.operation, GatherOperation) and i.inputs[0].shape.has("beam")
    ]


def test_no_step_copies_keys_and_values() -> None:
    """But a table of where they are; what a user's sublayer keeps is put in order, and all where queries are many."""
    for layout in ("", "batch:rows;heads:cols", "beam:rows"):
        gathered = gathered_in_the_loop(MODELS["multi-query, relative bias"], 3, layout)
        assert ["batch", "beam", "positions"] in gathered
        assert not any("d_kv" in names for names in gathered)
    own = gathered_in_the_loop(MODELS["a state of one's own"], 3, "")
    assert [names for names in own if "d_model" in names] == [["layers", "batch", "beam", "length", "d_model"]]
    most = MOST_MULTIPLIED_QUERIES // 2
    assert not any("d_kv" in names for names in gathered_in_the_loop(MODELS["multi-query, relative bias"], most, ""))
    many = gathered_in_the_loop(MODELS["multi-query, relative bias"], most + 1, "")
    assert [names for names in many if "d_kv" in names] == 2 * [["layers", "batch", "beam", "memory_length", "d_kv"]]


class Bigrams:
    """A decoder that looks at the last token and the position alone: by a table [length, before, token]."""

    output = type("Output", (), {"vocab_size": 5})
    vocab = mtf.Dimension("vocab", 8)
    length = LENGTH

    def __init__(self, table: np.ndarray) -> None:
        self.table = np.pad(table, [(0, 0), (0, 0), (0, 3)], constant_values=100.0)

    def incremental_decoder(self, features: object) -> Bigrams:
        return self

    def fill(self, prompts: mtf.Tensor, prompt_lengths: mtf.Tensor, max_length: int | None = None) -> list[mtf.Tensor]:
        return []

    def step(self, tokens: mtf.Tensor, position: mtf.Tensor, *rest: Any) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        before = mtf.Dimension("before", 5)
        table = mtf.constant(tokens.mesh, self.table, [self.length, before, self.vocab])
        return mtf.gather(mtf.gather(table, position, self.length), tokens, before), []


@pytest.mark.parametrize(("seed", "alpha"), [(0, 0.6), (1, 0.0), (2, 1.5), (3, 0.6)])
def test_bigrams(seed: int, alpha: float) -> None:
    """Likelihoods far apart: the loop ends early, and gives what it would give at the end."""
    table = np.random.default_rng(seed).normal(scale=4.0, size=(4, 5, 5)).astype(np.float32)
    found = found_by(Bigrams(table), 3, alpha)
    log_probabilities = table - np.log(np.exp(table).sum(-1, keepdims=True))
    for row, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        prompt = tuple(IDS[row, :length])

        def next_token(prefix: tuple[int, ...]) -> np.ndarray:
            return log_probabilities[len(prefix), prefix[-1] if prefix else 0]

        assert_found(found, row, searched(next_token, prompt, end - length, (1,), 3, alpha))


def test_fewer_sequences_than_beams() -> None:
    found = found_by(Bigrams(np.zeros([4, 5, 5], np.float32)), 8, 0.0, stop_ids=tuple(range(5)))
    assert np.isfinite(found["scores"]).sum(axis=1).tolist() == [5, 5]
    assert [ids[0] for ids in itertools.islice(found["ids"][1], 5)] == [0, 1, 2, 3, 4], "ties in order of ids"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stop_ids": 1}, "stop_ids must be a tuple of ids, such as (1,), and is 1"),
        ({"beam_size": 0}, "beam_size must be 1 or more, and is 0"),
        ({"rules": "gnmt"}, "rules must be GnmtRules(..) or TransformersRules(..), and is 'gnmt'"),
    ],
)
def test_what_a_search_cannot_be_given(given: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"stop_ids": (1,), "beam_size": 2, "rules": GnmtRules(0.6), **given}
    with pytest.raises(UsageError, match=re.escape(message)):
        beam_search(None, None, **arguments)  # type: ignore[arg-type]
