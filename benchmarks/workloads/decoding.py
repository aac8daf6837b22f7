"""Greedy decoding with a cache: 64 tokens for each of 16 prompts of 16, with a model of `lm_tiny`'s shape."""

from __future__ import annotations

import functools
from collections.abc import Callable

import meshtf as mtf
from benchmarks.decoding import program, prompts
from benchmarks.measuring.side_by_side import Step
from benchmarks.transformer_step import DATA_AND_MODEL
from benchmarks.workloads.decoding_keras_hub import by_generate
from benchmarks.workloads.decoding_weights import weights
from benchmarks.workloads.in_jax.decoding import jax_by_hand
from benchmarks.workloads.workload import Workload

WORKLOAD = Workload(__name__, "Decoding", steps=1)


def on_virtual_cpus(mesh_shape: str, layout: str) -> Step:
    """The step on virtual CPUs. It returns the mean log-likelihood of the added tokens."""
    mtf.virtual_cpus(mtf.convert_to_shape(mesh_shape).size)
    decode, given = program(mesh_shape, layout, compile_loops=True), prompts()
    decode.initialize(weights())
    return lambda: decode(**given)["log_likelihoods"].numpy().mean()


PROGRAMS: dict[str, Callable[[], Step]] = {
    "meshtf, 1 core": functools.partial(on_virtual_cpus, "all:1", ""),
    "meshtf, 4x2, data and model": functools.partial(on_virtual_cpus, "rows:4;cols:2", DATA_AND_MODEL),
    "JAX, 1 device": functools.partial(jax_by_hand, 1, 1),
    "JAX, 4x2, data and model": functools.partial(jax_by_hand, 4, 2),
    "KerasHub's GPT-2, 1 device": functools.partial(by_generate, compile_loops=False),
    "KerasHub's GPT-2, 1 device, XLA": functools.partial(by_generate, compile_loops=True),
}
