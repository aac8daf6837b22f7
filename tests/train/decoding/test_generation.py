"""Generation with the cache, against loops over whole passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import IndexRangeError
from meshtf.layers.transformer import FeedForward, TransformerStack
from meshtf.models import EncoderDecoder, TransformerLM
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.decoding import GnmtRules, Penalties, Prompts, Sampling, Stops, beam_search, generate
from meshtf.train.decoding.programs import Sizes
from tests.house.sharpest import sharpest
from tests.optimize.interpreted_training import InterpretedTraining
from tests.train.decoding.conftest import SELF

BATCH, LENGTH = mtf.Dimension("batch", 4), mtf.Dimension("length", 6)
IDS = np.array([[2, 3, 9, 9, 9, 9], [9] * 6, [4, 2, 3, 9, 9, 9], [2, 2, 2, 2, 9, 9]], np.int32)
LENGTHS, ENDS = np.array([2, 0, 3, 4], np.int32), np.array([6, 4, 6, 4], np.int32)
PROMPTS = {"ids": ([BATCH, LENGTH], IDS), "lengths": ([BATCH], LENGTHS), "ends": ([BATCH], ENDS)}
INPUTS = np.array([[2, 3, 1], [4, 1, 0], [1, 0, 0], [3, 4, 1]], np.int32)
TERMS = 3 * (3 * 8 + 4 * 8 + 2 * 6 + 2 * 8 + 6 * FUNCTION_TERMS) + 8 + 5 + 2 * FUNCTION_TERMS
"""At most three layers of attention and one feed-forward layer each, the logits, and their logarithms."""


def generated(
    model: TransformerLM | EncoderDecoder,
    sampling: Sampling,
    stop_ids: tuple[int, ...] = (1,),
    layout: str = "",
    seed: int = 0,
    num_samples: int | None = None,
    longest: int | None = None,
    stops: Stops | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor, **inputs: mtf.Tensor) -> dict[str, mtf.Tensor]:
        decoder, prompts = model.incremental_decoder(inputs), Prompts(ids, lengths, ends, longest)
        return generate(
            decoder, prompts, sampling, stops or Stops(stop_ids), num_samples=num_samples, **options
        ).by_name()

    arrays: dict[str, Any] = dict(PROMPTS)
    if isinstance(model, EncoderDecoder):
        arrays["inputs"] = ([BATCH, mtf.Dimension("length", 3)], INPUTS)
    return interpret(program, arrays, "rows:2;cols:2", layout, seed=seed).results


def greedy_by_whole_passes(passes: Any, stop_ids: tuple[int, ...], **inputs: np.ndarray) -> dict[str, np.ndarray]:
    ids = np.where(np.arange(LENGTH.size) < LENGTHS[:, None], IDS, 0)
    lengths, total = LENGTHS.copy(), np.zeros(BATCH.size, np.float32)
    for position in range(LENGTH.size):
        log_probabilities = passes(targets=ids, **inputs)[:, position]
        for row in range(BATCH.size):
            is_open = lengths[row] == position < ENDS[row]
            if is_open and (position == LENGTHS[row] or ids[row, position - 1] not in stop_ids):
                ids[row, position] = log_probabilities[row].argmax()
                lengths[row], total[row] = position + 1, total[row] + log_probabilities[row].max()
    return {
        "ids": ids,
        "lengths": lengths,
        "log_likelihoods": total,
        "scores": total / np.maximum(lengths - LENGTHS, 1),
    }


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert_close(actual[name], value, terms=TERMS, what=name)


@pytest.fixture(scope="module")
def greedy(lm: TransformerLM) -> dict[str, np.ndarray]:
    return generated(lm, Sampling())


def test_greedy_is_the_argmax_of_whole_passes(
    lm: TransformerLM, greedy: dict[str, np.ndarray], whole_passes: Any
) -> None:
    passes, found = whole_passes(lm, Sizes(BATCH.size, LENGTH.size)), greedy
    assert_same(found, greedy_by_whole_passes(passes, (1,)))
    stops = (int(found["ids"][0, 3]), int(found["ids"][2, 3]), 1)
    stopped = generated(lm, Sampling(), stops, "batch:rows;heads:cols;vocab:cols")
    assert_same(stopped, greedy_by_whole_passes(passes, stops))
    assert stopped["lengths"].sum() < found["lengths"].sum()


def test_prompts_are_read_as_far_as_the_longest_goes(lm: TransformerLM, greedy: dict[str, np.ndarray]) -> None:
    longest = int(LENGTHS.max())
    assert_same(generated(lm, Sampling(), layout="batch:rows;memory_length:cols", longest=longest), greedy)
    with pytest.raises(IndexRangeError, match=f"the length of a prompt outside of .*: {longest} at"):
        generated(lm, Sampling(), longest=longest - 1)


def test_repeated_tokens_are_penalized(lm: TransformerLM) -> None:
    """By a loop over whole passes. The token that stands before all texts counts as one of them, as in Transformers."""
    penalty, model = 100.0, dataclasses.replace(lm, start_id=3)
    ids, lengths = np.where(np.arange(LENGTH.size) < LENGTHS[:, None], IDS, 0), LENGTHS.copy()
    features = Sizes(BATCH.size, LENGTH.size).features
    passes = InterpretedTraining(lambda targets: model.logits({"targets": targets}, False), features, "rows:1", "")
    for position in range(LENGTH.size):
        logits = passes.result(targets=ids)
        for row in range(BATCH.size):
            if lengths[row] == position < ENDS[row]:
                own, seen = logits[row, position, : lm.vocabulary.vocab_size].copy(), [3, *ids[row, :position]]
                own[seen] = np.where(own > 0, own / penalty, own * penalty)[seen]
                ids[row, position], lengths[row] = own.argmax(), position + 1
    found = generated(model, Sampling(), (), "batch:rows;vocab:cols", penalties=Penalties(repetition=penalty))
    np.testing.assert_array_equal(found["ids"], ids)
    assert (generated(model, Sampling(), ())["ids"] != ids).any()


def test_a_sequence_ends_where_its_last_tokens_are_those_of_a_stop(lm: TransformerLM) -> None:
    """Only added tokens count: the stop [2, 3] is in a prompt, and begins in another."""
    free = generated(lm, Sampling(), ())
    first = int(LENGTHS[0])
    pair, across = (
        tuple(free["ids"][0, first : first + 2].tolist()),
        tuple(free["ids"][0, first - 1 : first + 1].tolist()),
    )
    for layout in ("batch:rows;vocab:cols", "length:rows"):
        found = generated(lm, Sampling(), (), layout, stops=Stops((), (across, pair, (2, 3))))
        for row in range(BATCH.size):
            added = free["ids"][row, LENGTHS[row] : free["lengths"][row]].tolist()
            ends = [i + 2 for i in range(len(added) - 1) if tuple(added[i : i + 2]) in (across, pair, (2, 3))]
            assert found["lengths"][row] == LENGTHS[row] + min([*ends, len(added)])
        assert found["lengths"][0] == first + 2 < free["lengths"][0]


def test_likelihoods_of_tokens_add_up_and_the_likeliest_are_told(lm: TransformerLM, whole_passes: Any) -> None:
    model = dataclasses.replace(lm, starts_prompts=False)
    passes = whole_passes(lm, Sizes(BATCH.size, LENGTH.size))
    found = generated(lm, Sampling(1.0), num_likeliest=2, layout="batch:rows;vocab:cols")
    log_probabilities = passes(targets=found["ids"])
    is_added = (np.arange(LENGTH.size) >= LENGTHS[:, None]) & (np.arange(LENGTH.size) < found["lengths"][:, None])
    order = np.argsort(-log_probabilities, -1, kind="stable")[..., :2]
    np.testing.assert_array_equal(found["likeliest_ids"], np.where(is_added[..., None], order, 0))
    for name, ids in (("token_log_likelihoods", found["ids"][..., None]), ("likeliest_log_likelihoods", order)):
        likelihoods = np.take_along_axis(log_probabilities, ids, -1) * is_added[..., None]
        assert_close(found[name], likelihoods.reshape(found[name].shape), terms=TERMS, what=name)
    assert_close(found["token_log_likelihoods"].sum(1), found["log_likelihoods"], terms=LENGTH.size)
    ranks = generated(model, Sampling(1.0), num_samples=3, num_likeliest=0)
    assert_close(ranks["token_log_likelihoods"].sum(2), ranks["log_likelihoods"], terms=LENGTH.size)


OPTIONS: dict[str, dict[str, Any]] = {
    "window": {
        "stop_ids": (1,),
        "stops": Stops((1,), ((2, 3),)),
        "penalties": Penalties(repetition=1.5, frequency=0.5, no_repeat_ngram_size=2, min_new_tokens=1),
        "num_likeliest": 2,
    },
    "samples": {"sampling": Sampling(1.0, 4, 0.9), "stop_ids": (1, 3), "num_samples": 2, "layout": "batch:rows"},
    "one token each": {"stop_ids": tuple(range(5))},
}


@pytest.mark.parametrize("kind", sharpest(list(OPTIONS), ["window"]))
def test_sequences_that_have_ended_stay_as_they_are(
    kind: str, lm: TransformerLM, overrun: Callable[[int], None]
) -> None:
    """Bit for bit, when the loop goes on behind their ends, as it may on a GPU. A window's cache is overwritten."""
    attention = dataclasses.replace(SELF, window=3 if kind == "window" else None)
    model = dataclasses.replace(lm, stack=TransformerStack([attention, FeedForward(8)], 1))
    options = {"sampling": Sampling(), **OPTIONS[kind]}
    expected = generated(model, **options)
    overrun(LENGTH.size + 4)
    for name, found in generated(model, **options).items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_a_gpu_that_asks_rarely_continues_alike(
    method: str, lm: TransformerLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sequences of a length that is no multiple of the iterations between two questions."""
    length = mtf.Dimension("length", 13)
    specs = {n: mtf.TensorSpec([BATCH, length] if n == "ids" else [BATCH], tf.int32) for n in PROMPTS}

    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
        decoder, prompts = lm.incremental_decoder({}), Prompts(ids, lengths, ends)
        if method == "beam":
            return beam_search(decoder, prompts, (1,), beam_size=2, rules=GnmtRules(0.6)).by_name()
        return generate(decoder, prompts, Sampling(), Stops((1, 3))).by_name()

    def step_on(platform: str) -> mtf.Function:
        monkeypatch.setattr(mtf.GpuMeshImpl, "kernel_platform", platform)
        step = mtf.function(program, mtf.GpuMeshImpl("rows:2", "batch:rows"), inputs=specs)
        hlo = step.hlo()
        assert hlo is not None
        opcodes = [i.opcode for computation in parsed_hlo(hlo).computations for i in computation.instructions]
        assert opcodes.count("while") == (2 if platform else 1)
        return step

    asked_rarely, asked_always = step_on("cuda"), step_on("")
    for more in (0, 7, -6):  # to the greatest length; to shorter ones; and nothing is added
        feeds = {"ids": np.pad(IDS, [(0, 0), (0, 7)]), "lengths": LENGTHS, "ends": np.maximum(ENDS + more, 0)}
        expected = asked_always(**feeds)
        for name, found in asked_rarely(**feeds).items():
            np.testing.assert_array_equal(found, expected[name], err_msg=name)


def test_greedy_behind_an_encoder(encoder_decoder: EncoderDecoder, whole_passes: Any) -> None:
    passes = whole_passes(encoder_decoder, Sizes(BATCH.size, LENGTH.size, 3))
    expected = greedy_by_whole_passes(passes, (1,), inputs=INPUTS)
    assert_same(generated(encoder_decoder, Sampling(), layout="batch:rows;d_ff:cols"), expected)


def test_ranked_samples(lm: TransformerLM, whole_passes: Any) -> None:
    found = generated(lm, Sampling(1.0), num_samples=4)
    assert found["ids"].shape == (4, 4, 6)
    assert np.all(np.diff(found["scores"], axis=1) <= 0)
    assert len({tuple(ids) for ids in found["ids"][0]}) > 1, "samples of one prompt differ"
    passes = whole_passes(lm, Sizes(BATCH.size, LENGTH.size))
    for rank in range(4):
        log_probabilities = passes(targets=found["ids"][:, rank])
        picked = np.take_along_axis(log_probabilities, found["ids"][:, rank, :, None], -1)[..., 0]
        places, lengths = np.arange(LENGTH.size), found["lengths"][:, rank, None]
        likelihoods = np.where((places >= LENGTHS[:, None]) & (places < lengths), picked, 0).sum(1)
        assert_close(found["log_likelihoods"][:, rank], likelihoods, terms=TERMS)
        counts = np.maximum(lengths[:, 0] - LENGTHS, 1)
        assert_close(found["scores"][:, rank], likelihoods / counts, terms=TERMS)
    same = generated(lm, Sampling(1.0), num_samples=4, layout="samples:rows;vocab:cols")
    np.testing.assert_array_equal(same["ids"], found["ids"])


def test_a_layout_changes_no_sample(lm: TransformerLM) -> None:
    sampling = Sampling(1.0, 4, 0.9)
    expected = generated(lm, sampling)
    for layout in ("batch:rows;vocab:cols", "length:cols;d_model:rows"):
        assert_same(generated(lm, sampling, layout=layout), expected)


@pytest.fixture(scope="module")
def flat() -> Any:
    """A decoder to which all 64 tokens are equally likely, and which has no state."""
    vocab = mtf.Dimension("vocab", 64)

    class Flat:
        output = type("Output", (), {"vocab_size": 64})
        vocab = mtf.Dimension("vocab", 64)

        def fill(
            self, prompts: mtf.Tensor, prompt_lengths: mtf.Tensor, max_length: int | None = None
        ) -> list[mtf.Tensor]:
            return []

        def step(self, tokens: mtf.Tensor, *rest: Any) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
            return mtf.zeros(tokens.mesh, tokens.shape + [vocab]), []

    return Flat()


def test_every_step_call_and_seed_draws_anew(flat: Any) -> None:
    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> mtf.Tensor:
        return generate(flat, Prompts(ids, lengths, ends), Sampling(1.0), Stops()).ids

    specs = {name: mtf.TensorSpec(shape, array.dtype) for name, (shape, array) in PROMPTS.items()}
    feeds = {"ids": IDS, "lengths": np.zeros(4, np.int32), "ends": np.full(4, 6, np.int32)}
    first, second = (mtf.function(program, mtf.SpmdMeshImpl("c:1", ""), inputs=specs, seed=s) for s in (0, 1))
    rows = [step(**feeds).numpy() for step in (first, first, second)]
    assert len({tuple(row) for ids in rows for row in ids}) == 12
    assert min(len(set(row.tolist())) for ids in rows for row in ids) > 2
    again = mtf.function(program, mtf.SpmdMeshImpl("c:1", ""), inputs=specs, seed=0)
    np.testing.assert_array_equal(again(**feeds), rows[0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "mesh_shape", "layout"),
    [
        *((method, "rows:2;cols:2", "batch:rows;heads:cols;vocab:cols") for method in ("greedy", "beam")),
        *((method, "cores:1", "") for method in ("greedy", "beam")),
    ],
)
def test_a_compiled_loop_gives_the_same_tokens(lm: TransformerLM, method: str, mesh_shape: str, layout: str) -> None:
    longer = mtf.Dimension("length", 32)
    arrays = {"ids": np.pad(IDS, [(0, 0), (0, 26)]), "lengths": LENGTHS, "ends": ENDS + 26}
    inputs = {name: mtf.TensorSpec([BATCH, longer] if name == "ids" else [BATCH], tf.int32) for name in arrays}

    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
        decoder, prompts = lm.incremental_decoder({}), Prompts(ids, lengths, ends)
        if method == "beam":
            return beam_search(decoder, prompts, (1,), beam_size=2, rules=GnmtRules(0.6)).by_name()
        return generate(decoder, prompts, Sampling(), Stops()).by_name()

    meshes = [
        mtf.SpmdMeshImpl("cores:1", "", compile_loops=False),
        mtf.SpmdMeshImpl(mesh_shape, layout),
    ]
    found = []
    for mesh_impl in meshes:
        step = mtf.function(program, mesh_impl, inputs=inputs)
        compiled = mesh_impl.options.compile_loops
        assert [loop.refusal for loop in step.report().loops] == ["" if compiled else "compile_loops=False"]
        found.append({name: y.numpy() for name, y in step(**arrays).items()})
    one, compiled_ones = found
    for name, value in one.items():
        assert_close(compiled_ones[name], value, terms=26 * TERMS, what=name)
    np.testing.assert_array_equal(compiled_ones["ids"], one["ids"])
    in_two_processes = mtf.PlanMeshImpl("rows:2;cols:2", "batch:rows;heads:cols", num_processes=2)
    loops = mtf.function(program, in_two_processes, inputs=inputs).report().loops
    assert loops[0].refusal.startswith("it has the all_reduce of")
