"""What generation_config.json becomes, and what of it has no counterpart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshtf.checkpoint.conversion.in_use.generation import Generation

Said = dict[str, Any]
USUAL = {"top_k": "50", "beam_rules": "'transformers'"}
CASES: dict[str, tuple[Said, dict[str, str], tuple[str, ...]]] = {
    "nothing": ({}, {"end_ids": "()", **USUAL}, ()),
    "as Llama 3's": (
        {"eos_token_id": [5, 9], "do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 4096},
        {"end_ids": "(5, 9)", "method": "'sample'", "temperature": "0.6", "top_p": "0.9", **USUAL},
        (),
    ),
    "as Qwen's": (
        {"eos_token_id": 3, "top_k": 0, "repetition_penalty": 1.05, "pad_token_id": 1, "transformers_version": "5"},
        {"end_ids": "(3,)", "beam_rules": "'transformers'", "repetition_penalty": "1.05"},
        (),
    ),
    "beams": (
        {"num_beams": 4, "length_penalty": 2.0, "early_stopping": "never", "max_new_tokens": 9, "eos_token_id": 1},
        {
            "end_ids": "(1,)",
            "method": "'beam'",
            "max_new_tokens": "9",
            "beam_size": "4",
            "length_penalty": "2.0",
            "early_stopping": "'never'",
            **USUAL,
        },
        (),
    ),
    "what there is not": (
        {"num_beams": 2, "do_sample": True, "min_p": 0.1, "no_repeat_ngram_size": 3, "typical_p": 1.0, "min_length": 0},
        {"end_ids": "()", "method": "'beam'", "beam_size": "2", "no_repeat_ngram_size": "3", **USUAL},
        ("min_p = 0.1", "do_sample = True beside num_beams"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_settings_become_bindings(case: str, tmp_path: Path) -> None:
    said, expected, unmatched = CASES[case]
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    found = Generation.of(tmp_path, {"eos_token_id": 17, "do_sample": True, "repetition_penalty": 2.0})
    lines = dict(line.removeprefix("Decoding.").split(" = ", 1) for line in found.gin.splitlines())
    assert lines == expected
    assert found.unmatched == unmatched


def test_without_the_file_the_model_says_it(tmp_path: Path) -> None:
    """As folders of old have it. Other keys of a model say nothing of generation."""
    configuration = {
        "eos_token_id": 17,
        "do_sample": True,
        "repetition_penalty": 2.0,
        "hidden_size": 8,
        "min_length": 0,
    }
    found = Generation.of(tmp_path, configuration)
    assert found.gin.splitlines()[:2] == ["Decoding.end_ids = (17,)", "Decoding.method = 'sample'"]
    assert "Decoding.repetition_penalty = 2.0" in found.gin
    assert found.unmatched == ()
