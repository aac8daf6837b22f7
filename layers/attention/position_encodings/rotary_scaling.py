"""Scaled wavelengths for rotary embeddings, for models that were trained on shorter sequences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import gin
import numpy as np

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.field_checks import check_above_zero, check_kinds


class RotaryScaling(Protocol):
    """Makes the angles by which each pair turns per position from those without scaling: float64 [pairs].

    If a scaling has a `magnitude`, it multiplies the rotated elements of queries and keys.

    Examples:
      >>> halved: mtf.layers.RotaryScaling = lambda frequencies: frequencies / 2.0
      >>> q, places = mtf.ones(mesh, "length:16 heads:2 d_kv:4"), mtf.range(mesh, ("length", 16))
      >>> mtf.layers.rotary_embedding(q, places, scaling=halved).shape
      Shape[length:16 heads:2 d_kv:4]
    """

    def __call__(self, frequencies: np.ndarray, /) -> np.ndarray: ...


@runtime_checkable
class ScalingByLength(Protocol):
    """A scaling that depends on the length of sequences.

    Pair i is turned by scaling(frequencies)[i] · exp(-growth(length) · decay(frequencies)[i]) for each position.

    Examples:
      >>> scalings = mtf.layers.DynamicRotaryScaling(2.0, max_length=64), mtf.layers.LinearRotaryScaling(2.0)
      >>> [isinstance(scaling, mtf.layers.ScalingByLength) for scaling in scalings]
      [True, False]
    """

    def __call__(self, frequencies: np.ndarray, /) -> np.ndarray: ...

    def decay(self, frequencies: np.ndarray, /) -> np.ndarray:
        """How much each pair slows down with growth: float64 [pairs]."""
        ...

    def growth(self, length: int | mtf.Tensor, /) -> float | mtf.Tensor:
        """The growth for a length: a number, or a float32 tensor, for which the result has the same shape."""
        ...


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
        check_kinds(self)
        check_above_zero(self, "factor")

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        return frequencies / self.factor


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class Llama3RotaryScaling:
    """Makes long wavelengths longer by a factor, keeps short ones, and blends those between (Llama 3.1).

    Attributes:
      factor: the factor of the longest wavelengths.
      low_frequency_factor: pairs with fewer turns than this over `original_max_length` get the whole factor.
      high_frequency_factor: pairs with more turns than this stay as they are.
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
        check_kinds(self)
        check_above_zero(self, "factor", "low_frequency_factor", "original_max_length")
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


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class YarnRotaryScaling:
    """Makes long wavelengths longer by a factor, and keeps short ones, with a ramp between them (Peng et al. 2023).

    Attributes:
      factor: the factor of the longest wavelengths.
      original_max_length: the length of the sequences of the earlier training.
      beta_fast: the ramp begins at the pair that turns this many times over `original_max_length`.
      beta_slow: the ramp ends at the pair that turns this many times.
      truncate: whether the ramp begins and ends at whole pairs.
      attention_factor: the factor of queries and keys; by default 0.1 · log(factor) + 1.

    Examples:
      >>> scaling = mtf.layers.YarnRotaryScaling(factor=4.0, original_max_length=64, beta_fast=4.0)
      >>> scaling(np.array([1.0, 0.1, 0.01]))
      array([1.    , 0.0625, 0.0025])
      >>> round(scaling.magnitude, 4)
      1.1386
    """

    factor: float
    original_max_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "factor", "original_max_length", "beta_fast", "beta_slow")

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1.0 else 1.0

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        """The scaled frequencies. Raises ShapeError if there are fewer than two pairs, which have no ratio."""
        begin, end = self._ramp(frequencies)
        share = np.clip((np.arange(len(frequencies)) - begin) / (end - begin), 0.0, 1.0)
        return frequencies * (share / self.factor + 1.0 - share)

    def _ramp(self, frequencies: np.ndarray) -> tuple[float, float]:
        """The pairs at which the ramp begins and ends."""
        _check_pairs(self, frequencies)
        ratio = math.log(frequencies[0] / frequencies[1])
        begin, end = (
            math.log(self.original_max_length * frequencies[0] / (2.0 * math.pi * turns)) / ratio
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            begin, end = math.floor(begin), math.ceil(end)
        begin, end = max(begin, 0), min(end, 2 * len(frequencies) - 1)
        return begin, end + 0.001 * (begin == end)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class DynamicRotaryScaling:
    """Lets the base grow with sequences that are longer than those of the earlier training ("NTK-aware").

    The same token is then rotated differently in a longer sequence. In decoding, the tokens of a prompt are rotated by
    the prompt's length. A later step uses the length so far, and cached keys stay as they were written.

    Attributes:
      factor: the factor by which sequences may be longer.
      max_length: the length of the sequences of the earlier training. Sequences up to it are not scaled.

    Examples:
      >>> scaling = mtf.layers.DynamicRotaryScaling(factor=2.0, max_length=64)
      >>> scaling.growth(64), round(scaling.growth(128), 4)
      (0.0, 1.0986)
    """

    factor: float
    max_length: int

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "factor", "max_length")

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        return frequencies

    def decay(self, frequencies: np.ndarray) -> np.ndarray:
        """How much each pair slows down with growth. Raises ShapeError if there are fewer than two pairs."""
        _check_pairs(self, frequencies)
        return np.arange(len(frequencies)) / (len(frequencies) - 1.0)

    def growth(self, length: int | mtf.Tensor) -> float | mtf.Tensor:
        slope, offset = self.factor / self.max_length, 1.0 - self.factor
        if isinstance(length, mtf.Tensor):
            return mtf.log(mtf.maximum(length * slope + offset, 1.0))
        return math.log(max(length * slope + offset, 1.0))


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LongRopeRotaryScaling:
    """Gives each pair its own factors, for short sequences and for long ones (Ding et al. 2024, Phi-3).

    The same token is rotated differently in a long sequence: see `DynamicRotaryScaling`.

    Attributes:
      short_factors: the factor of each pair's wavelength.
      long_factors: the same for sequences longer than `original_max_length`.
      original_max_length: the length of the sequences of the earlier training.
      magnitude: the factor of queries and keys.

    Examples:
      >>> scaling = mtf.layers.LongRopeRotaryScaling([1.0, 2.0], [1.0, 8.0], original_max_length=64)
      >>> scaling(np.array([1.0, 0.1])), scaling.growth(64), scaling.growth(65)
      (array([1.  , 0.05]), 0.0, 1.0)
    """

    short_factors: Sequence[float]
    long_factors: Sequence[float]
    original_max_length: int
    magnitude: float = 1.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "original_max_length", "magnitude")
        for name in ("short_factors", "long_factors"):
            if not all(factor > 0 for factor in getattr(self, name)):
                raise ValueError(f"LongRopeRotaryScaling: {name} must be above 0, and are {getattr(self, name)!r}")

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        """The scaled frequencies. Raises ShapeError if there are not as many factors as pairs."""
        return frequencies / self._factors("short_factors", len(frequencies))

    def decay(self, frequencies: np.ndarray) -> np.ndarray:
        long, short = (self._factors(name, len(frequencies)) for name in ("long_factors", "short_factors"))
        return np.log(long / short)

    def growth(self, length: int | mtf.Tensor) -> float | mtf.Tensor:
        if isinstance(length, mtf.Tensor):
            return mtf.to_float(length > self.original_max_length)
        return float(length > self.original_max_length)

    def _factors(self, name: str, pairs: int) -> np.ndarray:
        factors = getattr(self, name)
        if len(factors) != pairs:
            raise ShapeError(f"LongRopeRotaryScaling: {name} has {len(factors)} factors for {pairs} rotated pairs")
        return np.array(factors, np.float64)


def _check_pairs(scaling: object, frequencies: np.ndarray) -> None:
    if len(frequencies) < 2:
        raise ShapeError(
            f"{type(scaling).__name__} needs the ratio of neighbouring pairs' wavelengths, but only one pair is rotated"
            f"; make d_kv, or the part of it that is rotated, larger"
        )
