"""Transformations that keep gradients within bounds."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_kinds
from meshtf.optimize.norms import global_norm
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter, check_are_real


class GradientTransformation(abc.ABC):
    """Changes all gradients of a step together, before an optimizer sees them.

    Examples:
      >>> import dataclasses
      >>> class Halved(mtf.optimize.GradientTransformation):
      ...     def __call__(self, parameters):
      ...         return [dataclasses.replace(p, grad=0.5 * p.grad) for p in parameters]
      >>> optimizer = mtf.optimize.ClippedOptimizer(mtf.optimize.SgdOptimizer(0.1), [Halved()])
    """

    @abc.abstractmethod
    def __call__(self, parameters: Sequence[Parameter]) -> list[Parameter]:
        """The parameters with their gradients changed."""


@dataclasses.dataclass(frozen=True)
class ClipByValue(GradientTransformation):
    """Clips every element of a gradient to [-limit, limit].

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> clip = mtf.optimize.ClipByValue(limit=0.5)
      >>> mtf.optimize.ClippedOptimizer(mtf.optimize.SgdOptimizer(0.1), [clip]).minimize(loss)
      [assign [hidden:8] float32]
    """

    limit: float

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "limit")

    def __call__(self, parameters: Sequence[Parameter]) -> list[Parameter]:
        check_are_real(self, parameters)
        limit = float(self.limit)
        return [dataclasses.replace(p, grad=mtf.clip_by_value(p.grad, -limit, limit)) for p in parameters]


@dataclasses.dataclass(frozen=True)
class ClipByGlobalNorm(GradientTransformation):
    """Scales all gradients by one factor, so that their global norm is at most `max_norm` (Pascanu et al. 2013).

    The norm before clipping is a summary, `clip_by_global_norm/gradient_norm`, which you can also fetch. It is right
    for gradients of any size, even if float32 cannot hold their squares. All gradients become NaN if the norm is NaN,
    infinite, or more than 2^126 times `max_norm`.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> clip = mtf.optimize.ClipByGlobalNorm(max_norm=1.0)
      >>> _ = mtf.optimize.ClippedOptimizer(mtf.optimize.AdamOptimizer(1e-3), [clip]).minimize(loss)
      >>> list(mesh.graph.exports)
      ['clip_by_global_norm/gradient_norm', 'adam/learning_rate']
    """

    max_norm: float

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "max_norm")

    def __call__(self, parameters: Sequence[Parameter]) -> list[Parameter]:
        check_are_real(self, parameters)
        norm = global_norm([p.grad for p in parameters])
        with norm.graph.root_scope(), mtf.variable_scope(default_name="clip_by_global_norm"):
            mtf.scalar_summary("gradient_norm", mtf.export(norm, "gradient_norm"))
        scale = float(self.max_norm) / mtf.maximum(norm, float(self.max_norm))
        # A scale of 0 would hide gradients that are infinite, or too large to be scaled.
        scale = mtf.where(mtf.less(scale, float(np.finfo(norm.dtype.as_numpy_dtype).tiny)), math.nan, scale)
        return [dataclasses.replace(p, grad=p.grad * p.scalar(scale)) for p in parameters]


@dataclasses.dataclass(frozen=True)
class ClippedOptimizer(Optimizer):
    """Transforms gradients, such as by clipping them, and passes them to another optimizer.

    Attributes:
      optimizer: applies the gradients.
      clips: the transformations, applied in this order.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> sgd = mtf.optimize.SgdOptimizer(0.1)
      >>> mtf.optimize.ClippedOptimizer(sgd, [mtf.optimize.ClipByGlobalNorm(1.0)]).minimize(loss)
      [assign [hidden:8] float32]
    """

    optimizer: Optimizer
    clips: Sequence[GradientTransformation]

    def __post_init__(self) -> None:
        if isinstance(self.clips, GradientTransformation):
            object.__setattr__(self, "clips", (self.clips,))
        check_kinds(self)
        object.__setattr__(self, "clips", tuple(self.clips))

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        changed = list(parameters)
        for clip in self.clips:
            changed = clip(changed)
        return self.optimizer.update(changed)
