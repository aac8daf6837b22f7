"""The sizes and the initial weights for all programs of the experts' step."""

from __future__ import annotations

import numpy as np

BATCH, LENGTH, D_MODEL, D_FF, EXPERTS, LEARNING_RATE = 8, 512, 256, 512, 16, 1e-3
CAPACITY = 2 * LENGTH // EXPERTS
"""The places of an expert for a sequence: as many as it needs at even load, if each token uses two experts."""


def initial_weights() -> dict[str, np.ndarray]:
    shapes = {"router": (D_MODEL, EXPERTS), "wi": (EXPERTS, D_MODEL, D_FF), "wo": (EXPERTS, D_FF, D_MODEL)}
    generator = np.random.default_rng(0)
    return {name: generator.normal(0, shape[-2] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def examples() -> np.ndarray:
    return np.random.default_rng(1).normal(size=[BATCH, LENGTH, D_MODEL]).astype(np.float32)
