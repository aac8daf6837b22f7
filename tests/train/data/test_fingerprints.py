"""Data are known again by their content and order, whatever they are read from."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from meshtf.train.data import (
    ArrayTask,
    ByteVocabulary,
    JsonLines,
    LanguageModel,
    Mixture,
    Pack,
    ParquetFiles,
    TextFiles,
    TextPairs,
    TextTask,
)
from meshtf.train.data.fingerprints import checksum, counts_checksum, differences, fingerprint_of, in_changed_data
from meshtf.train.data.sources.document import Document, Source
from meshtf.train.task import TaskOfKnownData
from tests.train.conftest import NUM_TRAIN, tiny_features, tiny_task

LINES = [f"{number} {'x' * (number % 7)}\t{number}" for number in range(40)]
TRAIN = "text to train on"


@dataclasses.dataclass(frozen=True)
class Lines:
    """A source of lines in memory, as of a data set by name."""

    lines: tuple[str, ...]

    def documents(self) -> Iterator[Document]:
        for number, line in enumerate(self.lines):
            yield Document(f"line {number}", line.encode())


def task_of(source: Source, **changes: object) -> TextTask:
    values = {"length": 64, "arrangement": Pack(), "held_out": Lines(("held", "out")), **changes}
    return TextTask(source, ByteVocabulary(), LanguageModel(), **values)  # type: ignore[arg-type]


def sources_of(folder: Path, lines: list[str]) -> dict[str, Source]:
    """The same documents, in their order, from several sources."""
    folder.mkdir()
    (folder / "a.txt").write_text("\n".join(lines))
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    pyarrow.parquet.write_table(pyarrow.table({"text": lines}), folder / "c")
    return {
        "text": TextFiles(str(folder / "a.txt"), "line"),
        "JSON": JsonLines(str(folder / "b.jsonl")),
        "Parquet": ParquetFiles(str(folder / "c")),
        "memory": Lines(tuple(lines)),
    }


def test_documents_are_known_again_whatever_the_source_is(tmp_path: Path) -> None:
    as_it_was = sources_of(tmp_path / "one", LINES)
    reordered = sources_of(tmp_path / "two", LINES[::-1])
    changed = sources_of(tmp_path / "three", [LINES[0], LINES[1].replace("1", "7"), *LINES[2:]])
    first = task_of(as_it_was["text"])
    assert isinstance(first, TaskOfKnownData)
    then = json.loads(json.dumps(first.fingerprint()))  # as a checkpoint keeps it
    for kind, source in as_it_was.items():
        assert differences(then, task_of(source).fingerprint()) == []
        train, rows = differences(then, task_of(reordered[kind]).fingerprint())
        assert train == f"{TRAIN} ({reordered[kind]}): the same tokens in another order"
        assert rows.startswith("rows to train on: ")
        (train,) = differences(then, task_of(changed[kind]).fingerprint())
        assert train == f"{TRAIN} ({changed[kind]}): as many as then, with other contents"


def test_a_folder_of_tokens_is_the_text_in_memory(tmp_path: Path) -> None:
    """Also with two texts to a document, of two bytes an id and of four."""
    for extra in (0, 70_000):
        for objective in (LanguageModel(), TextPairs()):
            folder = tmp_path / f"{extra}{type(objective).__name__}"
            vocabulary = ByteVocabulary(extra_ids=extra)
            sizes = 64 if isinstance(objective, LanguageModel) else {"inputs": 32, "targets": 32}
            made = [
                TextTask(Lines(tuple(lines)), vocabulary, objective, sizes, Pack(), 0.3, tokens=tokens)
                for lines in (LINES, LINES[::-1])
                for tokens in (None, str(folder / str(lines[0][0])))
            ]
            here, kept, other, other_kept = (task.fingerprint() for task in made)
            assert differences(here, kept) == differences(kept, here) == []
            (line,) = (line for line in differences(kept, other) if line.startswith(TRAIN))
            assert line.endswith("as many as then, with other contents, or in another order")
            assert differences(here, other_kept)
            assert differences(other, other_kept) == []


def test_what_has_changed_is_told(tmp_path: Path) -> None:
    then = task_of(Lines(tuple(LINES))).fingerprint()
    more = differences(then, task_of(Lines((*LINES, "one"))).fingerprint())
    size = sum(map(len, LINES))
    assert more[0].endswith(
        f": 40 documents then, 41 now; {size} bytes then, {size + 3} now; {size + 40} tokens then, {size + 44} now"
    )
    (line,) = differences(then, task_of(Lines(tuple(LINES)), held_out=Lines(("out", "held"))).fingerprint())
    assert line.startswith("held-out text (Lines(")
    assert line.endswith("the same tokens in another order")
    (line,) = differences(then, task_of(Lines(tuple(LINES)), length=32).fingerprint())
    assert line.startswith("rows to train on: ")
    assert " rows then, " in line


def test_what_a_checkpoint_may_hold() -> None:
    now = tiny_task().fingerprint()
    assert differences(None, now) == differences("x", now) == differences(now, None) == []
    assert differences({}, now) == ["examples to train on: not there then", "held-out examples: not there then"]
    assert differences({**now, "more": {}}, now) == ["more: not there any more"]
    strange = {part: {"examples": "many", "contents": 3} for part in now}
    assert differences(strange, now)[0] == f"examples to train on: {NUM_TRAIN} examples now"
    assert differences(dict.fromkeys(now, "x"), now)[0] == "examples to train on: not there then"


def test_arrays_and_mixtures() -> None:
    one, features = tiny_task(), tiny_features(NUM_TRAIN, 0)

    def with_train(changed: dict[str, np.ndarray]) -> ArrayTask:
        return dataclasses.replace(one, train=changed)

    turned = with_train({name: array[::-1] for name, array in features.items()})
    assert differences(one.fingerprint(), tiny_task().fingerprint()) == []
    told = "examples to train on: as many as then, with other contents, or in another order"
    assert differences(one.fingerprint(), turned.fingerprint()) == [told]
    for name in features:
        nudged = {**features, name: features[name].copy()}
        nudged[name].flat[-1] += 1
        assert differences(one.fingerprint(), with_train(nudged).fingerprint()) == [told]
    both = [Mixture([one, task], names=["a", "b"], rates=[1, 1]) for task in (one, turned)]
    assert differences(both[0].fingerprint(), both[1].fingerprint()) == [f"b: {told}"]
    assert in_changed_data({"examples_taken": 3, "num_examples": 1}, both[0])["num_examples"] == 2 * NUM_TRAIN
    assert fingerprint_of(one) == one.fingerprint()


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ({"rates": [3, 1]}, {"rates": [6, 2]}, []),
        (
            {"rates": [3, 1]},
            {"rates": [1, 1]},
            ["(Mixture.rates)", "a 74.9985% then, 50.0000% now", "b 25.0015% then"],
        ),
        ({}, {"temperature": 2.0}, ["Mixture.temperature and largest_size", "b 79.9988% then, 66.6656% now"]),
        ({"largest_size": NUM_TRAIN}, {}, ["b 50.0000% then, 79.9988% now"]),
        ({"rates": [1, 1]}, {"rates": [1, 1 + 2**-14]}, ["a 50.0000% then, 49.9985% now"]),
    ],
)
def test_the_order_of_a_mixture(then: dict[str, object], now: dict[str, object], told: list[str]) -> None:
    one = tiny_task()
    many = dataclasses.replace(one, train=tiny_features(4 * NUM_TRAIN, 0))
    before = json.loads(json.dumps(Mixture([one, many], names=["a", "b"], **then).fingerprint()))  # type: ignore[arg-type]
    after = Mixture([one, many], names=["a", "b"], **now).fingerprint()  # type: ignore[arg-type]
    lines = differences(before, after)
    assert len(lines) == bool(told)
    for words in told:
        assert lines[0].startswith("order of the tasks (Mixture.")
        assert words in lines[0]
    # A checkpoint of an earlier version has no shares.
    assert differences({part: facts for part, facts in before.items() if part != "order of the tasks"}, after) == []


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "bool"])
def test_checksums(dtype: str) -> None:
    array = np.arange(60).reshape([3, 20]).astype(dtype)
    assert checksum([array, array[:0]]) == f"{zlib.crc32(array.tobytes()):08x} 00000000"
    assert checksum([array[:, ::2]]) == f"{zlib.crc32(array[:, ::2].tobytes()):08x}"


def test_counts_know_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, 300, 1000).astype(np.uint16)
    whole = counts_checksum([ids])
    monkeypatch.setattr("meshtf.train.data.fingerprints._PIECE", 7)
    assert counts_checksum([ids]) == counts_checksum([ids[::-1]]) == whole
    assert counts_checksum([ids[1:]]) != whole
    assert counts_checksum([ids[:0]])
