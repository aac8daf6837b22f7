"""Beam search and greedy decoding over a model of the user's, against both written in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.compat.mesh_tensorflow.sessions import evaluated
from tests.house.sharpest import sharpest

BATCH, BEAM, LENGTH, VOCAB = (
    mtf.Dimension(name, size) for name, size in (("batch", 4), ("beam", 3), ("length", 6), ("hidden", 8))
)
# The vocabulary has the name that the layout of the tests splits.
PREVIOUS = mtf.Dimension("previous", VOCAB.size)
TABLE = np.random.default_rng(0).normal(size=[BATCH.size, VOCAB.size, VOCAB.size]).astype(np.float32)
TABLE[..., 1] += 0.5  # sequences of several lengths end
EOS = 1


def model(mesh: mtf.Mesh, rows: list[mtf.Dimension]) -> Any:
    """Logits by the token before, less what was seen: its states are the tokens so far, in both forms there are."""
    table = mtf.import_tf_tensor(mesh, tf.constant(TABLE), [BATCH, PREVIOUS, VOCAB])
    flat = mtf.Dimension("batch", int(np.prod([d.size for d in rows])))

    def logits_fn(step: Any, ids: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        before = mtf.where(mtf.equal(step, 0), 0, mtf.gather(ids, step - 1, LENGTH))
        seen, flat_count = states
        seen += mtf.one_hot(before, VOCAB)
        flat_count += 1.0 + mtf.reshape(mtf.cast(before, tf.float32), [flat])
        count = mtf.reshape(flat_count, rows)
        return mtf.gather(table, before, PREVIOUS) - 0.7 * seen + 0.01 * count * mtf.to_float(
            mtf.range(mesh, VOCAB, tf.int32)
        ), [seen, flat_count]

    return logits_fn, [mtf.zeros(mesh, [*rows, VOCAB]), mtf.zeros(mesh, [flat])]


def log_probabilities(row: int, ids: list[int]) -> np.ndarray:
    """Of the next token; in float64."""
    before = [0, *ids]
    seen = np.bincount(before, minlength=VOCAB.size)
    count = sum(1.0 + token for token in before)
    logits = TABLE[row, before[-1]].astype(np.float64) - 0.7 * seen + 0.01 * count * np.arange(VOCAB.size)
    return logits - np.log(np.exp(logits).sum())


def penalty(count: int, alpha: float) -> float:
    return ((5 + count) / 6) ** alpha


def searched(row: int, alpha: float, longest: int) -> list[tuple[list[int], float]]:
    """Finished sequences with their scores, best first; open ones where there are none."""
    open_rows: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for step in range(longest):
        found = [
            ([*ids, token], total + log_probability)
            for ids, total in open_rows
            for token, log_probability in enumerate(log_probabilities(row, ids))
        ]
        best = sorted(found, key=lambda pair: -pair[1])[: 2 * BEAM.size]
        ended = [(ids, total / penalty(step + 1, alpha)) for ids, total in best if ids[-1] == EOS]
        finished = sorted(finished + ended, key=lambda pair: -pair[1])[: BEAM.size]
        open_rows = [pair for pair in best if pair[0][-1] != EOS][: BEAM.size]
    return finished or open_rows


@pytest.mark.parametrize(
    ("mesh_name", "alpha", "longest"), sharpest([("2x2", 0.6, 6), ("one core", 0.0, 4)], [("2x2", 0.6, 6)])
)
def test_beam_search_is_that_of_numpy(mesh_name: str, alpha: float, longest: int) -> None:
    def program(mesh: mtf.Mesh) -> Any:
        logits_fn, states = model(mesh, [BATCH, BEAM])
        ids = mtf.zeros(mesh, [BATCH, BEAM, LENGTH], tf.int32)
        whole = mtf.beam_search.beam_search(logits_fn, ids, alpha, states, EOS, stop_early=False, decode_length=longest)
        early = mtf.beam_search.beam_search(logits_fn, ids, alpha, states, EOS, decode_length=longest)
        return [*whole, *early]

    ids, scores, early_ids, early_scores = evaluated(program, mesh_name)
    assert ids.shape == (BATCH.size, BEAM.size, LENGTH.size)
    for row in range(BATCH.size):
        expected = searched(row, alpha, longest)
        for rank, (sequence, score) in enumerate(expected):
            assert ids[row, rank].tolist() == sequence + [0] * (LENGTH.size - len(sequence))
            assert_close(scores[row, rank], score, terms=longest * (2 * VOCAB.size + FUNCTION_TERMS))
        best = expected[0][0]
        assert early_ids[row, 0].tolist() == best + [0] * (LENGTH.size - len(best))
    np.testing.assert_array_equal(early_scores[:, 0], scores[:, 0])


def test_where_nothing_ends_what_is_open_is_returned() -> None:
    def program(mesh: mtf.Mesh) -> Any:
        logits_fn, states = model(mesh, [BATCH, BEAM])
        ids = mtf.zeros(mesh, [BATCH, BEAM, LENGTH], tf.int32)
        return mtf.beam_search.beam_search(logits_fn, ids, 0.6, states, eos_id=VOCAB.size + 1)

    ids, scores = evaluated(program, "one core")
    assert (ids >= 0).all()
    assert (np.diff(scores) <= 0).all()
    row, total = ids[2, 0].tolist(), 0.0
    for place, token in enumerate(row):
        total += log_probabilities(2, row[:place])[token]
    assert_close(scores[2, 0], total, terms=LENGTH.size * (2 * VOCAB.size + FUNCTION_TERMS))


def test_greedy_decoding_takes_the_likeliest_until_all_have_ended() -> None:
    forced = np.zeros([BATCH.size, LENGTH.size], np.int32)
    forced[1, 0] = 5

    def program(mesh: mtf.Mesh) -> Any:
        logits_fn, states = model(mesh, [BATCH])
        ids = mtf.zeros(mesh, [BATCH, LENGTH], tf.int32)
        given = mtf.import_tf_tensor(mesh, tf.constant(forced), [BATCH, LENGTH])
        return mtf.beam_search.greedy_decode(logits_fn, ids, initial_states=states, eos_id=EOS, forced_ids=given)

    found = evaluated(program)
    rows: list[list[int]] = [[] for _ in range(BATCH.size)]
    for place in range(LENGTH.size):
        if all(EOS in row for row in rows):
            break
        for number, row in enumerate(rows):
            row.append(int(forced[number, place]) or int(log_probabilities(number, row).argmax()))
    assert [row.tolist() for row in found] == [row + [0] * (LENGTH.size - len(row)) for row in rows]


def test_a_model_that_loses_a_state_is_refused() -> None:
    def program(mesh: mtf.Mesh) -> Any:
        logits_fn, states = model(mesh, [BATCH, BEAM])
        ids = mtf.zeros(mesh, [BATCH, BEAM, LENGTH], tf.int32)

        def forgetful(step: Any, ids: Any, states: list[Any]) -> tuple[Any, list[Any]]:
            logits, after = logits_fn(step, ids, states)
            return logits, after[:1]

        return mtf.beam_search.beam_search(forgetful, ids, 0.6, states)

    with pytest.raises(GraphError, match="given 2 states, and returned 1"):
        evaluated(program)


def test_a_beam_of_another_name_is_refused() -> None:
    def program(mesh: mtf.Mesh) -> Any:
        logits_fn, states = model(mesh, [BATCH, BEAM])
        ids = mtf.zeros(mesh, [BATCH, mtf.Dimension("beams", 3), LENGTH], tf.int32)
        return mtf.beam_search.beam_search(logits_fn, ids, 0.6, states)

    with pytest.raises(ShapeError, match=r"beams:3.* \[batch, beam, length\]"):
        evaluated(program)
