"""The tokens of a file of Hugging Face's `tokenizers`: BPE, WordPiece, Unigram."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin
import numpy as np

from meshtf.errors import nearest
from meshtf.files.regular_file import read_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import sentinel_text
from meshtf_programs.strict_json import json_text
from meshtf_programs.user_paths import user_path

TOKENIZER_FILE = "tokenizer.json"
WORD_PIECES_FILE = "vocab.txt"
LARGEST_FILE = 1 << 28
"""The most bytes of a file. A vocabulary of 250,000 has 20 million."""

NO_PADDING = -1
_ADDED = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
"""Fields of `added_tokens_decoder` that the package's `AddedToken` also has."""

SPACE = "\u2581"  # how Unigram models write a space inside a piece

MISSING_TOKENIZERS = """\
HuggingFaceVocabulary reads with the package tokenizers, which is not installed.
Install it with the project's extra: pip install 'meshtf[tokenizers]'"""

NO_FILE = """\
there is no tokenizer {path}; the current folder is {folder}.
HuggingFaceVocabulary.path is a tokenizer.json, BERT's vocab.txt, or a folder that has one of them."""

NO_END = """\
{path} does not say which token ends a text, and has none with a usual name.
Name it with HuggingFaceVocabulary.end_token = "..."; the special tokens are {special}."""

NAMED_BESIDE = """\
tokenizer_config.json or special_tokens_map.json in {folder} names {token!r} as its {key}, and the tokenizer has no \
such token; HuggingFaceVocabulary.{option} = "..." names one that it has"""

NO_SUCH_TOKEN = "{path} has no token {token!r}, which HuggingFaceVocabulary.{option} names{nearest}"

USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "end_token": ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "[SEP]"),
    "padding_token": ("<pad>", "[PAD]", "<|finetune_right_pad_id|>"),
    "begin_token": ("<s>", "<|begin_of_text|>", "<bos>", "[CLS]"),
    "mask_token": ("[MASK]", "<mask>"),
}
SAID_BESIDE: Mapping[str, tuple[str, ...]] = {
    "end_token": ("eos_token", "sep_token"),
    "padding_token": ("pad_token",),
    "begin_token": ("bos_token", "cls_token"),
    "mask_token": ("mask_token",),
}
"""The keys in the files next to a tokenizer. The first key that names a token is used."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class HuggingFaceVocabulary:
    """The tokens of a `tokenizer.json`, or of the `vocab.txt` that BERT came with, with the file's own ids.

    Options name the tokens that end, begin, pad and mask. Without an option, `tokenizer_config.json` or
    `special_tokens_map.json` next to the file names the token. Without these, it is the token with one of the usual
    names. Sentinels in the file are used (`<extra_id_0>` as its last id, and so on downwards, as in T5). Truncation and
    padding in the file are ignored.

    A special token that is written out in a text becomes that token, as in transformers: "</s>" ends a text, and
    "[MASK]" is a mask. Remove them from documents that you do not trust. Other vocabularies read them as text.

    Attributes:
      path: a tokenizer.json, a vocab.txt (a token a line), or a folder that has one of them, the first if both.
      extra_ids: the number of sentinels to add after the file's ids. Only if the file has none.
      add_begin: whether every text begins with the begin token, as for BERT. It is then a decoder's `start_id`.
      end_token: the token that ends a text, as "</s>".
      begin_token: the token that begins a text.
      padding_token: the token that fills rows.
      mask_token: the token that masked language modelling substitutes for another.
      lower_case: for a vocab.txt, whether text is lower-cased and accents are removed. The default is `do_lower_case`
        of the `tokenizer_config.json` next to it. Without that, it is True if no token has an upper-case letter, except
        tokens in brackets such as "[CLS]". If that file has `strip_accents`, it alone decides on accents, and
        `tokenize_chinese_chars` says whether each Chinese character is a word.
      escape_special: whether special tokens that a text spells out, as "</s>" in a page about them, are ordinary text.
        If not, they become their ids, as if a text ended there. This is the tokenizer's own default.

    Raises:
      ConfigurationError: if `tokenizers` is not installed, the file is missing or no tokenizer, or it lacks a token
        that is needed.
    """

    path: str
    extra_ids: int = 0
    add_begin: bool = False
    end_token: str | None = None
    begin_token: str | None = None
    padding_token: str | None = None
    mask_token: str | None = None
    lower_case: bool | None = None
    escape_special: bool = False

    def __post_init__(self) -> None:
        given = self.extra_ids
        if not isinstance(given, int) or given < 0:
            raise ConfigurationError(f"HuggingFaceVocabulary.extra_ids must be an integer, 0 or more, and is {given!r}")
        if self.lower_case is not None and self._file.name != WORD_PIECES_FILE:
            raise ConfigurationError(
                f"HuggingFaceVocabulary.lower_case is for a {WORD_PIECES_FILE}; {self._file} itself says how "
                "upper-case letters are read: leave lower_case out"
            )
        own = self._own_sentinels
        if given and own:
            raise ConfigurationError(
                f"{self._file} has {own} sentinels of its own; leave out HuggingFaceVocabulary.extra_ids = {given}"
            )
        object.__setattr__(self, "extra_ids", given or own)
        self.end_id  # noqa: B018  # a missing token is an error here, and not in the middle of a run
        if self.add_begin and self._begin_id is None:
            raise ConfigurationError(
                f"{self._file} has no token that begins a text, which HuggingFaceVocabulary.add_begin asks for; "
                'HuggingFaceVocabulary.begin_token = "..." names one'
            )

    @property
    def size(self) -> int:
        return self._num_ids + (0 if self._own_sentinels else self.extra_ids)

    @property
    def text_ids(self) -> range:
        return range(self.size - self.extra_ids)

    @functools.cached_property
    def padding_id(self) -> int:
        found = self._token_id("padding_token")
        return NO_PADDING if found is None else found

    @functools.cached_property
    def end_id(self) -> int:
        found = self._token_id("end_token")
        if found is None:
            raise ConfigurationError(NO_END.format(path=self._file, special=", ".join(sorted(self._special)) or "none"))
        return found

    @property
    def begin_id(self) -> int | None:
        return self._begin_id if self.add_begin else None

    @functools.cached_property
    def mask_id(self) -> int | None:
        found = self._token_id("mask_token")
        return self.size - 1 if found is None and self.extra_ids else found

    @functools.cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens, such as those that end a text or divide the turns of a chat."""
        return frozenset(self._special.values())

    @functools.cached_property
    def fingerprint(self) -> str:
        said = [self._tokenizer.to_str(), self.extra_ids, self.end_id, self.begin_id]
        said += ["escapes special tokens"] * self.escape_special
        return hashlib.sha256(json_text(said).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._begun(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_with_special(self, text: str) -> list[int]:
        """Encodes a text in which special tokens that are spelt out become their ids, even with `escape_special`. The
        template of a chat writes such texts.
        """
        return self._begun(self._reader_of_special.encode(text, add_special_tokens=False).ids)

    def _begun(self, ids: list[int]) -> list[int]:
        return ids if self.begin_id is None else [self.begin_id, *ids]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decodes as `Vocabulary.decode`. Other special tokens are written as the file writes them."""
        left_out = {self.padding_id, self.end_id, self.begin_id}
        kept = (token for token in map(int, ids) if token not in left_out and 0 <= token < self.size)
        text = ""
        for is_sentinel, run in itertools.groupby(kept, lambda token: token >= self.text_ids.stop):
            own = list(run)
            text += "".join(map(self._sentinel, own)) if is_sentinel else self._continued(own, is_first=not text)
        return text

    def _continued(self, ids: list[int], *, is_first: bool) -> str:
        """Returns the text of ids. A decoder drops the space before the first word of a text, which must stay after a
        sentinel.
        """
        if is_first:
            return self._text_of(ids)
        return self._text_of([ids[0], *ids]).removeprefix(self._text_of(ids[:1]))

    def _text_of(self, ids: list[int]) -> str:
        """Returns the text of ids. Characters of byte tokens stay whole beside bytes that are no character.

        If one byte of a run is wrong or missing, the package would write a replacement for every byte of the run.
        """
        if self._byte_tokens.keys().isdisjoint(ids):
            return self._tokenizer.decode(ids, False)
        tokens: list[str] = []
        for is_byte, run in itertools.groupby(ids, self._byte_tokens.__contains__):
            own = list(run)
            if not is_byte:
                tokens += filter(None, map(self._tokenizer.id_to_token, own))
                continue
            parts = bytes(self._byte_tokens[token] for token in own).decode(errors="surrogateescape")
            for number, part in enumerate(parts):
                # An empty token ends a run. The decoder looks at each part alone.
                tokens += [""] * (number > 0)
                tokens += [f"<0x{byte:02X}>" for byte in part.encode(errors="surrogateescape")]
        return str(self._tokenizer.decoder.decode(tokens))

    def num_bytes(self, ids: Sequence[int] | np.ndarray) -> int:
        """Counts as `Vocabulary.num_bytes`, in the text as the tokenizer normalizes it.

        An unknown token counts as it is written. In WordPiece every word counts as if after a space.
        """
        return int(self._bytes_by_id[np.asarray(ids, np.int64)].sum())

    def _sentinel(self, token: int) -> str:
        return sentinel_text(self.size - 1 - token)

    @property
    def _file(self) -> Path:
        path = user_path(self.path)
        if not path.is_dir():
            return path
        is_word_pieces = (path / WORD_PIECES_FILE).is_file() and not (path / TOKENIZER_FILE).is_file()
        return path / (WORD_PIECES_FILE if is_word_pieces else TOKENIZER_FILE)

    @functools.cached_property
    def _tokenizer(self) -> Any:
        tokenizers = import_tokenizers()
        if not self._file.is_file():
            raise ConfigurationError(NO_FILE.format(path=self._file, folder=Path.cwd()))
        try:
            text = read_regular(self._file, LARGEST_FILE).decode("utf-8-sig")
            if self._file.name == WORD_PIECES_FILE:
                text = self._word_pieces(text)
            tokenizer = tokenizers.Tokenizer.from_str(text)
            tokenizer.no_truncation()
            tokenizer.no_padding()
            tokenizer.encode_special_tokens = bool(self.escape_special)
            self._add_tokens_beside(tokenizer)
            return tokenizer
        except ConfigurationError:
            raise
        except Exception as error:  # the package raises no narrower kind
            raise ConfigurationError(f"{self._file} is no tokenizer of the package tokenizers: {error}") from error

    @functools.cached_property
    def _reader_of_special(self) -> Any:
        """The tokenizer that reads special tokens which a text spells out."""
        if not self.escape_special:
            return self._tokenizer
        found = import_tokenizers().Tokenizer.from_str(self._tokenizer.to_str())
        found.encode_special_tokens = False
        return found

    def _add_tokens_beside(self, tokenizer: Any) -> None:
        """Adds the tokens that only `tokenizer_config.json` names, as Transformers does.

        Raises:
          ConfigurationError: if their ids in that file differ from the ones they would get.
        """
        added = self._described_beside("tokenizer_config.json").get("added_tokens_decoder") or {}
        for number, entry in sorted((int(number), entry) for number, entry in added.items()):
            if tokenizer.token_to_id(entry["content"]) is not None:
                continue
            token = import_tokenizers().AddedToken(**{key: entry[key] for key in _ADDED if key in entry})
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
            if tokenizer.token_to_id(token.content) != number:
                raise ConfigurationError(
                    f"tokenizer_config.json in {self._file.parent} says that {token.content!r} is token {number}, and "
                    f"{self._file.name} has another token there, or ends before it; copy both files again from the "
                    f"same source"
                )

    def _word_pieces(self, text: str) -> str:
        """Returns a tokenizer.json of BERT's tokenizer with these lines as tokens."""
        # Split only at newlines: other characters that Unicode counts as ends of lines may be tokens.
        tokens = [line.strip() for line in text.removesuffix("\n").split("\n")]
        said = self._described_beside("tokenizer_config.json")
        is_lower = not any(t != t.lower() for t in tokens if not (t.startswith("[") and t.endswith("]")))
        lower_case = next(x for x in (self.lower_case, said.get("do_lower_case"), is_lower) if isinstance(x, bool))
        strips, parts = (said.get(key) for key in ("strip_accents", "tokenize_chinese_chars"))
        vocabulary = {token: number for number, token in enumerate(tokens)}
        tokenizer = import_tokenizers().BertWordPieceTokenizer(
            vocabulary,
            lowercase=lower_case,
            strip_accents=strips if isinstance(strips, bool) else None,  # None is as lowercase
            handle_chinese_chars=parts if isinstance(parts, bool) else True,
        )
        return str(tokenizer.to_str())

    @functools.cached_property
    def _num_ids(self) -> int:
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @functools.cached_property
    def _own_sentinels(self) -> int:
        is_there = self._tokenizer.token_to_id
        return sum(
            1
            for _ in itertools.takewhile(
                lambda k: is_there(sentinel_text(k)) == self._num_ids - 1 - k, range(self._num_ids)
            )
        )

    @functools.cached_property
    def _special(self) -> dict[str, int]:
        added = self._tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

    @functools.cached_property
    def _begin_id(self) -> int | None:
        return self._token_id("begin_token")

    def _token_id(self, option: str) -> int | None:
        said = getattr(self, option)
        if said is not None:
            if (found := self._tokenizer.token_to_id(said)) is not None:
                return found
            close = nearest(said, self._special)
            raise ConfigurationError(NO_SUCH_TOKEN.format(path=self._file, token=said, option=option, nearest=close))
        for key in SAID_BESIDE[option]:
            if (name := self._said_beside.get(key)) is not None:
                if (found := self._tokenizer.token_to_id(name)) is not None:
                    return found
                raise ConfigurationError(
                    NAMED_BESIDE.format(folder=self._file.parent, key=key, token=name, option=option)
                )
        names = USUAL_NAMES[option]
        return next((found for name in names if (found := self._tokenizer.token_to_id(name)) is not None), None)

    @functools.cached_property
    def _said_beside(self) -> dict[str, str]:
        """The names of special tokens, from the files next to the tokenizer."""
        said: dict[str, str] = {}
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            said |= dict(_named_tokens(self._described_beside(name)))
        return said

    def _described_beside(self, name: str) -> dict[str, Any]:
        """Returns the content of a JSON file next to the tokenizer, or {} if there is none."""
        path = self._file.parent / name
        if not path.is_file():
            return {}
        try:
            said = json.loads(read_regular(path, LARGEST_FILE))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path}, next to the tokenizer, is not JSON: {error}") from error
        return said if isinstance(said, dict) else {}

    @functools.cached_property
    def _byte_tokens(self) -> dict[int, int]:
        """The byte that each byte token stands for, by its id. Only some decoders have such tokens, as "<0xE2>"."""
        decoder = self._tokenizer.decoder
        if decoder is None or "ByteFallback" not in set(_types(json.loads(decoder.__getstate__()))):
            return {}
        ids = {byte: self._tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}
        return {token: byte for byte, token in ids.items() if token is not None}

    @functools.cached_property
    def _bytes_by_id(self) -> np.ndarray:
        """The number of bytes that each id stands for, [size] int64."""
        described = json.loads(self._tokenizer.to_str())
        is_bytes = "ByteLevel" in set(_types(described.get("decoder")))
        as_written = {entry["id"] for entry in described.get("added_tokens", ())}
        prefix = (described.get("model") or {}).get("continuing_subword_prefix")
        no_text = {*self._special.values()} - {self._unknown_id(described.get("model") or {})}
        counts = np.zeros(self.size, np.int64)
        for token, number in self._tokenizer.get_vocab(with_added_tokens=True).items():
            if number in self.text_ids and number not in no_text:
                counts[number] = (
                    len(token.encode()) if number in as_written else _num_bytes(token, is_bytes=is_bytes, prefix=prefix)
                )
        return counts

    def _unknown_id(self, model: Mapping[str, Any]) -> int | None:
        """The id that stands for text without tokens, or None. The token that ends texts may be named for it as well.

        `model`: the model's description in a tokenizer.json.
        """
        name = model.get("unk_token")
        found = model.get("unk_id") if name is None else self._tokenizer.token_to_id(name)
        return None if found in (self.end_id, self.begin_id) else found


def import_tokenizers() -> Any:
    """Returns the module, which is an optional dependency.

    Raises:
      ConfigurationError: if it is not installed.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ConfigurationError(MISSING_TOKENIZERS) from error
    return tokenizers


def _named_tokens(said: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for key, value in said.items():
        name = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(name, str):
            yield key, name


def _types(described: Any) -> Iterable[str]:
    """Yields the type of a part of a tokenizer, and of the parts inside it."""
    if isinstance(described, dict):
        yield str(described.get("type"))
        for inner in described.get("decoders", ()):
            yield from _types(inner)


def _num_bytes(token: str, *, is_bytes: bool, prefix: str | None) -> int:
    if is_bytes:
        return len(token)  # each character stands for a byte
    if len(token) == len("<0x00>") and token.startswith("<0x"):
        return 1
    if prefix:
        return len(token.removeprefix(prefix).encode()) + (not token.startswith(prefix))
    return len(token.replace(SPACE, " ").encode())
