"""The sizes and the initial weights that the programs of the experts' step share."""

from __future__ import annotations

import numpy as np

BATCH, LENGTH, D_MODEL, D_FF, EXPERTS, LEARNING_RATE = 8, 512, 256, 512, 16, 1e-3
CAPACITY = 2 * LENGTH // EXPERTS
"""Places of an expert for a sequence: what it needs at even load, each token with two experts."""


def initial_weights() -> dict[str, np.ndarray]:
    shapes = {"router": (D_MODEL, EXPERTS), "wi": (EXPERTS, D_MODEL, D_FF), "wo": (EXPERTS, D_FF, D_MODEL)}
    generator = np.random.default_rng(0)
    return {name: generator.normal(0, shape[-2] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def examples() -> np.ndarray:
    return np.random.default_rng(1).normal(size=[BATCH, LENGTH, D_MODEL]).astype(np.float32)
