"""Scores that an earlier run wrote: what a line may be. `tests/bin/test_decode.py` goes on behind them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from meshtf.errors import SaveError
from meshtf.train.decoding.earlier_scores import EarlierScores
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.results import TextScore
from meshtf_programs.strict_json import json_text

LINE = '{"text": "ab", "log_likelihood": -1.5, "num_tokens": 2, "num_bytes": 2, "perplexity": 2.1, "step": 3}\n'


def test_whole_lines_count(tmp_path: Path) -> None:
    texts = [PromptText("ab", "line 1"), PromptText("ab", "line 2")]
    path = tmp_path / "scores"
    assert EarlierScores.read(path, texts) == EarlierScores.none()
    path.write_text(2 * LINE + LINE[:-1])
    found = EarlierScores.read(path, texts)
    assert (found.count, found.total.log_likelihood, found.num_bytes, found.step) == (2, -3.0, 2 * len(LINE), 3)
    path.write_text(LINE + LINE.replace('"step": 3', '"step": 4'))
    with pytest.raises(SaveError, match=r"are from step 3, but this model is from step 4\. Give --step=3 to continue"):
        EarlierScores.read(path, texts)
    path.write_text(3 * LINE)
    with pytest.raises(SaveError, match=r"line 3 of .* is not the score of any given text, but of another text"):
        EarlierScores.read(path, texts)


def test_scores_that_are_no_finite_numbers(tmp_path: Path) -> None:
    """A model with NaN in its weights scores so. The text of a line may be that word, too."""
    path, text = tmp_path / "scores", PromptText("NaN", "line 1")
    path.write_text(json_text({**TextScore("NaN", math.nan, 3, 3).as_json(), "step": 3}) + "\n")
    found = EarlierScores.read(path, [text])
    assert (found.count, math.isnan(found.total.log_likelihood)) == (1, True)
    path.write_text(LINE.replace("-1.5", '"much"'))
    with pytest.raises(SaveError, match=r"line 1 of .* is not a score in JSON"):
        EarlierScores.read(path, [text])
