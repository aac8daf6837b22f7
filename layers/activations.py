"""Activation functions, by name or given as functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias

import gin

import meshtf as mtf
from meshtf.errors import GraphError, nearest_public
from meshtf.field_checks import check_above_zero, check_kinds

ActivationFunction: TypeAlias = "Callable[[mtf.Tensor], mtf.Tensor]"
Activation: TypeAlias = "ActivationFunction | str | None"
"""A function of a tensor, the name of one in `activation_names`, or None.

None is also called "linear", and does nothing.
"""

_OF_THE_LANGUAGE = (
    "celu",
    "elu",
    "exp",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "sin",
    "soft_sign",
    "softplus",
    "square",
    "squared_relu",
    "swish",
    "tanh",
)


def activation_function(activation: Activation) -> ActivationFunction:
    """The activation function that a name or a function stands for.

    "gelu" is the tanh approximation, and "gelu_exact" the function itself. "squared_relu" is relu(x)^2 (So et al.
    2021). "linear" is x.

    Raises:
      GraphError: no activation has this name.

    Examples:
      >>> mtf.layers.activation_function("relu") is mtf.relu
      True
    """
    if callable(activation):
        return activation
    known = _by_name()
    name = "linear" if activation is None else activation
    if not isinstance(name, str) or name not in known:
        hint = nearest_public(str(name), known)
        raise GraphError(f"activation {name!r} is not a function{hint}; there are {', '.join(known)}")
    return known[name]


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class ClampedSwish:
    """x · sigmoid(alpha · x), with x clipped to at most `limit`: the gate of gpt-oss's experts.

    Examples:
      >>> value(mtf.layers.ClampedSwish(limit=1.0)(mtf.constant(mesh, [0.0, 5.0], "n:2"))).round(3)
      array([0.   , 0.846], dtype=float32)
    """

    alpha: float = 1.702
    limit: float = 7.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "limit")

    def __call__(self, x: mtf.Tensor) -> mtf.Tensor:
        x = mtf.minimum(x, self.limit)
        return x * mtf.sigmoid(x * self.alpha)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class ClampedLinear:
    """x + offset, with x clipped to [-limit, limit]: the factor that gpt-oss's experts multiply with their gate.

    Examples:
      >>> value(mtf.layers.ClampedLinear(limit=2.0)(mtf.constant(mesh, [0.5, -5.0], "n:2")))
      array([ 1.5, -1. ], dtype=float32)
    """

    limit: float = 7.0
    offset: float = 1.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "limit")

    def __call__(self, x: mtf.Tensor) -> mtf.Tensor:
        return mtf.maximum(mtf.minimum(x, self.limit), -self.limit) + self.offset


def activation_names() -> list[str]:
    """The names of all activations, in order.

    Examples:
      >>> "gelu" in mtf.layers.activation_names()
      True
    """
    return list(_by_name())


def _by_name() -> dict[str, ActivationFunction]:
    found: dict[str, ActivationFunction] = {name: getattr(mtf, name) for name in _OF_THE_LANGUAGE}
    found |= {
        "gelu_exact": functools.partial(mtf.gelu, approximate=False),
        "linear": _linear,
    }
    return dict(sorted(found.items()))


def _linear(x: mtf.Tensor) -> mtf.Tensor:
    return x
