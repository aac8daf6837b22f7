"""Decoding: continues text token by token with a cache of keys and values, and scores text."""

from __future__ import annotations

from meshtf.train.decoding.beam_rules import GnmtRules, TransformersRules
from meshtf.train.decoding.beam_search import beam_search
from meshtf.train.decoding.generation import generate
from meshtf.train.decoding.options import Decoding
from meshtf.train.decoding.penalties import Penalties
from meshtf.train.decoding.prompts import Prompts
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.decoding.scoring import token_log_likelihoods
from meshtf.train.decoding.sequences import Sequences, TokenLikelihoods
from meshtf.train.decoding.stops import Stops

__all__ = [
    "Decoding",
    "GnmtRules",
    "Penalties",
    "Prompts",
    "Sampling",
    "Sequences",
    "Stops",
    "TokenLikelihoods",
    "TransformersRules",
    "beam_search",
    "generate",
    "token_log_likelihoods",
]
