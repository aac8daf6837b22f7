"""Positions as rotations of queries and keys (rotary embeddings), and as vectors to add to embeddings.

A rotary embedding turns pairs of elements by an angle that grows with position. For d_kv 4 and base 10000, the pair of
elements (0, 2) turns by 1 radian per position, and the pair (1, 3) by 0.01:

    x'[0] = x[0] cos(p) - x[2] sin(p)           x'[1] = x[1] cos(p / 100) - x[3] sin(p / 100)
    x'[2] = x[2] cos(p) + x[0] sin(p)           x'[3] = x[3] cos(p / 100) + x[1] sin(p / 100)

If q is turned for position m and k for position n, their product depends on m - n alone. So scores depend on distances,
without a table of positions.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, GraphError, ShapeError, counted
from meshtf.layers._operands import DimensionLike, new_dimension
from meshtf.layers.attention.position_encodings.rotary_scaling import RotaryScaling, ScalingByLength
from meshtf.layers.attention.tokens import D_KV, LENGTH, MEMORY_LENGTH
from meshtf.number_checks import is_integer, is_number


@language_function
def rotary_embedding(
    x: mtf.Tensor,
    positions: mtf.Tensor,
    base: float = 10000.0,
    fraction: float = 1.0,
    *,
    scaling: RotaryScaling | None = None,
    is_interleaved: bool = False,
    lengths: mtf.Tensor | None = None,
) -> mtf.Tensor:
    """Queries or keys, rotated by angles that grow with position (Su et al. 2021).

    Element i of the rotated part is paired with element i + half of it, as in Llama. With `is_interleaved`, 2i is
    paired with 2i + 1, as in GPT-J. A pair turns by position · base^(-i / half). Angles are float32.

    Args:
      x: [.., d_kv], floating: q or k, before it goes into a cache.
      positions: integers, over dimensions of x: those of q over `length`, those of k over `memory_length`.
      base: the base of the geometric series of wavelengths.
      fraction: the share of `d_kv` that is rotated, from its first element on.
      scaling: changes base^(-i / half), for sequences longer than those of an earlier training. A scaling by length
        receives `lengths`. Without them it receives the size of `length` or `memory_length`. If positions have neither,
        as in a step of decoding, it receives the position plus 1.
      is_interleaved: whether neighbours are paired.
      lengths: integers, over dimensions of x: the length of each sequence, if some are shorter than `length`.

    Raises:
      ShapeError: x has no `d_kv`, or the part of it that is rotated is odd; positions have dimensions that x lacks.
      GraphError: `fraction` is not in (0, 1].

    Examples:
      >>> q = mtf.ones(mesh, "batch:4 length:16 heads:2 d_kv:4")
      >>> mtf.layers.rotary_embedding(q, mtf.range(mesh, ("length", 16))).shape
      Shape[batch:4 length:16 heads:2 d_kv:4]
    """
    d_kv = x.shape[D_KV]
    _check_above_zero("base", base)
    _check_positions(positions, x.shape)
    half = _rotated_size(d_kv, fraction) // 2
    places = np.arange(d_kv.size)
    is_rotated = places < 2 * half
    pair = np.where(is_rotated, places // 2 if is_interleaved else places % half, 0)
    is_first = places % 2 == 0 if is_interleaved else places < half
    series = float(base) ** (-np.arange(half) / half)
    frequencies = _frequencies(positions, lengths, series, scaling, (pair, is_rotated, d_kv))
    angles = mtf.to_float(positions) * frequencies
    signs = mtf.constant(x.mesh, np.where(is_first, -1.0, 1.0), [d_kv])
    wide = mtf.to_float(x)
    partners = _neighbours(wide, d_kv) if is_interleaved else _partners(wide, d_kv, half)
    turned = wide * mtf.cos(angles) + partners * (mtf.sin(angles) * signs)
    magnitude = getattr(scaling, "magnitude", 1.0)
    if magnitude != 1.0:
        turned *= mtf.constant(x.mesh, np.where(is_rotated, magnitude, 1.0), [d_kv])
    return turned.transpose(x.shape).astype(x.dtype)


def _frequencies(
    positions: mtf.Tensor,
    lengths: mtf.Tensor | None,
    series: np.ndarray,
    scaling: RotaryScaling | None,
    places: tuple[np.ndarray, np.ndarray, mtf.Dimension],
) -> mtf.Tensor:
    """The angles by which each place turns per position: float32 over `d_kv` and the dimensions of the lengths.

    `places` has the pair of each place, whether the place is rotated, and the dimension of places.
    """
    pair, is_rotated, d_kv = places
    scaled = series if scaling is None else scaling(series)
    frequencies = np.where(is_rotated, scaled[pair], 0.0)
    if not isinstance(scaling, ScalingByLength):
        return mtf.constant(positions.mesh, frequencies, [d_kv])
    decay, growth = scaling.decay(series)[pair], scaling.growth(_length(positions, lengths))
    if not isinstance(growth, mtf.Tensor):
        return mtf.constant(positions.mesh, frequencies * np.exp(-growth * decay), [d_kv])
    shrunk = mtf.exp(growth * mtf.constant(positions.mesh, -decay, [d_kv]))
    return mtf.constant(positions.mesh, frequencies, [d_kv]) * shrunk


def _length(positions: mtf.Tensor, lengths: mtf.Tensor | None) -> int | mtf.Tensor:
    """The lengths of the sequences that have these positions."""
    if lengths is not None:
        return mtf.to_float(lengths)
    sizes = [dim.size for dim in positions.shape if dim.name in (LENGTH, MEMORY_LENGTH)]
    return sizes[0] if sizes else mtf.to_float(positions) + 1.0


def _partners(x: mtf.Tensor, d_kv: mtf.Dimension, half: int) -> mtf.Tensor:
    """The partner of each element of the first 2 · half."""
    if d_kv.size == 2 * half:
        return mtf.roll(x, half, d_kv)
    is_first = mtf.range(x.mesh, d_kv) < half
    return mtf.where(is_first, mtf.shift(x, -half, d_kv, False), mtf.shift(x, half, d_kv, False), output_shape=x.shape)


def _neighbours(x: mtf.Tensor, d_kv: mtf.Dimension) -> mtf.Tensor:
    """The neighbour of each element: the next one at an even place, and the one before at an odd place."""
    is_even = mtf.equal(mtf.range(x.mesh, d_kv) % 2, 0)
    return mtf.where(is_even, mtf.shift(x, -1, d_kv, False), mtf.shift(x, 1, d_kv, False), output_shape=x.shape)


def _check_above_zero(what: str, number: object) -> None:
    if not is_number(number) or number <= 0:
        raise GraphError(f"{what} must be a number above 0, and is {number!r}")


def _rotated_size(d_kv: mtf.Dimension, fraction: float) -> int:
    if not 0.0 < fraction <= 1.0:
        raise GraphError(f"fraction, the part of {d_kv} that is rotated, must be in (0, 1], and is {fraction}")
    size = round(d_kv.size * fraction)
    if size % 2 or not size:
        raise ShapeError(f"elements are rotated in pairs, but {size} of {d_kv} would be; change d_kv or fraction")
    return size


def _check_positions(positions: mtf.Tensor, shape: mtf.Shape) -> None:
    if not positions.dtype.is_integer:
        raise DtypeError(f"positions [{positions.shape}] must be integers, not {positions.dtype.name}")
    for dim in positions.shape:
        shape.axis(dim)


@language_function
def sinusoidal_positions(
    positions: mtf.Tensor, d_model: DimensionLike, max_wavelength: float = 10000.0, *, is_interleaved: bool = True
) -> mtf.Tensor:
    """Sines (even elements) and cosines (odd ones) of positions (Vaswani et al. 2017).

    Args:
      positions: integers, any shape, such as [batch, length].
      d_model: the new dimension.
      max_wavelength: the limit of wavelengths, divided by 2 pi.
      is_interleaved: whether sines and cosines alternate; if not, all sines come first, then all cosines (Marian).

    Returns:
      [.., d_model], float32.

    Examples:
      >>> positions = mtf.layers.sinusoidal_positions(mtf.range(mesh, ("length", 2)), "d_model:2")
      >>> value(positions).round(3)
      array([[0.   , 1.   ],
             [0.841, 0.54 ]], dtype=float32)
    """
    _check_above_zero("max_wavelength", max_wavelength)
    _check_positions(positions, positions.shape)
    d_model = new_dimension(d_model)
    places = np.arange(d_model.size)
    if not is_interleaved:
        places = np.concatenate([places[::2], places[1::2]])
    frequencies = float(max_wavelength) ** (-2.0 * (places // 2) / d_model.size)
    angles = mtf.to_float(positions) * mtf.constant(positions.mesh, frequencies, [d_model])
    is_even = mtf.constant(positions.mesh, places % 2 == 0, [d_model], tf.bool)
    return mtf.where(is_even, mtf.sin(angles), mtf.cos(angles), output_shape=angles.shape)


@language_function
def learned_positions(
    positions: mtf.Tensor,
    max_length: int,
    d_model: DimensionLike,
    *,
    stddev: float = 0.02,
    offset: int = 0,
    name: str = "positions",
) -> mtf.Tensor:
    """Rows of a variable [max_length + offset, d_model] named `name` under the open scope, normal at first.

    Args:
      positions: integers, any shape. With several dimensions they are checked: a step with one outside of
        [0, max_length) raises IndexRangeError, see `mtf.check_indices`.
      max_length: the number of positions.
      d_model: the new dimension.
      stddev: the standard deviation of the initial values.
      offset: the number of rows before that of position 0 (2 in RoBERTa, BART and OPT).
      name: the name of the variable.

    Returns:
      [.., d_model], in the activation type of variables.

    Raises:
      ShapeError: `positions` has a `length` above `max_length`.
      GraphError: `offset` is no integer, 0 or more.

    Examples:
      >>> places = mtf.range(mesh, "length:16")
      >>> mtf.layers.learned_positions(places, max_length=64, d_model="d_model:8").shape
      Shape[length:16 d_model:8]
    """
    _check_positions(positions, positions.shape)
    if not is_integer(offset, 0):
        raise GraphError(f"offset must be an integer, 0 or more, and is {offset!r}")
    if positions.shape.has(LENGTH) and (length := positions.shape[LENGTH]).size > max_length:
        verb = "is" if max_length == 1 else "are"
        room = counted(max_length, "learned position")
        raise ShapeError(f"there {verb} {room}, fewer than {length}; make max_length larger")
    if positions.shape.ndims > 1:
        mtf.check_indices(positions, max_length, message="a position", advice="make max_length larger")
    known = mtf.Dimension("positions", max_length + offset)
    table = mtf.get_variable(positions.mesh, name, [known, d_model], initializer=mtf.RandomNormal(stddev=stddev))
    return mtf.gather(table, positions + offset if offset else positions, known)
