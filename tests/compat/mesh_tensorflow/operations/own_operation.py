"""An operation class as programs write them, with a function for its `lower`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meshtf.compat.mesh_tensorflow as mtf


class OwnOperation(mtf.Operation):
    """`lower_slices(mesh_impl, *slices)` gives the slices of each output."""

    def __init__(
        self,
        lower_slices: Callable[..., Any],
        inputs: Sequence[mtf.Tensor],
        shapes: Sequence[Any],
        dtype: Any = None,
        mesh: mtf.Mesh | None = None,
    ) -> None:
        super().__init__(inputs, mesh, name="own")
        self._lower_slices = lower_slices
        self._outputs = [mtf.Tensor(self, shape, dtype or inputs[0].dtype) for shape in shapes]

    def gradient(self, grad_ys: Sequence[Any]) -> Any:
        return mtf.GenericGradOperation(self, grad_ys).outputs

    def lower(self, lowering: Any) -> None:
        results = self._lower_slices(lowering.mesh_impl(self), *(lowering.tensors[x] for x in self.inputs))
        for y, slices in zip(self.outputs, results, strict=False):
            lowering.set_tensor_lowering(y, slices)
