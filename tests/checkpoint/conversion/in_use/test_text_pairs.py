"""How tokenizers join the two texts of a pair, by the files that say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshtf.checkpoint.conversion.in_use.gin_text import GinText
from meshtf.checkpoint.conversion.in_use.text_pairs import TextPairs

BYTES = {"type": "ByteLevel"}
ROBERTA = {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]}


def template(*pieces: str) -> dict[str, Any]:
    """Pieces as `tokenizers` writes them: "A:0" is the first text with the token type 0."""
    parts = [piece.split(":") for piece in pieces]
    pair = [{"Sequence" if n in "AB" else "SpecialToken": {"id": n, "type_id": int(t)}} for n, t in parts]
    return {"type": "TemplateProcessing", "single": [], "pair": pair, "special_tokens": {}}


PROCESSORS: dict[str, tuple[Any, TextPairs | None]] = {
    "none": (None, None),
    "bytes": (BYTES, None),
    "BERT's": ({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, TextPairs(1, 1)),
    "BERT's template": (template("[CLS]:0", "A:0", "[SEP]:0", "B:1", "[SEP]:1"), TextPairs(1, 1)),
    "RoBERTa's": (ROBERTA, TextPairs(2, 0)),
    "XLM-R's template": (template("<s>:0", "A:0", "</s>:0", "</s>:0", "B:0", "</s>:0"), TextPairs(2, 0)),
    "one after the other": ({"type": "Sequence", "processors": [BYTES, ROBERTA]}, TextPairs(2, 0)),
    "nothing between": (template("A:0", "B:1"), None),
}


@pytest.mark.parametrize("case", PROCESSORS)
def test_a_tokenizer_json_says_it(case: str, tmp_path: Path) -> None:
    processor, expected = PROCESSORS[case]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": processor}))
    assert TextPairs.of(tmp_path) == expected


# what is in the folder, the model's settings: what its gin file says of pairs
SAID: dict[str, tuple[dict[str, str], dict[str, int], list[str]]] = {
    "BERT": ({"vocab.txt": ""}, {"num_token_types": 2}, []),
    "BERT with one type": ({"vocab.txt": ""}, {"num_token_types": 1}, ["second_type = 0"]),
    "RoBERTa without a tokenizer": (
        {},
        {"num_token_types": 1, "ends_between": 2, "second_type": 0},
        ["ends_between = 2", "second_type = 0"],
    ),
    "RoBERTa with BERT's tokenizer": (
        {"vocab.txt": ""},
        {"num_token_types": 1, "ends_between": 2, "second_type": 0},
        ["second_type = 0"],
    ),
    "no types": ({}, {}, []),
}


@pytest.mark.parametrize("case", SAID)
def test_a_classifier_says_where_its_pairs_are_not_those_of_bert(case: str, tmp_path: Path) -> None:
    files, settings, lines = SAID[case]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    text = GinText("Training.model = @TextClassifier()\n", tmp_path, {}, settings).model_gin
    found = [line.partition(".")[2] for line in text.splitlines() if line.endswith(("ends_between = 2", "type = 0"))]
    assert found == lines
    assert all(f"LabelledTextTask.{line.partition(' ')[0]}'" in text for line in lines), "optional for a training"
