"""Reports of other systems about data, evaluations, checkpoints and text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gin
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import meshtf as mtf
from meshtf.checkpoint.checkpoint_folder import CheckpointFolder
from meshtf.train.callbacks._held_out_metric import HeldOutMetric
from meshtf.train.data import (
    ArrayTask,
    ByteVocabulary,
    HuggingFaceVocabulary,
    LanguageModel,
    Pack,
    Pad,
    SpanCorruption,
    TextPairs,
    TextTask,
)
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.sources.document import Document

VOCABULARY = ByteVocabulary(extra_ids=100)


@dataclass(frozen=True)
class Texts:
    """A source of given texts."""

    contents: tuple[bytes, ...]

    def documents(self) -> Iterator[Document]:
        for number, content in enumerate(self.contents):
            yield Document(f"text {number}", content)


@pytest.fixture(autouse=True)
def _clear_gin() -> Iterator[None]:
    yield
    gin.clear_config()


def following(batches: Iterator[Any]) -> dict[str, np.ndarray]:
    """The features of the next batch."""
    return {name: np.asarray(value) for name, value in next(batches).items()}


def numbered(count: int) -> ArrayTask:
    """Examples that are their numbers."""
    features = {"x": np.arange(count, dtype=np.float32)}
    return ArrayTask("numbered", {"x": mtf.Shape([])}, train=features, held_out=features)


@pytest.mark.parametrize("seen", [3, 7, 11, 26])
def test_a_resumed_run_shuffles_as_it_would_have(seen: int) -> None:
    """pytorch/torchtitan#2864: each epoch shuffled what the last had shuffled, and a resumed run the data anew."""
    task = numbered(10)
    whole = task.training_batches(4, seed=5)
    for _ in range(seen):
        next(whole)
    position = whole.position
    expected = [following(whole)["x"].tolist() for _ in range(6)]
    resumed = task.training_batches(4, seed=5, position=position)
    assert [following(resumed)["x"].tolist() for _ in range(6)] == expected


def test_every_epoch_has_another_order_and_every_example_once() -> None:
    """lucidrains/DALLE-pytorch#230: the order was the same in every epoch, unless somebody told the sampler."""
    batches = numbered(10).training_batches(5, seed=0)
    epochs = [np.concatenate([following(batches)["x"] for _ in range(2)]) for _ in range(4)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    single = numbered(1).training_batches(3, seed=0)
    assert following(single)["x"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("count", [1, 5, 8, 9])
def test_no_held_out_example_counts_twice(count: int) -> None:
    """pytorch/pytorch#25162: the last batch was filled with the first examples, which then counted twice."""
    batches = list(numbered(count).evaluation_batches(4))
    weights = np.concatenate([b["weights"] for b in batches])
    found = np.concatenate([b["x"] for b in batches])[weights == 1]
    assert found.tolist() == list(range(count))
    assert set(weights) <= {0.0, 1.0}
    assert all(len(b["x"]) == 4 for b in batches)


def test_packing_loses_no_token() -> None:
    """huggingface/trl#4632: what stood behind the length of a row was thrown away."""
    texts = tuple(bytes([97 + i]) * n for i, n in enumerate([5, 2, 3, 1, 23, 8]))
    task = TextTask(Texts(texts), VOCABULARY, LanguageModel(), 8, Pack(), held_out=Texts((b"x",)))
    taken: dict[str, int] = {}
    batches, rows = task.training_batches(1, seed=0), task.num_training_examples
    for _ in range(rows):
        batch = following(batches)
        text = VOCABULARY.decode(batch["targets"][0])
        for letter in text:
            taken[letter] = taken.get(letter, 0) + 1
        is_text = batch["targets_segmentation"][0] > 0
        np.testing.assert_array_equal(is_text, np.arange(8) < is_text.sum())
    assert taken == {chr(97 + i): n for i, n in enumerate([5, 2, 3, 1, 23, 8])}


def test_a_text_that_is_cut_keeps_its_end_and_learns_it() -> None:
    """meta-pytorch/torchtune#2967: the end of a text that was cut was there, and had no part in the loss."""
    task = TextTask(
        Texts((b"abcdefgh\tuvwxyz", b"ab\tuv")),
        VOCABULARY,
        TextPairs(),
        {"inputs": 5, "targets": 4},
        Pad(),
        held_out=Texts((b"a\tb",)),
    )
    batches = task.training_batches(1, seed=0)
    rows = [following(batches) for _ in range(task.num_training_examples)]
    found = {VOCABULARY.decode(row["targets"][0]): row for row in rows}
    for text, row in found.items():
        end = row["targets"][0].tolist().index(VOCABULARY.end_id)
        assert end == len(text) <= 3
        np.testing.assert_array_equal(row["targets_weights"][0], np.arange(4) <= end)
    assert set(found) == {"uvw", "uv"}


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 20])
def test_short_texts_are_corrupted_as_t5_does_it_and_come_back(length: int) -> None:
    """google-research/text-to-text-transfer-transformer#905: a span always ends a text, which the docstring says."""
    text = np.arange(10, 10 + length, dtype=np.int32)
    for index in range(20):
        example = SpanCorruption().example([text], VOCABULARY, Uniforms(0, index))
        inputs, targets = example["inputs"].tolist(), example["targets"].tolist()
        assert inputs[-1] == targets[-1] == VOCABULARY.end_id
        spans, sentinel = {}, None
        for token in targets[:-1]:
            if token >= VOCABULARY.size - 100:
                sentinel, spans[token] = token, []
            else:
                spans[sentinel].append(token)
        back = [t for token in inputs[:-1] for t in spans.get(token, [token])]
        assert back == text.tolist()
        assert length < 2 or inputs[-2] in spans
    assert "a span last" in str(SpanCorruption.__doc__)


@pytest.mark.parametrize(("mode", "best"), [("min", 1.0), ("max", 3.0)])
def test_a_metric_that_is_no_number_is_never_the_best(mode: str, best: float) -> None:
    """Lightning-AI/pytorch-lightning#2636 and #1008: the first value was NaN, and nothing was better than it."""
    metric, found = HeldOutMetric("BestCheckpoint", "loss", mode), None
    for value in (math.nan, 3.0, math.nan, math.inf, 1.0, -math.inf, 2.0):
        evaluation: Any = SimpleNamespace(means={"loss": value})
        seen = metric.value(evaluation)
        if seen is not None and metric.is_better(seen, found):
            found = seen
    assert found == best


def test_the_newest_checkpoint_is_that_of_the_most_steps(tmp_path: Path) -> None:
    """strands-labs/robots#3165: names of different widths were ordered as text, and 100000 came before 20000."""
    for step in (99_999_999, 9, 100_000_000, 1_000_000_000, 20_000):
        (tmp_path / f"step_{step:08d}").mkdir()
    for name in ("step_1", "step_0100000000", "step_00000010.tmp", "last", "step_000000100"):
        (tmp_path / name).mkdir()
    assert CheckpointFolder(tmp_path).steps() == [9, 20_000, 99_999_999, 100_000_000, 1_000_000_000]


@pytest.mark.parametrize("text", ["ϕ ∀ 😀", " 123 fdsafsfa ~_! ./", "a\tb\r\n  c\u00a0", "\ufeffx\x00y"])
def test_bytes_give_the_text_back(text: str) -> None:
    """NVIDIA/Megatron-LM#4126, huggingface/tokenizers#830: characters in two tokens, and spaces, did not come back."""
    ids = VOCABULARY.encode(text)
    assert VOCABULARY.decode(ids) == text
    assert VOCABULARY.num_bytes(ids) == len(text.encode())


def test_a_macro_in_a_scope_is_the_scopes_own() -> None:
    """google/gin-config#87: a macro of a file that is read under a scope; here one value everywhere, or an error."""

    @gin.configurable(module="tests.reports")
    def thing(a: int = 0, b: int = 0) -> tuple[int, int]:
        return a, b

    gin.parse_config("SIZE = 3\nthing.a = %SIZE\nscope/thing.b = %SIZE  # with a '#' in a comment\n")
    with gin.config_scope("scope"):
        assert thing() == (3, 3)
    assert thing() == (3, 0)


def test_special_tokens_that_are_written_out_are_tokens_of_hugging_face_alone(tmp_path: Path) -> None:
    """huggingface/tokenizers#1850: "</s>" in a text that anybody may have written ends it; the docstring says so."""
    pieces = {token: number for number, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "</s>"])}
    tokenizer = tokenizers.Tokenizer(models.BPE(pieces, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = HuggingFaceVocabulary(str(tmp_path))
    assert vocabulary.encode("a</s>b")[1] == vocabulary.end_id
    assert VOCABULARY.end_id not in VOCABULARY.encode("a</s>b<extra_id_0>\x00\x01")
    assert max(VOCABULARY.encode("a</s>b<extra_id_0>")) < VOCABULARY.text_ids.stop
