"""Which token tokenizers put before a text, by the files that say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshtf.checkpoint.conversion.in_use.begin_token import begins_texts

TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}},
}
ENDS = {**TEMPLATE, "single": [*TEMPLATE["single"][1:], {"SpecialToken": {"id": "<s>", "type_id": 0}}]}
BYTES = {"type": "ByteLevel"}
PROCESSORS: dict[str, tuple[Any, int | None]] = {
    "none": (None, None),
    "bytes": (BYTES, None),
    "a template": (TEMPLATE, 7),
    "a template that ends texts": (ENDS, None),
    "one after the other": ({"type": "Sequence", "processors": [BYTES, TEMPLATE]}, 7),
    "RoBERTa's": ({"type": "RobertaProcessing", "cls": ["<s>", 5], "sep": ["</s>", 6]}, 5),
}


@pytest.mark.parametrize("case", PROCESSORS)
def test_a_tokenizer_json_says_it(case: str, tmp_path: Path) -> None:
    processor, expected = PROCESSORS[case]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": processor}))
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')  # of which Transformers takes no notice
    (tmp_path / "tokenizer.model").touch()
    assert begins_texts(tmp_path, 1) == expected


def test_beside_pieces_the_configuration_says_it(tmp_path: Path) -> None:
    assert begins_texts(tmp_path, 1) == 1, "without a tokenizer, the model's"
    (tmp_path / "tokenizer.model").touch()
    assert begins_texts(tmp_path, 1) is None
    for said, expected in (("true", 1), ("false", None)):
        (tmp_path / "tokenizer_config.json").write_text(f'{{"add_bos_token": {said}}}')
        assert begins_texts(tmp_path, 1) == expected
