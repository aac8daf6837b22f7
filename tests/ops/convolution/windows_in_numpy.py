"""Convolutions, pooling and their gradients in NumPy and float64, one element of all windows after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from meshtf.ops.convolution._sliding import Sliding


def windows(x: np.ndarray, taps: tuple[int, ...], sliding: Sliding) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Of a padded image [b, *spatial, ..] each tap, and of every window the element there: a view [b, *windows, ..]."""
    counts = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(x.shape[1:], taps, sliding.strides, sliding.dilations, strict=False)
    ]
    for tap in itertools.product(*map(range, taps)):
        steps = zip(tap, counts, sliding.strides, sliding.dilations, strict=True)
        yield tap, x[(slice(None), *(slice(k * d, k * d + (m - 1) * s + 1, s) for k, m, s, d in steps))]


def padded(x: np.ndarray, sliding: Sliding, value: float = 0.0) -> np.ndarray:
    around = [(0, 0), *sliding.paddings, *((0, 0),) * (x.ndim - 1 - len(sliding.paddings))]
    return np.pad(x, around, constant_values=value)


def cut(x: np.ndarray, sliding: Sliding) -> np.ndarray:
    """Without the padding."""
    inside = (slice(before, n - after) for (before, after), n in zip(sliding.paddings, x.shape[1:], strict=False))
    return x[(slice(None), *inside)]


def convolved(x: np.ndarray, w: np.ndarray, sliding: Sliding) -> np.ndarray:
    """Images [b, *spatial, g, i] by kernels [*taps, g, i, o]: [b, *windows, g, o]."""
    taps = w.shape[: len(sliding.strides)]
    return sum(np.einsum("...gi,gio->...go", own, w[tap]) for tap, own in windows(padded(x, sliding), taps, sliding))


def convolution_gradients(
    x: np.ndarray, w: np.ndarray, dy: np.ndarray, sliding: Sliding
) -> tuple[np.ndarray, np.ndarray]:
    """Of sum(convolved(x, w) * dy), by x and by w."""
    dx, dw, wide = np.zeros_like(padded(x, sliding)), np.zeros_like(w), padded(x, sliding)
    taps = w.shape[: len(sliding.strides)]
    for tap, own in windows(dx, taps, sliding):
        own += np.einsum("...go,gio->...gi", dy, w[tap])
    rows = dy.reshape(-1, *dy.shape[-2:])
    for tap, own in windows(wide, taps, sliding):
        dw[tap] = np.einsum("ngi,ngo->gio", own.reshape(-1, *own.shape[-2:]), rows)
    return cut(dx, sliding), dw


def pooled(x: np.ndarray, taps: tuple[int, ...], sliding: Sliding, kind: str) -> np.ndarray:
    """The largest element, or the mean of the elements inside, of each window of [b, *spatial, c]."""
    if kind == "max":
        return np.max([own for _, own in windows(padded(x, sliding, -np.inf), taps, sliding)], 0)
    return _window_sums(x, taps, sliding) / _window_sums(np.ones_like(x), taps, sliding)


def pooling_gradient(x: np.ndarray, dy: np.ndarray, taps: tuple[int, ...], sliding: Sliding, kind: str) -> np.ndarray:
    """Of sum(pooled(x) * dy) by x; of equal largest elements the first of the window has it."""
    dx, wide, best = np.zeros_like(padded(x, sliding)), padded(x, sliding, -np.inf), pooled(x, taps, sliding, kind)
    left = np.ones(dy.shape, bool)
    share = dy if kind == "max" else dy / _window_sums(np.ones_like(x), taps, sliding)
    for (_, own), (_, element) in zip(windows(dx, taps, sliding), windows(wide, taps, sliding), strict=True):
        chosen = left & (element == best) if kind == "max" else left
        own += np.where(chosen, share, 0.0)
        left = left & ~chosen if kind == "max" else left
    return cut(dx, sliding)


def _window_sums(x: np.ndarray, taps: tuple[int, ...], sliding: Sliding) -> np.ndarray:
    return sum(own for _, own in windows(padded(x, sliding), taps, sliding))
