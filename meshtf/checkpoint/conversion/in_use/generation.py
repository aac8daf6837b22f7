"""Translates Transformers' settings for continuing text to gin's `Decoding`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtf.checkpoint.conversion.huggingface import read_json

GENERATION = "generation_config.json"

_DRAWN_FROM = 50
"""The number of likeliest tokens among which Transformers draws if no `top_k` is given."""

_TAKEN = (
    "eos_token_id",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "min_new_tokens",
    "num_beams",
    "length_penalty",
    "early_stopping",
    "max_new_tokens",
)
_NOT_OF_BEAMS = ("min_p", "repetition_penalty")
_WITHOUT_EFFECT = (
    "transformers_version",
    "pad_token_id",
    "bos_token_id",
    "decoder_start_token_id",
    "max_length",
    "use_cache",
    "cache_implementation",
    "cache_config",
    "return_dict_in_generate",
    "remove_invalid_values",
    "assistant_confidence_threshold",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_early_exit",
    "assistant_lookbehind",
    "target_lookbehind",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
    "assistant_ensemble_weight",
    "is_assistant",
    "speculation_type",
    "max_cache_len",
    "prefill_chunk_size",
    "low_memory",
    "compile_config",
    "disable_compile",
    "continuous_batching_config",
)
"""Keys that change no token, or that the model's own gin covers. `max_length` is among them: users set the length."""

_NEUTRAL: Mapping[str, float] = {
    "repetition_penalty": 1,
    "encoder_repetition_penalty": 1,
    "typical_p": 1,
    "guidance_scale": 1,
    "num_return_sequences": 1,
    "num_beam_groups": 1,
}
"""The values that change nothing, for keys where this value is not null, false, 0 or empty."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """The settings for continuing text.

    Attributes:
      gin: bindings of `Decoding`.
      unmatched: "key = value" of each setting that changes tokens and has no counterpart in meshtf.
    """

    gin: str
    unmatched: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, configuration: Mapping[str, Any]) -> Generation:
        """Reads settings as Transformers 5 does: from `generation_config.json`, or else from `config.json`.

        Raises:
          CheckpointError: the file is no JSON.
        """
        is_own = (folder / GENERATION).is_file()
        said = read_json(folder / GENERATION) if is_own else configuration
        bindings = {name: value for name, value in _decoding(said).items() if value is not None}
        lines = [f"Decoding.{name} = {value!r}\n" for name, value in bindings.items()]
        return cls("".join(lines), tuple(_unmatched(said, is_own=is_own)))


def _decoding(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Decoding`. None keeps a field's default."""
    ends, top_k = said.get("eos_token_id"), said.get("top_k")
    beams = said.get("num_beams") or 1
    return {
        "end_ids": tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
        "method": "beam" if beams > 1 else "sample" if said.get("do_sample") else None,
        "temperature": said.get("temperature"),
        "top_k": _DRAWN_FROM if top_k is None else top_k or None,
        "top_p": said.get("top_p"),
        "min_p": None if beams > 1 else said.get("min_p"),
        "repetition_penalty": None if beams > 1 else said.get("repetition_penalty"),
        "no_repeat_ngram_size": said.get("no_repeat_ngram_size") or None,
        "min_new_tokens": said.get("min_new_tokens") or None,
        "max_new_tokens": said.get("max_new_tokens"),
        "beam_size": beams if beams > 1 else None,
        "beam_rules": "transformers",
        "length_penalty": said.get("length_penalty"),
        "early_stopping": said.get("early_stopping"),
    }


def _unmatched(said: Mapping[str, Any], *, is_own: bool) -> list[str]:
    """The settings without a counterpart. Among a model's own keys, only known keys of generation count."""
    has_beams = (said.get("num_beams") or 1) > 1
    taken = [key for key in _TAKEN if not (has_beams and key in _NOT_OF_BEAMS)]
    odd = [
        f"{key} = {value!r}"
        for key, value in said.items()
        if (is_own or key in _NEUTRAL or key in _OF_MODELS)
        and key not in (*taken, *_WITHOUT_EFFECT)
        and not key.startswith(("_", "output_"))
        and value
        and value != _NEUTRAL.get(key)
    ]
    return odd + ["do_sample = True beside num_beams"] * bool(said.get("do_sample") and has_beams)


_OF_MODELS = (
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "diversity_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
    "exponential_decay_length_penalty",
)
"""Keys of generation that may be in older configurations of models."""
