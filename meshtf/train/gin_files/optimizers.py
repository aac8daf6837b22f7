"""Registers the optimizers, schedules and clips of `meshtf.optimize`, and the policies of `meshtf.quantization`, with
gin, since these packages do not depend on it.
"""

from __future__ import annotations

import inspect

import gin

from meshtf import optimize
from meshtf.quantization import Quantization, QuantizationAware


def _configurables() -> list[type]:
    """Returns every public class that a configuration can make."""
    public = (getattr(optimize, name) for name in optimize.__all__)
    kinds = (optimize.Optimizer, optimize.Schedule, optimize.GradientTransformation)
    return [x for x in public if inspect.isclass(x) and issubclass(x, kinds) and not inspect.isabstract(x)]


for _class in _configurables():
    gin.external_configurable(_class, module="meshtf.optimize")
gin.external_configurable(Quantization, module="meshtf.quantization")
gin.external_configurable(QuantizationAware, module="meshtf.quantization")
