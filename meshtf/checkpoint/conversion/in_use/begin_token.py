"""The token that another library's tokenizer puts before a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meshtf.checkpoint.conversion.huggingface import read_json

TOKENIZER, SAID_BESIDE, PIECES = "tokenizer.json", "tokenizer_config.json", "tokenizer.model"


def begins_texts(folder: Path, begin_id: int) -> int | None:
    """The id that Transformers 5 puts before every text with the tokenizer of a folder, or None.

    In a `tokenizer.json` the post-processor adds it. With a `tokenizer.model` it is `begin_id` if `add_bos_token` in
    `tokenizer_config.json` is true, else None. Without a tokenizer it is `begin_id`, from the model's configuration.

    Raises:
      CheckpointError: if a file is no JSON.
    """
    if (folder / TOKENIZER).is_file():
        processor = read_json(folder / TOKENIZER).get("post_processor")
        return next(_first_ids(processor if isinstance(processor, Mapping) else {}), None)
    if not (folder / PIECES).is_file():
        return begin_id
    beside = folder / SAID_BESIDE
    is_added = beside.is_file() and read_json(beside).get("add_bos_token") is True
    return begin_id if is_added else None


def _first_ids(processor: Mapping[str, Any]) -> Iterator[int]:
    """The ids that a post-processor, or each one of a sequence of them, puts before a text."""
    kind = processor.get("type")
    if kind == "Sequence":
        for inner in processor.get("processors", ()):
            yield from _first_ids(inner)
    elif kind in ("BertProcessing", "RobertaProcessing"):
        yield int(processor["cls"][1])
    elif kind == "TemplateProcessing":
        first = (processor.get("single") or [{}])[0].get("SpecialToken", {}).get("id")
        ids = processor.get("special_tokens", {}).get(first, {}).get("ids")
        if ids:
            yield int(ids[0])
