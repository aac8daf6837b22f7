"""Requests as the engine gets them."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from tokenizers import models, pre_tokenizers

from meshtf.serving.http.chat_template import ChatTemplate
from meshtf.serving.http.reading.requests import chat_request, completion_request
from meshtf.serving.http.served_model import ServedModel
from meshtf.train.data import HuggingFaceVocabulary, SentencePieceVocabulary
from meshtf.train.decoding.stops import Stops
from tests.serving.echo_engine import EchoEngine

BEGIN, END, HI = range(3)


@pytest.fixture
def vocabulary(tmp_path: Path) -> HuggingFaceVocabulary:
    words = {"<s>": BEGIN, "</s>": END, "hi": HI}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, unk_token="hi"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return HuggingFaceVocabulary(str(tmp_path))


@pytest.mark.parametrize(
    ("start_id", "expected"), [(BEGIN, (HI,)), (None, (BEGIN, HI))], ids=["by the engine", "by the template alone"]
)
def test_a_chat_begins_once(vocabulary: HuggingFaceVocabulary, start_id: int | None, expected: tuple[int, ...]) -> None:
    """The template of Llama 3 spells out the begin token, which the engine also puts before every prompt."""
    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}", {"bos_token": "<s>"})
    model = ServedModel("tiny", EchoEngine(), vocabulary, Stops((END,)), template, start_id=start_id)
    said = chat_request({"messages": [{"role": "user", "content": "hi"}]}, model)
    assert said.prompts[0].ids == expected


def test_a_chat_has_special_tokens_where_documents_escape_them(vocabulary: HuggingFaceVocabulary) -> None:
    """Also if the tokenizer has sentinels, and without its file, which is read once."""
    path = Path(vocabulary.path) / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(["<extra_id_0>"])
    tokenizer.save(str(path))
    escaping = HuggingFaceVocabulary(vocabulary.path, escape_special=True)
    path.unlink()
    model = ServedModel("tiny", EchoEngine(), escaping, Stops(()), ChatTemplate("{{ messages[0].content }}</s>"))
    for _ in range(2):
        assert chat_request({"messages": [{"role": "user", "content": "hi"}]}, model).prompts[0].ids == (HI, END)


def test_a_chat_whose_tokens_are_pieces_has_the_ids_of_special_tokens(tmp_path: Path) -> None:
    with (tmp_path / "a.model").open("wb") as model_file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["hi there"] * 20), model_writer=model_file, vocab_size=10, minloglevel=2
        )
    vocabulary = SentencePieceVocabulary(str(tmp_path / "a.model"))
    template = ChatTemplate("{{ messages[0].content }}{{ eos_token }}", {"eos_token": "</s>"})
    model = ServedModel("tiny", EchoEngine(), vocabulary, Stops(()), template)
    said = chat_request({"messages": [{"role": "user", "content": "hi"}]}, model)
    assert said.prompts[0].ids == (*vocabulary.encode("hi"), vocabulary.end_id)


def test_the_vocabularys_end_ends_a_form(vocabulary: HuggingFaceVocabulary) -> None:
    model = ServedModel("tiny", EchoEngine(), vocabulary, Stops((HI,)))
    forms = [{"type": "json_object"}, None]
    ends = [completion_request({"prompt": "hi", "response_format": form}, model).options.stop_ids for form in forms]
    assert ends == [(HI, END), (HI,)]
