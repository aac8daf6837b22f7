"""Which tokens a form allows next."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.byte_vocabulary import ByteVocabulary
from meshtf.train.data.vocabularies.huggingface_vocabulary import HuggingFaceVocabulary
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.decoding.forms.constraints import Constraint, ConstraintError, TokenRules, _Tokenizer, token_bytes
from tests.train.decoding.forms.endless import ENDLESS

BYTES = ByteVocabulary()


def allowed(kind: str, text: str, before: bytes = b"") -> bytes:
    rules = TokenRules(Constraint(kind, text), BYTES).begin()
    for byte in before:
        rules.add(2 + byte)
    found = np.flatnonzero(rules.allowed())
    return bytes(0 if token == BYTES.end_id else token - 2 for token in found)


def test_the_tokens_that_may_come_next() -> None:
    assert allowed("regex", "ab+c?") == b"a"
    assert allowed("regex", "ab+c?", b"ab") == b"\0bc"  # 0 stands for the end
    assert allowed("regex", "ab+c?", b"abc") == b"\0"
    assert allowed("grammar", 'start: "yes" | "no"') == b"ny"
    assert b"{" in allowed("json_schema", '{"type": "object"}')


def test_characters_of_several_bytes() -> None:
    assert allowed("regex", "[éè]") == b"\xc3"
    assert allowed("regex", "[éè]", b"\xc3") == bytes([0xA8, 0xA9])


def test_texts_of_a_form_have_no_begin_token() -> None:
    class Beginning(ByteVocabulary):
        begin_id = 7

        def encode(self, text: str) -> list[int]:
            return [7, *super().encode(text)]

    assert _Tokenizer(Beginning())("ab") == _Tokenizer(Beginning())(b"ab") == BYTES.encode("ab")


def test_special_tokens_are_ends_or_do_not_come(tmp_path: Path) -> None:
    """A string of JSON may hold every text, and neither the other end of a model's texts nor a token of chats."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(sorted(letters))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = HuggingFaceVocabulary(str(tmp_path), end_token="<|im_end|>")
    special = [256, 257, 258]
    assert vocabulary.decode(special[:2]) == "<|endoftext|><|im_start|>"
    text = TokenRules(Constraint("json_schema", '{"type": "string"}'), vocabulary).begin(stop_ids=(256, 258))
    (quote,) = vocabulary.encode('"')
    for expected in ([False, False, False], [False, False, False], [True, False, True]):
        found = text.allowed()
        assert found[special].tolist() == expected
        if found[quote]:
            text.add(quote)


class Pieces:
    """A vocabulary of padding, the end, "a", "b" and a byte that is no character by itself."""

    size, text_ids, end_id, begin_id = 5, range(2, 5), 1, None

    def encode(self, text: str) -> list[int]:
        return [2 + "ab".index(letter) for letter in text if letter in "ab"]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(("", "", "a", "b", "\N{REPLACEMENT CHARACTER}")[i] for i in ids)


def test_a_form_that_the_vocabulary_cannot_write_is_an_error() -> None:
    pieces = cast("Vocabulary", Pieces())
    assert token_bytes(pieces) == [b"", b"", b"a", b"b", b""]
    rules = TokenRules(Constraint("regex", "a(b|c)é"), pieces).begin()
    for token in (2, 3):
        assert np.flatnonzero(rules.allowed()).tolist() == [token]
        rules.add(token)
    message = r"^Decoding\.regex cannot be used: no token of the vocabulary continues 'ab' in this form"
    with pytest.raises(ConstraintError, match=message):
        rules.allowed()


def test_a_token_that_is_not_allowed_is_an_error_and_so_is_all_behind_it() -> None:
    rules = TokenRules(Constraint("regex", "ab"), BYTES).begin()
    message = r"^Decoding\.regex cannot be used: Parser Error: token .* fails parse$"
    for call in (lambda: rules.add(2 + ord("b")), rules.allowed):
        with pytest.raises(ConstraintError, match=message):
            call()


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("regex", "[z-a]", "invalid character class range"),
        ("grammar", "start: foo", 'unknown name: "foo"'),
        ("json_schema", '{"type": "objekt"}', "Invalid type: objekt"),
        ("json_schema", '{"type": }', "json_schema cannot be used: it is not JSON: Expecting value: line 1 column 10 "),
        ("json_schema", "", "json_schema cannot be used: it is not JSON: Expecting value: line 1 column 1 "),
        ("json_schema", "[" * 10_000, "Decoding.json_schema cannot be used: "),
    ],
)
def test_a_wrong_form_is_an_error(kind: str, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        TokenRules(Constraint(kind, text), BYTES)
    assert message in str(raised.value)


def test_without_the_library_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'meshtf\[constrained\]'"):
        TokenRules(Constraint("regex", "a"), BYTES)


def test_a_form_that_never_ends_is_refused() -> None:
    """The compiler has no limit for it, and nothing ends it but the end of its process."""
    with pytest.raises(ConstraintError, match=r"json_schema cannot be used: it takes longer than 1 s to compile; give"):
        TokenRules(ENDLESS, BYTES, seconds=1.0)


def test_a_process_that_the_system_ends_compiles_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one that needs more memory than there is."""
    program = tmp_path / "ends.py"
    program.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr("meshtf.train.decoding.forms.trial._PROGRAM", program)
    with pytest.raises(ConstraintError, match="the process that compiled it was ended by the system; give a smaller"):
        TokenRules(Constraint("regex", "a"), BYTES)
