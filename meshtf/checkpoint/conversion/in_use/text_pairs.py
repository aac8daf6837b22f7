"""How another library's tokenizer joins the two texts of a pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtf.checkpoint.conversion.huggingface import read_json
from meshtf.checkpoint.conversion.in_use.begin_token import TOKENIZER

WORD_PIECES = "vocab.txt"


@dataclasses.dataclass(frozen=True)
class TextPairs:
    """The form of a pair of texts.

    Attributes:
      ends_between: the number of special tokens between both texts.
      second_type: the token type of the second text; the first has 0.
    """

    ends_between: int = 1
    second_type: int = 1

    @classmethod
    def of(cls, folder: Path) -> TextPairs | None:
        """The form that the tokenizer of a folder gives to pairs. None if there is no tokenizer that says it.

        Raises:
          CheckpointError: if a file is no JSON.
        """
        if (folder / TOKENIZER).is_file():
            processor = read_json(folder / TOKENIZER).get("post_processor")
            return next(_forms(processor if isinstance(processor, Mapping) else {}), None)
        return cls() if (folder / WORD_PIECES).is_file() else None


def _forms(processor: Mapping[str, Any]) -> Iterator[TextPairs]:
    """The forms that a post-processor, or each one of a sequence of them, gives to pairs."""
    kind = processor.get("type")
    if kind == "Sequence":
        for inner in processor.get("processors", ()):
            yield from _forms(inner)
    elif kind == "BertProcessing":
        yield TextPairs()
    elif kind == "RobertaProcessing":
        yield TextPairs(ends_between=2, second_type=0)
    elif kind == "TemplateProcessing":
        yield from _of_template(processor.get("pair") or ())


def _of_template(pieces: Sequence[Mapping[str, Any]]) -> Iterator[TextPairs]:
    """The form of a template, if it has both texts in order and special tokens between them."""
    texts = [number for number, piece in enumerate(pieces) if "Sequence" in piece]
    if len(texts) == 2 and texts[1] - texts[0] > 1:
        yield TextPairs(texts[1] - texts[0] - 1, int(pieces[texts[1]]["Sequence"].get("type_id", 0)))
