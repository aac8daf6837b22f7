"""Decoding with KerasHub's `generate`: GPT-2 of the same shape, but with learned positions, biases and GELU."""

from __future__ import annotations

import keras
import keras_hub
import numpy as np

from benchmarks.decoding import BATCH, NEW, PROMPT, prompts
from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads.decoding_weights import D_FF, D_MODEL, HEADS, LAYERS, VOCAB

NEVER = VOCAB - 1
"""A token that the weights never choose. It marks the places for new tokens."""


def by_generate(*, compile_loops: bool) -> Step:
    """The step with KerasHub's `generate`. It has no comparable loss, but checks that each prompt has its new tokens.

    `compile_loops` tells whether XLA compiles it. By default Keras runs operations one by one on CPUs.
    """
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=VOCAB,
        num_layers=LAYERS,
        num_heads=HEADS,
        hidden_dim=D_MODEL,
        intermediate_dim=D_FF,
        dropout=0.0,
        max_sequence_length=PROMPT + NEW,
    )
    _draw(backbone)
    model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(sampler="greedy", jit_compile=compile_loops)
    given = prompts()["targets"]
    given[:, PROMPT:] = NEVER
    is_given = np.broadcast_to(np.arange(PROMPT + NEW) < PROMPT, given.shape)
    inputs = {"token_ids": given, "padding_mask": is_given.astype(np.int32)}

    def step() -> None:
        ids = np.asarray(model.generate(inputs, stop_token_ids=None)["token_ids"])
        made = np.count_nonzero(ids[:, PROMPT:] != NEVER)
        if ids.shape != given.shape or made != BATCH * NEW or (ids[:, :PROMPT] != given[:, :PROMPT]).any():
            raise RuntimeError(f"generate gave {list(ids.shape)} with {made} new tokens, for {BATCH} times {NEW}")

    return step


def _draw(backbone: keras.Model) -> None:
    """Draws random matrices of the usual size. The logit of `NEVER` is 0, below the largest of the others."""
    generator = np.random.default_rng(0)
    for variable in backbone.weights:
        if variable.path.endswith(("kernel", "embeddings")):
            variable.assign(generator.normal(0, 0.08, variable.shape).astype(np.float32))
    (embedding,) = backbone.token_embedding.weights
    embedding.assign(np.where(np.arange(VOCAB)[:, None] == NEVER, 0.0, embedding.numpy()))
