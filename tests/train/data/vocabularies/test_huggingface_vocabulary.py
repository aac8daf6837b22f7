from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import HuggingFaceVocabulary, MaskedLanguageModel, Vocabulary
from meshtf.train.data.objectives.uniforms import Uniforms

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


@pytest.fixture
def byte_pairs(tmp_path: Path) -> Path:
    """As GPT-2's: bytes and two merges, no padding, a file beside it that names the end."""
    pairs = {token: number for number, token in enumerate([*BYTES, "th", "the", "<|stop|>"])}
    tokenizer = tokenizers.Tokenizer(models.BPE(pairs, [("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|stop|>"])
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|stop|>"}}))
    return tmp_path


@pytest.fixture
def word_pieces(tmp_path: Path) -> Path:
    """As BERT's."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "a"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece({n: i for i, n in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(names[:5])
    tokenizer.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


@pytest.fixture
def unigram(tmp_path: Path) -> Path:
    """As T5's: sentinels are the last ids, downwards."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -1.0), ("\u2581sea", -2.0), ("s", -3.0)]
    sentinels = [("<extra_id_1>", 0.0), ("<extra_id_0>", 0.0)]
    tokenizer = tokenizers.Tokenizer(models.Unigram([*pieces, *sentinels], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_1>", "<extra_id_0>"])
    tokenizer.save(str(tmp_path / "unigram.json"))
    return tmp_path / "unigram.json"


@pytest.fixture
def byte_fallback(tmp_path: Path) -> Path:
    """As Llama 2's: bytes for characters that are no pieces, and sentinels, which it lacks."""
    names = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b"]
    pieces = {name: number for number, name in enumerate(names)}
    tokenizer = tokenizers.Tokenizer(models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_byte_pairs_keep_their_ids_and_any_text(byte_pairs: Path) -> None:
    vocabulary = HuggingFaceVocabulary(str(byte_pairs))
    assert isinstance(vocabulary, Vocabulary)
    assert (vocabulary.size, vocabulary.end_id, vocabulary.padding_id, vocabulary.mask_id) == (259, 258, -1, None)
    text = "the caf\u00e9, then the \U0001f30a"
    ids = vocabulary.encode(text)
    assert ids[0] == 257
    assert len(ids) > 2
    assert vocabulary.decode([*ids, 258]) == text
    assert vocabulary.num_bytes([*ids, 258]) == len(text.encode())


def test_word_pieces_begin_mask_and_end_as_the_file_says(word_pieces: Path) -> None:
    vocabulary = HuggingFaceVocabulary(str(word_pieces), add_begin=True)
    assert vocabulary.encode("playing a") == [2, 5, 6, 7]
    assert (vocabulary.begin_id, vocabulary.end_id, vocabulary.padding_id, vocabulary.mask_id) == (2, 3, 0, 4)
    assert vocabulary.decode([2, 5, 6, 7, 3, 0]) == "playing a"
    assert vocabulary.num_bytes([2, 5, 6, 7, 3]) == len(" playing a")
    assert vocabulary.num_bytes(vocabulary.encode("a zebra")) == len(" a[UNK]")
    assert HuggingFaceVocabulary(str(word_pieces)).encode("a") == [7]
    objective = MaskedLanguageModel(masked_share=0.99)
    objective.check([8], vocabulary)
    drawn = [objective.example([np.array([2, 5, 6, 7, 3], np.int32)], vocabulary, Uniforms(0, i)) for i in range(20)]
    assert any(4 in example["inputs"] for example in drawn)
    assert all(example["targets_weights"][[0, 4]].sum() == 0 for example in drawn)


def test_the_vocabulary_that_bert_came_with(tmp_path: Path) -> None:
    """A token a line, of which one is a character that Unicode takes for the end of a line; no tokenizer.json."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "a", "\u2028", "cafe", "\u6d77"]
    (tmp_path / "vocab.txt").write_text("\n".join(names) + "\n")
    vocabulary = HuggingFaceVocabulary(str(tmp_path), add_begin=True)
    assert (vocabulary.size, vocabulary.end_id, vocabulary.padding_id, vocabulary.mask_id) == (11, 3, 0, 4)
    assert vocabulary.encode("Playing a Caf\u00e9\u6d77\u6d77 [MASK]") == [2, 5, 6, 7, 9, 10, 10, 4]
    assert vocabulary.decode([2, 5, 6, 7, 3]) == "playing a"
    assert vocabulary.fingerprint == HuggingFaceVocabulary(str(tmp_path / "vocab.txt"), add_begin=True).fingerprint

    def of_plays(path: Path, **options: Any) -> list[int]:
        return HuggingFaceVocabulary(str(path), **options).encode("Play play")

    assert of_plays(tmp_path, lower_case=False) == [1, 5]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert of_plays(tmp_path) == [1, 5]
    assert of_plays(tmp_path, lower_case=True) == [5, 5]
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join([*names, "Play"]))
    assert of_plays(tmp_path) == [11, 5]
    with pytest.raises(ConfigurationError, match=r"lower_case is for a vocab\.txt; .*words\.json itself says"):
        HuggingFaceVocabulary(str(tmp_path / "words.json"), lower_case=True)
    (tmp_path / "vocab.txt").write_text("just\nwords\n")
    with pytest.raises(ConfigurationError, match=r"vocab\.txt is no tokenizer of the package tokenizers: "):
        HuggingFaceVocabulary(str(tmp_path))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, [[5], [5], [8, 9]]),
        ({"do_lower_case": True, "strip_accents": False}, [[4], [4], [8, 9]]),
        ({"do_lower_case": False, "strip_accents": True}, [[5], [7], [8, 9]]),
        ({"do_lower_case": False, "strip_accents": None}, [[4], [6], [8, 9]]),
        ({"tokenize_chinese_chars": False}, [[5], [5], [10]]),
    ],
)
def test_accents_and_chinese_characters_are_as_the_file_beside_word_pieces_says(
    said: dict[str, Any], expected: list[list[int]], tmp_path: Path
) -> None:
    """The ids are those of Transformers 5.24, which lower-cases where nothing is said."""
    names = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "f\u00fcr",
        "fur",
        "F\u00fcr",
        "Fur",
        "\u4e2d",
        "\u6587",
        "\u4e2d\u6587",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(names) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True} | said))
    vocabulary = HuggingFaceVocabulary(str(tmp_path))
    assert [vocabulary.encode(text) for text in ("f\u00fcr", "F\u00fcr", "\u4e2d\u6587")] == expected


def test_special_tokens_that_a_text_spells_out(byte_pairs: Path, tmp_path: Path) -> None:
    text = "the <|stop|> token"
    plain, escaped = (HuggingFaceVocabulary(str(byte_pairs), escape_special=given) for given in (False, True))
    assert plain.encode(text).count(258) == 1
    assert 258 not in escaped.encode(text)
    assert escaped.decode(escaped.encode(text)) == text
    assert escaped.num_bytes(escaped.encode(text)) == len(text)
    assert escaped.fingerprint != plain.fingerprint
    names = ["\ufeff[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "[", "]", "mask"]
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "vocab.txt").write_text("\r\n".join(names))
    escaped = HuggingFaceVocabulary(str(tmp_path / "words"), escape_special=True)
    assert (escaped.encode("a[MASK]"), escaped.padding_id) == ([5, 6, 8, 7], 0)


def test_a_chats_template_spells_out_special_tokens(byte_pairs: Path) -> None:
    """They become their ids whether documents may spell them out or not, also in a file with sentinels."""
    tokenizer = tokenizers.Tokenizer.from_file(str(byte_pairs / "tokenizer.json"))
    tokenizer.add_special_tokens(["<extra_id_0>"])
    tokenizer.save(str(byte_pairs / "tokenizer.json"))
    for escape_special in (False, True):
        vocabulary = HuggingFaceVocabulary(str(byte_pairs), escape_special=escape_special)
        assert (vocabulary.encode_with_special("the<|stop|>"), vocabulary.extra_ids) == ([257, 258], 1)
        assert (vocabulary.encode("the<|stop|>") == [257, 258]) == (not escape_special)


def test_sentinels_of_the_file(unigram: Path) -> None:
    vocabulary = HuggingFaceVocabulary(str(unigram))
    assert (vocabulary.size, vocabulary.extra_ids, vocabulary.mask_id) == (8, 2, 7)
    assert vocabulary.decode([4, 7, 4, 6, 1, 0]) == "sea<extra_id_0> sea<extra_id_1>"
    whole = tokenizers.Tokenizer.from_file(str(unigram)).decode([4, 7, 4, 6], skip_special_tokens=False)
    assert vocabulary.decode([4, 7, 4, 6]) == whole
    assert vocabulary.num_bytes([4, 7, 2, 1]) == len(" sea<unk>")
    with pytest.raises(ConfigurationError, match=r"has 2 sentinels of its own; leave out .*extra_ids = 3"):
        HuggingFaceVocabulary(str(unigram), extra_ids=3)


def test_sentinels_besides_the_file(byte_pairs: Path) -> None:
    vocabulary = HuggingFaceVocabulary(str(byte_pairs), extra_ids=2)
    assert (vocabulary.size, vocabulary.mask_id, vocabulary.text_ids) == (261, 260, range(259))
    assert vocabulary.decode([257, 260, 259]) == "the<extra_id_0><extra_id_1>"
    assert vocabulary.decode([261, 257, -1, 300]) == "the"  # of a model with more rows


def test_characters_of_byte_tokens_stay_whole_beside_a_part_of_one(byte_fallback: Path) -> None:
    """A stream decodes texts that end, and windows of them that begin, within a character."""
    vocabulary, text = HuggingFaceVocabulary(str(byte_fallback), extra_ids=1), "a \u4f60\n\u00e9\U0001f30ab"
    ids, whole = vocabulary.encode(text), text.encode()
    assert len(ids) == len(whole)
    whole_by_package = tokenizers.Tokenizer.from_file(str(byte_fallback / "tokenizer.json")).decode(ids)
    assert vocabulary.decode(ids) == whole_by_package
    for first in range(2, len(ids)):
        for end in range(first + 1, len(ids) + 1):
            part = whole[first:end].decode(errors="surrogateescape")
            wanted = "".join("\ufffd" if "\udc80" <= letter <= "\udcff" else letter for letter in part)
            assert vocabulary.decode(ids[first:end]) == wanted, "a replacement for each byte, as in SentencePiece"
            assert vocabulary.decode([vocabulary.size - 1, *ids[first:end]]) == f"<extra_id_0>{wanted}"


def test_tokens_that_were_added_count_their_own_bytes(byte_pairs: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(byte_pairs / "tokenizer.json"))
    tokenizer.add_tokens(["\u00e9t\u00e9", "\u2581"])
    tokenizer.save(str(byte_pairs / "tokenizer.json"))
    vocabulary = HuggingFaceVocabulary(str(byte_pairs))
    for text in ("the \u00e9t\u00e9", "\u2581the", "th\u00e9"):
        assert vocabulary.num_bytes(vocabulary.encode(text)) == len(text.encode()), text


def test_tokens_of_the_file_beside_are_added(byte_pairs: Path) -> None:
    """As Transformers does: a chat model's end of a turn may stand in tokenizer_config.json alone."""
    size = HuggingFaceVocabulary(str(byte_pairs)).size
    added = {str(size): {"content": "<|turn|>", "special": True, "lstrip": False, "rstrip": False}}
    said = {"eos_token": "<|turn|>", "added_tokens_decoder": added}
    (byte_pairs / "tokenizer_config.json").write_text(json.dumps(said))
    vocabulary = HuggingFaceVocabulary(str(byte_pairs))
    assert (vocabulary.end_id, vocabulary.size) == (size, size + 1)
    assert vocabulary.encode("the<|turn|>") == [257, size]
    said["added_tokens_decoder"] = {str(size + 5): added[str(size)]}
    (byte_pairs / "tokenizer_config.json").write_text(json.dumps(said))
    with pytest.raises(ConfigurationError, match=rf"'<\|turn\|>' is token {size + 5}, and tokenizer\.json has another"):
        HuggingFaceVocabulary(str(byte_pairs))
    del said["added_tokens_decoder"]
    (byte_pairs / "tokenizer_config.json").write_text(json.dumps(said))
    with pytest.raises(
        ConfigurationError, match=r"names '<\|turn\|>' as its eos_token, and the tokenizer has no such.*end_token"
    ):
        HuggingFaceVocabulary(str(byte_pairs))


def test_fingerprints_differ_where_ids_do(byte_pairs: Path, word_pieces: Path) -> None:
    made = [
        HuggingFaceVocabulary(str(byte_pairs)),
        HuggingFaceVocabulary(str(byte_pairs), end_token="the"),
        HuggingFaceVocabulary(str(word_pieces), end_token="[SEP]"),
        HuggingFaceVocabulary(str(word_pieces), end_token="[SEP]", add_begin=True),
    ]
    assert len({vocabulary.fingerprint for vocabulary in made}) == 4
    assert made[0].fingerprint == HuggingFaceVocabulary(str(byte_pairs / "tokenizer.json")).fingerprint


def test_what_the_file_lacks(byte_pairs: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no token '<\|stopp\|>', which .*end_token names.*<\|stop\|>"):
        HuggingFaceVocabulary(str(byte_pairs), end_token="<|stopp|>")
    with pytest.raises(ConfigurationError, match=r"no token that begins a text.*begin_token ="):
        HuggingFaceVocabulary(str(byte_pairs), add_begin=True)
    (byte_pairs / "tokenizer_config.json").unlink()
    with pytest.raises(ConfigurationError, match=r"does not say which token ends a text.*\n.*end_token"):
        HuggingFaceVocabulary(str(byte_pairs))


def test_files_that_are_none(tmp_path: Path, byte_pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no tokenizer nowhere; .*\n.*folder"):
        HuggingFaceVocabulary("nowhere")
    (tmp_path / "half.json").write_bytes((byte_pairs / "tokenizer.json").read_bytes()[:500])
    with pytest.raises(ConfigurationError, match=r"half\.json is no tokenizer of the package tokenizers: "):
        HuggingFaceVocabulary(str(tmp_path / "half.json"))
    with pytest.raises(ConfigurationError, match=r"extra_ids must be an integer, 0 or more, and is -1"):
        HuggingFaceVocabulary(str(byte_pairs), extra_ids=-1)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'meshtf\[tokenizers\]'"):
        HuggingFaceVocabulary(str(byte_pairs))
