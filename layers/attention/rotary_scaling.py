"""Scaled wavelengths for rotary embeddings, for models that go on from shorter sequences to longer ones."""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import gin
import numpy as np


class RotaryScaling(Protocol):
    """Scales the angles per position, float64 of any shape. The result has the same shape.

    Examples:
      >>> halved: mtf.layers.RotaryScaling = lambda frequencies: frequencies / 2.0
      >>> q, places = mtf.ones(mesh, "length:16 heads:2 d_kv:4"), mtf.range(mesh, ("length", 16))
      >>> mtf.layers.rotary_embedding(q, places, scaling=halved).shape
      Shape[length:16 heads:2 d_kv:4]
    """

    def __call__(self, frequencies: np.ndarray, /) -> np.ndarray: ...


def _check_positive(scaling: object, *names: str) -> None:
    for name in names:
        value = getattr(scaling, name)
        if not value > 0:
            raise ValueError(f"{type(scaling).__name__}: {name} must be above 0, and is {value!r}")


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LinearRotaryScaling:
    """Moves all positions closer together by a factor (Chen et al. 2023).

    Examples:
      >>> mtf.layers.LinearRotaryScaling(factor=4.0)(np.array([1.0, 0.5]))
      array([0.25 , 0.125])
    """

    factor: float

    def __post_init__(self) -> None:
        _check_positive(self, "factor")

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        return frequencies / self.factor


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class Llama3RotaryScaling:
    """Makes long wavelengths longer by a factor, keeps short ones, and blends those between (Llama 3.1).

    Attributes:
      factor: the factor of the longest wavelengths.
      low_frequency_factor: wavelengths with fewer turns than this over `original_max_length` are the longest.
      high_frequency_factor: wavelengths with more turns than this stay as they are.
      original_max_length: the length of the sequences of the earlier training.

    Examples:
      >>> scaling = mtf.layers.Llama3RotaryScaling(factor=8.0, original_max_length=64)
      >>> scaling(np.array([1.0, 0.01]))
      array([1.     , 0.00125])
    """

    factor: float
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_length: int = 8192

    def __post_init__(self) -> None:
        _check_positive(self, "factor", "low_frequency_factor", "original_max_length")
        if not self.high_frequency_factor > self.low_frequency_factor:
            raise ValueError(
                f"Llama3RotaryScaling: high_frequency_factor must be above low_frequency_factor "
                f"{self.low_frequency_factor}, and is {self.high_frequency_factor}"
            )

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        turns = self.original_max_length * frequencies / (2.0 * math.pi)
        share = (turns - self.low_frequency_factor) / (self.high_frequency_factor - self.low_frequency_factor)
        kept = np.clip(share, 0.0, 1.0)
        return frequencies * (kept + (1.0 - kept) / self.factor)
