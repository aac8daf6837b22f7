from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import SentencePieceVocabulary, Vocabulary


@pytest.fixture(scope="module")
def vocabulary(sentencepiece_model: Path) -> SentencePieceVocabulary:
    return SentencePieceVocabulary(str(sentencepiece_model), extra_ids=3)


@pytest.fixture(scope="module")
def model_with_other_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many published models: unknown is 0, the beginning 1, the end 2, and there is no padding."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat"] * 20), model_writer=model, vocab_size=15, minloglevel=2
    )
    path = tmp_path_factory.mktemp("other") / "other.model"
    path.write_bytes(model.getvalue())
    return path


@given(text=st.text(st.characters(exclude_characters="\u2581", exclude_categories=["Cs"])))
def test_text_comes_back(vocabulary: SentencePieceVocabulary, text: str) -> None:
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert vocabulary.num_bytes(ids) == len(text.encode())
    assert all(token in vocabulary.text_ids for token in ids)


def test_words_are_pieces(vocabulary: SentencePieceVocabulary) -> None:
    assert isinstance(vocabulary, Vocabulary)
    assert len(vocabulary.encode("def __init__(self, value):")) < 13
    assert vocabulary.size == 500 + 3


def test_ids_that_are_no_text(vocabulary: SentencePieceVocabulary) -> None:
    ids = [0, *vocabulary.encode("value"), 502, *vocabulary.encode(" + self"), 500, 1, 0]
    assert vocabulary.decode(ids) == "value<extra_id_0> + self<extra_id_2>"
    assert vocabulary.decode([503, *ids, 600, -1]) == vocabulary.decode(ids)  # of a model with more rows
    assert vocabulary.num_bytes(ids) == len("value + self")


def test_ids_of_another_model_make_room_for_padding_and_end(model_with_other_ids: Path) -> None:
    vocabulary = SentencePieceVocabulary(str(model_with_other_ids))
    own_ids = sentencepiece.SentencePieceProcessor(model_file=str(model_with_other_ids)).encode("the cat")
    assert vocabulary.encode("the cat") == [token + 2 for token in own_ids]
    assert vocabulary.size == 17
    assert vocabulary.decode([*vocabulary.encode("the cat"), 1, 0]) == "the cat"


def test_a_missing_file() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no SentencePiece model nowhere.model.*\n.*meshtf-vocab"):
        SentencePieceVocabulary("nowhere.model")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "text.model"
    path.write_text("text")
    with pytest.raises(ConfigurationError, match=r"text\.model is no SentencePiece model"):
        SentencePieceVocabulary(str(path))


def test_sentencepiece_that_is_not_installed(sentencepiece_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'meshtf\[text\]'"):
        SentencePieceVocabulary(str(sentencepiece_model))


def test_own_ids_of_another_model(model_with_other_ids: Path) -> None:
    vocabulary = SentencePieceVocabulary(str(model_with_other_ids), own_ids=True, add_begin=True, extra_ids=1)
    own_ids = sentencepiece.SentencePieceProcessor(model_file=str(model_with_other_ids)).encode("the cat")
    assert vocabulary.encode("the cat") == [1, *own_ids]
    assert (vocabulary.size, vocabulary.begin_id, vocabulary.end_id, vocabulary.padding_id) == (16, 1, 2, -1)
    assert vocabulary.decode([*vocabulary.encode("the cat"), 15, 2]) == "the cat<extra_id_0>"
    raised = SentencePieceVocabulary(str(model_with_other_ids), extra_ids=1)
    assert vocabulary.fingerprint != raised.fingerprint
    with pytest.raises(ConfigurationError, match=r"add_begin: .* no token that begins a text, or not its own ids"):
        SentencePieceVocabulary(str(model_with_other_ids), add_begin=True)


def test_words_keep_the_space_after_a_sentinel(model_with_other_ids: Path) -> None:
    """A model that puts a space before every text, as T5's, drops it when it decodes."""
    vocabulary = SentencePieceVocabulary(str(model_with_other_ids), own_ids=True, extra_ids=2)
    cat, mat = vocabulary.encode("the cat"), vocabulary.encode("the mat")
    assert vocabulary.decode([*cat, 16, *mat, 15, 2]) == "the cat<extra_id_0> the mat<extra_id_1>"
    assert vocabulary.decode([16, *mat, 15, *mat[1:]]) == "<extra_id_0> the mat<extra_id_1>the mat"
    assert vocabulary.decode([16, 15]) == "<extra_id_0><extra_id_1>"


@pytest.mark.parametrize(("own_ids", "begin", "end"), [(True, 1, 2), (False, 3, 1)])
def test_control_tokens_may_be_spelt_out_as_templates_of_chats_do(
    model_with_other_ids: Path, own_ids: bool, begin: int, end: int
) -> None:
    vocabulary = SentencePieceVocabulary(str(model_with_other_ids), own_ids=own_ids)
    cat, the = vocabulary.encode("cat"), vocabulary.encode("the")
    assert vocabulary.encode_with_special("<s>cat</s><s>the") == [begin, *cat, end, begin, *the]
    assert vocabulary.encode_with_special("the cat") == vocabulary.encode("the cat")
    assert vocabulary.encode("<s>cat")[0] != begin
