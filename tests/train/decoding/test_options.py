"""The options of decoding, by gin and by name."""

from __future__ import annotations

from typing import Any

import gin
import pytest

from meshtf.train.configuration import ConfigurationError, read_configuration
from meshtf.train.data import ByteVocabulary
from meshtf.train.decoding.options import configured_decoding
from meshtf.train.decoding.stops import Stops


def test_gin_and_what_overrides_it() -> None:
    read_configuration([], ["Decoding.method = 'sample'", "Decoding.top_k = 7", "Decoding.stop_ids = [13, 1]"])
    decoding = configured_decoding(top_k=3)
    assert (decoding.sampling.temperature, decoding.sampling.top_k, decoding.sampling.top_p) == (1.0, 3, 1.0)
    bytes_ = ByteVocabulary()
    assert decoding.stops(bytes_).ids == (bytes_.end_id, 13)
    assert configured_decoding(end_ids=[5, 6]).stops(bytes_).ids == (5, 6, 13, 1)
    (newline,), wanted = bytes_.encode("\n"), tuple(bytes_.encode("ab"))
    stops = configured_decoding(end_ids=(), stop_ids=(), stop_texts=["\n", "ab"]).stops(bytes_)
    assert stops == Stops((newline,), (wanted,), ("\n", "ab"))
    with pytest.raises(
        ConfigurationError, match=r"beam search can only stop at a single token, but the stop 'ab' is the ids"
    ):
        configured_decoding(method="beam", stop_texts=["ab"]).stops(bytes_)
    assert configured_decoding(method="greedy").sampling.temperature == 0.0
    gin.clear_config()


def test_a_stop_has_no_begin_token() -> None:
    """A vocabulary may put one before every text. A text that goes on has none inside."""

    class Beginning(ByteVocabulary):
        begin_id = 7

        def encode(self, text: str) -> list[int]:
            return [7, *super().encode(text)]

    (newline,), pair = ByteVocabulary().encode("\n"), tuple(ByteVocabulary().encode("ab"))
    stops = configured_decoding(stop_texts=["\n", "ab"]).stops(Beginning())
    assert stops == Stops((Beginning().end_id, newline), (pair,), ("\n", "ab"))
    assert configured_decoding(method="beam", stop_texts=["\n"]).stops(Beginning()).ids == stops.ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "greddy"},
            "Decoding.method must be one of greedy, sample, beam, rank, and is 'greddy'; did you mean",
        ),
        ({"temperature": -1.0}, "Decoding.temperature must be a number, 0 or more, and is -1.0"),
        ({"temperature": float("nan")}, "Decoding.temperature must be a number"),
        ({"top_k": 0}, "Decoding.top_k must be an integer, 1 or more, or None, and is 0"),
        ({"min_p": 1.5}, "Decoding.min_p must be a number from 0 to 1, and is 1.5"),
        ({"repetition_penalty": 0}, "Decoding.repetition_penalty must be a number above 0, and is 0"),
        ({"top_p": 0.0}, "Decoding.top_p must be a number above 0, at most 1, and is 0.0"),
        ({"alpha": "x"}, "Decoding.alpha must be a number, 0 or more, and is 'x'"),
        ({"beam_size": True}, "Decoding.beam_size must be an integer, 1 or more, and is True"),
        ({"beam_rules": "wu"}, "Decoding.beam_rules must be gnmt or transformers, and is 'wu'"),
        ({"early_stopping": 1}, 'Decoding.early_stopping must be True, False or "never", and is 1'),
        ({"length_penalty": None}, "Decoding.length_penalty must be a number, and is None"),
        ({"end_ids": [True]}, r"Decoding.end_ids must be ids, or None, and is \[True\]"),
        ({"stop_ids": [-1]}, r"Decoding.stop_ids must be ids, and is \[-1\]"),
        ({"stop_texts": "ab"}, "Decoding.stop_texts must be a list of texts that are not empty, and is 'ab'"),
        ({"stop_texts": [""]}, "Decoding.stop_texts must be a list of texts that are not empty"),
        ({"stop_texts": ["a\udcff"]}, r"Decoding.stop_texts must be texts that UTF-8 can hold, and is \['a\\udcff'\]"),
        ({"logprobs": -1}, "Decoding.logprobs must be an integer, 0 or more, or None, and is -1"),
        ({"presence_penalty": "1"}, "Decoding.presence_penalty must be a number, and is '1'"),
        ({"no_repeat_ngram_size": -2}, "Decoding.no_repeat_ngram_size must be an integer, 0 or more, and is -2"),
        ({"num_results": 0}, "Decoding.num_results must be an integer, 1 or more, or None, and is 0"),
        ({"method": "beam", "num_results": 5}, r"num_results is 5, and beam has only 4 \(Decoding.beam_size\)"),
        ({"method": "rank", "num_results": 3, "num_samples": 2}, r"is 3, and rank has only 2 \(Decoding.num_samples\)"),
        ({"seed": None}, "Decoding.seed must be an integer, 0 or more, and is None"),
    ],
)
def test_values_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configured_decoding(**options)
