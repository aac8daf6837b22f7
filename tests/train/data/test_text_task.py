"""Text from source to batches."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import (
    ByteVocabulary,
    Concatenate,
    LanguageModel,
    MaskedLanguageModel,
    Pack,
    Pad,
    PrefixLanguageModel,
    SentencePieceVocabulary,
    SpanCorruption,
    TextFiles,
    TextPairs,
    TextTask,
)
from meshtf.train.data.arrangement import Arrangement
from meshtf.train.data.objectives.objective import Objective
from meshtf.train.data.sources.document import Source
from meshtf.train.task import WEIGHTS, Batch, Batches, Position, Task, TaskByRows
from tests.fresh_process import run_fresh
from tests.house.sharpest import sharpest

VOCABULARY = ByteVocabulary(extra_ids=4)
SPANS = {"inputs": 24, "targets": 10}
OBJECTIVES = [
    (LanguageModel(), Concatenate(), 24),
    (LanguageModel(), Concatenate(separate_documents=True), 24),
    (PrefixLanguageModel(), Pack(), 24),
    (SpanCorruption(), Concatenate(), SPANS),
    (SpanCorruption(), Pack(), SPANS),
    (MaskedLanguageModel(), Pad(), 24),
]

DIGESTS = """
import sys
from meshtf.train.data import TextFiles
sys.path.insert(0, "")
from test_text_task import digests
print(*digests(TextFiles(sys.argv[1], "line")))
"""


def task_of(source: Source, objective: Objective, arrangement: Arrangement, length: int | dict[str, int]) -> TextTask:
    return TextTask(source, VOCABULARY, objective, length, arrangement, held_out=0.3)


def taken(batches: Batches, count: int) -> list[dict[str, np.ndarray]]:
    return [{name: np.asarray(value) for name, value in batch.items()} for batch in itertools.islice(batches, count)]


def assert_same(actual: list[dict[str, np.ndarray]], expected: list[dict[str, np.ndarray]]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def digests(source: Source) -> list[str]:
    """A digest of the first training batches and of the evaluation, for each objective."""
    results = []
    for objective, arrangement, length in OBJECTIVES:
        task = task_of(source, objective, arrangement, length)
        total = hashlib.sha256()
        for batch in [*taken(task.training_batches(5, seed=3), 4), *task.evaluation_batches(5)]:
            for name in sorted(batch):
                total.update(name.encode() + np.ascontiguousarray(batch[name]).tobytes())
        results.append(total.hexdigest()[:16])
    return results


@pytest.mark.parametrize(("objective", "arrangement", "length"), OBJECTIVES)
def test_batches_are_what_inputs_promises(
    many_texts: Source, objective: Objective, arrangement: Arrangement, length: int | dict[str, int]
) -> None:
    task = task_of(many_texts, objective, arrangement, length)
    assert isinstance(task, Task)
    inputs = task.inputs(mtf.Dimension("batch", 5))
    (training,) = taken(task.training_batches(5, seed=0), 1)
    evaluation = next(iter(task.evaluation_batches(5)))
    assert evaluation.pop(WEIGHTS).tolist() == [1.0] * 5
    for batch in (training, evaluation):
        assert {name: (array.shape, array.dtype) for name, array in batch.items()} == {
            name: (tuple(spec.shape.to_integer_list), spec.dtype.as_numpy_dtype) for name, spec in inputs.items()
        }


@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_resumed_anywhere_it_is_the_same_run(many_texts: Source, data: st.DataObject) -> None:
    """Epochs here have 15 to 60 examples, so that the 30 batches run over the ends of several."""
    objective, arrangement, length = data.draw(st.sampled_from(OBJECTIVES))
    task = task_of(many_texts, objective, arrangement, length)
    whole = task.training_batches(7, seed=1)
    before = data.draw(st.integers(0, 29))
    expected = taken(whole, before)
    position: Position = json.loads(json.dumps(whole.position))
    expected = taken(whole, 30 - before)
    again = task_of(many_texts, objective, arrangement, length)  # as in another process
    assert_same(taken(again.training_batches(7, seed=1, position=position), 30 - before), expected)


@pytest.mark.parametrize(("objective", "arrangement", "length"), sharpest(OBJECTIVES, OBJECTIVES[3::2]))
def test_rows_that_processes_make_are_those_of_whole_batches(
    many_texts: Source,
    objective: Objective,
    arrangement: Arrangement,
    length: int | dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For 1, 2 and 4 processes, what is random in a row among it; no row is made that is another process's."""
    whole = task_of(many_texts, objective, arrangement, length)
    assert isinstance(whole, TaskByRows)
    expected = taken(whole.training_batches(8, seed=2), 5)
    held_out = list(whole.evaluation_batches(8))
    made: list[tuple[TextTask, int]] = []
    features_of = TextTask._features

    def noted(task: TextTask, text: Any, rows: Any, indices: np.ndarray, *others: Any) -> dict[str, np.ndarray]:
        made.append((task, len(indices)))
        return features_of(task, text, rows, indices, *others)

    monkeypatch.setattr(TextTask, "_features", noted)
    for num_processes in (1, 2, 4):
        each = 8 // num_processes
        task = task_of(many_texts, objective, arrangement, length)
        for process in range(num_processes):
            rows = slice(process * each, (process + 1) * each)
            assert_same(taken(task.training_rows(rows, 8, seed=2), 5), [only(rows, batch) for batch in expected])
        assert {count for of, count in list(made) if of is task} == {each}
        for process in range(num_processes):
            rows = slice(process * each, (process + 1) * each)
            parts = [{**only(rows, batch), WEIGHTS: batch[WEIGHTS]} for batch in held_out]
            assert_same(list(task.evaluation_rows(rows, 8)), parts)
        assert max(count for of, count in made if of is task) == each


def only(rows: slice, batch: Batch) -> Batch:
    """A batch with zeros in the other rows."""
    kept = {name: np.zeros_like(x) for name, x in batch.items()}
    for name, x in batch.items():
        kept[name][rows] = x[rows]
    return kept


def test_a_far_position_is_reached_at_once(many_texts: Source) -> None:
    task = task_of(many_texts, *OBJECTIVES[0])
    start = task.training_batches(8, seed=0).position
    far = task.training_batches(8, seed=0, position={**start, "examples_taken": 10**12})
    assert len(taken(far, 2)) == 2
    assert far.position["examples_taken"] == 10**12 + 16


def test_every_epoch_has_every_row_once(many_texts: Source) -> None:
    task = task_of(many_texts, *OBJECTIVES[0])
    num_rows = task.training_batches(1, seed=0).position["num_examples"]
    rows = [batch["targets"].tobytes() for batch in taken(task.training_batches(1, seed=0), 2 * num_rows)]
    assert len(set(rows)) == num_rows
    assert sorted(rows[:num_rows]) == sorted(rows[num_rows:])
    assert rows[:num_rows] != rows[num_rows:]


def test_noise_differs_between_epochs(texts: type) -> None:
    task = TextTask(texts((b"a text of some length",)), VOCABULARY, MaskedLanguageModel(), 32, held_out=texts((b"b",)))
    first, second = taken(task.training_batches(1, seed=0), 2)
    np.testing.assert_array_equal(first["targets"], second["targets"])
    assert (first["targets_weights"] != second["targets_weights"]).any()


def test_another_process_gets_the_same_batches(tmp_path: Path, many_texts: Source) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\n".join(document.content for document in many_texts.documents()))
    done = run_fresh(["-c", DIGESTS, str(path)], Path(__file__).parent)
    assert done.stdout.split() == digests(TextFiles(str(path), "line")), done.stderr


def weighted_targets(batches: list[Batch]) -> list[int]:
    """The targets that count, without ends, of the rows that are no padding."""
    return sorted(
        int(token)
        for batch in batches
        for row, weight in enumerate(np.asarray(batch[WEIGHTS]))
        if weight
        for token in np.asarray(batch["targets"])[row][np.asarray(batch["targets_weights"])[row] == 1]
        if token in VOCABULARY.text_ids
    )


COUNTED = [(arrangement, 7) for arrangement in (Concatenate(), Concatenate(separate_documents=True), Pack(), Pad())]


@pytest.mark.parametrize(
    ("arrangement", "batch_size"),
    sharpest([(x, n) for x, _ in COUNTED for n in (1, 7, 1000)], [*COUNTED, (Pack(), 1), (Concatenate(), 1000)]),
)
def test_evaluation_counts_each_example_once(many_texts: Source, arrangement: Arrangement, batch_size: int) -> None:
    task = task_of(many_texts, LanguageModel(), arrangement, 16)
    train = task_of(many_texts, LanguageModel(), Pad(), 100)
    trained = taken(train.training_batches(1, seed=0), train.training_batches(1, seed=0).position["num_examples"])
    batches = list(task.evaluation_batches(batch_size))
    everything = sorted(byte + 2 for document in many_texts.documents() for byte in document.content)
    in_training = [int(token) for batch in trained for token in batch["targets"].ravel() if token > 1]
    assert sorted(weighted_targets(batches) + in_training) == everything
    assert {batch["targets"].shape for batch in batches} == {(batch_size, 16)}
    assert sum(task.num_bytes(batch) for batch in batches) == len(weighted_targets(batches))
    for batch in batches:
        assert not batch["targets_weights"][batch[WEIGHTS] == 0].any()


def test_a_limited_evaluation_takes_the_first_examples(many_texts: Source) -> None:
    whole = TextTask(many_texts, VOCABULARY, SpanCorruption(), SPANS)
    limited = TextTask(many_texts, VOCABULARY, SpanCorruption(), SPANS, num_evaluation_examples=3)
    expected = next(whole.evaluation_batches(3))
    first, second = limited.evaluation_batches(2)
    assert first[WEIGHTS].tolist() + second[WEIGHTS].tolist() == [1, 1, 1, 0]
    np.testing.assert_array_equal(np.concatenate([first["inputs"], second["inputs"]])[:3], expected["inputs"])


def test_segments_are_documents(texts: type) -> None:
    source, held_out = texts((b"ab", b"c")), texts((b"d",))
    separate = TextTask(source, VOCABULARY, LanguageModel(), 8, Concatenate(separate_documents=True), held_out)
    (batch,) = taken(separate.training_batches(1, seed=0), 1)
    assert {name: array[0].tolist() for name, array in batch.items()} == {
        "targets": [99, 100, 1, 101, 1, 0, 0, 0],
        "targets_weights": [1, 1, 1, 1, 1, 0, 0, 0],
        "targets_segmentation": [1, 1, 1, 2, 2, 0, 0, 0],
        "targets_position": [0, 1, 2, 0, 1, 0, 0, 0],
    }
    together = TextTask(source, VOCABULARY, LanguageModel(), 8, held_out=held_out)
    (batch,) = taken(together.training_batches(1, seed=0), 1)
    assert batch["targets_segmentation"][0].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    assert batch["targets_position"][0].tolist() == [0, 1, 2, 3, 4, 0, 0, 0]


def test_pairs_packed_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes(b"ab\tc\n\td\nefgh\ti\n")
    source = TextFiles(str(tmp_path / "pairs.tsv"), "line")
    task = TextTask(source, VOCABULARY, TextPairs(), {"targets": 6, "inputs": 4}, Pack(), held_out=source)
    (batch,) = task.evaluation_batches(2)
    assert batch["inputs"].tolist() == [[99, 100, 1, 1], [103, 104, 105, 1]]
    assert batch["inputs_segmentation"].tolist() == [[1, 1, 1, 2], [1, 1, 1, 1]]
    assert batch["targets"].tolist() == [[101, 1, 102, 1, 0, 0], [107, 1, 0, 0, 0, 0]]
    assert batch["targets_segmentation"].tolist() == [[1, 1, 2, 2, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert task.num_bytes(batch) == 3
    assert task.tokens_per_example == 10
    assert str(task).endswith("; 2 documents cut")


def test_what_it_says_of_itself(many_texts: Source, texts: type) -> None:
    source = texts((*many_texts.contents, b"\xff"))
    task = TextTask(source, VOCABULARY, LanguageModel(), 24, held_out=0.3, skip_undecodable=True)
    assert task.name.startswith("LanguageModel on Texts(")
    assert str(task).startswith(task.name + ": ")
    assert "tokens in" in str(task)
    assert str(task).endswith("; 1 document left out, not in UTF-8")


def test_pieces_of_words(many_texts: Source, sentencepiece_model: Path) -> None:
    vocabulary = SentencePieceVocabulary(str(sentencepiece_model))
    task = TextTask(many_texts, vocabulary, LanguageModel(), 16, held_out=0.3)
    held_out = sum(task.num_bytes(batch) for batch in task.evaluation_batches(4))
    assert held_out == sum(len(vocabulary.decode(b["targets"].ravel()).encode()) for b in task.evaluation_batches(4))


def test_from_gin() -> None:
    gin.parse_config("""
        import meshtf.train.data
        TextTask.source = @python_library()
        TextTask.vocabulary = @ByteVocabulary()
        TextTask.objective = @SpanCorruption()
        TextTask.arrangement = @Pack()
        TextTask.length = {"inputs": 512, "targets": 114}
        ByteVocabulary.extra_ids = 100
    """)
    task = TextTask()  # type: ignore[call-arg]  # gin fills in the arguments
    assert task.sizes == {"inputs": 512, "targets": 114}
    assert task.arrangement == Pack()
    assert task.vocabulary.size == 358


def test_a_position_in_other_data(many_texts: Source) -> None:
    task = task_of(many_texts, *OBJECTIVES[0])
    position = task.training_batches(4, seed=0).position
    with pytest.raises(ConfigurationError, match=r"the saved position is a place in 1,000 examples, and the data have"):
        task.training_batches(4, seed=0, position={**position, "num_examples": 1000})
    bad: list[Any] = [
        {"step": 3},
        "x",
        [1],
        7,
        {**position, "examples_taken": 2**63},
        {**position, "examples_taken": -1},
    ]
    for other in bad:
        with pytest.raises(ConfigurationError, match=rf"{re.escape(str(other))} is no position in the data"):
            task.training_batches(4, seed=0, position=other)


BAD_VALUES = [
    ({"source": TextFiles}, r"TextTask.source is no source: .*in gin @Name\(\) makes one"),
    ({"objective": "lm"}, r"TextTask.objective is no objective: 'lm'; in gin @Name\(\) makes one"),
    ({"source": ByteVocabulary()}, r"TextTask.source is no source: ByteVocabulary.*\); in gin @Name\(\) makes one"),
    ({"length": 0}, r"TextTask.length of inputs must be an integer, 1 or more, and is 0"),
    (
        {"length": {"input": 5}},
        r"names 'input', and the objective's sequences are inputs, targets; did you mean \"inpu",
    ),
    ({"length": {"inputs": 5}}, r"TextTask.length gives no length for targets"),
    ({"held_out": 5}, r"TextTask.held_out must be a share of the documents, in \(0, 1\), or a source, and is 5"),
    ({"num_evaluation_examples": 0}, r"num_evaluation_examples must be 1 or more, and is 0"),
    ({"vocabulary": ByteVocabulary()}, r"the vocabulary has 0"),
    ({"objective": TextPairs()}, r"Concatenate joins all documents"),
]


@pytest.mark.parametrize(("values", "message"), BAD_VALUES)
def test_values_that_cannot_be(many_texts: Source, values: dict[str, object], message: str) -> None:
    good = {"source": many_texts, "vocabulary": VOCABULARY, "objective": SpanCorruption(), "length": 16}
    TextTask(**good)
    with pytest.raises(ConfigurationError, match=message):
        TextTask(**{**good, **values})
